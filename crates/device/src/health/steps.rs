//! Drives of which the kernel itself shows the wear in sysfs, in tenths of their life: eMMC and UFS
//! (Documentation/ABI/testing/sysfs-driver-ufs; drivers/mmc/core/mmc.c).

use super::NoAnswer;
use super::logs;
use fragmend_layout::DriveHealth;
use std::path::{Path, PathBuf};

/// From a disk of UFS up to its host: target, bus and host adapter are between.
const UP_TO_HOST: usize = 6;

/// Whether the kernel shows it of the disk with this directory in sysfs.
pub(super) fn has(disk: &Path) -> bool {
    is_emmc(disk) || ufs(disk).is_some()
}

/// What it shows.
///
/// # Errors
/// Nothing that can be used.
pub(super) fn of(disk: &Path) -> Result<DriveHealth, NoAnswer> {
    let text = |file: PathBuf| Ok::<_, NoAnswer>(std::fs::read_to_string(file)?);
    let (life, end) = if is_emmc(disk) {
        let device = disk.join("device");
        (text(device.join("life_time"))?, text(device.join("pre_eol_info")).ok())
    } else {
        let host = ufs(disk).ok_or(NoAnswer::NotReported)?;
        let of_host = |name: &str| text(host.join(name));
        let (a, b) = ("life_time_estimation_a", "life_time_estimation_b");
        (format!("{} {}", of_host(a)?, of_host(b)?), of_host("eol_info").ok())
    };
    Ok(logs::tenths(&life, end.as_deref())?)
}

fn is_emmc(disk: &Path) -> bool {
    disk.join("device/life_time").is_file()
}

/// The health descriptor of the host that a disk of UFS is on.
fn ufs(disk: &Path) -> Option<PathBuf> {
    let device = disk.join("device").canonicalize().ok()?;
    let mut above = device.ancestors().take(UP_TO_HOST).map(|dir| dir.join("health_descriptor"));
    above.find(|dir| dir.join("life_time_estimation_a").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    #[test]
    fn an_emmc_shows_its_tenth() {
        let dir = tempfile::tempdir().unwrap();
        let card = dir.path().join("mmc0:0001");
        let disk = card.join("block/mmcblk0");
        create_dir_all(&disk).unwrap();
        symlink(&card, disk.join("device")).unwrap();
        // A card without such an account.
        assert!(!has(&disk) && matches!(of(&disk), Err(NoAnswer::NotReported)));
        write(card.join("life_time"), "0x02 0x01\n").unwrap();
        assert_eq!(of(&disk).unwrap().used_share, 0.2);
        write(card.join("pre_eol_info"), "0x03\n").unwrap();
        let health = of(&disk).unwrap();
        assert!(has(&disk) && health.spare_low && !health.life_used_up);
        write(card.join("life_time"), "0x00 0x00\n").unwrap();
        assert!(matches!(of(&disk), Err(NoAnswer::NotReported)));
        write(card.join("life_time"), [0xFF, 0xFE]).unwrap();
        assert!(matches!(of(&disk), Err(NoAnswer::Failed(_))));
    }

    #[test]
    fn a_ufs_shows_that_of_its_host() {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path().join("1d84000.ufshc");
        let device = host.join("host0/target0:0:0/0:0:0:0");
        let disk = device.join("block/sda");
        let health = host.join("health_descriptor");
        create_dir_all(&disk).unwrap();
        create_dir_all(&health).unwrap();
        symlink(&device, disk.join("device")).unwrap();
        assert!(!has(&disk));
        write(health.join("life_time_estimation_a"), "0x01\n").unwrap();
        write(health.join("life_time_estimation_b"), "0x0B\n").unwrap();
        write(health.join("eol_info"), "0x01\n").unwrap();
        let health = of(&disk).unwrap();
        assert!(has(&disk) && health.life_used_up && !health.spare_low);
    }
}
