//! A record is removed only when its bytes are on the device: after `recover` the power is cut, or
//! the file system is mounted again, and every byte that it reported as whole or restored is there.

mod support;

use fragmend_sys::shutdown::cut_power;
use fragmend_testbed::file_system::{EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::finish;
use fragmend_testbed::steps::OF_REWRITE;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use support::rewrite::{FRAGMEND, outcomes, recover, rewrite};
use support::{SIZE, fragmented};

/// A file system with files, and where their records go.
struct Place {
    image: Image,
    /// The disk for the records, if they are not at the top.
    disk: Option<Image>,
}

impl Place {
    fn both(file_system: &'static FileSystem) -> [Self; 2] {
        let place = |disk| Self { image: Image::of(file_system, 320 << 20), disk };
        [place(None), place(Some(Image::ext4(64 << 20)))]
    }

    fn journal(&self) -> Vec<&OsStr> {
        let disk = self.disk.iter();
        disk.flat_map(|disk| [OsStr::new("--journal"), disk.path().as_os_str()]).collect()
    }

    /// A new file, whose rewriting is killed at a step.
    fn killed_at(&self, name: &str, step: &str) -> PathBuf {
        let file = fragmented(&self.image, name);
        self.image.sync();
        let at = format!("{step}=kill");
        let ended = finish(rewrite(&self.image, &file, &at).args(self.journal()));
        assert_eq!(ended.status.signal(), Some(9), "{step}: {ended:?}");
        file
    }

    fn recover(&self) -> (Vec<String>, i32) {
        let path = self.image.path();
        let journal = self.journal();
        let mut args: Vec<&dyn AsRef<OsStr>> = journal.iter().map(|a| a as _).collect();
        args.push(&path);
        let (told, code) = recover(&args);
        (outcomes(&told), code)
    }

    /// What the file system does by itself every few seconds: commits its journal, and with it
    /// punches and allocations, but writes no page of another file.
    fn commit(&self) {
        let other = File::create(self.image.path().join("other")).unwrap();
        other.sync_all().unwrap();
    }

    fn cut(&self) {
        cut_power(File::open(self.image.path()).unwrap()).unwrap();
        self.image.remount();
    }

    /// Recovers `file`, calls `behind`, and checks that every byte is there.
    fn recovered_for_good(&self, file: &PathBuf, behind: &dyn Fn(&Self), what: &str) {
        let (found, code) = self.recover();
        assert_eq!(code, 0, "{what}: {found:?}");
        assert!(found.iter().all(|f| ["whole", "restored", "never_begun"].contains(&f.as_str())));
        behind(self);
        assert!(is_intact(file, SIZE).unwrap(), "{what}: {found:?}, and then bytes are missing");
        assert_eq!(self.recover(), (Vec::new(), 0), "{what}");
        fs::remove_file(file).unwrap();
    }
}

type Behind<'a> = (&'a str, &'a dyn Fn(&Place));

const BEHIND: [Behind<'static>; 2] = [("cut", &Place::cut), ("remounted", &|p| p.image.remount())];

fn every_step(file_system: &'static FileSystem) {
    for place in Place::both(file_system) {
        for (how, behind) in BEHIND {
            for step in OF_REWRITE {
                let elsewhere = place.disk.is_some();
                let what = format!("{}: {step}, {how}, elsewhere {elsewhere}", file_system.name);
                let file = place.killed_at(&format!("{step}-{how}"), step);
                place.commit();
                place.recovered_for_good(&file, behind, &what);
            }
        }
        place.image.fsck();
    }
}

#[test]
fn loop_what_recover_called_whole_outlasts_a_cut_on_ext4() {
    every_step(&EXT4);
}

#[test]
fn loop_what_recover_called_whole_outlasts_a_cut_on_xfs() {
    every_step(&XFS);
}

/// The same if a first `recover` was killed, at each step of its own.
#[test]
fn loop_what_a_second_recover_called_whole_outlasts_a_cut() {
    for file_system in [&EXT4, &XFS] {
        for place in Place::both(file_system) {
            for step in ["allocated", "half-written", "written", "synced", "compared"] {
                let file = place.killed_at(step, "punched");
                place.image.sync();
                let mut first = Command::new(FRAGMEND);
                first.arg("recover").args(place.journal()).arg(place.image.path());
                let ended = finish(first.env("FRAGMEND_STOP_AT", format!("{step}=kill")));
                assert_eq!(ended.status.signal(), Some(9), "{step}: {ended:?}");
                place.commit();
                let what = format!("{}: {step}", file_system.name);
                place.recovered_for_good(&file, &Place::cut, &what);
            }
        }
    }
}
