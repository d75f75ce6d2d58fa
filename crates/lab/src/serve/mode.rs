//! What virtual time has to do with real time.

use schemars::JsonSchema;
use serde::Serialize;

/// How long requests really last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// As short as possible; the virtual time is added up. It stands still while nothing is in flight, so the
    /// host's own time costs nothing.
    Accounting,
    /// The virtual time times this factor; the virtual time goes as real time does.
    Paced(f64),
}

/// The name of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ModeName {
    /// Virtual time is added up.
    Accounting,
    /// Requests really last that long.
    Paced,
}

impl Mode {
    /// How often real time has the length of virtual time, if that is given.
    pub fn factor(self) -> Option<f64> {
        if let Self::Paced(factor) = self { Some(factor) } else { None }
    }

    /// Its name.
    pub fn name(self) -> ModeName {
        match self {
            Self::Accounting => ModeName::Accounting,
            Self::Paced(_) => ModeName::Paced,
        }
    }
}
