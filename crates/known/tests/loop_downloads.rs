//! Downloads of aria2 and curl, from a server of their own on the loopback.

mod support;

use fragmend_known::Recogniser;
use fragmend_testbed::process::{Running, finish, free_address};
use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{directory, what};

const MIB: u64 = 1 << 20;

/// Serves a directory; returns the server, and its address.
fn serve(directory: &Path) -> (Running, String) {
    let at = free_address();
    let mut server = Command::new("python3");
    server.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", &at.port().to_string()]);
    server.current_dir(directory).stdout(Stdio::null()).stderr(Stdio::null());
    let answers = |_| TcpStream::connect(at).is_ok();
    let server = Running::start(&mut server).wait_until(answers);
    (server, format!("http://{at}"))
}

#[test]
fn loop_a_download_is_unfinished_as_long_as_its_control_file_says_so() {
    let (_dir, path) = directory();
    File::create(path.join("disk")).unwrap().set_len(16 * MIB).unwrap();
    let (_server, address) = serve(&path);
    fs::create_dir(path.join("here")).unwrap();
    let here = path.join("here/disk");
    let control = path.join("here/disk.aria2");
    let aria2 = |limit: &str| {
        let mut command = Command::new("aria2c");
        command.args(["--no-conf", "--quiet", "--file-allocation=none", "--dir=here"]);
        command.args(["--max-download-limit", limit]);
        command.arg(format!("{address}/disk")).current_dir(&path);
        command
    };
    // With 2 MiB a second it lasts eight; it is asked to end before that, once it has begun.
    let running = Running::start(&mut aria2("2M"));
    let running =
        running.wait_until(|_| fs::metadata(&here).is_ok_and(|file| file.len() > 3 * MIB));
    running.signal(rustix::process::Signal::INT);
    drop(running.wait());
    let mut recogniser = Recogniser::default();
    let found = what(&mut recogniser, &here).unwrap();
    let part = found
        .strip_prefix("Download: not finished, ")
        .and_then(|text| text.strip_suffix(" pieces are there (aria2)"));
    let (done, all) =
        part.and_then(|part| part.split_once(" of ")).unwrap_or_else(|| panic!("{found}"));
    assert_eq!(all, "16");
    assert!((1..16).contains(&done.parse::<u64>().unwrap()), "{found}");

    // A control file is not read through a link, and one of a smaller file is not this one's.
    fs::rename(&control, path.join("kept")).unwrap();
    symlink(path.join("kept"), &control).unwrap();
    assert_eq!(what(&mut recogniser, &here), None);
    fs::remove_file(&control).unwrap();
    fs::rename(path.join("kept"), &control).unwrap();
    File::create(path.join("here/other")).unwrap().set_len(17 * MIB).unwrap();
    fs::copy(&control, path.join("here/other.aria2")).unwrap();
    assert_eq!(what(&mut recogniser, &path.join("here/other")), None);

    // Once it is finished there is no control file. The server sends no ranges, so it begins anew.
    fs::remove_file(&here).unwrap();
    fs::remove_file(&control).unwrap();
    finish(&mut aria2("0")).expect(&[0]);
    assert!(here.exists() && !control.exists());
    assert_eq!(what(&mut recogniser, &here), None);
}

#[test]
fn loop_finished_and_unfinished_downloads_are_recognised_by_attribute_and_name() {
    let (_dir, path) = directory();
    fs::write(path.join("disk"), [7; 4096]).unwrap();
    let (_server, address) = serve(&path);
    let url = format!("{}/disk?token=secret", address.replace("://", "://me:secret@"));
    let mut curl = Command::new("curl");
    finish(curl.args(["--silent", "--fail", "--xattr", "-o", "got", &url]).current_dir(&path))
        .expect(&[0]);
    let mut recogniser = Recogniser::default();
    let host = address.strip_prefix("http://").unwrap();
    let found = what(&mut recogniser, &path.join("got"));
    assert_eq!(found, Some(format!("Download: finished, from {host}")));
    assert_eq!(what(&mut recogniser, &path.join("disk")), None);
    for (name, by) in [
        ("a.iso.part", "Firefox and others"),
        ("a.crdownload", "Chromium"),
        ("a.!qB", "qBittorrent"),
    ] {
        fs::write(path.join(name), [7; 4096]).unwrap();
        let expected = format!("Download: not finished, by its name (that of {by})");
        assert_eq!(what(&mut recogniser, &path.join(name)), Some(expected));
    }
    fs::write(path.join(".part"), [7; 4096]).unwrap();
    assert_eq!(what(&mut recogniser, &path.join(".part")), None);
}
