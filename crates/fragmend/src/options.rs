//! Options that several verbs have.

mod choice;
mod pace;

pub use choice::Choice;
pub use pace::Pace;

use crate::exit::Exit;
use std::time::Duration;

/// The option for shared data.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Sharing {
    /// Also move what is shared with snapshots or other files, which needs space for a copy
    #[arg(long)]
    pub unshare: bool,
}

/// The option that puts the result into the exit status, for the verbs that change nothing.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Check {
    /// Put the result into the exit status: it contains 2 if something could be improved
    #[arg(long)]
    pub check: bool,
}

impl Check {
    /// The bit for the result, if the option was given.
    pub fn exit(self, improvable: bool) -> Exit {
        Exit::IMPROVABLE.when(self.check && improvable)
    }
}

/// A longer duration is a typing error, and near the limits of clocks.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Parses a duration, for clap.
pub fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(d) if d.is_zero() => Err("a recording of no length sees nothing".to_owned()),
        Ok(d) if d > LONGEST => Err("longer than ten years, give less".to_owned()),
        Ok(d) => Ok(d),
        Err(e) => Err(format!("{e}; say for example 90s, 5m or 1h 30m")),
    }
}
