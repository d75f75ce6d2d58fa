//! A drive and the host's way to it, as a TOML file says.

use fragmend_flash::drive::Drive;
use fragmend_flash::geometry::Inconsistent;
use fragmend_flash::host::{Device, HostPath};
use fragmend_flash::inplace::{InPlace, InPlaceDrive};
use fragmend_flash::ssd::Ssd;
use fragmend_flash::zones::Zoned;
use serde::{Deserialize, Serialize};

/// A drive and the way to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// What it is, in a line.
    pub about: String,
    /// A flash drive.
    pub flash: Option<Drive>,
    /// That it has zones, and how many of them may be open.
    pub open_zones: Option<u32>,
    /// Or a drive that writes where it reads.
    pub in_place: Option<InPlaceDrive>,
    /// The host's way to it.
    pub host: HostPath,
}

/// What is wrong with a drive's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}")]
pub struct BadSetup {
    /// Which.
    pub file: String,
    /// In which line, from 1.
    pub line: usize,
    /// What.
    pub why: String,
}

impl Setup {
    /// Reads a file's text; `file` is its name, for errors.
    ///
    /// # Errors
    /// The first thing that is wrong, and in which line.
    pub fn parse(text: &str, file: &str) -> Result<Self, BadSetup> {
        let line_at = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let bad = |line, why: String| BadSetup { file: file.to_owned(), line, why };
        let setup: Self = toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |span| line_at(span.start));
            bad(line, e.message().to_owned())
        })?;
        if setup.flash.is_some() == setup.in_place.is_some() {
            return Err(bad(1, "describe either [flash] or [in_place]".into()));
        }
        if let Some(drive) = &setup.flash {
            drive.shape().map_err(|Inconsistent { field, why }| {
                let at = text.lines().position(|line| {
                    line.split('=').next().is_some_and(|name| name.trim() == field)
                });
                bad(at.map_or(1, |at| at + 1), format!("{field}: {why}"))
            })?;
        }
        Ok(setup)
    }

    /// A new drive of this kind.
    ///
    /// # Panics
    /// When it was not parsed, and does not fit together.
    pub fn device(&self) -> Box<dyn Device> {
        match (&self.flash, self.open_zones, &self.in_place) {
            (Some(drive), None, _) => Box::new(Ssd::new(drive).expect("a parsed drive")),
            (Some(drive), Some(open), _) => {
                Box::new(Zoned::new(drive, open, false).expect("a parsed drive"))
            }
            (None, _, Some(drive)) => Box::new(InPlace::new(drive)),
            (None, _, None) => unreachable!("one of them is there"),
        }
    }

    /// A new flash drive of this kind.
    ///
    /// # Panics
    /// When it is none, or was not parsed.
    pub fn ssd(&self) -> Ssd {
        Ssd::new(self.flash.as_ref().expect("a flash drive")).expect("a parsed drive")
    }
}
