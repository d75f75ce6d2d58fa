//! A drive and the host's path to it, as a TOML file describes them.

use crate::described::{BadFile, Text};
use fragmend_flash::device::Device;
use fragmend_flash::drive::{Drive, former_name};
use fragmend_flash::geometry::Inconsistent;
use fragmend_flash::host::HostPath;
use fragmend_flash::inplace::{InPlace, InPlaceDrive};
use fragmend_flash::ssd::Ssd;
use fragmend_flash::zones::Zoned;
use fragmend_layout::{DeviceProfile, ParallelUnits};
use serde::{Deserialize, Serialize};

/// Spare blocks of a plane of a drive that is made smaller: the five of each die that it must have, and one more, as what the host sees
/// is rounded.
const LEAST_SPARE: u32 = 6;

/// A drive and the host's path to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "File")]
pub struct Setup {
    /// What the drive is, in a line.
    pub about: String,
    /// The drive.
    pub drive: DriveKind,
    /// The host's path to it.
    pub host: HostPath,
}

/// A drive of one of the kinds, whose description is consistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveKind {
    /// A flash SSD.
    Flash(Drive),
    /// A zoned flash drive.
    Zoned {
        /// The description of its flash.
        drive: Drive,
        /// How many zones may be open at once.
        open_zones: u32,
    },
    /// A drive that writes in place.
    InPlace(InPlaceDrive),
}

/// A setup as it is in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    about: String,
    flash: Option<Drive>,
    open_zones: Option<u32>,
    in_place: Option<InPlaceDrive>,
    host: HostPath,
}

impl From<Setup> for File {
    fn from(setup: Setup) -> Self {
        let Setup { about, drive, host } = setup;
        let (flash, open_zones, in_place) = match drive {
            DriveKind::Flash(drive) => (Some(drive), None, None),
            DriveKind::Zoned { drive, open_zones } => (Some(drive), Some(open_zones), None),
            DriveKind::InPlace(drive) => (None, None, Some(drive)),
        };
        Self { about, flash, open_zones, in_place, host }
    }
}

impl File {
    /// The drive that the file describes, or why there is none.
    fn drive(self) -> Result<DriveKind, &'static str> {
        match (self.flash, self.open_zones, self.in_place) {
            (Some(drive), None, None) => Ok(DriveKind::Flash(drive)),
            (Some(drive), Some(open_zones), None) => Ok(DriveKind::Zoned { drive, open_zones }),
            (None, None, Some(drive)) => Ok(DriveKind::InPlace(drive)),
            (None, Some(_), Some(_)) => Err("open_zones: only a [flash] drive has zones"),
            (Some(_), _, Some(_)) | (None, _, None) => Err("describe either [flash] or [in_place]"),
        }
    }
}

impl DriveKind {
    fn check(&self) -> Result<(), Inconsistent> {
        match self {
            Self::Flash(drive) => drive.shape().map(drop),
            Self::Zoned { drive, open_zones } => Zoned::check(drive, *open_zones).map(drop),
            Self::InPlace(drive) => drive.check(),
        }
    }

    /// The description of a flash drive without zones.
    pub fn flash(&self) -> Option<&Drive> {
        if let Self::Flash(drive) = self { Some(drive) } else { None }
    }
}

impl Setup {
    /// Parses a file's text; `file` is its name, for errors.
    ///
    /// # Errors
    /// The first thing that is wrong, and in which line.
    pub fn parse(text: &str, file: &str) -> Result<Self, BadFile> {
        let text = Text { text, file };
        let mut parsed: File = text.parse()?;
        let about = std::mem::take(&mut parsed.about);
        let host = parsed.host.clone();
        let drive = parsed.drive().map_err(|why| text.bad(0..0, why))?;
        drive.check().and_then(|()| host.check()).map_err(|Inconsistent { field, why }| {
            // The file may use either name of a field; the error has the one that it uses.
            let former = former_name(field).filter(|former| text.find_field(former).is_some());
            let name = former.unwrap_or(field);
            let at = text.find_field(name).unwrap_or(0..0);
            text.bad(at, format!("{name}: {why}"))
        })?;
        Ok(Self { about, drive, host })
    }

