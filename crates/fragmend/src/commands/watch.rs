//! `fragmend watch`: the daemon. Its decisions are `fragmend_watch`'s; here are options, privileges, signals and output.

mod metrics;

use crate::exit::{Exit, Usage};
use crate::outlet::Outlet;
use crate::threads;
use crate::ui::{Ui, has_reader};
use anyhow::Context;
use fragmend_known::Recogniser;
use fragmend_layout::{printable, schema, shell_word};
use fragmend_sys::capabilities::{self, Capabilities};
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
    /// Check the policy, and print what it means
    #[arg(long, conflicts_with = "once")]
    check: bool,
}

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    let policy = Policy::read(&args.policy);
    if args.check {
        return check(args, policy, ui);
    }
    let policy = policy.map_err(|e| Usage(format!("{:#}", anyhow::Error::from(e))))?;
    // Before there is a thread that would keep them.
    capabilities::keep_only(KEPT).context("privileges that are not needed cannot be dropped")?;
    threads::start();
    live::check(&policy)?;
    // A run of a timer ends before anybody asks.
    let served = |metrics: &Metrics| Metrics {
        listen: metrics.listen.filter(|_| !args.once),
        ..metrics.clone()
    };
    let exposed = Exposed::start(&served(&policy.metrics))?;
    let control = Control::default();
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&control.stop))?;
    }
    flag::register(SIGHUP, Arc::clone(&control.reload))?;

    let (store, aside) = Store::open(&args.store, Time::now())?;
    let notify = Arc::new(Notify::from_environment());
    let mut output = ui.json.then(Outlet::output);
    let mut tell = |event: Event| {
        announce(&event, &notify);
        if let Event::Status(status) = &event {
            exposed.show(status, ui);
        }
        match &mut output {
            Some(output) => {
                let mut text = ui.safe(Vec::new());
                let written = serde_json::to_string(&event).map(|line| writeln!(text, "{line}"));
                output.put(&text.into_inner());
                if written.is_err() || output.flush(Some(PATIENCE), &control.stop).is_err() {
                    // Nobody reads it any more.
                    control.stop.store(true, Ordering::Relaxed);
                }
            }
            None => event.in_words().into_iter().for_each(|words| {
                log(&event, &(words + &program_of(&event)), ui);
            }),
        }
    };
    if let Some(aside) = aside {
        tell(Event::MovedAside { path: aside.to.as_path().into(), why: aside.why });
    }
    let world = Live::new(Arc::clone(&notify));
    let daemon = Daemon::new(world, store, policy, args.once, &mut tell)?;
    let reread = || {
        let policy = Policy::read(&args.policy)?;
        let wrong = |error: anyhow::Error| PolicyError::Wrong {
            path: args.policy.clone(),
            what: format!("{error:#}"),
        };
        live::check(&policy).map_err(|e| wrong(e.into()))?;
        // Last, so that nothing has changed if something else is wrong.
        exposed.change(&served(&policy.metrics)).map_err(|e| wrong(e.into()))?;
        Ok(policy)
    };
    let status = daemon.run(&control, &reread)?;
    Ok(Exit::FAILED.when(args.once && status.failures > 0))
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

/// What the file of an event is to its program, as the end of a line. What was read for that is not kept: the daemon is small.
fn program_of(event: &Event) -> String {
    let known = event.file().and_then(|path| Recogniser::default().in_place(&path.to_path()?));
    known.map_or(String::new(), |known| format!(" ({})", printable(&known.to_string())))
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

/// Prints what a policy means.
fn check(args: &Args, policy: Result<Policy, PolicyError>, ui: &Ui) -> anyhow::Result<Exit> {
    let (words, wrong) = match policy {
        Ok(policy) => (policy.in_words(), None),
        Err(error) => (Vec::new(), Some(format!("{:#}", anyhow::Error::from(error)))),
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
    if let Some(wrong) = wrong {
        return Err(Usage(wrong).into());
    }
    let text = words.iter().try_for_each(|line| writeln!(out, "{}", printable(line)));
    if has_reader(text.map_err(Into::into))? {
        ui.note(format!("next: fragmend watch --once --policy {}", shell_word(&args.policy)));
    }
    Ok(Exit::DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_is_ends_its_line_and_is_not_looked_for_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let mut header = *b"SQLite format 3\0\x10\0\x01\x01\0\x40\x20\x20";
        let (file, link) = (dir.join("orders"), dir.join("link"));
        let moved = |path: &std::path::Path| Event::Moved {
            path: path.into(),
            ranges: 1,
            ranges_moved: 1,
            written_bytes: 4096,
            left_alone: None,
        };
        let of = |content: &[u8], path| {
            let mut whole = [0; 100];
            whole[..content.len()].copy_from_slice(content);
            std::fs::write(&file, whole).unwrap();
            program_of(&moved(path))
        };
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(of(&header, &file), " (SQLite: database in pages of 4096 bytes)");
        assert_eq!(of(&header, &link), "");
        header[0] = b's';
        assert_eq!(of(&header, &file), "");
        assert_eq!(program_of(&Event::End), "");
    }
}
