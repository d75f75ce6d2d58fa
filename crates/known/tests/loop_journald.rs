//! Journals that systemd-journald has written: a process of its own, in a namespace of mounts of its own, so that the journal of
//! the machine is left alone.

mod support;

use fragmend_known::Recogniser;
use fragmend_testbed::process::finish;
use std::fs;
use std::process::Command;
use support::{directory, what};

const MACHINE: &str = "0123456789abcdef0123456789abcdef";

/// Starts journald for the namespace `web`, sends it entries, rotates the journal, and sends some more. A process that does not
/// answer within ten seconds ends the script.
const SCRIPT: &str = r#"
    mount -t tmpfs none /run
    mount -t tmpfs none /var/log
    mkdir -p /var/log/journal/"$MACHINE" /run/systemd
    echo "$MACHINE" > machine-id
    mount --bind machine-id /etc/machine-id
    /usr/lib/systemd/systemd-journald web &
    journald=$!
    trap 'kill $journald; wait' EXIT
    within() { for n in $(seq 100); do if "$@"; then return; fi; sleep 0.1; done; echo "not within ten seconds: $*" >&2; exit 1; }
    send() {
        python3 -c 'import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("/run/systemd/journal.web/socket")
for n in range(300): s.send(b"MESSAGE=%d\nPRIORITY=6\n" % n)'
    }
    journals=/var/log/journal/$MACHINE.web
    counted() { [ "$(journalctl --quiet -D "$journals" MESSAGE=299 | wc -l)" -eq "$1" ]; }
    archived() { ls "$journals"/system@*.journal > ls 2>&1; }
    within test -S /run/systemd/journal.web/socket
    send
    within counted 1
    kill -USR2 $journald
    within archived
    send
    within counted 2
    cp "$journals"/system@*.journal archived.journal
    mkdir "$MACHINE.web"
    cp "$journals"/system.journal "$MACHINE.web"
"#;

#[test]
fn loop_journals_are_recognised_with_their_state() {
    let (_dir, path) = directory();
    let mut script = Command::new("unshare");
    script.args(["--mount", "bash", "-eu", "-c", SCRIPT]).env("MACHINE", MACHINE);
    finish(script.current_dir(&path)).expect(&[0]);
    let mut recogniser = Recogniser::default();
    let mut of = |name: &str| what(&mut recogniser, &path.join(name)).unwrap();
    let written = of(&format!("{MACHINE}.web/system.journal"));
    let begin = "systemd-journald: journal of the system, namespace web, being written, with ";
    assert!(written.starts_with(begin) && written.ends_with(" entries"), "{written}");
    let archived = of("archived.journal");
    assert!(archived.starts_with("systemd-journald: journal, archived, with "), "{archived}");
    let entries = |text: &str| {
        text.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).next().unwrap()
    };
    // The first entries are journald's own.
    for text in [&written, &archived] {
        assert!((300..320).contains(&entries(text)), "{text}");
    }
    fs::copy(path.join("archived.journal"), path.join("user-1000@a.journal")).unwrap();
    assert!(of("user-1000@a.journal").contains("journal of user 1000, archived"));
}
