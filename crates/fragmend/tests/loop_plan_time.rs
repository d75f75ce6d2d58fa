//! Plans in time, as a user makes them: what comes from the page cache is left alone, what misses it is mended, and every
//! output says which of them it was.

use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::measure::drop_pages;
use fragmend_testbed::process::{Finished, Running, finish};
use fragmend_testbed::replay::{self, Mode};
use fragmend_testbed::tools::{WATCHING, extents};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 8 * MIB;
const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

fn fragmend(args: &[&str]) -> Finished {
    finish(Command::new(FRAGMEND).args(args))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a test's own path")
}

fn planned(args: &[&str]) -> Value {
    let told = fragmend(&[&["plan", "--json"], args].concat()).expect(&[0]);
    serde_json::from_str(&told).unwrap_or_else(|e| panic!("{e}: {told}"))
}

/// A file in fragments of 4 KiB, on a device that counts as a disk, whatever the one under the image is.
fn fragmented() -> (Image, PathBuf) {
    let image = Image::ext4(256 * MIB);
    image.set_queue("rotational", "1");
    let file = image.path().join("file");
    interleaved(&file, SIZE, &[4096], true).unwrap();
    image.sync();
    (image, file)
}

/// Records at a level what `load` does.
fn record(image: &Image, level: &str, load: impl FnOnce()) -> PathBuf {
    let trace = image.scratch().join(format!("{level}.parquet"));
    let mut command = Command::new(FRAGMEND);
    // All of it: a budget may leave out a load as short as these.
    command.args(["record", "--level", level, "--overhead", "100", "-o"]);
    command.arg(&trace).arg(image.path());
    let recorder = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let recorder = recorder.wait_until_it_says(WATCHING);
    load();
    recorder.signal(rustix::process::Signal::INT);
    recorder.wait().expect(&[0]);
    trace
}

/// Reads the file from its start to its end, over and over.
fn read_again_and_again(file: &Path) {
    let code = "
import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(200):
    for at in range(0, os.fstat(f).st_size, 131072): os.pread(f, 131072, at)
";
    run("python3", [Path::new("-c"), code.as_ref(), file]);
}

#[test]
fn loop_what_comes_from_the_page_cache_is_left_alone() {
    let (image, file) = fragmented();
    fs::read(&file).unwrap();
    let missed = record(&image, "miss", || read_again_and_again(&file));
    let plan = planned(&["-t", text(&missed), text(image.path())]);
    let verdict = plan["verdict"].as_str().unwrap();
    assert_eq!((&plan["worth"], &plan["why"]), (&false.into(), &"all-from-cache".into()), "{plan}");
    assert_eq!((&plan["bytes_to_move"], &plan["ranges"]), (&0.into(), &0.into()), "{plan}");
    assert_eq!(plan["basis"], "misses-recorded");
    assert!(verdict.starts_with("not worth it: all from cache"), "{verdict}");
    // What was not recorded cannot be planned for.
    let cold = fragmend(&["plan", "--assume-cold", "-t", text(&missed), text(image.path())]);
    assert_eq!(cold.status.code(), Some(8), "{}", cold.stderr);
    assert!(cold.stderr.contains("--level miss") && cold.stderr.trim().lines().count() == 1);

    // The same reads with nothing in memory: each is fetched once, and counts once.
    drop_pages(&file);
    let missed = record(&image, "miss", || read_again_and_again(&file));
    let plan = planned(&["-t", text(&missed), text(image.path())]);
    assert_eq!((&plan["worth"], &plan["why"]), (&true.into(), &Value::Null), "{plan}");
    assert_eq!(
        (&plan["basis"], &plan["cost_source"]),
        (&"misses-recorded".into(), &"guessed".into())
    );
    let requests = plan["requests_before"].as_u64().unwrap();
    // One for each fragment, and a few more where a window ends in one.
    let fragments = extents(&file);
    assert!((fragments..fragments + 100).contains(&requests), "{fragments}: {plan}");

    // Where misses were not recorded, the plan says that it assumes them.
    let asked = record(&image, "syscall", || read_again_and_again(&file));
    let of_asked =
        |more: &[&str]| planned(&[more, &["-t", text(&asked), text(image.path())]].concat());
    let (imitated, cold) = (of_asked(&[]), of_asked(&["--assume-cold"]));
    assert_eq!(
        (&imitated["basis"], &cold["basis"]),
        (&"imitated-cache".into(), &"assumed-cold".into())
    );
    assert_eq!(imitated["seconds_before"], cold["seconds_before"]);
    let told = fragmend(&["plan", "-t", text(&asked), text(image.path())]).expect(&[0]);
    assert!(
        told.contains("misses were not recorded") && told.contains("guessed by the kind"),
        "{told}"
    );
}

