//! `fragmend watch`: the daemon. Its decisions are `fragmend_watch`'s; here are options, privileges, signals and output.

mod metrics;

use crate::exit::{Exit, Usage};
use crate::outlet::Outlet;
use crate::threads;
use crate::ui::{Ui, has_reader};
use anyhow::Context;
use fragmend_known::{Known, Recogniser};
use fragmend_layout::{printable, schema, shell_word};
use fragmend_pipeline::Error;
use fragmend_sys::capabilities::{self, Capabilities};
use fragmend_watch::event::Line;
use fragmend_watch::live::{self, Live};
use fragmend_watch::notify::Notify;
use fragmend_watch::policy::{Metrics, PolicyError};
use fragmend_watch::{Control, Daemon, Event, Policy, Store, Time};
use metrics::Exposed;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What the daemon keeps of root's privileges:
///
/// - `BPF` and `PERFMON` to record; `SYS_ADMIN` to count what that costs, for Btrfs's trees, XFS's inodes and its exchange of
///   ranges, F2FS's moves and NVMe's health; `SYS_RAWIO` for that of ATA drives;
/// - `DAC_READ_SEARCH` and `DAC_OVERRIDE` to open files of all users, `FOWNER` to leave their times of access, `LEASE` to
///   keep writers out of them while the kernel compares, `SYS_PTRACE` to see who has to permit an open;
/// - `CHOWN` so that the donor of a file counts for the file's owner, `SYS_RESOURCE` for space that is reserved for root.
pub const KEPT: Capabilities = Capabilities::BPF
    .union(Capabilities::PERFMON)
    .union(Capabilities::SYS_ADMIN)
    .union(Capabilities::SYS_RAWIO)
    .union(Capabilities::DAC_READ_SEARCH)
    .union(Capabilities::DAC_OVERRIDE)
    .union(Capabilities::FOWNER)
    .union(Capabilities::LEASE)
    .union(Capabilities::SYS_PTRACE)
    .union(Capabilities::CHOWN)
    .union(Capabilities::SYS_RESOURCE);

/// How long a line of JSON may wait for its reader: the daemon goes on without one.
const PATIENCE: Duration = Duration::from_secs(1);

/// Options of `fragmend watch`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What is watched, what may move and when, and how much may be written; TOML
    #[arg(long, value_name = "FILE", default_value = "/etc/fragmend/watch.toml")]
    policy: PathBuf,
    /// Where the daemon remembers; made, with its directory, for its owner alone
    #[arg(long, value_name = "FILE", default_value = "/var/lib/fragmend/watch.db")]
    store: PathBuf,
    /// Record once, plan, move what may move now, and end: for timers
    #[arg(long)]
    once: bool,
    /// Print what the policy means, and refuse what the daemon would, or with --once such a run
    #[arg(long)]
    check: bool,
}

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    let policy = Policy::read(&args.policy);
    // Before there is a thread that would keep them.
    capabilities::keep_only(KEPT).context("privileges that are not needed cannot be dropped")?;
    if args.check {
        return check(args, policy, ui);
    }
    threads::start();
    let usable = |policy: Policy| {
        live::check(&policy).map_err(|e| wrong(args, e.into()))?;
        Ok(policy)
    };
    let policy = policy.and_then(usable).map_err(|e| Usage(in_a_line(e)))?;
    let exposed = Exposed::start(&served(args, &policy))?;
    let control = Control::default();
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&control.stop))?;
    }
    flag::register(SIGHUP, Arc::clone(&control.reload))?;

    let (store, aside) = Store::open(&args.store, Time::now())?;
    let notify = Arc::new(Notify::from_environment());
    let mut output = ui.json.then(Outlet::output);
    let mut programs = Programs::default();
    let mut tell = |event: Event| {
        announce(&event, &notify);
        if let Event::Status(status) = &event {
            exposed.show(status, ui);
        }
        let known = programs.of(&event);
        match &mut output {
            Some(output) => {
                let mut text = ui.safe(Vec::new());
                let written = serde_json::to_string(&Line { event, known });
                let written = written.map(|line| writeln!(text, "{line}"));
                output.put(&text.into_inner());
                if written.is_err() || output.flush(Some(PATIENCE), &control.stop).is_err() {
                    // Nobody reads it any more.
                    control.stop.store(true, Ordering::Relaxed);
                }
            }
            None => {
                let known = known.map(|known| format!(" ({})", printable(&known.to_string())));
                let words = event.in_words().map(|words| words + &known.unwrap_or_default());
                words.into_iter().for_each(|words| log(&event, &words, ui));
            }
        }
    };
    if let Some(aside) = aside {
        tell(Event::MovedAside { path: aside.to.as_path().into(), why: aside.why });
    }
    let world = Live::new(Arc::clone(&notify));
    let daemon = Daemon::new(world, store, policy, args.once, &mut tell)?;
    let reread = || {
        let policy = Policy::read(&args.policy).and_then(usable)?;
        // Last, so that nothing has changed if something else is wrong.
        exposed.change(&served(args, &policy)).map_err(|e| wrong(args, e.into()))?;
        Ok(policy)
    };
    let status = daemon.run(&control, &reread)?;
    // A run of a timer has failed also if its figures are nowhere.
    Ok(Exit::FAILED.when(args.once && (status.failures > 0 || exposed.has_failed())))
}

