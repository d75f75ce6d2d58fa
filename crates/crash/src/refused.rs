//! File systems on which `fragmend apply` must refuse: their options keep no order of writes, or the kernel
//! cannot move data there, or not safely. It must report that, and no block may move.

use fragmend_testbed::bench::markdown;
use fragmend_testbed::cleanup::{self, Undo};
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS_PLAIN};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::loop_device::LoopDevice;
use fragmend_testbed::process::finish;
use fragmend_testbed::tools;
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// A file system on which nothing may move.
#[derive(Debug)]
pub struct Refusal {
    /// Its name in the table.
    pub name: &'static str,
    file_system: &'static FileSystem,
    make: &'static [&'static str],
    mount: &'static str,
    /// Part of the message that must be printed, for the plan or for each range.
    message: &'static str,
    scope: Scope,
}

/// What is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// The whole plan, with its own exit code.
    Plan,
    /// The same with `--dry-run`: a move, if a bug let one through, would hang the kernel.
    DryRun,
    /// Each range.
    Ranges,
}

const fn row(
    name: &'static str,
    file_system: &'static FileSystem,
    make: &'static [&'static str],
    mount: &'static str,
    message: &'static str,
    scope: Scope,
) -> Refusal {
    Refusal { name, file_system, make, mount, message, scope }
}

const NO_ORDER: &str = "a power cut could leave moved ranges without their data";

/// All refusals.
pub static REFUSALS: [Refusal; 10] = [
    row("ext4, fast_commit", &EXT4, &["-O", "fast_commit"], "", "fast commits", Scope::DryRun),
    row("ext4, nobarrier", &EXT4, &[], "nobarrier", NO_ORDER, Scope::Plan),
    row("ext4, barrier=0", &EXT4, &[], "barrier=0", NO_ORDER, Scope::Plan),
    row("ext4, data=writeback", &EXT4, &[], "data=writeback", NO_ORDER, Scope::Plan),
    row(
        "ext4, data=writeback, journal_async_commit",
        &EXT4,
        &[],
        "data=writeback,journal_async_commit",
        NO_ORDER,
        Scope::Plan,
    ),
    row("ext4, data=journal", &EXT4, &[], "data=journal", "data=journal", Scope::Plan),
    row("ext4, no journal", &EXT4, &["-O", "^has_journal"], "", NO_ORDER, Scope::Plan),
    row("ext4, bigalloc", &EXT4, &["-O", "bigalloc"], "", "", Scope::Ranges),
    row("xfs, nothing", &XFS_PLAIN, &[], "", "could not replay the swap", Scope::Ranges),
    row("btrfs, nobarrier", &BTRFS, &[], "nobarrier", NO_ORDER, Scope::Plan),
];

impl Refusal {
    /// Runs `fragmend apply` there; returns the message with which it refused.
    ///
    /// # Errors
    /// What it moved, or printed instead.
    ///
    /// # Panics
    /// When the file system cannot be made or mounted.
    pub fn check(&self) -> Result<String, String> {
        const BYTES: u64 = 512 << 10;
        let dir = fragmend_testbed::scratch::directory("refused");
        let _tree = cleanup::register(Undo::Tree(dir.path().to_owned()));
        let (disk, mnt) = (dir.path().join("disk"), dir.path().join("mnt"));
        let made = File::create(&disk).and_then(|file| file.set_len(320 << 20));
        made.and_then(|()| fs::create_dir(&mnt)).expect("an image");
        self.file_system.make(&disk, self.make);
        let device = LoopDevice::attach(&disk);
        let node = Path::new(device.node());
        let mounted =
            crate::mount::Mount::new(self.file_system, node, &mnt, self.mount).expect("a mount");
        let file = mnt.join("file");
        interleaved(&file, BYTES, &[8192], true).expect("a fragmented file");
        let before = tools::extents(&file);
        let plan = dir.path().join("plan.json");
        let mut command = Command::new(tools::fragmend());
        command.args(["plan", "--quiet", "--policy", "whole-file", "-o"]).arg(&plan);
        finish(command.arg(&file)).expect(&[0, 2]);
        let mut command = Command::new(tools::fragmend());
        command.arg("apply").arg(&plan).arg("--json");
        if self.scope == Scope::DryRun {
            command.arg("--dry-run");
        }
        let ended = finish(&mut command);
        let after = tools::extents(&file);
        let intact = is_intact(&file, BYTES).expect("the file");
        mounted.unmount();
        device.detach();
        let said = match self.scope {
            Scope::Plan | Scope::DryRun => ended.stderr.trim().to_owned(),
            Scope::Ranges => reasons(&ended.stdout)?,
        };
        let refused = self.scope == Scope::Ranges || ended.status.code() == Some(4);
        if !intact || after != before {
            Err(format!("it was in {before} extents, and is in {after} now"))
        } else if !refused {
            Err(format!("not refused ({}): {said}", ended.status))
        } else if !said.contains(self.message) || said.is_empty() {
            Err(format!("it said: {said}"))
        } else {
            Ok(said)
        }
    }
}

/// The reasons why ranges were left alone; an error if one has moved.
fn reasons(receipts: &str) -> Result<String, String> {
    let mut said = Vec::new();
    for line in receipts.lines() {
        let event: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
        if event["event"] == "range" {
            if event["outcome"] == "moved" || event["moved_bytes"] != 0 {
                return Err(format!("moved: {line}"));
            }
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            said.push(format!("{}: {}", text("reason"), text("detail")));
        }
    }
    said.dedup();
    Ok(said.join("; "))
}

/// Checks all of them; returns a table, and how many were not refused as they must be.
pub fn table() -> (String, usize) {
    let tried: Vec<(&str, Result<String, String>)> =
        REFUSALS.iter().map(|refusal| (refusal.name, refusal.check())).collect();
    let wrong = tried.iter().filter(|(_, said)| said.is_err()).count();
    let cells = |(name, said): (&str, Result<String, String>)| match said {
        Ok(said) => vec![name.to_owned(), said.replace('|', "/")],
        Err(why) => vec![name.to_owned(), format!("WRONG: {why}")],
    };
    (
        markdown::table(&["refused", "in these words"], 1, tried.into_iter().map(cells).collect()),
        wrong,
    )
}