/// A loop device keeps no account of wear, whatever its queue says, and nothing is said of it.
#[test]
fn loop_nothing_is_said_of_the_wear_of_a_loop_device() {
    let (image, _) = fragmented();
    for rotational in ["1", "0"] {
        image.set_queue("rotational", rotational);
        let file = image.scratch().join(format!("plan-{rotational}.json"));
        let args = ["--policy", "whole-file", text(image.path())];
        let plan = planned(&args);
        assert!(plan["bytes_to_move"].as_u64().unwrap() >= SIZE, "{plan}");
        assert_eq!((plan.get("wear"), plan.get("rated_share")), (Some(&Value::Null), None));
        let run = fragmend(&[&["plan", "-o", text(&file)], &args[..]].concat());
        let applied = fragmend(&["apply", "--dry-run", text(&file)]);
        let said = [&run.stdout, &run.stderr, &applied.stdout, &applied.stderr];
        assert!(said.iter().all(|said| !said.contains("wear:") && !said.contains("rated ")));
        run.expect(&[0]);
    }
}

/// A picture replaces a picture, and nothing else that has its name.
#[test]
fn loop_a_picture_replaces_nothing_but_a_picture() {
    let (image, file) = fragmented();
    let trace = record(&image, "both", || drop(fs::read(&file).unwrap()));
    let at = |picture: &str, more: &[&str]| {
        let args = ["plan", "-t", text(&trace), "--picture", picture];
        fragmend(&[&args[..], more, &[text(image.path())]].concat())
    };
    let before = [fs::read(&trace).unwrap(), fs::read(&file).unwrap()];
    for taken in [&trace, &file] {
        let refused = at(text(taken), &[]);
        assert_eq!(refused.status.code(), Some(4), "{}", refused.stderr);
        assert!(refused.stderr.contains("is no SVG"), "{}", refused.stderr);
    }
    assert!(before == [fs::read(&trace).unwrap(), fs::read(&file).unwrap()]);
    let both = image.scratch().join("both");
    for (picture, more) in
        [("-", vec![]), ("/dev/stdout", vec!["--json"]), (text(&both), vec!["-o", text(&both)])]
    {
        assert_eq!(at(picture, &more).status.code(), Some(8), "{picture}");
    }
    assert!(!both.exists());
    let picture = image.scratch().join("plan.svg");
    for _ in 0..2 {
        at(text(&picture), &[]).expect(&[0]);
        assert!(fs::read_to_string(&picture).unwrap().starts_with("<svg"));
    }
}

/// What was recorded of a file that is gone was not from the page cache.
#[test]
fn loop_a_file_that_is_gone_was_not_in_the_cache() {
    let (image, file) = fragmented();
    drop_pages(&file);
    let trace = record(&image, "both", || drop(fs::read(&file).unwrap()));
    fs::remove_file(&file).unwrap();
    let plan = planned(&["-t", text(&trace), text(image.path())]);
    let verdict = plan["verdict"].as_str().unwrap();
    assert_eq!(plan["why"], "no-file", "{verdict}");
    assert!(verdict.contains("1 that were recorded could not be"), "{verdict}");
}

#[test]
fn loop_the_curve_is_in_the_document_and_as_a_picture() {
    let (image, file) = fragmented();
    let trace = record(&image, "syscall", || {
        replay::replay(&file, &replay::zipfian(SIZE, 3), Mode::Direct).unwrap();
    });
    let picture = image.scratch().join("plan.svg");
    let plan = planned(&[
        "--budget",
        "1M",
        "--rated-writes",
        "1T",
        "--picture",
        text(&picture),
        "-t",
        text(&trace),
    ]);
    let figures = |point: &Value| {
        (point["bytes"].as_u64().unwrap(), point["seconds_saved"].as_f64().unwrap())
    };
    let curve: Vec<_> = plan["curve"].as_array().unwrap().iter().map(figures).collect();
    assert!(curve.len() > 3 && curve.len() <= 25, "{curve:?}");
    assert!(curve.windows(2).all(|p| p[0].0 < p[1].0 && p[0].1 < p[1].1), "{curve:?}");
    // The budget is kept, and the curve goes beyond it.
    let written = plan["bytes_to_move"].as_u64().unwrap();
    assert!(written > 0 && written <= MIB && curve.last().unwrap().0 > MIB, "{plan}");
    let share = plan["rated_share"].as_f64().unwrap();
    assert!((share - written as f64 / (1u64 << 40) as f64).abs() < 1e-12, "{share}");
    assert_eq!(plan["wear"], serde_json::json!({"source": "user", "drives": []}));
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("MiB written"), "{drawn}");
    // Without a trace, nothing can be cold.
    let cold = fragmend(&["plan", "--assume-cold", "--policy", "bypass", text(image.path())]);
    assert_eq!(cold.status.code(), Some(8), "{}", cold.stderr);
}
