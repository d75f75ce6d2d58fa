//! The name of a file cannot control the terminal on which it is shown.

use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, finish};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Command, Stdio};

const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

/// Runs a program on a terminal of its own that changes no byte, and passes its output on.
const ON_A_TERMINAL: &str = "
import os, pty, sys, tty
pid, terminal = pty.fork()
if pid == 0:
    tty.setraw(1)
    os.environ['TERM'] = 'xterm'
    os.execv(sys.argv[1].encode(), [os.fsencode(a) for a in sys.argv[1:]])
while True:
    try:
        shown = os.read(terminal, 65536)
    except OSError:
        break
    if not shown:
        break
    sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

/// Titles, colours, a bell, line breaks, C1 in both forms, a tab, text direction, and invalid UTF-8.
const NAMES: [&[u8]; 9] = [
    b"\x1b]0;title\x07",
    b"\x1b[31mred",
    b"new\nline",
    b"re\rturn\tab",
    b"\xc2\x9b31m\xc2\x85",
    b"\x9b31m\xff",
    "\u{202e}txt.exe".as_bytes(),
    b"\x7f\x08\x08",
    b"cut \xe5\x90",
];

/// What fragmend shows on a terminal, and its exit code.
fn shown(args: &[&OsStr]) -> (Vec<u8>, Option<i32>) {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "20", "python3", "-c", ON_A_TERMINAL, FRAGMEND]).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut running = Running::start(&mut command);
    let mut bytes = Vec::new();
    running.child().stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    (bytes, running.wait().status.code())
}

/// Checks for UTF-8 text without control characters other than newlines, and for one of `codes`.
fn harmless(args: &[&OsStr], codes: &[i32]) -> String {
    let (bytes, code) = shown(args);
    let text = String::from_utf8(bytes).expect("UTF-8");
    assert!(code.is_some_and(|c| codes.contains(&c)), "{args:?} ended with {code:?}: {text}");
    // In JSON the name is exact; text direction does not control a terminal.
    let json = args.contains(&OsStr::new("--json"));
    let obeyed = |c: &char| c.is_control() && *c != '\n' || *c == '\u{202e}' && !json;
    let found: Vec<char> = text.chars().filter(obeyed).collect();
    assert!(found.is_empty(), "{args:?} shows {found:?} in {text:?}");
    text
}

fn args<'a>(words: &[&'a str], path: &'a OsStr) -> Vec<&'a OsStr> {
    words.iter().map(|w| OsStr::new(*w)).chain([path]).collect()
}

#[test]
fn loop_no_name_reaches_the_terminal() {
    let image = Image::ext4(128 << 20);
    for name in NAMES {
        let dir = image.path().join(OsStr::from_bytes(name));
        std::fs::create_dir(&dir).unwrap();
        interleaved(&dir.join(OsStr::from_bytes(name)), 64 << 10, &[4096], true).unwrap();
        // Immutable files are refused: their names are among those that were left alone.
        let mut immutable = dir.join("immutable").into_os_string();
        immutable.push(OsStr::from_bytes(name));
        interleaved(immutable.as_ref(), 64 << 10, &[4096], true).unwrap();
        let marked = std::fs::File::open(&immutable).unwrap();
        let flags = fragmend_sys::inode::attributes(&marked).unwrap();
        let immutable = fragmend_sys::inode::flags::IMMUTABLE;
        fragmend_sys::inode::set_attributes(&marked, flags | immutable).unwrap();
    }
    image.sync();
    let all = image.path().as_os_str();
    let plan = image.scratch().join("plan.json");
    let plan = plan.to_str().unwrap();

    let text = harmless(&args(&["scan", "-q"], all), &[0]);
    assert!(text.contains(r"\x1b]0;title\x07") && text.contains(r"new\nline"), "{text}");
    harmless(&args(&["scan", "-q", "--json"], all), &[0]);
    let whole = ["plan", "-q", "--policy", "whole-file"];
    harmless(&args(&[&whole[..], &["--json"]].concat(), all), &[0]);
    let text = harmless(&args(&[&whole[..], &["--top", "99", "-o", plan]].concat(), all), &[0]);
    assert!(text.contains(r"\x9b31m\xff"), "{text}");
    harmless(&args(&["apply", "-q", "--json", "--dry-run"], plan.as_ref()), &[0, 2]);
    // The same as text.
    harmless(&args(&["apply", "-q", "--dry-run"], plan.as_ref()), &[0, 2]);

    // Errors contain names.
    let mut missing = all.to_owned();
    missing.push(OsString::from_vec([b"/missing ", &NAMES.concat()[..]].concat()));
    let missing = missing.as_os_str();
    harmless(&args(&["scan", "-q"], missing), &[4]);
    harmless(&args(&["plan", "-q", "--policy", "bypass"], missing), &[4]);
    harmless(&args(&["plan", "-q", "-t"], missing), &[4]);
    harmless(&args(&["apply", "-q"], missing), &[4]);
    harmless(&args(&["lab", "drive"], missing), &[8]);
    for name in [&NAMES.concat()[..], NAMES[0]] {
        let mut option = OsString::from("--");
        option.push(OsStr::from_bytes(name));
        harmless(&args(&["scan"], &option), &[8]);
    }
}

