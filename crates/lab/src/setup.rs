//! A drive and the host's way to it, as a TOML file says.

use crate::described::{BadFile, Text};
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

impl Setup {
    /// Reads a file's text; `file` is its name, for errors.
    ///
    /// # Errors
    /// The first thing that is wrong, and in which line.
    pub fn parse(text: &str, file: &str) -> Result<Self, BadFile> {
        let text = Text { text, file };
        let setup: Self = text.parse()?;
        if setup.flash.is_some() == setup.in_place.is_some() {
            return Err(text.bad(0..0, "describe either [flash] or [in_place]"));
        }
        let checked = match (&setup.flash, &setup.in_place) {
            (Some(drive), _) => drive.shape().map(drop),
            (None, Some(drive)) => drive.check(),
            (None, None) => Ok(()),
        };
        let inconsistent =
            |Inconsistent { field, why }| text.bad(text.place_of(field), format!("{field}: {why}"));
        checked.map_err(inconsistent)?;
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

    /// Bytes of what its commands count in.
    pub fn unit_bytes(&self) -> u32 {
        match (&self.flash, &self.in_place) {
            (Some(drive), _) => drive.geometry.mapping_unit_bytes,
            (None, Some(drive)) => drive.unit_bytes,
            (None, None) => unreachable!("one of them is there"),
        }
    }

    /// Bytes that the host sees.
    ///
    /// # Panics
    /// When it was not parsed, and does not fit together.
    pub fn capacity_bytes(&self) -> u64 {
        match (&self.flash, &self.in_place) {
            (Some(drive), _) => {
                let shape = drive.shape().expect("a parsed drive");
                u64::from(shape.logical_units) * u64::from(shape.unit_bytes)
            }
            (None, Some(drive)) => drive.bytes,
            (None, None) => unreachable!("one of them is there"),
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
