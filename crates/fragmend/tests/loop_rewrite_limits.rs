//! `--engine rewrite` under whatever a shell, systemd, cron or a terminal sets: every signal that can
//! be deferred, every limit. A range is either left alone or written back, never left as a hole.

mod support;

use fragmend_plan::Policy;
use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::fragment::{interleave, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Finished, Running, finish};
use fragmend_testbed::tools::extents;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::records::{journal, names};
use support::rewrite::{FRAGMEND, go_on, is_stopped, killed_at, outcomes, recover, stopped_at};
use support::{SIZE, fragmented, plan, write_plan};

/// A plan for a file, so that a shell can run `apply`.
fn planned(image: &Image, file: &Path) -> PathBuf {
    let to = image.scratch().join("plan.json");
    write_plan(&plan(&[file], Policy::WholeFile), &to);
    to
}

/// `setup; exec fragmend apply PLAN` in a shell.
fn under(image: &Image, setup: &str, file: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = format!(
        "{setup}\nexec {FRAGMEND} apply --engine rewrite --rate max --json {}",
        planned(image, file).display()
    );
    command.args(["-c", &script]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Checks that no byte is missing, and that nothing is left to recover.
fn whole(image: &Image, file: &Path, what: &str) {
    assert!(is_intact(file, SIZE).unwrap(), "{what}: bytes are missing");
    let left = names(&journal(image));
    assert!(!left.iter().any(|n| n.ends_with(".record")), "{what}: {left:?}");
}

/// The process sends itself each signal while the range is a hole, so that it has arrived before the next
/// step.
#[test]
fn loop_no_signal_leaves_a_hole() {
    let image = Image::of(&EXT4, 320 << 20);
    let never = [Signal::KILL, Signal::STOP].map(Signal::as_raw);
    let standard = (1..=31).filter(|n| !never.contains(n));
    for number in standard.chain([40, 64]) {
        let file = fragmented(&image, &format!("file-{number}"));
        // No core dumps.
        let mut command = under(&image, "ulimit -c 0", &file);
        command.env("FRAGMEND_STOP_AT", format!("punched={number}"));
        let mut running = Running::start(&mut command);
        // A process that is stopped has finished the range before, and delays no other program.
        let begun = std::time::Instant::now();
        while running.child().try_wait().unwrap().is_none() {
            assert!(begun.elapsed().as_secs() < 60, "it does not end after signal {number}");
            if is_stopped(running.id()) {
                whole(&image, &file, &format!("stopped by {number}"));
                running.signal(Signal::CONT);
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let ended = running.wait();
        whole(&image, &file, &format!("{number}"));
        // It was delivered all the same: a signal that ends a process by default has ended it, but for
        // those that request an orderly end.
        let ends = [3, 4, 5, 6, 8, 10, 12, 14, 16, 24, 26, 27, 29, 30, 31, 40, 64];
        let ends = ends.contains(&number);
        assert_eq!(ended.status.signal(), ends.then_some(number), "{number}: {ended:?}");
        assert_eq!(extents(&file), 1, "{number}: {ended:?}");
    }
    image.fsck();
}

/// Signals of timers and limits that were set before the program began.
#[test]
fn loop_what_is_inherited_leaves_no_hole() {
    let image = Image::of(&EXT4, 320 << 20);
    let program = "import os,resource,signal,sys\n\
        def closed(): [os.close(n) for n in (0,1,2)]\n\
        def pipe():\n\x20r,w=os.pipe(); os.close(r); os.dup2(w,1)\n\
        def gone():\n\x20os.mkdir(sys.argv[2]+'/gone'); os.chdir(sys.argv[2]+'/gone'); os.rmdir(sys.argv[2]+'/gone')\n\
        def limit(name,value): resource.setrlimit(getattr(resource,'RLIMIT_'+name),(value,value))\n\
        exec(sys.argv[1])\n\
        os.execv(sys.argv[3],sys.argv[3:])";
    let cases = [
        "signal.setitimer(signal.ITIMER_REAL,0.12)",
        "signal.setitimer(signal.ITIMER_VIRTUAL,0.02)",
        "signal.setitimer(signal.ITIMER_PROF,0.05)",
        "signal.signal(signal.SIGCHLD,signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK,range(1,65))",
        "os.umask(0o777)",
        "closed()",
        "pipe()",
        "gone()",
        "os.setsid()",
        "limit('MEMLOCK',0)",
        "limit('NPROC',1)",
        "limit('SIGPENDING',0)",
        "limit('CORE',0)",
        "resource.setrlimit(resource.RLIMIT_CPU,(0,100))",
        "limit('CPU',2)",
        "limit('FSIZE',1)",
        "limit('FSIZE',300000)",
        "limit('FSIZE',1<<20)",
    ];
    for case in cases {
        let file = fragmented(&image, "file");
        let mut command = Command::new("timeout");
        command.args(["20", "python3", "-c", program, case]).arg(image.scratch()).arg(FRAGMEND);
        command.args(["apply", "--engine", "rewrite", "--rate", "max", "--json"]);
        let ended = finish(command.arg(planned(&image, &file)));
        assert_ne!(ended.status.code(), Some(124), "{case}: it hangs");
        let (told, _) = recover(&[&"--dry-run", &image.path()]);
        assert!(!outcomes(&told).contains(&"would_restore".to_owned()), "{case}: {told}");
        whole(&image, &file, case);
        if case.contains("umask") {
            assert_eq!((ended.status.code(), extents(&file)), (Some(0), 1), "{ended:?}");
        }
    }
    image.fsck();
}

/// Each count of open files and each size of memory from too little to enough.
#[test]
fn loop_no_limit_leaves_a_hole() {
    let image = Image::of(&EXT4, 320 << 20);
    let files = (3..=14).map(|n| format!("ulimit -n {n}"));
    let memory = (4..=40).step_by(3).map(|mib| format!("ulimit -v {}", mib << 10));
    let data = (1..=13).step_by(3).map(|mib| format!("ulimit -d {}", mib << 10));
    let stack = ["ulimit -s 64", "ulimit -s 256"].map(str::to_owned);
    let mut file = fragmented(&image, "file-0");
    let (mut moved, mut not) = (0, 0);
    for limit in files.chain(memory).chain(data).chain(stack) {
        let ended = finish(&mut under(&image, &limit, &file));
        whole(&image, &file, &limit);
        match extents(&file) {
            1 => {
                moved += 1;
                file = fragmented(&image, &format!("file-{moved}"));
            }
            _ => {
                assert_ne!(ended.status.code(), Some(0), "{limit}: {ended:?}");
                not += 1;
            }
        }
        let (_, code) = recover(&[&image.path()]);
        assert_eq!(code, 0, "{limit}");
    }
    println!("{moved} moved, {not} did not");
    assert!(
        moved > 3 && not > 3,
        "{moved} moved, {not} did not: the limits are too wide or too tight"
    );
}

/// The donor is small, so nothing reaches the limit before the range itself does.
#[test]
fn loop_a_range_behind_the_limit_of_file_sizes_is_left_alone() {
    const FAR: u64 = 1 << 30;
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let path = image.path().join("file");
        let (file, between) = (File::create(&path).unwrap(), image.path().join("between"));
        interleave(&file, &File::create(between).unwrap(), FAR, 64 * 4096, &[4096]).unwrap();
        drop(file);
        let (before, bytes) = (extents(&path), path.metadata().unwrap().blocks());
        assert!(before > 10, "{before}");
        // In blocks of 512 bytes: 200 MiB.
        let ended = finish(&mut under(&image, "ulimit -f 409600", &path));
        assert_eq!(ended.status.code(), Some(6), "{ended:?}");
        assert!(ended.stdout.contains("ulimit -f"), "{ended:?}");
        assert_eq!((extents(&path), path.metadata().unwrap().blocks()), (before, bytes));
        assert!(!journal(&image).exists());
        // `recover` under such a limit leaves the record, and says why.
        killed_at(&image, &path, "punched");
        let recover_under = |limit: &str| -> Finished {
            let script = format!("{limit}\nexec {FRAGMEND} recover {}", image.path().display());
            finish(Command::new("sh").args(["-c", &script]))
        };
        let ended = recover_under("ulimit -f 409600");
        assert_eq!(ended.status.code(), Some(5), "{ended:?}");
        assert!(ended.stdout.contains("ulimit -f"), "{ended:?}");
        recover_under("true").expect(&[0]);
        let mut got = vec![0; 64 * 4096];
        std::os::unix::fs::FileExt::read_exact_at(&File::open(&path).unwrap(), &mut got, FAR)
            .unwrap();
        let mut want = got.clone();
        fragmend_testbed::fragment::content(FAR, &mut want);
        assert!(got == want, "{}", file_system.name);
    }
}

/// Limits may be set from outside at any time (prlimit(1)): they are checked right before the punch.
#[test]
fn loop_a_limit_that_is_set_meanwhile_leaves_no_hole() {
    let image = Image::of(&EXT4, 320 << 20);
    for (limit, most, told) in
        [(Resource::Fsize, SIZE / 2, "ulimit -f"), (Resource::Cpu, 5, "ulimit -t")]
    {
        let file = fragmented(&image, told);
        let before = extents(&file);
        let stopped = stopped_at(&image, &file, "copied");
        let most = Rlimit { current: Some(most), maximum: Some(most) };
        prlimit(Pid::from_raw(stopped.id().cast_signed()), limit, most).unwrap();
        let ended = go_on(stopped);
        assert!(ended.stdout.contains(told), "{ended:?}");
        whole(&image, &file, told);
        assert_eq!(extents(&file), before, "{ended:?}");
    }
}

/// A signal does not end `recover` in the middle either.
#[test]
fn loop_recovering_is_not_ended_in_the_middle() {
    let image = Image::of(&EXT4, 320 << 20);
    for number in [1, 14, 15, 24, 40] {
        let file = fragmented(&image, &format!("file-{number}"));
        killed_at(&image, &file, "punched");
        let mut command = Command::new(FRAGMEND);
        command.arg("recover").arg(image.path());
        let ended = finish(command.env("FRAGMEND_STOP_AT", format!("half-written={number}")));
        assert_eq!(ended.status.signal(), Some(number), "{ended:?}");
        assert!(is_intact(&file, SIZE).unwrap(), "{number}");
        // The signal ends it before the record is removed; the file is whole by then.
        let (told, code) = recover(&[&image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["whole".to_owned()], 0), "{number}: {told}");
    }
    assert!(!journal(&image).exists());
}
