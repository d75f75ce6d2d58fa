//! `fragmend probe`: what reading a device costs, and how its flash is organized. Reads only.
//!
//! The measuring is the `device` crate's; here are the options, what is said before, and the results.

use crate::exit::{Exit, Usage};
use crate::interrupt;
use crate::options::{Check, duration};
use crate::ui::Ui;
use crate::view;
use anyhow::Context;
use fragmend_device::health;
use fragmend_device::kind::Kind;
use fragmend_device::probe::intervals::CannotTell;
use fragmend_device::probe::meter::{Limits, Meter};
use fragmend_device::probe::pace::Manner;
use fragmend_device::probe::reader::{Failed, Reader};
use fragmend_device::probe::ring::RingReader;
use fragmend_device::probe::{self, Options, ProbeError, ranges};
use fragmend_device::profile::{self, Identity, Profile, ProfiledDevice};
use fragmend_device::target::{self, How, NoTarget, Target};
use fragmend_layout::{FileId, PathText, printable_path, shell_word};
use fragmend_report::probe::{DriveReport, FileReport, ProbeReport, ProbedFile};
use fragmend_report::{Unit, human};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::{inode, input};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Options of `fragmend probe`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long it may last, at most; a file's ranges may last as long again
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    seconds: Duration,
    /// How it goes beside other programs
    #[arg(long, value_enum, default_value_t = PaceArg::Auto)]
    pace: PaceArg,
    /// Which clock times the reads
    #[arg(long, value_enum, default_value_t = ClockArg::Auto)]
    clock: ClockArg,
    /// Where profiles are kept [default: $FRAGMEND_PROFILES, or /var/lib/fragmend/profiles]
    #[arg(long, value_name = "DIR")]
    profiles: Option<PathBuf>,
    /// Do not keep the profile
    #[arg(long)]
    no_keep: bool,
    /// Leave out reads at intervals: costs alone, no stripe and no die granularity
    #[arg(long)]
    no_intervals: bool,
    /// Of a file: probe its device first also if a profile of it is kept
    #[arg(long)]
    again: bool,
    /// Draw pictures into this directory (SVG)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The seed of all random places
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    #[command(flatten)]
    check: Check,
    /// A block device, a directory on it, or a file, whose ranges are compared with what its device can do
    #[arg(value_name = "DEVICE|PATH")]
    target: PathBuf,
}

/// Values of `--pace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PaceArg {
    /// It waits while others use the device, and rests between bursts
    Auto,
    /// As fast as it goes
    Max,
}

/// Values of `--clock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ClockArg {
    /// That of the drive, where `fragmend lab serve` serves one; else that on the wall
    Auto,
    /// That on the wall
    Wall,
}

/// The fewest bytes of a device that can be measured: one of the longest requests.
const LEAST: u64 = 1 << 20;

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    let stop = interrupt::install()?;
    let target = Target::of(&args.target).map_err(unsuitable)?;
    let dir = profile::directory(args.profiles.as_deref());
    let mut notes = Vec::new();
    let map = match &target {
        Target::File(path, _) => Some(extents(path)?),
        Target::Device(_) => None,
    };
    let kept = match &target {
        Target::File(..) if !args.again => match profile::stored(target.device(), &dir) {
            Ok(kept) => kept,
            Err(why) => {
                notes.push(why.to_string());
                None
            }
        },
        _ => None,
    };
    let name = PathText::from(args.target.as_path());
    let mut report = match kept {
        Some(profile) => {
            ui.note(format_args!("using the profile of {} that is kept", profile.device.name));
            ProbeReport::new(name, profile)
        }
        None => match probe_device(args, target.device(), stop, ui)? {
            Some((profile, limits)) => {
                let mut report = ProbeReport::new(name, profile);
                report.limits = Some(limits.into());
                keep(args, &dir, &mut report, &mut notes);
                report
            }
            None => return Ok(interrupted(ui)),
        },
    };
    if report.profile.device.identity.as_ref().is_some_and(Identity::is_cached) {
        notes.push(format!("{}: {}", report.profile.device.name, profile::THROUGH_CACHE));
    }
    let mut incomplete = !report.profile.complete;
    if let (Target::File(path, device), Some(map)) = (&target, map) {
        match probe_file(args, (path, map), device, &report.profile, stop, ui)? {
            Some(file) => {
                incomplete |= !file.complete;
                report.file = Some(file);
            }
            None => return Ok(interrupted(ui)),
        }
    }
    report.notes = notes;
    report.drives = drives(target.device());
    view::probe::show(&report, ui)?;
    report.notes.iter().for_each(|note| ui.warn(note));
    view::wear::warn(report.drives.iter().filter_map(|d| Some((&*d.name, d.health.as_ref()?))), ui);
    if let Some(dir) = &args.out {
        view::probe::draw(&report, dir)?;
        ui.note(format_args!("pictures are in {}", printable_path(dir)));
    }
    let slow = report.file.as_ref().is_some_and(|file| !file.slow.is_empty());
    if slow && !incomplete {
        next(&args.target, ui);
    }
    Ok(args.check.exit(slow) | Exit::INCOMPLETE.when(incomplete))
}

