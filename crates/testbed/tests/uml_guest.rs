//! The guest runs commands, reports their results, ends in time, and leaves nothing behind.

use fragmend_testbed::file_system::F2FS;
use fragmend_testbed::guest::{Guest, Lost};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Host processes that belong to a guest started by `parent`, by way of its namespace.
fn processes_below(parent: u32) -> Vec<u32> {
    let children = |pid: u32| -> Vec<u32> {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        list.unwrap_or_default().split_whitespace().filter_map(|p| p.parse().ok()).collect()
    };
    let mut all = vec![parent];
    let mut next = 0;
    while next < all.len() {
        all.extend(children(all[next]));
        next += 1;
    }
    all
}

fn is_there(pid: &u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok()
}

#[test]
fn uml_a_guest_runs_and_reports_exactly() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = scratch.path().join("disk's image");
    fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    F2FS.make(&disk, &[]);
    let odd = "a 'quoted' $HOME\nand a second line";
    let mut command = shell(
        "printf %s \"$1\"; printf %s \"$ODD\" >&2; mkdir $TMPDIR/m && \
        mount -t f2fs /dev/ubda $TMPDIR/m && cp \"$2\" $TMPDIR/m/ && umount $TMPDIR/m",
    );
    command.args(["sh", odd]).arg("/etc/passwd").env("ODD", odd);
    let finished = Guest::new().disk(&disk).run(&command).unwrap();
    assert_eq!((finished.status.code(), finished.stdout.as_str()), (Some(0), odd), "{finished:?}");
    assert_eq!(finished.stderr, odd);
    F2FS.check(&disk).unwrap();

    let finished = Guest::new().run(&shell("exit 42")).unwrap();
    assert_eq!(finished.status.code(), Some(42));
}

#[test]
fn uml_a_hanging_guest_is_ended_with_all_its_processes() {
    let started = Instant::now();
    let limit = Duration::from_secs(8);
    let scratch = tempfile::tempdir().unwrap();
    let sign = scratch.path().join("sign");
    let mut command = shell("sleep 1000 & echo started; touch \"$0\"; wait");
    command.arg(&sign);
    let guest = Guest::new().time_limit(limit).start(&command).wait_for(&sign);
    let processes = processes_below(guest.id());
    assert!(processes.len() > 2, "{processes:?}");
    let error = guest.wait().unwrap_err();
    assert!(matches!(&error, Lost::TimedOut { said, .. } if said.contains("started")), "{error}");
    assert!(started.elapsed() < limit + Duration::from_secs(5));
    assert!(!processes.iter().any(is_there), "{processes:?}");

    // The same when its owner drops it, and when its kernel dies.
    let guest = Guest::new().start(&shell("sleep 1000"));
    std::thread::sleep(Duration::from_secs(1));
    let processes = processes_below(guest.id());
    drop(guest);
    assert!(!processes.iter().any(is_there), "{processes:?}");
    let error = Guest::new().run(&shell("echo c >/proc/sysrq-trigger; sleep 9")).unwrap_err();
    assert!(matches!(&error, Lost::Died { .. }), "{error}");
}
