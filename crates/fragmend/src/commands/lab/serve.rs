//! `fragmend lab serve`: a drive of the lab as a block device, until Ctrl-C.
//!
//! Unlike other verbs it never ends while its device is in use, however often a signal comes: what is dirty on a
//! file system there would be lost. It says what is in the way, and ends as soon as that is gone.

use super::load_drive;
use crate::exit::{Exit, Usage};
use crate::ui::Ui;
use anyhow::Context;
use fragmend_lab::serve::device::InTheWay;
use fragmend_lab::serve::mode::Mode;
use fragmend_lab::serve::{EndError, Options, Report, ServeError, Serving};
use fragmend_report::size;
use fragmend_report::{Unit, human};
use fragmend_sys::signals;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Options of `fragmend lab serve`.
#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// Name of a drive of the lab, or a file (`*.toml`) that describes one
    #[arg(value_name = "NAME|FILE")]
    drive: String,
    /// Expose only the first bytes of the drive (K, M, G: binary); all of them by default
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    size: Option<u64>,
    /// Let requests really last as long as the drive needs, times a factor; without this, virtual time is added up,
    /// and nothing lasts longer than it must
    #[arg(long, value_name = "FACTOR", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = factor)]
    paced: Option<f64>,
    /// Bytes of a sector: a power of two; those of the drive's unit by default, at most 4096
    #[arg(long, value_name = "BYTES")]
    sector_size: Option<u32>,
    /// Where the data is, in a file without a name, and the directory of the control files; the system's temporary
    /// directory by default
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// How often a device that is in use is tried again.
const AGAIN: Duration = Duration::from_millis(200);
/// How long others may have a device open in passing, as udev has, before that is said.
const PASSING: Duration = Duration::from_secs(1);
/// Signals within this time count as one request: `timeout` and shells send two.
const ONE_REQUEST: Duration = Duration::from_millis(500);
const LARGEST_FACTOR: f64 = 1e6;

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|f: &f64| *f > 0.0 && *f <= LARGEST_FACTOR);
    factor.ok_or_else(|| "say a number above 0, as 1 or 0.5".to_owned())
}

/// Serves until a signal or `quit` comes.
pub(super) fn run(args: &ServeArgs, ui: &Ui) -> anyhow::Result<Exit> {
    let (_, setup) = load_drive(&args.drive)?;
    let options = Options {
        size: args.size,
        mode: args.paced.map_or(Mode::Accounting, Mode::Paced),
        dir: args.dir.clone(),
        sector_bytes: args.sector_size,
    };
    let (ask, asked) = channel();
    listen(ask.clone())?;
    let quit = move || {
        let _ = ask.send(());
    };
    let mut serving = Serving::start(&setup, &args.drive, &options, quit).map_err(usage)?;
    // A drive of which nobody could be told is of no use.
    let shown = show(serving.report(), ui);
    if shown.is_ok() {
        // The sender is in the file `control`, which is served until the end.
        let _ = asked.recv();
    }
    end(&mut serving, &asked, ui)?;
    shown.map(|()| Exit::DONE)
}

/// Errors in what was asked for are wrong usage.
fn usage(error: ServeError) -> anyhow::Error {
    match error {
        ServeError::Zoned | ServeError::Size { .. } | ServeError::Sector { .. } => {
            Usage(error.to_string()).into()
        }
        other => other.into(),
    }
}

/// Sends a message for each signal that asks for the end.
fn listen(ask: Sender<()>) -> anyhow::Result<()> {
    let mut handled = vec![SIGINT, SIGTERM];
    handled.extend((!signals::is_ignored(SIGHUP)).then_some(SIGHUP));
    let mut came = Signals::new(&handled).context("signals cannot be handled")?;
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(move || {
        for _ in came.forever() {
            if ask.send(()).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Ends serving as soon as nothing uses the device.
fn end(serving: &mut Serving, asked: &Receiver<()>, ui: &Ui) -> Result<(), EndError> {
    let started = Instant::now();
    let mut said = None;
    loop {
        let in_the_way = match serving.end() {
            Err(EndError::InTheWay(in_the_way)) => in_the_way,
            ended => return ended,
        };
        let is_new = said.as_ref() != Some(&in_the_way);
        if is_new && started.elapsed() > PASSING {
            say(serving.report(), &in_the_way, ui);
            said = Some(in_the_way);
        }
        match asked.recv_timeout(AGAIN) {
            // Somebody is impatient: the same is said again.
            Ok(()) if started.elapsed() > ONE_REQUEST => said = None,
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(AGAIN),
        }
    }
}

fn say(report: &Report, in_the_way: &InTheWay, ui: &Ui) {
    let (node, id) = (report.node.display(), std::process::id());
    ui.warn(format_args!(
        "{node} is still {in_the_way}; serving goes on until that has ended (umount it), and ends then. `kill -KILL {id}` ends it now, and what has not been written is lost"
    ));
}

fn show(report: &Report, ui: &Ui) -> anyhow::Result<()> {
    let mut out = ui.out();
    if ui.json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
        return Ok(out.flush()?);
    }
    let Report { node, directory, drive, about, bytes, data_directory, .. } = report;
    let how = match report.factor {
        None => "virtual time is added up (accounting)".to_owned(),
        Some(1.0) => "requests last as long as the drive needs (paced)".to_owned(),
        Some(factor) => format!("requests last {factor} times as long as the drive needs (paced)"),
    };
    writeln!(out, "{}: {drive}, {}: {how}", node.display(), human(*bytes as f64, Unit::Bytes))?;
    writeln!(out, "drive: {about}")?;
    writeln!(out, "clock, stats and control: {}", directory.display())?;
    writeln!(
        out,
        "data: a file without a name in {}, gone when this ends",
        data_directory.display()
    )?;
    out.flush()?;
    for warning in &report.warnings {
        ui.warn(warning);
    }
    let control = directory.join("control");
    ui.note(format_args!("Ctrl-C ends it, or: echo quit > {}", control.display()));
    Ok(())
}
