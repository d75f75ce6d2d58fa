//! The parts of a plan as they are in its file: flat, with every field named. For a flattened structure serde
//! would keep every field that it does not know, and a hostile file may have many of those.

use super::parse::Mark;
use crate::file::{Device, LeftAlone, PlannedFile, PlannedRange};
use fragmend_layout::DeviceProfile;
use fragmend_layout::{FileId, FsKind, PathText, SkipReason};
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
struct FlatFile {
    path: String,
    #[serde(default)]
    path_bytes: Option<String>,
    device: u64,
    inode: u64,
    generation: u32,
    size: u64,
    #[serde(deserialize_with = "super::parse::ranges")]
    ranges: Vec<PlannedRange>,
}

impl<'de> Deserialize<'de> for PlannedFile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let FlatFile { path, path_bytes, device, inode, generation, size, ranges } =
            FlatFile::deserialize(from)?;
        let file = FileId { device, inode, generation };
        Ok(Self { path: PathText { path, path_bytes }, file, size, ranges })
    }
}

#[derive(Deserialize)]
struct FlatDevice {
    device: u64,
    path: String,
    #[serde(default)]
    path_bytes: Option<String>,
    file_system: FsKind,
    total_bytes: u64,
    block_bytes: u64,
    profile: DeviceProfile,
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let flat = FlatDevice::deserialize(from)?;
        let FlatDevice { device, file_system, total_bytes, block_bytes, profile, .. } = flat;
        let mount = PathText { path: flat.path, path_bytes: flat.path_bytes };
        Ok(Self { device, mount, file_system, total_bytes, block_bytes, profile })
    }
}

#[derive(Deserialize)]
struct FlatLeftAlone {
    path: String,
    #[serde(default)]
    path_bytes: Option<String>,
    reason: String,
    #[serde(default, deserialize_with = "known")]
    code: Option<SkipReason>,
}

/// The reason with this name; a newer fragmend may have other reasons, or another kind of value here.
fn known<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SkipReason>, D::Error> {
    Ok(match Mark::deserialize(from)? {
        Mark::Text(name) => SkipReason::deserialize(ByName::new(&name)).ok(),
        Mark::Number(_) | Mark::Other => None,
    })
}

type ByName<'a> = StrDeserializer<'a, Error>;

impl<'de> Deserialize<'de> for LeftAlone {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let FlatLeftAlone { path, path_bytes, reason, code } = FlatLeftAlone::deserialize(from)?;
        Ok(Self { path: PathText { path, path_bytes }, reason, code })
    }
}