/// What the drives below a device report of their wear.
fn drives(device: &BlockDevice) -> Vec<DriveReport> {
    let drives = health::below_device(device);
    let answers = health::ask(&drives, health::PATIENCE);
    let report = |(drive, answer): (health::Drive, Result<_, health::NoAnswer>)| DriveReport {
        name: drive.name,
        unknown: answer.as_ref().err().map(ToString::to_string),
        health: answer.ok(),
    };
    drives.into_iter().zip(answers).map(report).collect()
}

/// What can be done about slow ranges.
fn next(file: &Path, ui: &Ui) {
    let file = shell_word(file);
    ui.note(if ui.json {
        "next, with this document: fragmend plan --slow DOCUMENT -o PLAN".to_owned()
    } else {
        format!(
            "next: fragmend probe --json {file} > slow.json; fragmend plan --slow slow.json -o PLAN"
        )
    });
}

/// What cannot be probed: a wrong path is wrong usage.
fn unsuitable(why: NoTarget) -> anyhow::Error {
    match why {
        NoTarget::Unreachable(..) => why.into(),
        other => Usage(other.to_string()).into(),
    }
}

fn interrupted(ui: &Ui) -> Exit {
    ui.warn("interrupted: nothing was kept");
    Exit::INCOMPLETE
}

fn how(args: &Args) -> How {
    How {
        manner: if args.pace == PaceArg::Max { Manner::Unlimited } else { Manner::Yielding },
        wall_clock: args.clock == ClockArg::Wall,
    }
}

/// An error of opening, with what to do about it.
fn opened(reader: std::io::Result<RingReader>, what: &Path) -> anyhow::Result<RingReader> {
    reader.map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::PermissionDenied if rustix::process::geteuid().is_root() => {
                ": root may not open it here (a container, or a security module)"
            }
            ErrorKind::PermissionDenied => ": run as root",
            ErrorKind::Unsupported => ": the kernel must permit io_uring",
            _ => "",
        };
        anyhow::Error::new(error).context(format!("{}{remedy}", printable_path(what)))
    })
}

/// Measures a device; `None` if that was interrupted.
fn probe_device(
    args: &Args,
    device: &BlockDevice,
    stop: &'static AtomicBool,
    ui: &Ui,
) -> anyhow::Result<Option<(Profile, Limits)>> {
    let node = Path::new("/dev").join(device.name());
    let mut reader = opened(target::open_device(device, how(args)), &node)?;
    if reader.capacity_bytes() < LEAST {
        let why = format!("it has {} bytes, too few to be measured", reader.capacity_bytes());
        anyhow::bail!("{}: {why}", printable_path(&node));
    }
    let kind = Kind::of(device);
    let identity = Identity::of(device).ok();
    let no_geometry = match (args.no_intervals, kind) {
        (true, _) => Some(CannotTell::NotAsked),
        (false, Kind::Disk) => Some(CannotTell::Seeks),
        (false, kind) => (!kind.shows_dies()).then_some(CannotTell::Layered),
    };
    let options =
        Options { time: args.seconds, no_geometry, seed: args.seed, ..Options::default() };
    let limits = probe::most(&reader, &options);
    announce(&node, kind.words(), limits, ui);
    let clock = reader.clock();
    let bar = ui.progress(None, "{spinner} {msg}");
    bar.enable_steady_tick(Duration::from_millis(100));
    let mut stage = |stage| bar.set_message(view::probe::stage(stage));
    let measured =
        probe::probe(&mut reader, &options, &|| stop.load(Ordering::Relaxed), &mut stage);
    bar.finish_and_clear();
    let measured = match measured {
        Err(ProbeError::Failed(Failed::Stopped)) => return Ok(None),
        Err(ProbeError::Failed(Failed::Spent)) => {
            let why = "there was no time for anything; give more (--seconds)";
            anyhow::bail!("{}: {why}", printable_path(&node));
        }
        other => other.with_context(|| printable_path(&node).to_string())?,
    };
    if Identity::of(device).ok() != identity {
        let why = "it has become another device, or is read in another way, since the probe began; probe it again";
        anyhow::bail!("{}: {why}", printable_path(&node));
    }
    let profiled = ProfiledDevice {
        name: device.name(),
        kind,
        identity,
        partition_start_bytes: target::partition_start(device),
    };
    let mut profile = Profile::new(profiled, measured, clock);
    profile.disturbed = reader.pace().disturbed();
    Ok(Some((profile, limits)))
}

