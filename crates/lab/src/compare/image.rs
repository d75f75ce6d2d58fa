//! An aged image: a machine with a new drive, a file system on it, and what a load has done there. The same parameters make the same image,
//! bit for bit, so that each remedy has its own copy of one image by making it anew: a drive's state is larger than the seed that leads to it.

use super::loads::{Load, Parts};
use crate::bed;
use crate::setup::{DriveKind, Setup};
use fragmend_flash::drive::{Drive as Flash, Placement};
use fragmend_layout::DeviceProfile;
use fragmend_simfs::cow::{self, Cow};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::inplace::{self, InPlace};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::Primitive;
use fragmend_simfs::segments::{LogStructured, Settings};
use schemars::JsonSchema;
use serde::Serialize;
use std::rc::Rc;

/// A simulated file system, by the one that it imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It updates in place.
    Ext4,
    /// It copies on write.
    Btrfs,
    /// It is log-structured.
    F2fs,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
        }
    }
}

/// A drive of the lab, as small as the load needs it, and what a probe has measured of it.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Its name.
    pub name: String,
    /// Its description.
    pub setup: Setup,
    /// What planning knows of it.
    pub profile: DeviceProfile,
}

/// What an image is made of.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    /// Who has aged it.
    pub load: Load,
    /// On which drive.
    pub drive: &'a Drive,
    /// On which file system.
    pub kind: Kind,
    /// How large it is.
    pub parts: Parts,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// How the file system and the drive are made for a remedy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Where the drive writes, with the file system's hints; where its description says, without hints, if there is none.
    pub placement: Option<Placement>,
    /// How ext4 brings data to a new place.
    pub primitive: Primitive,
}

/// The file system of an image.
pub enum Files {
    /// In the manner of ext4.
    InPlace(InPlace),
    /// In the manner of Btrfs.
    Cow(Cow),
    /// In the manner of F2FS.
    Segments(LogStructured),
}

/// An aged image.
pub struct Image {
    /// Its machine.
    pub machine: Machine,
    /// Its file system.
    pub files: Files,
    /// Blocks of a flash page; 1 where there is none.
    pub page_blocks: u32,
}

impl Files {
    /// The same file system, as programs see it.
    pub fn shared(&self) -> Rc<dyn FileSystem> {
        match self {
            Self::InPlace(files) => Rc::new(files.clone()),
            Self::Cow(files) => Rc::new(files.clone()),
            Self::Segments(files) => Rc::new(files.clone()),
        }
    }
}

impl Drive {
    fn page_blocks(&self) -> u32 {
        match &self.setup.drive {
            DriveKind::Flash(Flash { geometry, .. })
            | DriveKind::Zoned { drive: Flash { geometry, .. }, .. } => {
                geometry.flash_page_bytes / geometry.mapping_unit_bytes
            }
            DriveKind::InPlace(_) => 1,
        }
    }
}

impl Recipe<'_> {
    /// Makes the image.
    ///
    /// # Errors
    /// The drive is too small for the load.
    pub fn make(&self, made: Made) -> Result<Image, Error> {
        let mut setup = self.drive.setup.clone();
        if let (Some(placement), DriveKind::Flash(drive)) = (made.placement, &mut setup.drive) {
            drive.firmware.placement = placement;
        }
        let machine = bed::machine(&setup);
        machine.set_profile(self.drive.profile.clone());
        let hints = made.placement.is_some();
        let files = match self.kind {
            Kind::Ext4 => {
                let mut options = inplace::Options::of(&machine);
                (options.settings.hints, options.primitive) = (hints, made.primitive);
                Files::InPlace(InPlace::format(&machine, &options)?)
            }
            Kind::Btrfs => {
                let mut options = cow::Options::of(&machine);
                options.settings.hints = hints;
                Files::Cow(Cow::format(&machine, &options)?)
            }
            Kind::F2fs => {
                let zone_blocks = Some(machine.drive(|drive| drive.zone_units()));
                let zone_blocks = zone_blocks.filter(|blocks| *blocks > 0);
                let settings = Settings { zone_blocks, ..Settings::default() };
                Files::Segments(LogStructured::format(&machine, &settings)?)
            }
        };
        self.load.age(&*files.shared(), self.parts, self.seed)?;
        machine.wait_until_idle();
        let page_blocks = self.drive.page_blocks();
        Ok(Image { machine, files, page_blocks })
    }
}
