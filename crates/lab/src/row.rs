//! A figure of an experiment: the paper's, ours, and how far they may differ.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// How far our figure may differ from the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Band {
    /// By this many of the figure's unit, up or down.
    Points(f64),
    /// By this many per cent of the paper's figure, up or down.
    Percent(f64),
    /// No less than the paper's figure.
    AtLeast,
    /// No more than the paper's figure.
    AtMost,
    /// The same figure.
    Exact,
    /// The same sign.
    Sign,
    /// The paper has no such figure; ours is for information.
    None,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The paper's figure.
    pub paper: Option<f64>,
    /// Ours.
    #[serde(deserialize_with = "or_none")]
    pub ours: f64,
    /// How far they may differ.
    pub band: Band,
    /// Whether they differ no further.
    pub within: bool,
    /// Whether a constant of the drive, the host or the program was chosen by this figure of the paper's: ours only confirms that choice.
    pub fitted: bool,
    /// Why they differ further, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A figure of which JSON has `null`, as it is no number.
fn or_none<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Row {
    /// A figure beside the paper's.
    pub fn new(
        name: impl Into<String>,
        unit: impl Into<String>,
        paper: f64,
        ours: f64,
        band: Band,
    ) -> Self {
        let within = match band {
            Band::Points(points) => (ours - paper).abs() <= points,
            Band::Percent(percent) => (ours - paper).abs() <= paper.abs() * percent / 100.0,
            Band::AtLeast => ours >= paper,
            Band::AtMost => ours <= paper,
            Band::Exact => ours == paper,
            // Nothing has no sign.
            Band::Sign => (ours > 0.0, ours < 0.0) == (paper > 0.0, paper < 0.0),
            Band::None => true,
        };
        let paper = Some(paper).filter(|_| band != Band::None);
        let (name, unit) = (name.into(), unit.into());
        Self { name, unit, paper, ours, band, within, fitted: false, reason: None }
    }

    /// Says that a constant was chosen by the paper's figure; its file names it.
    #[must_use]
    pub fn fitted(self) -> Self {
        Self { fitted: true, ..self }
    }

    /// Adds the reason why the figure is out of its band, if it is.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into()).filter(|reason| !self.within && !reason.is_empty());
        self
    }

    /// A figure that the paper does not have.
    pub fn ours(name: impl Into<String>, unit: impl Into<String>, ours: f64) -> Self {
        Self::new(name, unit, 0.0, ours, Band::None)
    }
}

/// By how many per cent a figure changes.
pub fn change(from: f64, to: f64) -> f64 {
    (to / from - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_decides_whether_a_figure_is_within() {
        let within = |paper, ours, band| Row::new("", "", paper, ours, band).within;
        assert!(within(19.0, 22.9, Band::Points(4.0)) && !within(19.0, 23.1, Band::Points(4.0)));
        assert!(within(-79.0, -76.0, Band::Points(4.0)));
        assert!(
            within(100.0, 119.0, Band::Percent(20.0)) && !within(100.0, 79.0, Band::Percent(20.0))
        );
        assert!(within(100.0, 100.0, Band::AtLeast) && !within(100.0, 99.0, Band::AtLeast));
        assert!(within(-0.5, -0.01, Band::Sign) && !within(-0.5, 0.01, Band::Sign));
        assert!(!within(0.5, 0.0, Band::Sign) && !within(0.5, f64::NAN, Band::Sign));
        assert_eq!(Row::ours("", "", 3.0).paper, None);
        let row = |ours| Row::new("", "", 1.0, ours, Band::Exact).because("it is so");
        assert_eq!((row(1.0).reason, row(2.0).reason), (None, Some("it is so".to_owned())));
    }
}
