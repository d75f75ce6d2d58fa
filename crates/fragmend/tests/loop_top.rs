//! `fragmend top` in a real terminal emulator, by what it shows: on a file system that is being read, from the first screen to a
//! plan that was carried out; and whatever ends it, the terminal is as before and no byte of a file has changed.

use fragmend_testbed::fragment::{FRAGPICKER_EXTENTS, interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::reader::Reader;
use fragmend_testbed::terminal::Terminal;
use fragmend_testbed::tools::extents;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

/// An ext4 on what seems to be a disk, so that each break is waited for, with a fragmented file of this name that a
/// program has open and reads: on ext4 it is moved all the same with --force alone.
struct Busy {
    reader: Option<Reader>,
    path: PathBuf,
    bytes: u64,
    image: Image,
}

impl Busy {
    fn with_file(name: &str, bytes: u64) -> Self {
        let image = Image::ext4(256 * MIB);
        image.set_queue("rotational", "1");
        let path = image.path().join(name);
        interleaved(&path, bytes, &FRAGPICKER_EXTENTS, true).unwrap();
        image.sync();
        let reader = Reader::start(&path, 128 << 10, Duration::from_millis(5), 42);
        Self { reader: Some(reader), path, bytes, image }
    }

    /// Nothing but its place has changed.
    fn is_intact(&mut self) {
        self.reader.take();
        assert!(is_intact(&self.path, self.bytes).unwrap(), "a byte has changed");
        self.image.fsck();
    }

    /// Starts `fragmend top` in the terminal, with these options.
    fn watched_in(&self, terminal: &Terminal, options: &str) {
        let path = self.image.path().display();
        terminal.line(&format!("clear; {FRAGMEND} top {options} {path}; echo ended with $?"));
    }
}

/// Whether the shell shows that it ended with one of these codes.
fn ended(shown: &str, codes: &[&str]) -> bool {
    let code = shown.lines().find_map(|line| line.strip_prefix("ended with "));
    code.is_some_and(|code| codes.contains(&code.trim_end()))
}

/// The number of the process that a shell in a terminal has started.
fn started_on(path: &Path) -> Option<u32> {
    let is_it = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.first() == Some(&FRAGMEND.as_bytes())
            && words.contains(&path.as_os_str().as_encoded_bytes())
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_it)
}

