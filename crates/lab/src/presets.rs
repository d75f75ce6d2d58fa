//! The drives of the papers.

use crate::setup::{BadSetup, Setup};

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
    ("sata-850pro", include_str!("../drives/sata-850pro.toml")),
    ("optane", include_str!("../drives/optane.toml")),
    ("femu-indef", include_str!("../drives/femu-indef.toml")),
];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// One of them.
///
/// # Errors
/// When there is none of this name.
pub fn named(name: &str) -> Result<Setup, BadSetup> {
    let unknown = || {
        let known: Vec<&str> = names().collect();
        let why = format!("no such drive; there are {}", known.join(", "));
        BadSetup { file: name.to_owned(), line: 1, why }
    };
    let (_, text) = FILES.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
    Setup::parse(text, &format!("{name}.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drive_fits_together() {
        for name in names() {
            named(name).unwrap().device();
        }
    }
}
