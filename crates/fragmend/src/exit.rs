//! The exit code: a bit mask, so that a script can distinguish "could be better" from "failed".

use std::fmt;
use std::ops::BitOr;
use std::process::ExitCode;

/// The table that `--help` and the man pages end with.
pub const HELP: &str = "\
Exit status (bits add up):
   0  done
   1  an integrity problem was found
   2  something could be improved, nothing is wrong: apply and auto left it as it is,
      scan and plan say so with --check alone, lab has a figure out of its band
   4  an operation failed
   8  wrong usage
  16  incomplete: interrupted, accesses were lost, or a budget was spent (plan says so with
      --check alone: a budget that is kept to be what was asked for)
The first SIGINT (Ctrl-C), SIGTERM or SIGHUP ends record, apply and auto at the next safe point;
another one, half a second later or more, ends the process at once, as the signal does. lab serve
ends with 0 by any of them, but not while its device is in use.";

/// One or more of the documented bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit(u8);

impl Exit {
    /// All done.
    pub const DONE: Self = Self(0);
    /// An integrity problem was found.
    pub const INTEGRITY: Self = Self(1);
    /// Nothing is wrong, something could be better.
    pub const IMPROVABLE: Self = Self(2);
    /// An operation failed.
    pub const FAILED: Self = Self(4);
    /// The command line was wrong.
    pub const USAGE: Self = Self(8);
    /// Interrupted, accesses lost, or out of budget.
    pub const INCOMPLETE: Self = Self(16);

    /// This bit if `condition` holds, nothing otherwise.
    pub fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::DONE }
    }
}

impl BitOr for Exit {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// An error in how the command was called: exits with [`Exit::USAGE`].
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
