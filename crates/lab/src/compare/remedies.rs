//! The remedies: what each is, where it applies, and what it does.

use super::image::{Kind, Made};
use super::loads::Load;
use crate::setup::DriveKind;
use fragmend_flash::drive::Placement;
use fragmend_plan::Policy;
use fragmend_simfs::mounted::{Primitive, Remap};

/// A remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// None.
    Nothing,
    /// `e4defrag`.
    WholeFile,
    /// FragPicker.
    Fragpicker,
    /// FragPicker without a trace.
    Bypass,
    /// InDeF.
    Indef,
    /// janusd for logical fragmentation.
    JanusdL,
    /// janusd for physical fragmentation.
    JanusdP,
    /// Both.
    Janusd,
    /// FAST'24's placement.
    DieAffine,
    /// The lab's placement by the same hints.
    FileAffine,
    /// APSys'16's cleaner.
    SortedCleaning,
    /// The planner's own policy.
    Gain,
    /// The same plan, remapped.
    GainRemap,
}

/// What a remedy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    Nothing,
    /// The production planner chooses by a policy, and the production mover moves.
    Plan(Policy, Moves),
    /// janusdL, janusdP, or both.
    Janusd {
        /// Whether files are joined by remaps.
        joins: bool,
        /// Whether the drive spreads those that are read most.
        spreads: bool,
    },
    /// The load writes with hints, and the drive places by them.
    Place(Placement),
    /// The cleaner copies what is valid in each segment that has invalid blocks.
    Clean,
}

/// How data comes to its new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moves {
    /// The host reads and writes it.
    ByHost,
    /// The drive copies it.
    InDevice,
    /// The drive remaps it, and what it refuses to remap the host copies.
    ByRemap,
}

/// Shared remaps, which need no modified `fsck`; what is refused is copied.
const SHARED: Remap = Remap { shared: true, or_copy: true };

