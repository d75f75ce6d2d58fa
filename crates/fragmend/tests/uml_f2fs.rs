//! F2FS, in a guest whose kernel has it: the command line.

mod support;

use fragmend_plan::Policy;
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::guest::test::f2fs;
use fragmend_testbed::guest_tests;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Finished, finish};
use fragmend_testbed::tools::extents;
use serde_json::Value;
use std::fs::{self};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::{SIZE, fragmented, plan, readable_by_all, write_plan};

guest_tests! {
    uml_a_mount_that_frees_nothing_is_refused =>
        a_mount_that_frees_nothing_is_refused(&f2fs());
    uml_another_user_is_told_what_it_takes => another_user_is_told_what_it_takes(&f2fs());
    uml_from_scan_to_receipt => from_scan_to_receipt(&f2fs());
    uml_without_tracing_there_is_one_clear_line => without_tracing_there_is_one_clear_line(&f2fs());
}

fn a_mount_that_frees_nothing_is_refused(image: &Image) {
    let file = fragmented(image, "file");
    image.unmount();
    image.mount_with("checkpoint=disable");
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&file], Policy::WholeFile), &plan_file);
    let finished = fragmend(&["apply", plan_file.to_str().unwrap()]);
    assert_eq!(finished.status.code(), Some(4), "{finished:?}");
    assert!(finished.stderr.contains("checkpoint=enable"), "{finished:?}");
}

fn fragmend(args: &[&str]) -> Finished {
    finish(Command::new(env!("CARGO_BIN_EXE_fragmend")).args(args))
}

fn another_user_is_told_what_it_takes(image: &Image) {
    let dir = image.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("file");
    interleaved(&path, SIZE, &[4096], false).unwrap();
    for own in [&dir, &path] {
        std::os::unix::fs::chown(own, Some(65534), Some(65534)).unwrap();
    }
    image.sync();
    let before = extents(&path);
    let plan_file = dir.join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    readable_by_all(&plan_file);
    for above in image.path().ancestors().take(4) {
        let _ = fs::set_permissions(above, fs::Permissions::from_mode(0o755));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args([env!("CARGO_BIN_EXE_fragmend"), "apply", "--json"]).arg(&plan_file);
    let text = finish(&mut command).expect(&[2]);
    assert!(text.contains("\"reason\":\"permission_denied\""), "{text}");
    assert!(text.contains("CAP_SYS_ADMIN"), "{text}");
    assert_eq!(extents(&path), before);
}

fn from_scan_to_receipt(image: &Image) {
    let file = fragmented(image, "file");
    let whole = image.path().join("whole");
    interleaved(&whole, SIZE, &[SIZE], false).unwrap();
    image.sync();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let scan = |path: &Path| -> Value {
        let printed = fragmend(&["scan", "--json", &text(path)]).expect(&[0]);
        serde_json::from_str(&printed).unwrap()
    };
    let (scattered, contiguous) = (scan(&file), scan(&whole));
    assert_eq!(scattered["files"][0]["extents"], 256, "{scattered}");
    assert_eq!(scattered["files"][0]["dof"], 256.0, "{scattered}");
    assert_eq!(contiguous["files"][0]["extents"], 1, "{contiguous}");
    assert_eq!(contiguous["files"][0]["dof"], 1.0, "{contiguous}");

    let plan_file = text(&image.scratch().join("plan.json"));
    let args = ["plan", "--policy", "whole-file", "-o", &plan_file, &text(&file)];
    fragmend(&args).expect(&[0]);
    let events = fragmend(&["apply", "--json", &plan_file]).expect(&[0]);
    let last: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["ranges_moved"]), (&"summary".into(), &1.into()), "{last}");
    assert_eq!(last["moved_bytes"], SIZE, "{last}");
    assert_eq!(scan(&file)["files"][0]["extents"], 1);
    fragmend(&args).expect(&[0]);
    image.fsck();
    assert!(is_intact(&file, SIZE).unwrap());
}

fn without_tracing_there_is_one_clear_line(image: &Image) {
    let trace = image.scratch().join("trace.parquet");
    let (trace, path) = (trace.to_str().unwrap(), image.path().to_str().unwrap());
    let finished = fragmend(&["record", "-o", trace, "--duration", "1s", path]);
    assert_eq!(finished.status.code(), Some(4), "{finished:?}");
    let lines: Vec<&str> = finished.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{finished:?}");
    assert!(lines[0].starts_with("fragmend: "), "{finished:?}");
    println!("{}", lines[0]);
    assert!(!Path::new(trace).exists());
}
