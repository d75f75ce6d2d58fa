//! A trace that is forged: what cannot be found costs little.

use fragmend_layout::FileId;
use fragmend_pipeline::{survey, unobserved};
use fragmend_testbed::image::Image;
use fragmend_trace::FileAccesses;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

fn traced(files: Vec<FileAccesses>) -> fragmend_plan::Survey {
    survey::traced(files, &["/nowhere".into()], &[], &unobserved).unwrap()
}

/// A new file that the trace has no path of.
fn seen(path: &Path) -> FileAccesses {
    let file = File::create_new(path).unwrap();
    let meta = file.metadata().unwrap();
    let generation = fragmend_sys::inode::generation(&file).unwrap();
    let file = FileId { device: meta.dev(), inode: meta.ino(), generation };
    FileAccesses::of(file)
}

/// Counts from now on how often a directory is opened.
fn watched(dir: &Path) -> OwnedFd {
    let opened = inotify::init(CreateFlags::NONBLOCK).unwrap();
    // Equal events one after the other would be one.
    let each = WatchFlags::OPEN | WatchFlags::CLOSE | WatchFlags::ONLYDIR;
    inotify::add_watch(&opened, dir, each).unwrap();
    opened
}

/// How often it was.
fn opens(watched: &OwnedFd) -> usize {
    let mut buffer = [MaybeUninit::uninit(); 1 << 16];
    let mut events = Reader::new(watched, &mut buffer);
    let mut opens = 0;
    while let Ok(event) = events.next() {
        opens +=
            usize::from(event.events().contains(ReadFlags::OPEN) && event.file_name().is_none());
    }
    opens
}

/// One walk finds the names of all files that the trace has no path of.
#[test]
fn loop_files_without_a_path_are_looked_for_once() {
    const FILES: usize = 600;
    let image = Image::ext4(64 << 20);
    let dir = image.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let files: Vec<FileAccesses> = (0..FILES).map(|n| seen(&dir.join(n.to_string()))).collect();
    // Their paths were not walked.
    image.remount();
    let opened = watched(&dir);
    let survey = survey::traced(files, &[], &[image.path().to_owned()], &unobserved).unwrap();
    assert_eq!((survey.files.len(), survey.left_alone.len()), (FILES, 0));
    assert!(survey.files.iter().all(|f| f.path.starts_with(&dir)), "{:?}", survey.files[0].path);
    assert_eq!(opens(&opened), 1);
}

/// The paths that a trace claims to be recorded for are walked where its files may be, and once.
#[test]
fn loop_only_the_file_systems_of_files_without_a_path_are_walked() {
    let image = Image::ext4(64 << 20);
    let elsewhere = image.scratch().join("elsewhere");
    let (dir, within) = (image.path().join("dir"), image.path().join("dir/within"));
    fs::create_dir(&elsewhere).unwrap();
    fs::create_dir_all(&within).unwrap();
    let files = vec![seen(&within.join("file"))];
    // Its path was not walked.
    image.remount();
    let (there, here) = (watched(&elsewhere), watched(&within));
    let claimed: Vec<String> =
        [image.scratch(), image.path(), &dir, &within, &dir.join(".."), &elsewhere]
            .into_iter()
            .flat_map(|path| [path.to_str().unwrap().to_owned(), format!("{}/.", path.display())])
            .collect();
    let survey = survey::traced(files, &claimed, &[], &unobserved).unwrap();
    assert_eq!(survey.files.len(), 1);
    assert_eq!(survey.files[0].path, within.join("file"));
    assert_eq!((opens(&there), opens(&here)), (0, 1));
}

/// Devices that are nowhere, each with many deep paths.
#[test]
fn loop_devices_that_are_nowhere_are_looked_for_in_few_places() {
    let deep: PathBuf = std::iter::once("/").chain(std::iter::repeat_n("name", 400)).collect();
    let seen = |n: u64| FileAccesses {
        path: Some(deep.join(format!("{n}"))),
        ..FileAccesses::of(FileId { device: u64::MAX - n % 20, inode: n, generation: 1 })
    };
    let started = Instant::now();
    let survey = traced((0..20 * 64).map(seen).collect());
    assert_eq!(survey.left_alone.len(), 20 * 64);
    assert!(started.elapsed().as_secs() < 3, "{:?}", started.elapsed());
}
