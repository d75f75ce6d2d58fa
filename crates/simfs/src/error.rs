//! Why something could not be done with a simulated file system.

use fragmend_flash::command::Refused;
use fragmend_layout::{Skip, SkipReason};
use std::path::PathBuf;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No file has this path.
    #[error("{0}: there is no such file")]
    NotFound(PathBuf),
    /// A file has this path already.
    #[error("{0}: there is such a file")]
    Exists(PathBuf),
    /// The file is gone.
    #[error("the file is gone")]
    Gone,
    /// Another file has its inode number.
    #[error("its inode belongs to another file")]
    Reused,
    /// The file system is full.
    #[error("no space is left")]
    NoSpace,
    /// The file system cannot do that.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The drive has refused a command.
    #[error("the drive has refused: {0}")]
    Drive(Refused),
    /// What is on the drive is not a file system of this kind.
    #[error("it cannot be mounted: {0}")]
    Damaged(String),
}

impl Error {
    /// Whether the power is cut.
    pub fn is_power_cut(&self) -> bool {
        *self == Self::Drive(Refused::NoPower)
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Self::Drive(refused)
    }
}

impl From<Error> for Skip {
    fn from(error: Error) -> Self {
        let reason = match error {
            Error::NotFound(_) | Error::Gone => SkipReason::Vanished,
            Error::Reused => SkipReason::IdentityChanged,
            Error::NoSpace | Error::Drive(Refused::NoSpace) => SkipReason::NoSpace,
            Error::Unsupported(_) | Error::Drive(Refused::Unsupported) => SkipReason::Unsupported,
            Error::Exists(_) | Error::Drive(_) | Error::Damaged(_) => SkipReason::Failed,
        };
        Self::new(reason, error.to_string())
    }
}
