//! `fragmend lab`: the papers' experiments and loads of your own, on simulated drives. Touches no
//! file but the pictures that it draws, and what `serve` serves.

mod compare;
mod serve;
mod text;

use crate::exit::{Exit, Usage};
use crate::ui::{Ui, has_reader};
use anyhow::Context;
use fragmend_lab::catalog::{Catalog, catalog};
use fragmend_lab::experiment::{Experiment, Report};
use fragmend_lab::experiments;
use fragmend_lab::plot::Plot;
use fragmend_lab::presets;
use fragmend_lab::run::run_all;
use fragmend_lab::setup::Setup;
use fragmend_lab::workload::{LARGEST_FILE, Workload};
use fragmend_sys::{directory, input};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Options of `fragmend lab`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do
    #[command(subcommand)]
    command: LabCommand,
}

/// What the lab does.
#[derive(Debug, clap::Subcommand)]
enum LabCommand {
    /// Which experiments and drives there are, and which loads and remedies are compared
    List,
    /// Run experiments: the paper's figures, ours, and whether they are in band
    Run(RunArgs),
    /// Compare all remedies side by side on aged images: what each gains, writes, wears out and risks
    ///
    /// Each load ages an image of each drive, once for each remedy with the same seed. Whoever is beaten in gain against
    /// bytes programmed has the remedy beside it that beats it. Exits with 2 if the planner's own policy, gain, is beaten somewhere, and
    /// with 1 if a power cut lost something.
    Compare(compare::CompareArgs),
    /// Check a drive's description and print it, as a start for one of your own
    Drive(DriveArgs),
    /// Serve a simulated drive as a block device of this machine, for real file systems
    ///
    /// Beside the device there is a directory with the files clock (virtual time in nanoseconds), stats (JSON) and
    /// control, which shows the commands that can be written to it. What is on the device is gone when this ends,
    /// by Ctrl-C, SIGTERM or quit; while the device is in use, it does not end, but says what is in the way.
    Serve(serve::ServeArgs),
}

/// Options of `fragmend lab run`.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Names of experiments, `all` of them, those that are `short`, or files (`*.toml`) that describe loads of your own
    #[arg(required = true, value_name = "NAME|all|short|FILE")]
    names: Vec<String>,
    /// The seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    /// Where the pictures go (SVG); with --json, none are drawn unless this is given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How many experiments run in parallel; the result is the same. One per core by default
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,
    /// Run loads of your own on this drive instead of the one that their file names
    #[arg(long, value_name = "NAME|FILE")]
    drive: Option<String>,
}

/// Options of `fragmend lab drive`.
#[derive(Debug, clap::Args)]
struct DriveArgs {
    /// Name of a drive of the lab, or a file (`*.toml`) that describes one
    #[arg(value_name = "NAME|FILE")]
    drive: String,
}

/// Where pictures go unless `--out` names a directory.
const OUT: &str = "lab-results";

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    match &args.command {
        LabCommand::List => list(ui),
        LabCommand::Run(args) => run_named(args, ui),
        LabCommand::Compare(args) => compare::run(args, ui),
        LabCommand::Drive(args) => drive(&args.drive, ui),
        LabCommand::Serve(args) => serve::run(args, ui),
    }
}

fn list(ui: &Ui) -> anyhow::Result<Exit> {
    let catalog: Catalog = catalog();
    let mut out = ui.out();
    if ui.json {
        writeln!(out, "{}", serde_json::to_string(&catalog)?)?;
    } else {
        write!(out, "{}", text::catalog(&catalog))?;
    }
    Ok(Exit::DONE)
}

fn drive(name: &str, ui: &Ui) -> anyhow::Result<Exit> {
    let (text, setup) = load_drive(name)?;
    let mut out = ui.out();
    if ui.json {
        writeln!(out, "{}", serde_json::to_string(&setup)?)?;
    } else {
        write!(out, "{text}")?;
    }
    Ok(Exit::DONE)
}

/// The text and the description of a drive, by its name or its file.
fn load_drive(name: &str) -> anyhow::Result<(String, Setup)> {
    let text = if is_file(name) {
        input::read_text(Path::new(name), LARGEST_FILE).with_context(|| name.to_owned())?
    } else {
        presets::text(name).map_err(|e| Usage(e.to_string()))?.to_owned()
    };
    let setup = Setup::parse(&text, name).map_err(|e| Usage(e.to_string()))?;
    Ok((text, setup))
}

fn is_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|ending| ending == "toml")
}

/// What is run.
enum Run {
    Experiment(&'static Experiment),
    Load(Box<Workload>),
}

fn run_named(args: &RunArgs, ui: &Ui) -> anyhow::Result<Exit> {
    let mut runs = Vec::new();
    for name in &args.names {
        match name.as_str() {
            "all" => runs.extend(experiments::ALL.iter().copied().map(Run::Experiment)),
            "short" => runs.extend(experiments::short().map(Run::Experiment)),
            file if is_file(file) => {
                let text = input::read_text(Path::new(file), LARGEST_FILE)
                    .with_context(|| file.to_owned())?;
                let drive = args.drive.as_deref().map(load_drive).transpose()?;
                let load = Workload::parse(&text, Path::new(file), drive.map(|(_, setup)| setup));
                runs.push(Run::Load(Box::new(load.map_err(|e| Usage(e.to_string()))?)));
            }
            name => runs.push(Run::Experiment(experiments::named(name).ok_or_else(|| {
                Usage(format!("no experiment is named {name}; `fragmend lab list` names them all"))
            })?)),
        }
    }
    if args.drive.is_some() && runs.iter().any(|run| matches!(run, Run::Experiment(_))) {
        let why = "--drive is for loads of your own: an experiment has the drives of its paper";
        return Err(Usage(why.into()).into());
    }
    let out = args.out.clone().or_else(|| (!ui.json).then(|| OUT.into()));
    if let Some(out) = &out {
        directory::create(out, false).with_context(|| out.display().to_string())?;
    }
    let bar = ui.progress(Some(runs.len() as u64), "{bar:30} {pos}/{len} {msg}");
    let one = |run: &Run| {
        let done = match run {
            Run::Experiment(experiment) => Ok(experiment.report(args.seed)),
            Run::Load(load) => load.report(args.seed),
        };
        bar.inc(1);
        done
    };
    let done = run_all(&runs, args.jobs, one);
    bar.finish_and_clear();
    let done = done.into_iter().collect::<Result<Vec<_>, _>>().map_err(|e| Usage(e.to_string()))?;
    show(&done, out.as_deref(), ui)
}

/// Prints reports and draws pictures; returns the exit code.
fn show(done: &[(Report, Vec<Plot>)], out: Option<&Path>, ui: &Ui) -> anyhow::Result<Exit> {
    // A closed output is no error: pictures are drawn, and the exit code has the result.
    has_reader(print(done, ui))?;
    if let Some(out) = out {
        for plot in done.iter().flat_map(|(_, plots)| plots) {
            plot.draw(out)?;
        }
        ui.note(format_args!("pictures are in {}", out.display()));
    }
    Ok(Exit::IMPROVABLE.when(!done.iter().all(|(report, _)| report.within())))
}

fn print(done: &[(Report, Vec<Plot>)], ui: &Ui) -> anyhow::Result<()> {
    let mut stdout = ui.out();
    for (report, _) in done {
        if ui.json {
            writeln!(stdout, "{}", serde_json::to_string(report)?)?;
        } else {
            writeln!(stdout, "{}", text::report(report))?;
        }
    }
    if !ui.json {
        write!(stdout, "{}", text::summary(done.iter().map(|(report, _)| report)))?;
    }
    Ok(())
}
