//! How data is moved: the options of the mover.

use super::Sharing;
use crate::exit::Usage;
use fragmend_apply::{Options, Rate};
use fragmend_engines::Choice;
use fragmend_engines::begin::Wanted;
use fragmend_report::size;
use std::path::PathBuf;

/// The options that decide how data is moved.
#[derive(Clone, Debug, clap::Args)]
pub struct Pace {
    /// Bytes per second, for example 20M; `max`; or `auto`, which yields while others read
    #[arg(long, value_name = "RATE", default_value = "auto", value_parser = rate)]
    rate: Rate,
    /// Leave at least this many bytes free [default: a twentieth of the file system]
    #[arg(long, value_name = "BYTES", value_parser = size::bytes)]
    free_floor: Option<u64>,
    /// What moves the data
    #[arg(long, value_enum, default_value_t = EngineArg::Native)]
    engine: EngineArg,
    /// Keep the records of a rewrite in this directory, not at the top of the file system: on ext4,
    /// XFS, Btrfs or F2FS with write barriers, and where others cannot rename them. It must be given where
    /// only a directory of the file system is mounted, as in a container
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Also move where a power cut may do harm: nothing orders data before the journal (no journal,
    /// data=writeback), the journal cannot replay the move (long files on XFS without reflink), or
    /// other programs have the file open for writing (F2FS)
    #[arg(long)]
    force: bool,
}

/// Values of `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EngineArg {
    /// The file system's own primitive, safe beside programs that use the files
    Native,
    /// Copy, punch, allocate, write again: for file systems without such a primitive, and for files
    /// that no program has open; keeps a durable copy until all is done, from which
    /// `fragmend recover` continues after a crash. Never on file systems that take snapshots
    /// (Btrfs, bcachefs, nilfs2, ZFS), not even with --force
    Rewrite,
}

impl Pace {
    /// Which engine.
    ///
    /// # Errors
    /// An option belongs to another engine.
    pub fn engine(&self) -> Result<Choice, Usage> {
        match (self.engine, self.journal.clone()) {
            (EngineArg::Rewrite, journal) => Ok(Choice::Rewrite { journal }),
            (EngineArg::Native, None) => Ok(Choice::Native),
            (EngineArg::Native, Some(_)) => {
                Err(Usage("--journal goes with --engine rewrite".into()))
            }
        }
    }

    /// On which volumes.
    ///
    /// # Errors
    /// As [`Self::engine`].
    pub fn wanted(&self) -> Result<Wanted, Usage> {
        Ok(Wanted { engine: self.engine()?, force: self.force })
    }

    /// How fast, and how much.
    pub fn options(&self, sharing: Sharing, dry_run: bool) -> Options {
        Options {
            rate: self.rate,
            free_floor_bytes: self.free_floor,
            unshare: sharing.unshare,
            dry_run,
            ..Options::default()
        }
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "auto" => Ok(Rate::Yielding),
        "max" => Ok(Rate::Unlimited),
        number => match size::bytes(number)? {
            0 => Err("nothing moves at rate 0".into()),
            bytes => Ok(Rate::BytesPerSecond(bytes)),
        },
    }
}
