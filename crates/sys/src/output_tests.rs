//! Tests of the writer: it never writes through a link that was planted at a name.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

/// A directory of its own, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("fragmend-output-{:016x}", random().unwrap()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

#[test]
fn a_file_is_there_whole_or_not_at_all() {
    let dir = Dir::new();
    let target = dir.at("a");
    let mut begun = Output::create(&target, Audience::Owner).unwrap();
    begun.write_all(b"half").unwrap();
    assert!(!target.exists());
    drop(begun);
    assert_eq!(dir.names(), Vec::<String>::new());
    write(&target, Audience::Owner, b"one").unwrap();
    write(&target, Audience::Owner, b"another").unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"another");
    assert_eq!(dir.names(), ["a"]);
}

#[test]
fn what_is_private_stays_private_and_a_mode_that_was_set_stays() {
    let dir = Dir::new();
    let target = dir.at("a");
    write(&target, Audience::Owner, b"1").unwrap();
    assert_eq!(mode(&target), 0o600);
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o4755)).unwrap();
    write(&target, Audience::Anybody, b"2").unwrap();
    assert_eq!(mode(&target), 0o644, "as it was, but for what makes it a program");
    write(&target, Audience::Owner, b"3").unwrap();
    assert_eq!(mode(&target), 0o600, "others could read the one before, not this one");
}

#[test]
fn what_is_for_everybody_is_whatever_the_umask() {
    let dir = Dir::new();
    // The umask belongs to the process, which has other tests: the file is one that a strict umask has made.
    let target = dir.at("a");
    write(&target, Audience::Owner, b"1").unwrap();
    write(&target, Audience::Everybody, b"2").unwrap();
    assert_eq!(mode(&target), 0o644);
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o666)).unwrap();
    write(&target, Audience::Everybody, b"3").unwrap();
    assert_eq!(mode(&target), 0o644, "no other user may write it");
}

#[test]
fn links_pipes_devices_and_directories_are_refused() {
    let dir = Dir::new();
    std::fs::write(dir.at("secret"), b"secret").unwrap();
    symlink(dir.at("secret"), dir.at("link")).unwrap();
    symlink(dir.at("nowhere"), dir.at("dangling")).unwrap();
    std::fs::create_dir(dir.at("directory")).unwrap();
    let pipe = rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.at("pipe"),
        FileType::Fifo,
        Mode::from_raw_mode(0o666),
        0,
    );
    pipe.unwrap();
    let before = dir.names();
    for (name, what) in [
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
        ("directory", "a directory"),
        ("pipe", "a pipe"),
        ("directory/..", "a directory"),
    ] {
        let error = write(&dir.at(name), Audience::Owner, b"mine").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        assert!(error.to_string().contains(what), "{name}: {error}");
        assert!(replaces(&dir.at(name)).is_err() || name.ends_with(".."), "{name}");
    }
    let error = write(Path::new("/dev/null"), Audience::Owner, b"mine").unwrap_err();
    assert!(error.to_string().contains("a device"), "{error}");
    assert_eq!(dir.names(), before);
    assert_eq!(std::fs::read(dir.at("secret")).unwrap(), b"secret");
}

#[test]
fn a_link_planted_between_looking_and_naming_is_replaced_not_followed() {
    let dir = Dir::new();
    let (target, secret) = (dir.at("a"), dir.at("secret"));
    std::fs::write(&secret, b"secret").unwrap();
    let mut output = Output::create(&target, Audience::Owner).unwrap();
    output.write_all(b"mine").unwrap();
    symlink(&secret, &target).unwrap();
    output.commit().unwrap();
    assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
    assert!(target.symlink_metadata().unwrap().is_file());
    assert_eq!(std::fs::read(&target).unwrap(), b"mine");
}

#[test]
fn a_link_on_the_way_is_followed_unless_it_is_another_users() {
    let dir = Dir::new();
    std::fs::create_dir(dir.at("real")).unwrap();
    symlink("real", dir.at("ours")).unwrap();
    write(&dir.at("ours/a"), Audience::Owner, b"1").unwrap();
    assert!(dir.at("real/a").exists());
    symlink(".", dir.at("real/loop")).unwrap();
    write(&dir.at("real/loop/./loop/../real/b"), Audience::Owner, b"1").unwrap();
    assert!(dir.at("real/b").exists());
    directory::create(&dir.at("real/x/y"), true).unwrap();
    assert_eq!(mode(&dir.at("real/x")), 0o700);
    symlink(dir.at("endless"), dir.at("endless")).unwrap();
    assert!(write(&dir.at("endless/a"), Audience::Owner, b"1").is_err());
    // Only root can create another user's link.
    if rustix::process::geteuid().is_root() {
        symlink("real", dir.at("theirs")).unwrap();
        std::os::unix::fs::lchown(dir.at("theirs"), Some(4711), Some(4711)).unwrap();
        let error = write(&dir.at("theirs/c"), Audience::Owner, b"1").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert!(!dir.at("real/c").exists());
        assert!(directory::create(&dir.at("theirs/z"), true).is_err());
    }
}

#[test]
fn a_taken_temporary_name_is_left_alone() {
    let dir = Dir::new();
    let tries = std::cell::Cell::new(0);
    let ((), name) = under_a_new_name(|name| {
        tries.set(tries.get() + 1);
        if tries.get() < 3 {
            return Err(Errno::EXIST);
        }
        std::fs::write(dir.0.join(name), b"").map_err(|_| Errno::IO)
    })
    .unwrap();
    assert_eq!((tries.get(), dir.names()), (3, vec![name.into_string().unwrap()]));
}

#[test]
fn where_files_without_a_name_cannot_be_one_with_a_random_name_serves() {
    // /dev/mqueue, vfat and others have no O_TMPFILE; their method is tested here by itself.
    let dir = Dir::new();
    let directory = directory_of(&dir.at("a")).unwrap();
    let (mut file, name) = named(&directory, Mode::RUSR | Mode::WUSR).unwrap();
    file.write_all(b"mine").unwrap();
    let place = Place { directory, name: "a".into(), temporary: Some(name.clone()), mode: None };
    assert_eq!(dir.names(), [name.to_str().unwrap()]);
    assert_eq!(Output { file, place: Some(place) }.commit().unwrap(), 4);
    assert_eq!(dir.names(), ["a"]);
    let directory = directory_of(&dir.at("a")).unwrap();
    let (file, name) = named(&directory, Mode::RUSR | Mode::WUSR).unwrap();
    let place = Place { directory, name: "b".into(), temporary: Some(name), mode: None };
    drop(Output { file, place: Some(place) });
    assert_eq!(dir.names(), ["a"]);
}
