//! The daemon as an operator runs it: with the privileges that it keeps it records, plans and moves on real file systems; it
//! follows signals; its units have the privileges that it needs, and no more.

use fragmend::commands::watch::KEPT;
use fragmend_layout::Extent;
use fragmend_scan::layout_of;
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::reader::Reader;
use fragmend_testbed::sqlite::Shell;
use fragmend_testbed::tools::extents;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");
const SIZE: u64 = 8 << 20;
/// The block size of the file systems.
const BLOCK: u64 = 4096;
/// A rule that lets data move, as fast as the disk can.
const MOVE: &str = "
[budget]
bytes_per_day = \"1G\"
[yield]
rate = \"1G\"
io_pressure_percent = 100
[[rule]]
mode = \"move\"
min_gain_s_per_gib = 0
";

/// A user who has no privileges.
const USER: u32 = 65534;
/// Btrfs that keeps two copies of data.
static BTRFS_TWICE: FileSystem = FileSystem {
    name: "btrfs-twice",
    make: &["mkfs.btrfs", "-q", "-f", "-d", "dup", "-m", "dup"],
    ..BTRFS
};

fn image(file_system: &'static FileSystem) -> (Image, PathBuf) {
    image_with(file_system, SIZE, &[4096, 65536])
}

/// A file system with a file of so many bytes, in extents of these lengths.
fn image_with(file_system: &'static FileSystem, size: u64, extents: &[u64]) -> (Image, PathBuf) {
    let image = Image::of(file_system, 320 << 20);
    // Costs are guessed as those of a disk: each break is waited for.
    image.set_queue("rotational", "1");
    let path = image.path().join("file");
    interleaved(&path, size, extents, true).unwrap();
    image.sync();
    (image, path)
}

/// Writes a policy for an image, with recordings of two seconds.
fn policy(image: &Image, more: &str) -> PathBuf {
    let path = image.scratch().join("watch.toml");
    let at = image.path().to_str().expect("a test's own path");
    let text = format!(
        "paths = [\"{at}\"]\nmetrics.listen = \"off\"\nmetrics.textfile = \"{}\"\n[recording]\nwindow = \"2s\"\nevery = \"3s\"\noverhead_percent = 100\n[planning]\nevery = \"4s\"\n{more}",
        textfile(image).display()
    );
    fs::write(&path, text).unwrap();
    path
}