    /// The same with a drive of about so many bytes: it has fewer blocks, and nothing else differs, except that each die keeps the spare
    /// blocks that it must have.
    #[must_use]
    pub fn of_bytes(mut self, bytes: u64) -> Self {
        match &mut self.drive {
            DriveKind::InPlace(drive) => {
                drive.bytes = bytes.next_multiple_of(drive.unit_bytes.into());
            }
            DriveKind::Flash(drive) | DriveKind::Zoned { drive, .. } => {
                let geometry = &mut drive.geometry;
                let planes =
                    geometry.channels * geometry.dies_per_channel * geometry.planes_per_die;
                let block = u64::from(geometry.pages_per_block * geometry.flash_page_bytes);
                let seen = bytes.div_ceil(block * u64::from(planes)) as u32;
                let spare = (seen * geometry.over_provisioning_per_mille).div_ceil(1000);
                let spare = spare.max(LEAST_SPARE);
                geometry.blocks_per_plane = seen + spare;
                geometry.over_provisioning_per_mille = spare * 1000 / seen;
            }
        }
        self
    }

    /// A new drive of this kind, which keeps no content.
    ///
    /// # Panics
    /// If the setup was made otherwise than by [`Setup::parse`], and is inconsistent.
    pub fn device(&self) -> Box<dyn Device + Send> {
        match &self.drive {
            DriveKind::Flash(drive) => Box::new(Ssd::new(drive).expect("a parsed drive")),
            DriveKind::Zoned { drive, open_zones } => {
                Box::new(Zoned::new(drive, *open_zones, false).expect("a parsed drive"))
            }
            DriveKind::InPlace(drive) => Box::new(InPlace::new(drive)),
        }
    }

    /// What its host knows of the drive without measuring it. Which dies hold what is known of drives with zones alone: their stripe units
    /// are on the dies in turn (InDeF, section III-B), and a flash translation layer shows nothing.
    pub fn profile(&self) -> DeviceProfile {
        let parallel_units = match &self.drive {
            DriveKind::Zoned { drive, .. } => Some(ParallelUnits {
                units: drive.geometry.channels * drive.geometry.dies_per_channel,
                unit_bytes: drive.geometry.stripe_unit_bytes.into(),
            }),
            DriveKind::Flash(_) | DriveKind::InPlace(_) => None,
        };
        DeviceProfile {
            readahead_bytes: self.host.readahead_bytes.into(),
            max_request_bytes: self.host.request_bytes.into(),
            parallel_units,
            ..DeviceProfile::unknown()
        }
    }

    /// Bytes of a unit, in which commands count.
    pub fn unit_bytes(&self) -> u32 {
        match &self.drive {
            DriveKind::Flash(drive) | DriveKind::Zoned { drive, .. } => {
                drive.geometry.mapping_unit_bytes
            }
            DriveKind::InPlace(drive) => drive.unit_bytes,
        }
    }

    /// Bytes that the host sees.
    ///
    /// # Panics
    /// If the setup was made otherwise than by [`Setup::parse`], and is inconsistent.
    pub fn capacity_bytes(&self) -> u64 {
        match &self.drive {
            DriveKind::Flash(drive) | DriveKind::Zoned { drive, .. } => {
                drive.shape().expect("a parsed drive").bytes()
            }
            DriveKind::InPlace(drive) => drive.bytes,
        }
    }

    /// The description of the flash drive.
    ///
    /// # Panics
    /// If it is another kind of drive.
    pub fn flash(&self) -> &Drive {
        self.drive.flash().expect("a flash drive without zones")
    }

