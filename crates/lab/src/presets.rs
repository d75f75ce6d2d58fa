//! The drives of the papers.

use crate::setup::Setup;

/// Names and files.
const FILES: &[(&str, &str)] = &[
    ("nvmevirt-fast24", include_str!("../drives/nvmevirt-fast24.toml")),
    ("nvme-a", include_str!("../drives/nvme-a.toml")),
    ("nvme-b", include_str!("../drives/nvme-b.toml")),
    ("nvme-c", include_str!("../drives/nvme-c.toml")),
    ("nvme-d", include_str!("../drives/nvme-d.toml")),
    ("sata-a", include_str!("../drives/sata-a.toml")),
    ("sata-b", include_str!("../drives/sata-b.toml")),
    ("ramdisk", include_str!("../drives/ramdisk.toml")),
    ("hdd", include_str!("../drives/hdd.toml")),
    ("microsd", include_str!("../drives/microsd.toml")),
    ("microsd-usb2", include_str!("../drives/microsd-usb2.toml")),
    ("sata-850pro", include_str!("../drives/sata-850pro.toml")),
    ("optane", include_str!("../drives/optane.toml")),
    ("femu-indef", include_str!("../drives/femu-indef.toml")),
    ("emmc-5.0", include_str!("../drives/emmc-5.0.toml")),
    ("ufs-2.0", include_str!("../drives/ufs-2.0.toml")),
    ("simmmc", include_str!("../drives/simmmc.toml")),
    ("simufs", include_str!("../drives/simufs.toml")),
    ("sd-kingston", include_str!("../drives/sd-kingston.toml")),
    ("ssd-intel-530", include_str!("../drives/ssd-intel-530.toml")),
];

/// The names of the drives.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// There is no drive of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no drive is named {0}; there are {known}", known = names().collect::<Vec<_>>().join(", "))]
pub struct Unknown(String);

/// The file of the drive of this name.
///
/// # Errors
/// If there is no drive of this name.
pub fn text(name: &str) -> Result<&'static str, Unknown> {
    let known = FILES.iter().find(|(known, _)| *known == name);
    known.map(|(_, text)| *text).ok_or_else(|| Unknown(name.to_owned()))
}

/// The drive of this name.
///
/// # Errors
/// If there is no drive of this name.
///
/// # Panics
/// If a drive of the lab is inconsistent, which the tests find first.
pub fn named(name: &str) -> Result<Setup, Unknown> {
    Ok(Setup::parse(text(name)?, name).expect("a consistent drive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drive_is_consistent() {
        for name in names() {
            named(name).unwrap().device();
        }
    }
}