/// What is going to be read, before it is.
fn announce(path: &Path, what: &str, limits: Limits, ui: &Ui) {
    ui.announce(format_args!(
        "{}, {what}: reading at most {} in {} requests, for at most {} and as long as the requests last that are in flight then; nothing is written",
        printable_path(path),
        human(limits.bytes as f64, Unit::Bytes),
        human(limits.requests as f64, Unit::Count),
        human(limits.time.as_secs_f64(), Unit::Seconds),
    ));
}

/// Keeps a profile, or notes why not.
fn keep(args: &Args, dir: &Path, report: &mut ProbeReport, notes: &mut Vec<String>) {
    if args.no_keep {
        return;
    }
    if !report.profile.complete {
        notes.push("the profile is not kept: there was no time for all of it (--seconds)".into());
    } else if report.profile.device.identity.is_none() {
        notes.push(format!("the profile is not kept: {}", profile::NoIdentity));
    } else {
        match profile::keep(&report.profile, dir) {
            Ok(path) => report.kept = Some(PathText::from(path.as_path())),
            Err(e) => notes.push(format!(
                "the profile is not kept in {}: {e}; name another directory (--profiles)",
                printable_path(dir)
            )),
        }
    }
}

/// The file that is probed.
struct Probed {
    which: ProbedFile,
    /// Its parts that can be timed, and its bytes of data.
    map: (Vec<ranges::Mapping>, u64),
}

/// Where a file is. What programs have written to it by now is on the device then.
fn extents(path: &Path) -> anyhow::Result<Probed> {
    let named = || printable_path(path).to_string();
    let look = || -> std::io::Result<_> {
        let file = input::open(path)?;
        let map = ranges::map(&file)?;
        Ok((identity(&file)?, map))
    };
    let (file, map) = look().with_context(named)?;
    if map.0.is_empty() {
        let why = "no whole MiB of it is data on the device as it is in the file";
        return Err(Usage(format!("{}: {why}, so there is nothing to time", named())).into());
    }
    // A plan may be made from another directory.
    let path = path.canonicalize().with_context(named)?;
    Ok(Probed { which: ProbedFile { path: path.as_path().into(), file }, map })
}

/// Which file it is.
fn identity(file: &File) -> std::io::Result<FileId> {
    let found = file.metadata()?;
    let generation = inode::generation_or_zero(file)?;
    Ok(FileId { device: found.dev(), inode: found.ino(), generation })
}

/// Times the ranges of a file; `None` if that was interrupted.
fn probe_file(
    args: &Args,
    (path, probed): (&Path, Probed),
    device: &BlockDevice,
    profile: &Profile,
    stop: &'static AtomicBool,
    ui: &Ui,
) -> anyhow::Result<Option<FileReport>> {
    let named = || printable_path(path).to_string();
    let mut reader = opened(target::open_file(path, device, how(args)), path)?;
    let Probed { which, map } = probed;
    let limits = ranges::most(&reader, &map.0, args.seconds);
    announce(path, "a file", limits, ui);
    let stop = || stop.load(Ordering::Relaxed);
    let mut meter = Meter::new(&mut reader as &mut dyn Reader, limits, &stop);
    match ranges::measure(&mut meter, args.seed, map, &profile.costs) {
        Ok(_) if input::open(path).and_then(|file| identity(&file)).ok() != Some(which.file) => {
            anyhow::bail!("{}: another file has taken its place; probe it again", named());
        }
        Ok(parts) => Ok(Some(FileReport::new(which, &parts, limits))),
        Err(Failed::Stopped) => Ok(None),
        Err(why) => Err(anyhow::Error::new(why).context(named())),
    }
}
