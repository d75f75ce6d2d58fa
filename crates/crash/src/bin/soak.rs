//! Cuts the power thousands of times, and prints the results as a table.

use clap::{Args, Parser, Subcommand};
use fragmend_crash::choose_cuts::{at_every_flush, choose};
use fragmend_crash::controls;
use fragmend_crash::cut::Cut;
use fragmend_crash::in_flight;
use fragmend_crash::marks::Marks;
use fragmend_crash::matrix::{self, UnsupportedFeatures};
use fragmend_crash::record::{Recording, record};
use fragmend_crash::refused;
use fragmend_crash::replay;
use fragmend_crash::scenario::{self, Scenario};
use fragmend_crash::session::{self, Nodes};
use fragmend_crash::soak::Row;
use fragmend_crash::{files::TestFile, load};
use fragmend_testbed::bench::markdown;
use fragmend_testbed::{cleanup, tools};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

/// Records disks while fragmend moves files on them, cuts the power anywhere, compares every byte
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Verb>,
    #[command(flatten)]
    soak: Soak,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs the load beside the moves; started by a recording
    #[command(hide = true)]
    Load { root: PathBuf, files: PathBuf, seed: u64, marks: PathBuf },
    /// Makes a recording; in a guest
    #[command(hide = true)]
    Record {
        #[arg(value_parser = scenario_named)]
        scenario: &'static Scenario,
        seed: u64,
        dir: PathBuf,
    },
    /// Stores standard input to a file through a mapping; started by a test
    #[command(hide = true)]
    Store { path: PathBuf, at: u64 },
    /// Uses a disk while it is recorded; started by the process that serves it
    #[command(hide = true)]
    Session {
        #[arg(value_parser = scenario_named)]
        scenario: &'static Scenario,
        seed: u64,
        dir: PathBuf,
        disk: PathBuf,
        marks: PathBuf,
        second: Option<PathBuf>,
    },
    /// Inspects cuts of a recording; in a guest
    #[command(hide = true)]
    Check { recording: PathBuf, cuts: PathBuf },
}

#[derive(Args)]
struct Soak {
    /// Only these scenarios; all engines and controls without losses otherwise
    #[arg(long, alias = "bed", value_parser = scenario_named)]
    scenario: Vec<&'static Scenario>,
    /// Cuts in all
    #[arg(long, default_value_t = 10_000)]
    cuts: usize,
    /// Cuts of one recording
    #[arg(long, default_value_t = 250)]
    per_recording: usize,
    /// Cells of the matrix of features and mount options; all by default
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    cells: usize,
    /// Cuts of one cell
    #[arg(long, default_value_t = 20)]
    per_cell: usize,
    /// Inspects a cut at every flush of one recording of each scenario instead
    #[arg(long, conflicts_with_all = ["cuts", "per_recording"])]
    every_flush: bool,
    /// Decides the load and the cuts; the next recording has the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Inspects one cut of a recording that was kept
    #[arg(long, value_name = "DIR", requires = "cut", requires = "cut_seed")]
    replay: Option<PathBuf>,
    /// Entries of its log before the cut
    #[arg(long)]
    cut: Option<usize>,
    /// Decides which unflushed writes survive
    #[arg(long)]
    cut_seed: Option<u64>,
}

fn scenario_named(name: &str) -> Result<&'static Scenario, String> {
    scenario::named(name).ok_or_else(|| "no scenario has this name".into())
}

const NEEDS: [&str; 6] =
    ["losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkfs.f2fs", "linux.uml"];