impl Remedy {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 13] = [
        Self::Nothing,
        Self::WholeFile,
        Self::Fragpicker,
        Self::Bypass,
        Self::Indef,
        Self::JanusdL,
        Self::JanusdP,
        Self::Janusd,
        Self::DieAffine,
        Self::FileAffine,
        Self::SortedCleaning,
        Self::Gain,
        Self::GainRemap,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::WholeFile => "whole-file",
            Self::Fragpicker => "fragpicker",
            Self::Bypass => "bypass",
            Self::Indef => "indef",
            Self::JanusdL => "janusdL",
            Self::JanusdP => "janusdP",
            Self::Janusd => "janusd",
            Self::DieAffine => "die-affine",
            Self::FileAffine => "file-affine",
            Self::SortedCleaning => "sorted-cleaning",
            Self::Gain => "gain",
            Self::GainRemap => "gain-remap",
        }
    }

    /// Where it comes from.
    pub fn source(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::WholeFile => "e4defrag",
            Self::Fragpicker | Self::Bypass => "FragPicker, section 4.1",
            Self::Indef => "InDeF, section III",
            Self::JanusdL => "janusd, section 4.1",
            Self::JanusdP => "janusd, section 4.2",
            Self::Janusd => "janusd, section 4",
            Self::DieAffine => "FAST'24, section 4",
            Self::SortedCleaning => "APSys'16, section 3",
            Self::FileAffine | Self::Gain | Self::GainRemap => "fragmend",
        }
    }

    /// What it does, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Self::Nothing => "leaves the image as it is",
            Self::WholeFile => "moves every fragmented file, whole",
            Self::Fragpicker => "moves what was read in fragments",
            Self::Bypass => "moves every fragmented window of readahead",
            Self::Indef => "moves ranges by logical and physical degree, copied in the drive",
            Self::JanusdL => "remaps every fragmented file, whole",
            Self::JanusdP => "has the drive spread the files that are read most",
            Self::Janusd => "janusdL, then janusdP",
            Self::DieAffine => "writes go to the dies by the file's hints",
            Self::FileAffine => "the same, and short appends fill a flash page of their file",
            Self::SortedCleaning => "the cleaner chooses fragmented segments and copies by inode",
            Self::Gain => "moves what saves the most time for its bytes",
            Self::GainRemap => "the same by the extent map alone, remapped",
        }
    }

    /// What it does.
    pub fn act(self) -> Act {
        match self {
            Self::Nothing => Act::Nothing,
            Self::WholeFile => Act::Plan(Policy::WholeFile, Moves::ByHost),
            Self::Fragpicker => Act::Plan(Policy::Fragpicker, Moves::ByHost),
            Self::Bypass => Act::Plan(Policy::Bypass, Moves::ByHost),
            Self::Indef => Act::Plan(Policy::Iodp, Moves::InDevice),
            Self::JanusdL => Act::Janusd { joins: true, spreads: false },
            Self::JanusdP => Act::Janusd { joins: false, spreads: true },
            Self::Janusd => Act::Janusd { joins: true, spreads: true },
            Self::DieAffine => Act::Place(Placement::DieAffine),
            Self::FileAffine => Act::Place(Placement::FileAffine),
            Self::SortedCleaning => Act::Clean,
            Self::Gain => Act::Plan(Policy::Gain, Moves::ByHost),
            Self::GainRemap => Act::Plan(Policy::Gain, Moves::ByRemap),
        }
    }

    /// Whether the drive needs firmware that those on sale lack.
    pub fn needs_firmware(self) -> bool {
        match self.act() {
            Act::Nothing | Act::Clean | Act::Plan(_, Moves::ByHost) => false,
            Act::Plan(..) | Act::Janusd { .. } | Act::Place(_) => true,
        }
    }

    /// Whether the file system of the host must be another one than the kernel's.
    pub fn needs_file_system(self) -> bool {
        self.needs_firmware() || self.act() == Act::Clean
    }

    /// Whether it is planned with what a probe of the files that were read finds to be slow: a remap leaves data where it is slow, and the
    /// other policies do not ask what reads cost.
    pub fn probes_files(self) -> bool {
        self.act() == Act::Plan(Policy::Gain, Moves::ByHost)
    }

    /// How the image is made for it.
    pub fn made(self) -> Made {
        match self.act() {
            Act::Place(placement) => Made { placement: Some(placement), ..Made::default() },
            Act::Janusd { .. } => {
                Made { primitive: Primitive::Remap(Remap::EXCLUSIVE), ..Made::default() }
            }
            Act::Plan(_, Moves::ByRemap) => {
                Made { primitive: Primitive::Remap(SHARED), ..Made::default() }
            }
            Act::Nothing | Act::Plan(..) | Act::Clean => Made::default(),
        }
    }

    /// The file systems that it is tried on, for a load on a drive; without one, why not.
    ///
    /// # Errors
    /// Why it does not apply.
    pub fn tried_on(self, load: Load, drive: &DriveKind) -> Result<Vec<Kind>, &'static str> {
        let is_zoned = matches!(drive, DriveKind::Zoned { .. });
        let is_flash = matches!(drive, DriveKind::Flash(_));
        let home = if is_zoned { Kind::F2fs } else { load.home() };
        match self.act() {
            Act::Plan(Policy::Iodp, _) if !is_zoned => {
                Err("only drives with zones copy by themselves")
            }
            Act::Janusd { .. } | Act::Plan(_, Moves::ByRemap) if is_zoned => Err(
                "the places of a zone's blocks follow from their addresses: nothing is remapped",
            ),
            Act::Janusd { .. } | Act::Plan(_, Moves::ByRemap) if !is_flash => {
                Err("the drive writes in place: it has no mapping to change")
            }
            Act::Place(_) if is_zoned => {
                Err("the die of a zone's block follows from its address: hints change nothing")
            }
            Act::Place(_) if !is_flash => Err("the drive writes in place: it has no dies"),
            Act::Janusd { .. } | Act::Plan(_, Moves::ByRemap) => Ok(vec![Kind::Ext4]),
            Act::Clean => Ok(vec![Kind::F2fs]),
            Act::Nothing | Act::Plan(_, Moves::ByHost) => {
                let others = [Kind::Ext4, Kind::F2fs].into_iter();
                let others = others.filter(|kind| *kind != home && !is_zoned);
                Ok(std::iter::once(home).chain(others).collect())
            }
            Act::Plan(..) | Act::Place(_) => Ok(vec![home]),
        }
    }
}
