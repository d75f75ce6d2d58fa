//! Links that are planted at the names of outputs and of their temporary files are never written through.

use super::support::{fragmented, plan, write_plan};
use super::{PLANTED, fragmend, place, plant, refused, unharmed};
use fragmend_lab::plot::Plot;
use fragmend_plan::{PlanSource, Policy};
use fragmend_sys::output::{self, Audience};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::finish;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn loop_what_is_planted_where_a_plan_goes_is_refused() {
    let image = Image::ext4(64 << 20);
    let file = fragmented(&image, "file");
    let (dir, victim) = place();
    for (kind, what) in PLANTED {
        let target = dir.path().join(kind);
        plant(kind, &target, &victim);
        let made = fragmend(
            ["plan", "--policy", "whole-file", "-o"]
                .map(Into::into)
                .into_iter()
                .chain([target.clone().into_os_string(), file.clone().into_os_string()]),
        );
        refused(&made, what);
        unharmed(&victim);
        let plan = plan(&[&file], Policy::WholeFile);
        assert!(fragmend_pipeline::plan_file::write(&plan, &target).is_err(), "{kind}");
        unharmed(&victim);
    }
    // The directory of an output may be another user's link.
    let (there, link) = (dir.path().join("there"), dir.path().join("theirs"));
    std::fs::create_dir(&there).unwrap();
    symlink(&there, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(4711), Some(4711)).unwrap();
    let plan = plan(&[&file], Policy::WholeFile);
    assert!(fragmend_pipeline::plan_file::write(&plan, &link.join("plan.json")).is_err());
    assert_eq!(there.read_dir().unwrap().count(), 0);
}

#[test]
fn loop_a_plan_is_its_owners_alone_and_its_temporary_name_nobodys() {
    let image = Image::ext4(64 << 20);
    let plan = plan(&[&fragmented(&image, "file")], Policy::WholeFile);
    let (dir, victim) = place();
    let target = dir.path().join("plan.json");
    // The temporary name that it had in earlier versions.
    let beside = dir.path().join(format!("plan.json.{}.tmp", std::process::id()));
    symlink(&victim, &beside).unwrap();
    write_plan(&plan, &target);
    unharmed(&victim);
    assert!(beside.is_symlink());
    assert_eq!(target.metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(fragmend_pipeline::plan_file::open(&target).unwrap().totals(), plan.totals());
    // The mode of an old file of ours does not count either: any user who may write to the directory can
    // have put it there.
    std::fs::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    write_plan(&plan, &target);
    assert_eq!(target.metadata().unwrap().mode() & 0o777, 0o600);
    // Nor do the mode and the owner of another user's file in its place.
    std::fs::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    std::os::unix::fs::chown(&target, Some(4711), Some(4711)).unwrap();
    write_plan(&plan, &target);
    let meta = target.metadata().unwrap();
    assert_eq!((meta.mode() & 0o777, meta.uid()), (0o600, 0));
}

#[test]
fn loop_a_plan_may_go_to_standard_output() {
    let image = Image::ext4(64 << 20);
    let file = fragmented(&image, "file");
    let dir = tempfile::tempdir().unwrap();
    for name in ["-", "/dev/stdout"] {
        let path = file.to_str().unwrap();
        let made = fragmend(["plan", "--policy", "whole-file", "-o", name, path]);
        let kept = dir.path().join("plan.json");
        std::fs::write(&kept, made.expect(&[0])).unwrap();
        assert!(fragmend_pipeline::plan_file::open(&kept).unwrap().totals().ranges > 0, "{name}");
    }
}

#[test]
fn loop_what_is_planted_where_kept_files_and_pictures_go_is_refused() {
    let image = Image::ext4(64 << 20);
    let (dir, victim) = place();
    for name in ["plan.json", "trace.parquet"] {
        let keep = dir.path().join(format!("keep {name}"));
        std::fs::create_dir(&keep).unwrap();
        symlink(&victim, keep.join(name)).unwrap();
        let (keep, path) = (keep.to_str().unwrap(), image.path().to_str().unwrap());
        // Before the recording, which would last longer than is waited for here.
        let done = fragmend(["auto", "-q", "--dry-run", "--duration", "60s", "--keep", keep, path]);
        refused(&done, name);
        unharmed(&victim);
    }
    let plot = Plot::Bars {
        name: "picture".into(),
        title: "t".into(),
        axis: "a".into(),
        series: vec!["s".into()],
        groups: vec![("g".into(), vec![1.0])],
    };
    for (kind, what) in PLANTED {
        let out = dir.path().join(format!("out {kind}"));
        std::fs::create_dir(&out).unwrap();
        plant(kind, &out.join("picture.svg"), &victim);
        let error = plot.draw(&out).unwrap_err().to_string();
        assert!(error.contains(what), "{kind}: {error}");
        unharmed(&victim);
    }
    plot.draw(dir.path()).unwrap();
}

/// One file by two spellings: refused before anything is written.
#[test]
fn loop_a_picture_does_not_replace_the_plan_whatever_its_spelling() {
    let image = Image::ext4(64 << 20);
    std::fs::write(image.path().join("file"), "data").unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("out")).unwrap();
    symlink("out", dir.path().join("way")).unwrap();
    let absolute = dir.path().join("p.json");
    let absolute = absolute.to_str().unwrap();
    let plan = |output: &str, picture: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        command.args(["plan", "--policy", "whole-file", "-o", output, "--picture", picture]);
        finish(command.arg(image.path()).current_dir(dir.path()))
    };
    for (output, picture) in [
        ("p.json", "p.json"),
        ("p.json", "./p.json"),
        ("p.json", "out/../p.json"),
        ("p.json", absolute),
        (absolute, "p.json"),
        ("out/p.json", "way/p.json"),
    ] {
        let done = plan(output, picture);
        assert_eq!(done.status.code(), Some(8), "{output} {picture}: {}", done.stderr);
        assert!(done.stderr.contains("the same file"), "{}", done.stderr);
        assert!(!dir.path().join(output).exists(), "{output} {picture}");
    }
    plan("p.json", "out/p.json").expect(&[0]);
    assert!(std::fs::read_to_string(absolute).unwrap().starts_with('{'));
}

/// A user who may write to the directory creates and removes a link there as fast as possible.
#[test]
fn loop_a_link_that_comes_and_goes_is_never_followed() {
    let (dir, victim) = place();
    let target = dir.path().join("target");
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Relaxed) {
                let _ = std::fs::remove_file(&target);
                let _ = symlink(&victim, &target);
            }
        });
        let mut written = 0;
        for _ in 0..500 {
            written += u32::from(output::write(&target, Audience::Owner, b"mine").is_ok());
        }
        stop.store(true, Relaxed);
        println!("{written} of 500 were written");
    });
    unharmed(&victim);
}