fn signal(path: &Path, signal: rustix::process::Signal) {
    let pid = started_on(path).expect("it runs");
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Presses `s` until the question comes: not each plan of the first seconds moves something.
fn start(terminal: &Terminal) -> String {
    let begun = Instant::now();
    loop {
        terminal.press("s");
        std::thread::sleep(Duration::from_millis(400));
        let shown = terminal.shown();
        if shown.contains("y  start") {
            return shown;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no plan:\n{shown}");
    }
}

#[test]
fn loop_from_the_first_screen_to_a_plan_that_was_carried_out() {
    let mut busy = Busy::with_file("orders", 16 * MIB);
    let before = extents(&busy.path);
    let terminal = Terminal::open(80, 24);
    let modes = terminal.modes();
    busy.watched_in(&terminal, "--force --rate max");
    let path = busy.path.display().to_string();
    let end_of_path = &path[path.len() - 20..];
    let shown = terminal
        .wait_for("the file", |s| s.contains(end_of_path) && s.contains("1 of 2 files fragmented"));
    assert!(shown.contains("fragmend top") && shown.contains(" r/s"), "{shown}");
    assert!(shown.lines().last().is_some_and(|keys| keys.contains("s start")), "{shown}");
    let row = shown.lines().find(|line| line.ends_with(end_of_path)).unwrap();
    let digits: String = row[..44].chars().filter(|c| *c != ' ').collect();
    assert!(digits.contains(&before.to_string()), "its {before} fragments are in {row}");
    terminal.wait_for("what is read", |s| s.lines().any(|l| l.contains("FF") || l.contains("PP")));
    let asked = start(&terminal);
    assert!(asked.contains("Write ") && asked.contains("to save"), "{asked}");
    terminal.press("y");
    let moved = terminal.wait_for("the end of the run", |s| {
        s.lines().any(|line| line.starts_with("moved ") && line.contains(" fragments to "))
    });
    let after = extents(&busy.path);
    assert!(after < before / 4, "{after} of {before} extents: {moved}");
    terminal.press("q");
    // 2: something was left as it is that could be better.
    terminal.wait_for("the end", |s| ended(s, &["0", "2"]));
    assert_eq!(terminal.modes(), modes);
    busy.is_intact();
}

#[test]
fn loop_a_run_pauses_goes_on_and_stops() {
    let mut busy = Busy::with_file("orders", 32 * MIB);
    let before = extents(&busy.path);
    let terminal = Terminal::open(100, 30);
    busy.watched_in(&terminal, "--force --policy fragpicker --rate 2M");
    start(&terminal);
    terminal.press("y");
    terminal.wait_for("progress", |s| s.contains("moving: ") && !s.contains("moving: 0 B"));
    terminal.press("p");
    terminal.wait_for("the pause", |s| s.contains("paused:"));
    // Nothing moves, and no file is open.
    let paused = extents(&busy.path);
    assert!(paused < before, "{paused} of {before}");
    let pid = started_on(busy.image.path()).unwrap();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let open = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    let open: Vec<_> = open.filter(|to| to.starts_with(busy.image.path())).collect();
    assert!(open.is_empty(), "{open:?}");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(extents(&busy.path), paused);
    terminal.press("r");
    terminal.wait_for("that it goes on", |s| s.contains("moving:"));
    let begun = Instant::now();
    while extents(&busy.path) >= paused {
        assert!(begun.elapsed() < Duration::from_secs(60), "it goes on: {}", terminal.shown());
        std::thread::sleep(Duration::from_millis(100));
    }
    terminal.press("x");
    terminal.wait_for("the stop", |s| s.contains("stopped before the end"));
    let stopped = extents(&busy.path);
    assert!(stopped > before / 8, "{stopped} of {before} are left");
    terminal.press("q");
    // 16: incomplete.
    terminal.wait_for("the end", |s| ended(s, &["16", "18"]));
    busy.is_intact();
}

#[test]
fn loop_the_terminal_is_as_before_whatever_ends_it() {
    use rustix::process::Signal;
    let mut busy = Busy::with_file("orders", 32 * MIB);
    let path = busy.image.path().to_owned();
    let terminal = Terminal::open(80, 24);
    let modes = terminal.modes();
    let press = |key| terminal.press(key);
    let send = |number| signal(&path, number);
    // It is not suspended: the shell would find the terminal as it is.
    let suspend = || {
        send(Signal::TSTP);
        std::thread::sleep(Duration::from_millis(500));
        press("q");
    };
    let ends: [(&str, &dyn Fn(), bool); 13] = [
        ("q", &|| press("q"), false),
        ("q", &|| press("q"), true),
        ("Ctrl-C", &|| press("C-c"), false),
        ("SIGTERM", &|| send(Signal::TERM), false),
        ("SIGTERM", &|| send(Signal::TERM), true),
        ("SIGHUP", &|| send(Signal::HUP), false),
        ("SIGHUP", &|| send(Signal::HUP), true),
        ("SIGINT", &|| send(Signal::INT), false),
        ("SIGQUIT", &|| send(Signal::QUIT), false),
        ("SIGQUIT", &|| send(Signal::QUIT), true),
        ("SIGALRM", &|| send(Signal::ALARM), true),
        ("SIGTSTP and q", &suspend, false),
        ("SIGTSTP and q", &suspend, true),
    ];
    for (name, end, moving) in ends {
        busy.watched_in(&terminal, "--force --policy fragpicker --rate 1M");
        terminal.wait_for("the keys", |s| s.contains("q quit"));
        if moving {
            start(&terminal);
            terminal.press("y");
            terminal.wait_for("the run", |s| s.contains("moving:"));
        }
        end();
        terminal.wait_for(&format!("the end by {name}"), |s| s.contains("ended with "));
        assert_eq!(terminal.modes(), modes, "after {name}, moving: {moving}");
        assert_eq!(started_on(&path), None, "after {name}");
    }
    busy.is_intact();
}

/// Whatever stopped it, a shell has had the terminal meanwhile, and left it as shells need it.
#[test]
fn loop_it_takes_the_terminal_again_after_a_stop() {
    let mut busy = Busy::with_file("orders", 8 * MIB);
    let path = busy.image.path().to_owned();
    let terminal = Terminal::open(80, 24);
    // A shell that makes the terminal its own again: after SIGSTOP nothing else can.
    terminal.line("exec bash --norc --noprofile");
    terminal.line("echo it is another shell");
    terminal.wait_for("bash", |s| s.lines().any(|line| line == "it is another shell"));
    let modes = terminal.modes();
    busy.watched_in(&terminal, "");
    terminal.wait_for("the keys", |s| s.contains("q quit"));
    signal(&path, rustix::process::Signal::STOP);
    terminal.wait_for("the shell", |s| s.contains("ended with "));
    terminal.line("echo a line of the shell");
    terminal.line("fg; echo it really ended");
    let whole = |s: &str| s.contains("q quit") && s.starts_with("fragmend top");
    terminal.wait_for("the screen without the shell's lines", |s| {
        whole(s) && !s.contains("ended with") && !s.contains("line of the shell")
    });
    terminal.press("?");
    terminal.wait_for("an answer to a key", |s| s.contains("a run ends at its next safe point"));
    terminal.press("q");
    terminal.press("q");
    terminal.wait_for("the end", |s| s.lines().any(|line| line == "it really ended"));
    assert_eq!(terminal.modes(), modes);
    assert_eq!(started_on(&path), None);
    busy.is_intact();
}

/// The connection is lost while data moves: the run ends at its next safe point, and the process with it.
#[test]
fn loop_a_lost_terminal_ends_a_run_safely() {
    let mut busy = Busy::with_file("orders", 32 * MIB);
    let terminal = Terminal::open(80, 24);
    // It stays when the terminal hangs up, and finds that by itself.
    let path = busy.image.path().to_owned();
    terminal.line(&format!(
        "trap '' HUP; {FRAGMEND} top --force --policy fragpicker --rate 1M {}",
        path.display()
    ));
    start(&terminal);
    terminal.press("y");
    terminal.wait_for("the run", |s| s.contains("moving:"));
    let pid = started_on(&path).expect("it runs");
    terminal.close();
    let begun = Instant::now();
    while Path::new(&format!("/proc/{pid}")).exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    busy.is_intact();
}

#[test]
fn loop_no_name_and_no_size_breaks_the_screen() {
    let mut busy = Busy::with_file("\x1b]0;title\x07\x1b[2J\u{202e}\n\u{540d}", 8 * MIB);
    let terminal = Terminal::open(80, 24);
    let modes = terminal.modes();
    terminal.line("export NO_COLOR=1");
    busy.watched_in(&terminal, "");
    let shown = terminal.wait_for("the file", |s| s.contains(r"\x1b[2J"));
    assert!(shown.contains(r"\u{202e}\n"), "{shown}");
    terminal.resize(132, 40);
    terminal.wait_for("a larger screen", |s| {
        s.lines().count() == 40 && s.lines().last().is_some_and(|keys| keys.contains("q quit"))
    });
    terminal.resize(40, 10);
    terminal.wait_for("what is too small", |s| s.contains("are needed"));
    terminal.resize(80, 24);
    terminal.wait_for("the file again", |s| s.contains(r"\x1b[2J"));
    terminal.press("q");
    terminal.wait_for("the end", |s| ended(s, &["0"]));
    assert_eq!(terminal.modes(), modes);
    busy.is_intact();
}

#[test]
fn loop_it_needs_a_terminal() {
    let image = Image::ext4(64 * MIB);
    let mut command = std::process::Command::new(FRAGMEND);
    command.arg("top").arg(image.path());
    let ended = fragmend_testbed::process::finish(&mut command);
    assert_eq!(ended.status.code(), Some(8));
    assert!(ended.stderr.contains("needs a terminal"), "{}", ended.stderr);
}