/// Where the figures go. A run of a timer ends before anybody asks for them.
fn served(args: &Args, policy: &Policy) -> Metrics {
    let listen = policy.metrics.listen.filter(|_| !args.once);
    Metrics { listen, ..policy.metrics.clone() }
}

/// A policy that cannot be used here.
fn wrong(args: &Args, error: anyhow::Error) -> PolicyError {
    PolicyError::Wrong { path: args.policy.clone(), what: format!("{error:#}") }
}

fn in_a_line(error: PolicyError) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

/// What systemd learns of an event.
fn announce(event: &Event, notify: &Notify) {
    match event {
        Event::Start { .. } | Event::Reloaded | Event::PolicyRefused { .. } => notify.ready(),
        Event::Reloading => notify.reloading(),
        Event::End => notify.stopping(),
        _ => {}
    }
    if let Some(words) = event.in_words() {
        notify.status(&words);
    }
}

/// What files are to their programs. What was read of catalogues is kept for a period, so that they are read once in it: from the end of
/// a recording until the daemon waits for the next one. It is not kept longer, because the daemon is small.
#[derive(Default)]
struct Programs {
    recogniser: Recogniser,
    /// Something is to move that the latest recording is the reason for.
    is_queued: bool,
}

impl Programs {
    /// What an event's file is to its program.
    fn of(&mut self, event: &Event) -> Option<Known> {
        match event {
            Event::Status(status) => self.is_queued = status.queued_batches > 0,
            Event::Waiting { .. } if self.is_queued => {}
            Event::Recorded { .. } | Event::Waiting { .. } => *self = Self::default(),
            _ => {}
        }
        event.file().and_then(|path| self.recogniser.in_place(&path.to_path()?))
    }
}

/// A line of the log, which journald keeps.
fn log(event: &Event, words: &str, ui: &Ui) {
    match event {
        Event::Failed { .. } | Event::PolicyRefused { .. } | Event::MovedAside { .. } => {
            ui.warn(words)
        }
        _ => ui.announce(words),
    }
}

/// Prints what a policy means, and what the daemon would refuse of it.
fn check(args: &Args, policy: Result<Policy, PolicyError>, ui: &Ui) -> anyhow::Result<Exit> {
    let (words, wrong) = match policy {
        Ok(policy) => (policy.in_words(), unusable(args, &policy, ui).err().map(in_a_line)),
        Err(error) => (Vec::new(), Some(in_a_line(error))),
    };
    let mut out = ui.out();
    if ui.json {
        let document = serde_json::json!({
            "schema_version": schema::DOCUMENT,
            "command": "watch",
            "policy": args.policy.to_string_lossy(),
            "meaning": words,
            "error": wrong,
        });
        has_reader(writeln!(out, "{document}").map_err(Into::into))?;
        return Ok(Exit::USAGE.when(wrong.is_some()));
    }
    let text = words.iter().try_for_each(|line| writeln!(out, "{}", printable(line)));
    let is_read = has_reader(text.map_err(Into::into))?;
    if let Some(wrong) = wrong {
        return Err(Usage(wrong).into());
    }
    if is_read {
        ui.note(format!("next: fragmend watch --once --policy {}", shell_word(&args.policy)));
    }
    Ok(Exit::DONE)
}