fn main() -> ExitCode {
    let cli = Cli::parse();
    let this = std::env::current_exe().expect("the running program's path");
    if let Some(verb) = cli.command {
        carry_out(verb, &this);
        return ExitCode::SUCCESS;
    }
    cleanup::panics_in_one_line("soak");
    if let Err(why) = tools::require(&NEEDS) {
        eprintln!("soak: {why}");
        return ExitCode::FAILURE;
    }
    let Soak { replay, cut, cut_seed, .. } = &cli.soak;
    let lost = match (replay, cut, cut_seed) {
        (Some(dir), Some(position), Some(seed)) => again(dir, *position, *seed, &this),
        _ => {
            if let Err(why) = controls::stops_at_moves().and_then(|()| run_controls(&this)) {
                eprintln!("soak: {why}");
                return ExitCode::FAILURE;
            }
            soak(&cli.soak, &this)
        }
    };
    if lost { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Carries out a verb for another process of this program.
fn carry_out(verb: Verb, this: &Path) {
    let read = |path: &Path| std::fs::read(path).expect("a list of ours");
    match verb {
        Verb::Load { root, files, seed, marks } => {
            let files: Vec<TestFile> = serde_json::from_slice(&read(&files)).expect("files");
            let marks = Marks::open(&marks).expect("a place for marks");
            load::run(&root, &files, seed, &marks);
        }
        Verb::Store { path, at } => in_flight::store(&path, at).expect("a store"),
        Verb::Session { scenario, seed, dir, disk, marks, second } => {
            let nodes = Nodes { disk: &disk, second: second.as_deref(), marks: &marks };
            session::run(scenario, seed, &dir, nodes, this);
        }
        Verb::Record { scenario, seed, dir } => drop(record(scenario, seed, &dir, this)),
        Verb::Check { recording, cuts } => {
            let cuts: Vec<Cut> = serde_json::from_slice(&read(&cuts)).expect("cuts");
            let recording = Recording::open(&recording).expect("a recording");
            let results = replay::check(&recording, &cuts, 1, this);
            println!("{}", serde_json::to_string(&results).expect("JSON"));
        }
    }
}

/// Inspects one cut again; returns whether anything was lost.
fn again(dir: &Path, position: usize, seed: u64, this: &Path) -> bool {
    let recording = Recording::open(dir).expect("a recording that was kept");
    let cut = Cut { position, seed, honest: recording.scenario.honest };
    let results = replay::check(&recording, &[cut], 1, this);
    let wrong = results.losses.iter().flat_map(|loss| &loss.wrong);
    wrong.for_each(|wrong| println!("{wrong}"));
    println!("{} files, {} bytes compared", results.files, results.bytes);
    !results.losses.is_empty()
}

/// Runs the controls and prints their results; an error unless each has lost something, because a run that
/// detects no losses proves nothing.
fn run_controls(this: &Path) -> Result<(), String> {
    let rows = controls::all(this);
    println!("What must lose something, cut first (the build stops its mover after moves: yes):\n");
    println!("{}", markdown::table(&Row::COLUMNS, 1, rows.iter().map(Row::cells).collect()));
    let blind = rows.iter().filter(|row| row.results.losses.is_empty());
    let blind: Vec<&str> = blind.map(|row| row.name.as_str()).collect();
    if blind.is_empty() {
        return Ok(());
    }
    Err(format!("blind: nothing was lost where something must be: {}", blind.join(", ")))
}

/// Scenarios that run side by side.
const AT_A_TIME: usize = 2;

/// Runs recordings of one scenario until `cuts` cuts were inspected.
fn run_scenario(scenario: &'static Scenario, options: &Soak, cuts: usize, this: &Path) -> Row {
    let mut row = Row::default();
    let mut seed = options.seed;
    while row.results.cuts < cuts as u64 {
        let left = cuts - row.results.cuts as usize;
        let report = |what: &str| eprintln!("soak: {what}");
        let cuts = |recording: &Recording| {
            if options.every_flush {
                return at_every_flush(recording, seed);
            }
            choose(recording, left.min(options.per_recording), seed)
        };
        row.add_recording(scenario, seed, cuts, this, report);
        eprintln!("soak: {}", row.cells().join(" | "));
        seed += 1;
        if options.every_flush {
            break;
        }
    }
    row
}

/// The scenarios and how many cuts of each, and the features that cannot be tested here.
fn rows(options: &Soak) -> (Vec<(&'static Scenario, usize)>, UnsupportedFeatures) {
    if !options.scenario.is_empty() {
        let share = options.cuts.div_ceil(options.scenario.len());
        return (
            options.scenario.iter().map(|scenario| (*scenario, share)).collect(),
            UnsupportedFeatures::default(),
        );
    }
    let unsupported = UnsupportedFeatures::probe();
    let all = scenario::ENGINES.iter().chain(&scenario::ALONE);
    let cells = matrix::draw(options.cells, options.seed, &unsupported);
    let of_cells = cells.len() * options.per_cell;
    let share = options.cuts.saturating_sub(of_cells).div_ceil(all.clone().count());
    let cells = cells.iter().filter_map(|cell| matrix::named(&cell.name));
    let cells = cells.map(|scenario| (scenario, options.per_cell));
    (all.map(|scenario| (scenario, share.max(1))).chain(cells).collect(), unsupported)
}

/// Runs all scenarios and prints the tables; returns whether anything was lost or unexpected.
fn soak(options: &Soak, this: &Path) -> bool {
    let (scenarios, unsupported) = rows(options);
    // Recording waits most of the time, comparing needs a processor: two scenarios side by side
    // keep two processors busy.
    let next = Mutex::new(scenarios.iter().enumerate());
    let rows = Mutex::new(BTreeMap::new());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let work = || {
            while let Some((n, (scenario, cuts))) =
                { next.lock().expect("the rows to come").next() }
            {
                // A panic in one scenario must not end the others.
                let row =
                    catch_unwind(AssertUnwindSafe(|| run_scenario(scenario, options, *cuts, this)));
                match row {
                    Ok(row) => drop(rows.lock().expect("the rows so far").insert(n, row)),
                    Err(_) => failed.lock().expect("what failed").push(scenario.name),
                }
            }
        };
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("a row"));
    });
    let rows: Vec<Row> = rows.into_inner().expect("all rows").into_values().collect();
    println!("{}", markdown::table(&Row::COLUMNS, 1, rows.iter().map(Row::cells).collect()));
    let sum = |figure: fn(&Row) -> u64| rows.iter().map(figure).sum::<u64>();
    let lost = sum(|row| row.results.losses.len() as u64);
    println!(
        "Seed {}: {} rows, {} operations recorded, {} cuts, {} files ({} MiB) compared, {} wrong bytes; {lost} cuts lost something.\n",
        options.seed,
        rows.len(),
        sum(|row| row.operations),
        sum(|row| row.results.cuts),
        sum(|row| row.results.files),
        sum(|row| row.results.bytes) >> 20,
        sum(|row| row.results.wrong_bytes()),
    );
    println!("{}", by_primitive(&rows));
    // Not a loss: a synced move is missing after the cut, and only the counts rely on it.
    for row in rows.iter().filter(|row| !row.results.not_halfway.is_empty()) {
        eprintln!("soak: {}: not half moved after {:?}", row.name, row.results.not_halfway);
    }
    let mut wrong = failed.into_inner().expect("what failed").len();
    for row in &rows {
        let otherwise =
            scenario::named(&row.name).map(|scenario| row.unexpected(scenario)).unwrap_or_default();
        wrong += otherwise.len();
        otherwise.iter().for_each(|what| eprintln!("soak: {}: {what}", row.name));
    }
    if options.scenario.is_empty() {
        println!("{unsupported}\n");
        let (table, refused) = refused::table();
        println!("{table}");
        wrong += refused;
    }
    lost > 0 || wrong > 0
}

/// A table of what each interface moved in all scenarios, and how many cuts of them there were.
fn by_primitive(rows: &[Row]) -> String {
    let mut by: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for row in rows {
        for (name, bytes) in &row.moves.by {
            let sums = by.entry(name).or_default();
            let more = [1, *bytes, row.results.cuts];
            sums.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
        }
    }
    let cells = |(name, [rows, bytes, cuts]): (&str, [u64; 3])| {
        vec![name.to_owned(), rows.to_string(), markdown::mib(bytes), cuts.to_string()]
    };
    let columns = ["moved by", "rows", "MiB moved", "cuts of them"];
    markdown::table(&columns, 1, by.into_iter().map(cells).collect())
}