    /// A new flash drive of this kind, which keeps no content.
    ///
    /// # Panics
    /// If it is another kind of drive, or the setup was made otherwise than by [`Setup::parse`], and
    /// is inconsistent.
    pub fn ssd(&self) -> Ssd {
        Ssd::new(self.flash()).expect("a parsed drive")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn error(text: &str) -> String {
        Setup::parse(text, "drive.toml").expect_err("a wrong file").to_string()
    }

    #[test]
    fn files_may_use_the_first_names_of_fields() {
        for name in presets::names() {
            let text = presets::text(name).expect("a preset");
            let mut old = text.to_owned();
            for (new, former) in [
                ("program_unit_bytes", "one_shot_bytes"),
                ("stripe_unit_bytes", "die_granularity_bytes"),
                ("map_segment_bytes", "map_stretch_bytes"),
                ("map_segments", "map_stretches"),
                ("uncached_lookup_ns", "extent_ns"),
                ("\nlookup_ns", "\nstretch_ns"),
            ] {
                assert_eq!(former_name(new.trim_start()), Some(former.trim_start()));
                old = old.replace(new, former);
            }
            assert_ne!(old, text);
            assert_eq!(Setup::parse(&old, name), Setup::parse(text, name));
        }
    }

    #[test]
    fn which_dies_hold_what_is_known_of_zones_alone() {
        for name in presets::names() {
            let units = presets::named(name).expect("a preset").profile().parallel_units;
            let zoned = ParallelUnits { units: 16, unit_bytes: 16 << 10 };
            assert_eq!(units, (name == "femu-indef").then_some(zoned), "{name}");
        }
    }

    #[test]
    fn a_smaller_drive_differs_in_its_blocks_alone() {
        for name in presets::names() {
            let setup = presets::named(name).expect("a preset");
            let small = setup.clone().of_bytes(1 << 30);
            let bytes = small.capacity_bytes();
            assert!((1 << 30..5 << 28).contains(&bytes), "{name}: {bytes}");
            assert_eq!((small.unit_bytes(), &small.host), (setup.unit_bytes(), &setup.host));
            small.device();
        }
    }

    #[test]
    fn errors_name_a_field_as_the_file_does() {
        let text = presets::text("nvme-b").expect("a preset");
        let line = text.lines().position(|line| line.starts_with("stripe_unit_bytes"));
        let line = line.expect("a line") + 1;
        let wrong = text.replace("stripe_unit_bytes = ", "stripe_unit_bytes = 1 #");
        assert!(error(&wrong).starts_with(&format!("drive.toml:{line}: stripe_unit_bytes: must")));
        let wrong = text.replace("stripe_unit_bytes = ", "die_granularity_bytes = 1 #");
        let said = format!("drive.toml:{line}: die_granularity_bytes: must");
        assert!(error(&wrong).starts_with(&said));
    }

    #[test]
    fn a_drive_that_is_too_slow_or_too_large_is_refused_and_the_field_is_named() {
        let slow = [
            ("nvme-b", "channel_bytes_per_second"),
            ("nvme-b", "link_bytes_per_second"),
            ("femu-indef", "link_bytes_per_second"),
            ("hdd", "link_bytes_per_second"),
            ("hdd", "bytes_per_second"),
            ("microsd", "bytes_per_second"),
        ];
        for (name, field) in slow {
            let text = presets::text(name).expect("a preset");
            let is_it = |line: &str| line.starts_with(&format!("{field} = "));
            let line = text.lines().position(is_it).expect("a line") + 1;
            let wrong = text.replace(&format!("\n{field} = "), &format!("\n{field} = 1 #"));
            let said = format!("drive.toml:{line}: {field}: must be at least ");
            assert!(error(&wrong).starts_with(&said), "{name}: {}", error(&wrong));
        }
        // Nearly 2^31 units of 4 KiB.
        let text = presets::text("nvme-b").expect("a preset");
        let large = text.replace("blocks_per_plane = ", "blocks_per_plane = 60_000 #");
        assert!(
            error(&large).contains(": blocks_per_plane: the mapping of 1966080000 units needs")
        );
    }

    /// Whatever number a field has, the drive is accepted or refused; no time is longer than some 18 minutes.
    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let mut refused = 0;
        for name in presets::names() {
            let text = presets::text(name).expect("a preset");
            for line in text.lines().filter(|line| line.contains(" = ")) {
                let (field, value) = line.split_once(" = ").expect("a field");
                for number in ["0", "1", "4294967295", "4294967296", "9223372036854775807"] {
                    let number =
                        if value.starts_with('[') { format!("[{number}]") } else { number.into() };
                    let changed = text.replace(line, &format!("{field} = {number}"));
                    let parsed = Setup::parse(&changed, "drive.toml");
                    let is_long = field.ends_with("_ns") && number.contains("9223372036854775807");
                    assert!(!is_long || parsed.is_err(), "{name}: {field} = {number}");
                    refused += u32::from(parsed.is_err());
                }
            }
        }
        assert!(refused > 1000, "{refused}");
    }

    #[test]
    fn a_file_describes_one_drive() {
        let text = presets::text("hdd").expect("a preset");
        let zoned = text.replace("[in_place]", "open_zones = 3\n[in_place]");
        assert_eq!(error(&zoned), "drive.toml:1: open_zones: only a [flash] drive has zones");
        let neither = &text[text.find("[host]").expect("a section")..];
        let neither = format!("about = \"nothing\"\n{neither}");
        assert_eq!(error(&neither), "drive.toml:1: describe either [flash] or [in_place]");
        let text = presets::text("femu-indef").expect("a preset");
        let wrong = text.replace("protected = true", "protected = false");
        assert!(error(&wrong).ends_with("buffer of a zoned drive must survive a power cut"));
    }
}