/// Why the daemon would not start with a policy here. What only root can see, others are told that it was not looked at.
fn unusable(args: &Args, policy: &Policy, ui: &Ui) -> Result<(), PolicyError> {
    let wrong = |error: anyhow::Error| wrong(args, error);
    let is_root = rustix::process::geteuid().is_root();
    let checked = if is_root { live::check(policy) } else { live::check_unprivileged(policy) };
    let is_hidden = |e: &Error| matches!(e, Error::Path { source, .. } if is_denied(source));
    match checked {
        Err(error) if !is_root && is_hidden(&error) => {
            ui.warn(format!(
                "{:#}; only root can see whether it can be watched",
                anyhow::Error::from(error)
            ));
        }
        Ok(()) if !is_root && policy.moves() => {
            ui.warn("whether data can be moved there only root can see");
        }
        checked => checked.map_err(|e| wrong(e.into()))?,
    }
    metrics::check(&served(args, policy), ui).map_err(wrong)
}

/// Whether the system has refused it to this user.
fn is_denied(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::ACCESS.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_watch::Status;
    use std::path::Path;

    fn moved(path: &Path) -> Event {
        let (path, ranges, ranges_moved, written_bytes, left_alone) =
            (path.into(), 1, 1, 4096, None);
        Event::Moved { path, ranges, ranges_moved, written_bytes, left_alone }
    }

    #[test]
    fn catalogues_are_read_once_in_a_period() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (version, table) = (dir.join("PG_VERSION"), dir.join("base/5/16385"));
        std::fs::create_dir_all(table.parent().unwrap()).unwrap();
        std::fs::write(&table, [0; 8192]).unwrap();
        let waiting = || Event::Waiting { until: String::new(), why: String::new() };
        let queued = |queued_batches| Event::Status(Status { queued_batches, ..Status::default() });
        let recorded = Event::Recorded { accesses: 1, lost: 0 };
        // What is read only at the begin of a period is there only then.
        let mut programs = Programs::default();
        let mut seen = |events: &[Event]| {
            std::fs::write(&version, "11\n").unwrap();
            let begin = programs.of(&moved(&table));
            std::fs::remove_file(&version).unwrap();
            events.iter().for_each(|event| assert_eq!(programs.of(event), None));
            let later = programs.of(&moved(&table));
            let _ = programs.of(&Event::Recorded { accesses: 1, lost: 0 });
            assert_eq!(begin.as_ref().map(|known| &*known.program), Some("PostgreSQL"));
            later == begin
        };
        assert!(seen(&[]) && seen(&[queued(1), waiting()]) && seen(&[queued(0)]));
        assert!(!seen(&[queued(0), waiting()]) && !seen(&[recorded]));
    }

    #[test]
    fn what_a_file_is_is_said_and_is_not_looked_for_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let mut header = *b"SQLite format 3\0\x10\0\x01\x01\0\x40\x20\x20";
        let (file, link) = (dir.join("orders"), dir.join("link"));
        let of = |content: &[u8], path| {
            let mut whole = [0; 100];
            whole[..content.len()].copy_from_slice(content);
            std::fs::write(&file, whole).unwrap();
            Programs::default().of(&moved(path)).map(|known| known.to_string())
        };
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(of(&header, &file).unwrap(), "SQLite: database in pages of 4096 bytes");
        assert_eq!(of(&header, &link), None);
        header[0] = b's';
        assert_eq!(of(&header, &file), None);
        assert_eq!(Programs::default().of(&Event::End), None);
    }
}