/// Progress and hints have control sequences of their own: none of them comes from a name.
#[test]
fn loop_nor_beside_progress_and_hints() {
    let image = Image::ext4(128 << 20);
    for name in NAMES {
        let path = image.path().join(OsStr::from_bytes(name));
        interleaved(&path, 256 << 10, &[4096], true).unwrap();
    }
    image.sync();
    let plan = image.scratch().join("plan.json");
    let plan = plan.to_str().unwrap();
    let all = image.path().as_os_str();
    for (words, path) in [
        (&["scan"][..], all),
        (&["plan", "--policy", "whole-file", "-o", plan], all),
        (&["apply"], plan.as_ref()),
    ] {
        let (bytes, code) = shown(&args(words, path));
        assert!(matches!(code, Some(0 | 2)), "{words:?}: {code:?}");
        for theirs in
            [&b"\x1b]"[..], b"\x1b[31m", b"\x07", b"\x08", b"\xc2\x9b", b"\x9b31m", b"\xff"]
        {
            let found = bytes.windows(theirs.len()).any(|w| w == theirs);
            assert!(!found, "{words:?} shows {theirs:?}: {:?}", String::from_utf8_lossy(&bytes));
        }
    }
}

/// A line that begins in a path could be mistaken for one of fragmend's own.
const FORGED: &str = "FORGED: all is well";

#[test]
fn loop_no_name_begins_a_line() {
    let image = Image::ext4(128 << 20);
    let name = format!("x\n{FORGED}\r{FORGED}");
    let path = image.path().join(&name);
    interleaved(&path, 256 << 10, &[4096], true).unwrap();
    image.sync();
    let missing = image.path().join(format!("missing{name}"));
    let plan = image.scratch().join(format!("plan{name}"));
    let (path, missing, plan) = (path.as_os_str(), missing.as_os_str(), plan.as_os_str());
    let option = OsString::from(format!("--option{name}"));
    let value = OsString::from(format!("--top={name}"));
    let words =
        |words: &[&'static str]| -> Vec<OsString> { words.iter().map(Into::into).collect() };
    let with = |first: &[&'static str], rest: &[&OsStr]| {
        [words(first), rest.iter().map(|w| OsString::from(*w)).collect()].concat()
    };
    for (args, codes) in [
        (with(&["scan"], &[path]), &[0][..]),
        (with(&["scan"], &[missing]), &[4]),
        (with(&["scan"], &[&option]), &[8]),
        (with(&["scan"], &[&value, path]), &[8]),
        (with(&[], &[name.as_ref()]), &[8]),
        (with(&["plan", "--policy", "whole-file", "-o"], &[plan, path]), &[0]),
        (with(&["plan", "--policy", "whole-file"], &[missing]), &[4]),
        (with(&["plan", "-t"], &[missing]), &[4]),
        (with(&["plan", "-t"], &[path]), &[4]),
        (with(&["apply", "--dry-run"], &[plan]), &[0, 2]),
        (with(&["apply"], &[missing]), &[4]),
        (with(&["apply"], &[path]), &[4]),
        (with(&["auto", "--dry-run", "--duration", "1s"], &[missing]), &[4]),
        (with(&["auto", "--dry-run", "--duration", "1s"], &[path]), &[0, 2]),
        (with(&["record", "--duration", "1s", "-o"], &[missing, path]), &[0]),
        (with(&["record", "--duration", "1s", "-o"], &[path, path]), &[4]),
        (with(&["record", "--comm"], &[name.as_ref(), "-o".as_ref(), missing, path]), &[8]),
        (with(&["record", "--user"], &[name.as_ref(), "-o".as_ref(), missing, path]), &[8]),
        (with(&["record", "--cgroup"], &[path, "-o".as_ref(), missing, path]), &[4]),
        (with(&["lab", "run"], &[missing]), &[4, 8]),
        (with(&["lab", "drive"], &[missing]), &[4, 8]),
    ] {
        let mut command = Command::new("timeout");
        let ended = finish(command.args(["-s", "KILL", "20", FRAGMEND]).args(&args));
        let code = ended.status.code();
        assert!(code.is_some_and(|c| codes.contains(&c)), "{args:?}: {code:?} {}", ended.stderr);
        for text in [&ended.stdout, &ended.stderr] {
            assert!(!text.split(['\n', '\r']).any(|l| l.starts_with(FORGED)), "{args:?}: {text}");
        }
    }
}
