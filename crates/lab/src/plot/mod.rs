//! Pictures of experiments.

#[cfg(feature = "experiments")]
mod draw;

#[cfg(feature = "experiments")]
pub use draw::NotDrawn;

/// What a picture shows.
#[derive(Clone, Debug)]
pub enum Plot {
    /// Lines over a logarithmic axis of powers of two, or a linear one.
    Lines {
        /// Name of the file, without its ending.
        name: String,
        /// Above it.
        title: String,
        /// Below and beside it.
        axes: [String; 2],
        /// Whether the lower axis is logarithmic.
        logarithmic: bool,
        /// Names and points.
        lines: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// Groups of bars.
    Bars {
        /// Name of the file, without its ending.
        name: String,
        /// Above it.
        title: String,
        /// Beside it.
        axis: String,
        /// What the bars of a group are.
        series: Vec<String>,
        /// Names of the groups and heights of their bars.
        groups: Vec<(String, Vec<f64>)>,
    },
    /// Points with names, and a line through some of them.
    Points {
        /// Name of the file, without its ending.
        name: String,
        /// Above it.
        title: String,
        /// Below and beside it.
        axes: [String; 2],
        /// Names and places.
        points: Vec<(String, (f64, f64))>,
        /// Where the line goes.
        front: Vec<(f64, f64)>,
    },
}

impl Plot {
    /// Name of its file, without its ending.
    pub fn name(&self) -> &str {
        match self {
            Self::Lines { name, .. } | Self::Bars { name, .. } | Self::Points { name, .. } => name,
        }
    }

    /// Whether there is anything in it.
    pub fn is_of_something(&self) -> bool {
        match self {
            Self::Lines { lines, .. } => !lines.is_empty(),
            Self::Bars { groups, .. } => !groups.is_empty(),
            Self::Points { points, .. } => !points.is_empty(),
        }
    }
}
