//! Options that several verbs have.

mod choice;
mod pace;

pub use choice::Choice;
pub use pace::Pace;

use crate::exit::Exit;
use std::time::Duration;

/// The option about what is shared with others, which several verbs have.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Sharing {
    /// Also move what is shared with snapshots or other files, which takes the space anew
    #[arg(long)]
    pub unshare: bool,
}

/// The option that makes the exit status an answer, for the verbs that only look.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Check {
    /// Answer by the exit status: 2 is in it if something could be improved
    #[arg(long)]
    pub check: bool,
}

impl Check {
    /// The bit that answers, if it was asked for.
    pub fn exit(self, improvable: bool) -> Exit {
        Exit::IMPROVABLE.when(self.check && improvable)
    }
}

/// Longer is a slip of the keyboard, and near the limits of clocks.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Parses a length of time, for clap.
pub fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(d) if d.is_zero() => Err("a recording of no length sees nothing".to_owned()),
        Ok(d) if d > LONGEST => Err("longer than ten years, give less".to_owned()),
        Ok(d) => Ok(d),
        Err(e) => Err(format!("{e}; say for example 90s, 5m or 1h 30m")),
    }
}
