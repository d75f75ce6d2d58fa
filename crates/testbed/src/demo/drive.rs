//! One drive of the demo: served, with an ext4 on which the database grows, and taken through fragmend's own verbs.

use super::verdict::{Asked, Outcome, Planned};
use crate::database::{Database, Growth, Queries};
use crate::file_system::EXT4;
use crate::loop_device::unmount;
use crate::measure::drop_caches;
use crate::mount::MountGuard;
use crate::process::{finish, try_run};
use crate::served::ServedDrive;
use crate::tools::{self, Recording};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What of the drive is exposed: the database, as much again in holes, and space to move it to.
const SIZE: &str = "192M";

/// The same history on each drive: some 33 MB in about a thousand extents.
const GROWTH: Growth = Growth {
    commits: 500,
    evictions: 12,
    entry_bytes: 16 << 10,
    archive_bytes: 40 << 20,
    seed: 2021,
};

/// Window queries in the load.
const QUERIES: usize = 120;

/// How often the queries are asked, or recorded at most.
const RUNS: usize = 3;

/// A served drive with the database on it; unmounted and ended when dropped.
pub struct Drive<'a> {
    // Unmounted before the drive ends.
    mounted: Option<MountGuard>,
    served: ServedDrive,
    mount: PathBuf,
    scratch: &'a Path,
    /// Where documents are kept.
    keep: Option<&'a Path>,
    name: &'a str,
}

impl<'a> Drive<'a> {
    /// Serves the drive and makes a file system on it; everything is in `scratch`.
    pub fn serve(name: &'a str, scratch: &'a Path, keep: Option<&'a Path>) -> Self {
        let dir = scratch.to_str().expect("a temporary directory's name is text");
        let served = ServedDrive::start(&[name, "--size", SIZE, "--dir", dir]);
        EXT4.make(&served.node(), &["-m", "0", "-N", "24576"]);
        let mount = scratch.join(name);
        std::fs::create_dir(&mount).expect("a mount point");
        let mut drive = Self { mounted: None, served, mount, scratch, keep, name };
        drive.mount();
        drive
    }

    fn mount(&mut self) {
        let node = self.served.node();
        let args = [OsStr::new("-o"), OsStr::new("noatime"), node.as_os_str()];
        self.mounted = Some(MountGuard::mount(&args, &self.mount));
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.mount
    }

    fn unmount(&mut self) {
        unmount(&self.served.node(), &self.mount);
        self.mounted = None;
    }

    /// Lets the database grow. Its time does not matter, so virtual time waits for no request meanwhile.
    pub fn grow(&self) -> Database {
        self.command("settle 1");
        let database = Database::grow(&self.mount, GROWTH);
        self.settle();
        database
    }

    /// From now on virtual time waits until the host has sent what it is about to send: half a millisecond
    /// (docs/serve.md). A card does one command at a time, so it does not matter when the next ones arrive.
    fn settle(&self) {
        self.command(if self.name == "microsd" { "settle 1" } else { "settle 500" });
    }

    /// The load.
    pub fn queries(&self, database: &Database) -> Queries {
        database.queries(QUERIES, 7)
    }

    /// Runs the queries with nothing in memory, some times: their answers, and what the drive needed for them at
    /// least. What else reads the drive meanwhile, unasked, makes it more (docs/serve.md).
    pub fn ask(&mut self, database: &Database, queries: &Queries) -> Asked {
        let runs = (0..RUNS).map(|_| self.ask_once(database, queries));
        runs.min_by_key(|asked| asked.ns).expect("more than no runs")
    }

    fn ask_once(&mut self, database: &Database, queries: &Queries) -> Asked {
        self.unmount();
        self.mount();
        drop_caches(&self.mount);
        // The file system knows where the file is, as after some minutes of service.
        let extents = tools::extents(database.path());
        let reads = self.count("reads", "requests");
        let before = self.served.clock();
        let answers = database.ask(queries);
        let ns = self.served.clock() - before;
        Asked { answers, ns, requests: self.count("reads", "requests") - reads, extents }
    }

    fn command(&self, command: &str) {
        self.served.control(command).expect("the drive takes its commands");
    }

    /// What the drive has counted.
    fn count(&self, kind: &str, what: &str) -> u64 {
        let stats = self.served.stats();
        stats[kind][what].as_u64().unwrap_or_else(|| panic!("no {what} of {kind}: {stats}"))
    }

