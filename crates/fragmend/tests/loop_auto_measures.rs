//! `fragmend auto` sets what it predicted beside what it then measured, and says why where nothing could be measured.

use fragmend_testbed::file_system::EXT4;
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::loop_device::unmount;
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::{Finished, Running, finish};
use fragmend_testbed::replay::{self, Mode};
use fragmend_testbed::scratch;
use fragmend_testbed::served::ServedDrive;
use fragmend_testbed::tools::{WATCHING, extents};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 4 * MIB;
const FILES: [&str; 3] = ["once", "again", "by-the-wall"];
const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

/// A memory card that is served and probed, with an ext4 and three files in fragments of 16 KiB.
struct Card {
    // Unmounted first.
    mounted: MountGuard,
    served: ServedDrive,
    scratch: tempfile::TempDir,
}

impl Card {
    fn new() -> Self {
        let scratch = scratch::directory("auto");
        let served = ServedDrive::start(&["microsd", "--size", "96M"]);
        EXT4.make(&served.node(), &[]);
        let mount = scratch.path().join("mnt");
        std::fs::create_dir(&mount).unwrap();
        let mounted = MountGuard::mount(&[served.node()], &mount);
        let card = Self { mounted, served, scratch };
        for file in FILES {
            interleaved(&card.file(file), SIZE, &[16 << 10], true).unwrap();
        }
        rustix::fs::syncfs(File::open(&mount).unwrap()).unwrap();
        // A card does one command at a time, so it does not matter when the next ones arrive.
        card.served.control("settle 1").unwrap();
        card.probe("auto");
        card
    }

    /// Probes it by this clock.
    fn probe(&self, clock: &str) {
        let mut probe = self.command();
        let args = ["probe", "-q", "--no-intervals", "--pace", "max", "--seconds", "10m"];
        probe.args(args).args(["--clock", clock]).arg(self.served.node());
        finish(&mut probe).expect(&[0]);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.mounted.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(FRAGMEND);
        command.env("FRAGMEND_PROFILES", self.scratch.path().join("profiles"));
        command
    }

    /// Starts `auto` on a file, and waits until it says that it watches.
    fn auto(&self, args: &[&str], file: &Path) -> Running {
        let mut command = self.command();
        command.args(["auto", "--yes", "--duration", "3s"]).args(args).arg(file);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start(command).wait_until_it_says(WATCHING)
    }

    fn end(self) {
        for file in FILES {
            assert!(is_intact(&self.file(file), SIZE).unwrap());
        }
        let (node, mount) = (self.served.node(), self.mounted.path().to_owned());
        unmount(&node, &mount);
        EXT4.check(&node).unwrap();
        self.served.quit();
    }
}

/// The measurement in the summary, which is the last event.
fn measurement(finished: Finished, codes: &[i32]) -> Value {
    let said = finished.expect(codes);
    let last = said.lines().next_back().expect("events");
    let summary: Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert_eq!(summary["event"], "summary", "{said}");
    summary["measurement"].clone()
}

fn seconds(times: &Value, name: &str) -> f64 {
    times[name].as_f64().unwrap_or_else(|| panic!("{name}: {times}"))
}

#[test]
fn loop_prediction_is_set_beside_measurement_on_a_served_drive() {
    let card = Card::new();
    replayed(&card);
    watched_again(&card);
    by_the_clock_of_its_costs(&card);
    card.end();
}

/// What `auto` has measured of reads of a file, which it replayed by this clock.
fn replayed_by(clock: &str, card: &Card, file: &Path) -> Value {
    let running = card.auto(&["--json"], file);
    replay::replay(file, &replay::zipfian(SIZE, 3), Mode::Direct).unwrap();
    // A busy machine may have a range left as it is.
    let found = measurement(running.wait(), &[0, 2]);
    assert_eq!(
        (&found["method"], &found["clock"], &found["not_measured"]),
        (&"replayed".into(), &clock.into(), &Value::Null),
        "{found}"
    );
    found
}

/// The recorded reads are replayed before and after.
fn replayed(card: &Card) {
    let file = card.file("once");
    let found = replayed_by("served", card, &file);
    // All of what was recorded, as it is little.
    assert_eq!((&found["reads"], &found["recorded_reads"]), (&32.into(), &32.into()), "{found}");
    assert_eq!(found["read_bytes"], SIZE, "{found}");
    let (predicted, measured) = (&found["predicted"], &found["measured"]);
    let saved = [predicted, measured].map(|times| seconds(times, "seconds_saved"));
    assert!(saved[1] > 0.5 * seconds(measured, "seconds_before"), "{found}");
    assert!((saved[0] - saved[1]).abs() < 0.15 * saved[1], "{found}");
    let noise = found["noise"].as_f64().unwrap();
    assert!(noise < 0.15, "{found}");
    let share = found["saved_of_predicted"].as_f64().unwrap_or_else(|| panic!("{found}"));
    assert!((share - saved[1] / saved[0]).abs() < 1e-9, "{found}");
}