fn watch(image: &Image, policy: &Path) -> Command {
    let mut command = Command::new(FRAGMEND);
    command.arg("watch").arg("--policy").arg(policy).arg("--store").arg(store(image));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn store(image: &Image) -> PathBuf {
    image.scratch().join("store/watch.db")
}

fn textfile(image: &Image) -> PathBuf {
    image.scratch().join("fragmend.prom")
}

/// A line of a process's status.
fn status(pid: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
}

/// The events of one run, while the file is read.
fn once(image: &Image, policy: &Path, file: &Path) -> Vec<Value> {
    let mut reader = Some(Reader::start(file, 128 << 10, Duration::from_millis(1), 1));
    let running = Running::start(watch(image, policy).args(["--once", "--json"]));
    let (permitted, bounding) = (kept("CapPrm:"), kept("CapBnd:"));
    let none = "0".repeat(16);
    let expected = [&none, &permitted, &permitted, &bounding, &none, "1"];
    let mut running = running.wait_until(|pid| {
        let all = ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:"];
        all.map(|name| status(pid, name))
            .iter()
            .zip(expected)
            .all(|(is, e)| is.as_deref() == Some(e))
    });
    let lines = BufReader::new(running.child().stdout.take().expect("it is piped")).lines();
    let mut events: Vec<Value> = Vec::new();
    for line in lines {
        events.push(serde_json::from_str(&line.unwrap()).unwrap());
        // ext4 moves nothing of a file that a program has open.
        if events.last().is_some_and(|event| event["event"] == "recorded") {
            reader.take().map(Reader::finish);
        }
    }
    running.wait().expect(&[0]);
    assert_eq!(events.last().unwrap()["event"], "end", "{events:?}");
    events
}

/// What is left of this process's capabilities once all others but [`KEPT`] are dropped.
fn kept(name: &str) -> String {
    let ours = status(std::process::id(), name).expect("of this process");
    let ours = u64::from_str_radix(&ours, 16).expect("a set");
    format!("{:016x}", ours & KEPT.bits())
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

/// The block of the device in which each block of a file is.
fn places(path: &Path) -> Vec<u64> {
    let layout = layout_of(File::open(path).unwrap()).unwrap();
    let blocks = |e: &Extent| (e.physical..e.physical + e.length).step_by(BLOCK as usize);
    layout.extents().iter().flat_map(blocks).collect()
}

/// What the metrics, the events and the store say of moves is the same, and it is what is in other places of the device now.
fn tell_of_the_same_moves(image: &Image, events: &[Value], relocated: u64) {
    let moved = of_kind(events, "moved");
    let sum = |field: &str| moved.iter().map(|m| m[field].as_u64().unwrap()).sum::<u64>();
    let text = fs::read_to_string(textfile(image)).unwrap();
    let metric = |name: &str| -> u64 {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
    };
    let metrics = ["moves", "ranges_moved", "written_bytes"];
    let metrics = metrics.map(|name| metric(&format!("fragmend_{name}_total")));
    let (moves, ranges, written) = (moved.len() as u64, sum("ranges_moved"), sum("written_bytes"));
    assert_eq!(metrics, [moves, ranges, written], "{text}");
    let mut store = Shell::open(&store(image), &["-readonly"]);
    let stored = store.run(
        "SELECT count(*) || ' ' || sum(written) FROM move;
         SELECT count(*) || ' ' || sum(beyond - first) FROM part WHERE moved;",
    );
    assert_eq!(stored.unwrap().trim(), format!("{moves} {written}\n{ranges} {relocated}"));
    store.close();
    assert!(relocated > 0 && relocated <= written, "{relocated} of {written}");
    assert_eq!(metric("fragmend_budget_left_bytes"), (1 << 30) - written);
    assert_eq!(metric("fragmend_queued_bytes"), 0);
    assert_eq!(fs::metadata(textfile(image)).unwrap().mode() & 0o777, 0o644);
}

#[test]
fn loop_what_costs_time_moves_once_with_the_privileges_that_are_kept() {
    for file_system in [&EXT4, &XFS, &BTRFS] {
        let (image, file) = image(file_system);
        let (fragmented, before) = (extents(&file), places(&file));
        let events = once(&image, &policy(&image, MOVE), &file);
        let moved = of_kind(&events, "moved");
        assert!(
            !moved.is_empty() && moved.iter().all(|m| m["ranges_moved"] == m["ranges"]),
            "{events:?}"
        );
        assert!(extents(&file) * 4 < fragmented, "{} of {fragmented}: {events:?}", extents(&file));
        let relocated = before.iter().zip(places(&file)).filter(|(was, is)| *was != is).count();
        tell_of_the_same_moves(&image, &events, relocated as u64 * BLOCK);
        let stat = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!([stat(&store(&image)), stat(store(&image).parent().unwrap())], [0o600, 0o700]);
        // There is nothing left to do.
        let again = once(&image, &policy(&image, MOVE), &file);
        assert!(of_kind(&again, "moved").is_empty(), "{again:?}");
        let last = of_kind(&again, "status").pop().unwrap().clone();
        assert!(last["budget_left_bytes"].as_u64().unwrap() < 1 << 30, "{last}");
        image.fsck();
        assert!(is_intact(&file, SIZE).unwrap());
    }
}

#[test]
fn loop_without_a_rule_it_advises() {
    let (image, file) = image(&EXT4);
    let fragmented = extents(&file);
    let events = once(&image, &policy(&image, ""), &file);
    let advice = of_kind(&events, "advice");
    assert_eq!(advice.len(), 1, "{events:?}");
    assert_eq!(advice[0]["path"].as_str(), file.to_str());
    assert_eq!(extents(&file), fragmented);
}

/// What another user makes of a watched path is not followed: neither at the start, nor later.
#[test]
fn loop_another_users_link_leads_the_daemon_nowhere() {
    let (image, file) = image(&EXT4);
    let (theirs, link) = (image.scratch().join("theirs"), image.scratch().join("theirs/data"));
    fs::create_dir(&theirs).unwrap();
    symlink(image.path(), &link).unwrap();
    let watched = policy(&image, "");
    let text = fs::read_to_string(&watched).unwrap();
    let at = |path: &Path| format!("[\"{}\"]", path.display());
    fs::write(&watched, text.replace(&at(image.path()), &at(&link))).unwrap();
    let check =
        || finish(Command::new(FRAGMEND).args(["watch", "--check", "--policy"]).arg(&watched));
    // Root's own link, where nobody else can replace it.
    check().expect(&[0]);
    for path in [&theirs, &link] {
        lchown(path, Some(USER), None).unwrap();
        for said in [check(), finish(watch(&image, &watched).arg("--once"))] {
            assert!(
                said.stderr.contains("a symbolic link that another user may change"),
                "{said:?}"
            );
            assert_eq!(
                (said.status.code(), said.stderr.trim_end().lines().count()),
                (Some(8), 1),
                "{said:?}"
            );
        }
        lchown(path, Some(0), None).unwrap();
    }
    // A directory of theirs, which becomes a link while the daemon waits. What is watched besides is watched still.
    let beside = image.scratch().join("beside");
    fs::create_dir(&beside).unwrap();
    let both = format!("[\"{}\", \"{}\"]", link.display(), beside.display());
    fs::write(&watched, text.replace(&at(image.path()), &both)).unwrap();
    fs::remove_file(&link).unwrap();
    fs::create_dir(&link).unwrap();
    lchown(&theirs, Some(USER), None).unwrap();
    let _reader = Reader::start(&file, 128 << 10, Duration::from_millis(1), 1);
    let running =
        Running::start(&mut watch(&image, &watched)).wait_until_it_says("recorded 0 accesses");
    fs::remove_dir(&link).unwrap();
    symlink(image.path(), &link).unwrap();
    // Some periods.
    std::thread::sleep(Duration::from_secs(8));
    running.signal(Signal::TERM);
    let said = running.wait();
    let lines: Vec<&str> = said.stderr.lines().collect();
    let failed = lines.iter().rposition(|line| {
        line.contains("failed: watching ") && line.contains("another user may change")
    });
    let failed = failed.unwrap_or_else(|| panic!("{said:?}"));
    assert!(lines[failed + 1].contains("recorded 0 accesses"), "{said:?}");
    let recorded = |line: &&&str| line.contains("recorded ") && !line.contains("recorded 0 ");
    assert_eq!(lines.iter().filter(recorded).count(), 0, "{said:?}");
}

#[test]
fn loop_a_check_finds_the_paths_that_the_daemon_refuses() {
    let (image, _) = image(&EXT4);
    let watched = policy(&image, "");
    let text = fs::read_to_string(&watched).unwrap();
    let pipe = image.scratch().join("pipe");
    fs::write(image.scratch().join("other"), "").unwrap();
    fs::create_dir(image.scratch().join("open")).unwrap();
    fs::set_permissions(image.scratch().join("open"), Permissions::from_mode(0o777)).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    for (path, more, why) in [
        (image.path().join("gone"), "", "No such file or directory"),
        (pipe, "", "neither a directory nor a regular file"),
        ("/proc/sys".into(), "", "it is on no block device"),
        ("/proc/sys".into(), MOVE, "it is on no block device"),
    ] {
        let mine = text.replace(image.path().to_str().unwrap(), path.to_str().unwrap());
        fs::write(&watched, mine + more).unwrap();
        let mut check = Command::new(FRAGMEND);
        let said = finish(check.args(["watch", "--check", "--policy"]).arg(&watched));
        let started = finish(watch(&image, &watched).arg("--once"));
        assert!(
            said.stderr.contains(path.to_str().unwrap()) && said.stderr.contains(why),
            "{said:?}"
        );
        assert_eq!(said.stderr, started.stderr);
        assert_eq!([said.status.code(), started.status.code()], [Some(8); 2]);
        let said = finish(check.arg("--json"));
        let said: Value = serde_json::from_str(&said.expect(&[8])).unwrap();
        assert!(said["error"].as_str().is_some_and(|error| error.contains(why)), "{said}");
    }
    let bound = image.scratch().join("bound");
    fs::create_dir(&bound).unwrap();
    let own = image.scratch().join("own");
    fs::create_dir(&own).unwrap();
    let _read_only = MountGuard::mount(&["--bind", "-o", "ro", own.to_str().unwrap()], &bound);
    // Figures that nobody would find; the daemon goes on without them, and a run of a timer is no success.
    for (directory, why) in [
        ("gone", "No such file"),
        ("open", "every user may write"),
        ("bound", "Read-only file system"),
    ] {
        let directory = image.scratch().join(directory);
        let mine = text.replace(
            textfile(&image).to_str().unwrap(),
            directory.join("figures.prom").to_str().unwrap(),
        );
        fs::write(&watched, mine).unwrap();
        let mut check = Command::new(FRAGMEND);
        let said = finish(check.args(["watch", "--check", "--policy"]).arg(&watched));
        let once = finish(watch(&image, &watched).arg("--once"));
        assert_eq!([said.status.code(), once.status.code()], [Some(8), Some(4)], "{once:?}");
        for said in [said, once] {
            assert!(
                said.stderr.contains("figures.prom cannot be written") && said.stderr.contains(why),
                "{said:?}"
            );
        }
    }
    // A run of a timer serves nothing, and its unit permits no socket.
    fs::write(&watched, text.replace("\"off\"", "\"192.0.2.1:9796\"")).unwrap();
    let check = |more: &[&str]| {
        let mut check = Command::new(FRAGMEND);
        finish(check.args(["watch", "--check", "--policy"]).arg(&watched).args(more))
    };
    let refused = check(&[]);
    assert!(refused.stderr.contains("cannot be served at 192.0.2.1:9796"), "{refused:?}");
    assert_eq!(refused.status.code(), Some(8));
    check(&["--once"]).expect(&[0]);
}

/// Files are known by their paths without links: a rule that named one by a link would not protect it.
#[test]
fn loop_a_rule_that_leads_over_a_link_is_refused() {
    let (image, file) = image(&EXT4);
    let link = image.scratch().join("link");
    symlink(image.path(), &link).unwrap();
    let ignoring = |path: &Path| {
        let rule = format!("[[rule]]\npath = \"{}\"\nmode = \"ignore\"\n{MOVE}", path.display());
        let watched = policy(&image, &rule);
        let text = fs::read_to_string(&watched).unwrap();
        let at = format!("paths = [\"{}\"]", image.path().display());
        fs::write(&watched, text.replace(&at, &format!("paths = [\"{}\"]", link.display())))
            .unwrap();
        watched
    };
    for rule in [link.join("file"), link.join("not/yet/**"), link.clone()] {
        let watched = ignoring(&rule);
        let mut check = Command::new(FRAGMEND);
        let said = finish(check.args(["watch", "--check", "--policy"]).arg(&watched));
        let once = finish(watch(&image, &watched).arg("--once"));
        assert_eq!([said.status.code(), once.status.code()], [Some(8); 2], "{said:?} {once:?}");
        let why = format!("{}: it is a symbolic link, and a rule's", link.display());
        assert!(said.stderr.contains(&why) && once.stderr.contains(&why), "{said:?} {once:?}");
    }
    let before = places(&file);
    let events = once(&image, &ignoring(&file), &file);
    assert!(of_kind(&events, "moved").is_empty() && places(&file) == before, "{events:?}");
}

/// Every user may ask, and is told what was not looked at.
#[test]
fn loop_a_check_without_root_says_what_it_has_not_seen() {
    let (image, file) = image(&EXT4);
    let program = image.scratch().join("program");
    fs::copy(FRAGMEND, &program).unwrap();
    let (hidden, open) = (image.path().join("hidden"), image.scratch().join("open.toml"));
    fs::create_dir(&hidden).unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    mode(&program, 0o755);
    mode(&hidden, 0o700);
    mode(image.scratch(), 0o755);
    for (path, more, code, why) in [
        (hidden.join("file"), "", 0, "only root can see whether it can be watched"),
        (file.clone(), MOVE, 0, "whether data can be moved there only root can see"),
        (image.path().join("gone"), "", 8, "No such file or directory"),
    ] {
        let text = format!("paths = [\"{}\"]\n{more}", path.display());
        fs::write(&open, text).unwrap();
        let mut check = Command::new("setpriv");
        check.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        let said = finish(check.args(["watch", "--check", "--policy"]).arg(&open));
        assert!(said.stderr.contains(why) && said.status.code() == Some(code), "{said:?}");
    }
}

/// What a file system keeps twice the device is written twice.
#[test]
fn loop_the_budget_counts_each_copy() {
    let (image, file) = image(&BTRFS_TWICE);
    let before = places(&file);
    let events = once(&image, &policy(&image, MOVE), &file);
    let relocated = before.iter().zip(places(&file)).filter(|(was, is)| *was != is).count();
    let relocated = relocated as u64 * BLOCK;
    let moved = of_kind(&events, "moved");
    let written: u64 = moved.iter().map(|m| m["written_bytes"].as_u64().unwrap()).sum();
    assert!(relocated > 0 && written >= 2 * relocated, "{written} of {relocated}: {events:?}");
    tell_of_the_same_moves(&image, &events, relocated);
    // Three times what is moved would do for one copy, and is too little for two.
    let (image, file) = self::image(&BTRFS_TWICE);
    let events = once(&image, &policy(&image, &MOVE.replace("1G", "24M")), &file);
    let queued = of_kind(&events, "planned")[0]["queued_bytes"].as_u64().unwrap();
    assert!(queued <= 6 << 20, "{queued}: {events:?}");
}

#[test]
fn loop_the_budget_counts_the_metadata_that_no_process_is_charged_for() {
    for file_system in [&EXT4, &XFS, &BTRFS] {
        let size = 256 << 10;
        let (image, file) = image_with(file_system, size, &[4096]);
        image.remount();
        let before = image.counters().written_bytes;
        let events = once(&image, &policy(&image, MOVE), &file);
        assert_eq!(extents(&file), 1, "{events:?}");
        // What the move left to the kernel is written, and little else: nobody else writes there.
        image.unmount();
        let device = image.counters().written_bytes - before;
        let moved = of_kind(&events, "moved");
        let settled: u64 = moved.iter().map(|m| m["written_bytes"].as_u64().unwrap()).sum();
        println!("{}: {device} bytes written, settled at {settled}", file_system.name);
        assert!(device >= size && settled >= device, "{settled} of {device}: {events:?}");
    }
}

#[test]
fn loop_signals_reload_the_policy_and_end_the_daemon() {
    let (image, _) = image(&EXT4);
    let path = policy(&image, "");
    let running =
        Running::start(&mut watch(&image, &path)).wait_until_it_says("watching; nothing moves");
    let second = finish(watch(&image, &path).arg("--once"));
    assert!(second.stderr.contains("another fragmend watch uses the store"), "{second:?}");
    // Longer than a recording, which a signal does not cut short.
    let soon = Duration::from_secs(5);
    fs::write(&path, "paths = []").unwrap();
    running.signal(Signal::HUP);
    std::thread::sleep(soon);
    policy(&image, MOVE);
    running.signal(Signal::HUP);
    std::thread::sleep(soon);
    running.signal(Signal::TERM);
    let said = running.wait();
    let stderr = said.stderr.clone();
    assert_eq!(said.expect(&[0]), "");
    let order = [
        "watching; nothing moves",
        "the one before still applies",
        "the policy was read again, and applies",
        "ended; what has moved",
    ];
    let found: Vec<_> = order.iter().map(|words| stderr.find(words)).collect();
    assert!(found.iter().all(Option::is_some) && found.is_sorted(), "{found:?}: {stderr}");
}

#[test]
fn units_have_the_privileges_that_are_kept_and_no_mistake() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let dir = fragmend_testbed::scratch::directory("units");
    let mut names = Vec::new();
    for entry in fs::read_dir(&units).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        if path.extension().is_some_and(|end| end == "service") {
            let set =
                text.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
            let mut named: Vec<String> = set.split(' ').map(str::to_owned).collect();
            named.sort();
            let mut kept: Vec<String> =
                KEPT.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
            kept.sort();
            assert_eq!(named, kept, "{}", path.display());
        }
        // The program is not installed here.
        let copy = dir.path().join(path.file_name().unwrap());
        fs::write(&copy, text.replace("/usr/bin/fragmend", FRAGMEND)).unwrap();
        names.push(copy);
    }
    assert_eq!(names.len(), 3);
    let verified =
        finish(Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&names));
    assert!(verified.status.success() && verified.stderr.is_empty(), "{verified:?}");
    // Exposure from 0 to 10, times ten.
    let service = dir.path().join("fragmend-watch.service");
    let rated = ["security", "--offline=true", "--threshold=40", "--no-pager"];
    let rated = finish(Command::new("systemd-analyze").args(rated).arg(service));
    assert!(rated.status.success(), "{rated:?}");
}