    /// Probes the drive; its profile is kept in `scratch`. Returns the verb's document.
    pub fn probe(&self) -> Value {
        let node = self.served.node();
        // On a busy machine the drive answers late, in real time alone (docs/serve.md).
        let options = ["probe", "--no-intervals", "--pace", "max", "--seconds", "10m"];
        let options = options.map(OsStr::new);
        let document = self.verb(options.into_iter().chain([node.as_os_str()]));
        assert_eq!(document["clock"], "served", "by the drive's own time: {document}");
        assert!(document["kept"].is_object(), "the profile is kept: {document}");
        document
    }

    /// Records the queries, which are `reads` of the drive.
    fn record(&self, database: &Database, queries: &Queries, reads: u64) -> PathBuf {
        let trace = self.file("trace.parquet");
        for _ in 0..RUNS {
            let before = self.count("reads", "requests");
            let recording = Recording::start(&trace, &[database.path()]);
            let _ = database.run(queries);
            recording.finish();
            // Otherwise something else has read the drive meanwhile, and is in what it answered.
            if self.count("reads", "requests") - before <= reads + reads / 10 {
                break;
            }
        }
        trace
    }

    /// Records the queries, plans for them and applies the plan.
    pub fn mend(&self, database: &Database, queries: &Queries, reads: u64) -> (Planned, Outcome) {
        self.sync();
        let before = self.count("writes", "bytes");
        let trace = self.record(database, queries, reads);
        let options = [OsStr::new("-t"), trace.as_os_str()];
        let (planned, mut outcome) = self.plan_and_apply(database, &options);
        // Whatever was written since, by whichever verb.
        outcome.written_bytes = self.count("writes", "bytes") - before;
        (planned, outcome)
    }

    /// Moves all of the database, whatever that saves.
    pub fn move_all(&self, database: &Database) -> Outcome {
        let options = ["--policy", "whole-file"].map(OsStr::new);
        // How long that lasts does not matter.
        self.command("settle 1");
        let (_, outcome) = self.plan_and_apply(database, &options);
        self.settle();
        outcome
    }

    fn plan_and_apply(&self, database: &Database, options: &[&OsStr]) -> (Planned, Outcome) {
        let plan = self.file("plan.json");
        let before = self.count("writes", "bytes");
        let planned = [OsStr::new("plan"), OsStr::new("-o"), plan.as_os_str()];
        let options = options.iter().copied();
        let planned = planned.into_iter().chain(options).chain([database.path().as_os_str()]);
        let planned = self.verb(planned);
        if let Some(keep) = self.keep {
            let kept = keep.join(format!("{}-plan-file.json", self.name));
            std::fs::copy(&plan, kept).expect("a plan file");
        }
        let applied = self.verb([OsStr::new("apply"), plan.as_os_str()]);
        self.sync();
        (Planned::of(&planned), Outcome::of(&applied, self.count("writes", "bytes") - before))
    }

    /// Scans the file system, where documents are kept.
    pub fn scan(&self) {
        if self.keep.is_some() {
            self.verb([OsStr::new("scan"), OsStr::new("--layouts"), self.mount.as_os_str()]);
        }
    }

    /// From now on documents are not kept.
    pub fn keep_no_more(&mut self) {
        self.keep = None;
    }

    fn sync(&self) {
        let root = std::fs::File::open(&self.mount).expect("the root of the file system");
        rustix::fs::syncfs(root).expect("it can be synced");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.join(format!("{}-{name}", self.name))
    }

    /// Runs a verb with `--json`, with the profiles that the demo keeps, and returns the last of its documents, all of which
    /// are on one line each but for those of a scan; its exit code may say "could be better".
    fn verb<'b>(&self, args: impl IntoIterator<Item = &'b OsStr>) -> Value {
        let mut command = Command::new(tools::fragmend());
        command.env("FRAGMEND_PROFILES", self.scratch.join("profiles"));
        command.args(args).arg("--json");
        let verb = command.get_args().next().unwrap_or_default().to_owned();
        let said = finish(&mut command).expect(&[0, 2]);
        if let Some(keep) = self.keep {
            let name = format!("{}-{}.json", self.name, verb.display());
            std::fs::write(keep.join(name), &said).expect("a document");
        }
        let last =
            if verb == "scan" { &*said } else { said.lines().next_back().unwrap_or_default() };
        serde_json::from_str(last).unwrap_or_else(|e| panic!("fragmend's JSON ({e}): {said}"))
    }

    /// Unmounts, checks the file system and ends serving.
    pub fn end(mut self) {
        self.unmount();
        let node = self.served.node();
        let checked = try_run("e2fsck", [OsStr::new("-fn"), node.as_os_str()]);
        checked.unwrap_or_else(|said| panic!("{said}"));
        self.served.quit();
    }
}
