//! Bad input: refused with its reason, and nothing has changed.

use super::drives::{fast, large_zoned, large_zones, small, tight_lossy};
use crate::support::drives::large;
use fragmend_flash::command::{Hint, Units};
use fragmend_layout::{ByteRange, FileId, SkipReason, Volume};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::segments::{LogStructured, Settings};
use std::path::{Path, PathBuf};

fn refusal<T>(result: Result<T, Error>) -> Error {
    result.err().expect("it is refused")
}

#[test]
fn parameters_that_do_not_fit() {
    let wrong = [
        Settings { segment_bytes: 4096, ..Settings::default() },
        Settings { zone_blocks: Some(700), ..Settings::default() },
        Settings { in_place: true, ..large_zones() },
        Settings { node_addresses: 0, ..Settings::default() },
        Settings { spare_per_mille: 1000, ..Settings::default() },
        // 12 sections of 2 MiB are too few.
        Settings::default(),
    ];
    for settings in wrong {
        let refused = refusal(LogStructured::format(&fast(12 * 512), &settings));
        assert!(matches!(refused, Error::Unsupported(_)), "{settings:?}: {refused}");
    }
}

#[test]
fn what_is_no_such_file_system() {
    let machine = large();
    let settings = Settings { segment_bytes: 1 << 20, ..Settings::default() };
    let empty = refusal(LogStructured::mount(&machine, &settings));
    assert!(matches!(&empty, Error::Damaged(why) if why.contains("no checkpoint")), "{empty}");
    LogStructured::format(&machine, &settings).expect("it is made");
    let other = Settings { segment_bytes: 512 << 10, ..settings.clone() };
    let parameters = refusal(LogStructured::mount(&machine, &other));
    assert!(matches!(parameters, Error::Damaged(_)), "{parameters}");
    LogStructured::mount(&machine, &settings).expect("it is mounted still").check().unwrap();
}

/// A damaged block is found at the mount, and not mounted over.
#[test]
fn nodes_and_checkpoints_that_are_damaged() {
    let machine = tight_lossy(1);
    let fs = LogStructured::format(&machine, &small()).expect("it is made");
    let file = fs.create(Path::new("/file")).expect("a new file");
    fs.write(file, ByteRange::at(0, 4096), Access::Buffered).expect("space");
    fs.sync().expect("it is durable");
    // All of the main area.
    for unit in 2 * 16..32 * 16 {
        machine.write(&[Units::new(unit, 1)], Hint::None, &mut |_| None).expect("it is written");
    }
    let node = refusal(LogStructured::mount(&machine, &small()));
    assert!(matches!(&node, Error::Damaged(why) if why.contains("node 0 of inode 1")), "{node}");
    machine
        .write(&[Units::new(0, 1), Units::new(16, 1)], Hint::None, &mut |_| None)
        .expect("written");
    let none = refusal(LogStructured::mount(&machine, &small()));
    assert!(matches!(&none, Error::Damaged(why) if why.contains("no checkpoint")), "{none}");
}

#[test]
fn calls_that_cannot_be_done_change_nothing() {
    let machine = large_zoned();
    let fs = LogStructured::format(&machine, &large_zones()).expect("it is made");
    let path = Path::new("/file");
    let file = fs.create(path).expect("a new file");
    let gone = FileId { inode: 99, ..file };
    let reused = FileId { generation: 99, ..file };
    let free = fs.free_bytes().expect("its free space");
    assert_eq!(fs.create(path), Err(Error::Exists(path.into())));
    let long = PathBuf::from("/".repeat(201));
    assert!(matches!(fs.create(&long), Err(Error::Unsupported(_))));
    assert!(matches!(fs.rename(path, &long), Err(Error::Unsupported(_))));
    assert_eq!(fs.rename(Path::new("/none"), path), Err(Error::NotFound("/none".into())));
    assert_eq!(fs.size(gone), Err(Error::Gone));
    assert_eq!(fs.size(reused), Err(Error::Reused));
    let beyond = ByteRange { start: 0, end: 1 << 60 };
    assert!(matches!(fs.write(file, beyond, Access::Buffered), Err(Error::Unsupported(_))));
    assert!(matches!(fs.truncate(file, u64::MAX), Err(Error::Unsupported(_))));
    assert!(matches!(fs.allocate(file, beyond), Err(Error::Unsupported(_))));
    let all = ByteRange { start: 0, end: free + 4096 };
    assert_eq!(fs.write(file, all, Access::Direct), Err(Error::NoSpace));
    assert_eq!(fs.allocate(file, all), Err(Error::NoSpace));
    let why = fs.open(gone, path).err().expect("it is refused").reason;
    assert_eq!(why, SkipReason::IdentityChanged);
    let why = fs.open(gone, Path::new("/none")).err().expect("it is refused").reason;
    assert_eq!(why, SkipReason::Vanished);
    assert_eq!((fs.size(file), fs.find(path)), (Ok(0), Ok(file)));
    fs.check().unwrap();
    assert_eq!(fs.free_bytes(), Ok(free));
}