/// A service reads all the time, from before the first watch to after the second.
fn watched_again(card: &Card) {
    let file = card.file("again");
    // It rests between, so that it reads about as much in both watches on a busy machine as well.
    let code =
        "while :; do dd if=\"$1\" of=/dev/null bs=128K iflag=direct status=none; sleep 0.3; done";
    let mut service = Command::new("bash");
    let service = Running::start(service.args(["-c", code, "bash"]).arg(&file));
    // The service has the file open while ranges move.
    let running = card.auto(&["--force", "--watch-again"], &file);
    let finished = running.wait();
    drop(service);
    let said = finished.expect(&[0, 2]);
    let row = said.lines().find(|line| line.trim_start().starts_with("measured "));
    let row = row.unwrap_or_else(|| panic!("nothing was measured: {said}"));
    for part in ["the service watched again", "predicted ", "by the drive's own (virtual) clock"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!row.contains('-'), "it is quicker: {said}");
}

/// What was probed by the clock on the wall is measured by that: predictions are in its time.
fn by_the_clock_of_its_costs(card: &Card) {
    card.probe("wall");
    let file = card.file("by-the-wall");
    replayed_by("wall", card, &file);
}

/// A disk with files of fragments of 4 KiB.
fn disk(files: &[&str]) -> (Image, Vec<PathBuf>) {
    let image = Image::ext4(256 * MIB);
    image.set_queue("rotational", "1");
    let paths: Vec<PathBuf> = files.iter().map(|name| image.path().join(name)).collect();
    for path in &paths {
        interleaved(path, SIZE, &[4096], true).unwrap();
    }
    image.sync();
    (image, paths)
}

/// Starts `auto` on a disk; these files are read while it watches.
fn auto(image: &Image, args: &[&str], files: &[PathBuf]) -> Running {
    let mut command = Command::new(FRAGMEND);
    command.args(["auto", "--yes", "--json", "--duration", "2s"]).args(args).arg(image.path());
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running::start(command).wait_until_it_says(WATCHING);
    for path in files {
        replay::replay(path, &replay::sequential(SIZE), Mode::Direct).unwrap();
    }
    running
}

#[test]
fn loop_what_is_left_alone_is_not_predicted() {
    let (image, paths) = disk(&["open", "free"]);
    let held = File::open(&paths[0]).unwrap();
    let found = measurement(auto(&image, &[], &paths).wait(), &[2]);
    let (ranges, planned) = (&found["predicted_ranges"], &found["planned_ranges"]);
    let [ranges, planned] = [ranges, planned].map(|n| n.as_u64().unwrap());
    assert!(0 < ranges && ranges < planned, "{found}");
    // Two files that are read alike: half of the requests is as it was.
    let predicted = &found["predicted"];
    let saved = seconds(predicted, "seconds_saved") / seconds(predicted, "seconds_before");
    assert!((0.2..0.6).contains(&saved), "{found}");
    drop(held);
}

#[test]
fn loop_a_service_that_rests_when_it_is_watched_again_is_not_compared() {
    let (image, paths) = disk(&["file"]);
    // All the time.
    let little = image.path().join("little");
    std::fs::write(&little, [1; 4096]).unwrap();
    image.sync();
    let code =
        "while :; do dd if=\"$1\" of=/dev/null bs=4K iflag=direct status=none; sleep 0.1; done";
    let mut service = Command::new("bash");
    let service = Running::start(service.args(["-c", code, "bash"]).arg(&little));
    let found = measurement(auto(&image, &["--watch-again"], &paths).wait(), &[0]);
    drop(service);
    assert_eq!(
        (&found["not_measured"], &found["measured"], &found["saved_of_predicted"]),
        (&"load-differs".into(), &Value::Null, &Value::Null),
        "{found}"
    );
}

#[test]
fn loop_what_cannot_be_measured_says_why_and_is_no_failure() {
    // A file that another program has open is left alone, so nothing moves.
    let (image, paths) = disk(&["file"]);
    let path = &paths[0];
    let auto = |args: &[&str]| auto(&image, args, &paths);
    let held = File::open(path).unwrap();
    let found = measurement(auto(&[]).wait(), &[2]);
    assert_eq!(
        (&found["not_measured"], &found["measured"]),
        (&"nothing-moved".into(), &Value::Null)
    );
    assert!(found["predicted"]["seconds_before"].as_f64().unwrap() > 0.0, "{found}");
    drop(held);
    // Stopped in the middle of the moves.
    let fragments = extents(path);
    let running = auto(&["--rate", "1M"]);
    let moves = (0..3000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        extents(path) < fragments
    });
    assert!(moves, "nothing moves for a minute");
    running.signal(Signal::INT);
    let found = measurement(running.wait(), &[16, 18]);
    assert_eq!(found["not_measured"], "interrupted", "{found}");
    // And by the clock on the wall, with its noise.
    let found = measurement(auto(&[]).wait(), &[0]);
    assert_eq!((&found["clock"], &found["not_measured"]), (&"wall".into(), &Value::Null));
    assert!(seconds(&found["measured"], "seconds_before") > 0.0 && found["noise"].is_f64());
    assert!(is_intact(path, SIZE).unwrap());
}
