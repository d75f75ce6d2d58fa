//! Cuts the power, thousands of times, and prints what it came to.

use clap::{Args, Parser, Subcommand};
use fragmend_crash::bed::{self, Bed};
use fragmend_crash::choose::{at_every_flush, choose};
use fragmend_crash::controls;
use fragmend_crash::cut::Cut;
use fragmend_crash::flight;
use fragmend_crash::marks::Marks;
use fragmend_crash::matrix::{self, Lacking};
use fragmend_crash::record::{Recording, record};
use fragmend_crash::refused;
use fragmend_crash::replay;
use fragmend_crash::session::{self, Nodes};
use fragmend_crash::soak::Row;
use fragmend_crash::{files::FileOf, load};
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
    /// The load beside the moves; started by a recording
    #[command(hide = true)]
    Load { root: PathBuf, files: PathBuf, seed: u64, marks: PathBuf },
    /// Makes a recording; in a guest
    #[command(hide = true)]
    Record {
        #[arg(value_parser = row)]
        bed: &'static Bed,
        seed: u64,
        dir: PathBuf,
    },
    /// Stores standard input to a file through a mapping; started by a test
    #[command(hide = true)]
    Store { path: PathBuf, at: u64 },
    /// What is done on a disk while it is recorded, by another process than the one that serves it
    #[command(hide = true)]
    Session {
        #[arg(value_parser = row)]
        bed: &'static Bed,
        seed: u64,
        dir: PathBuf,
        disk: PathBuf,
        marks: PathBuf,
        second: Option<PathBuf>,
    },
    /// Looks at cuts of a recording; in a guest
    #[command(hide = true)]
    Check { recording: PathBuf, cuts: PathBuf },
}

#[derive(Args)]
struct Soak {
    /// Only these rows; all engines and controls without losses otherwise
    #[arg(long, value_parser = row)]
    bed: Vec<&'static Bed>,
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
    /// Looks at a cut at every flush of one recording of each row instead
    #[arg(long, conflicts_with_all = ["cuts", "per_recording"])]
    every_flush: bool,
    /// Decides the load and the cuts; the next recording has the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Looks at one cut of a recording that was kept
    #[arg(long, value_name = "DIR", requires = "cut", requires = "cut_seed")]
    replay: Option<PathBuf>,
    /// Entries of its log before the cut
    #[arg(long)]
    cut: Option<usize>,
    /// Decides what survives
    #[arg(long)]
    cut_seed: Option<u64>,
}

fn row(name: &str) -> Result<&'static Bed, String> {
    bed::named(name).ok_or_else(|| "no row has this name".into())
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
            if let Err(why) = controls::stops_at_moves().and_then(|()| can_see(&this)) {
                eprintln!("soak: {why}");
                return ExitCode::FAILURE;
            }
            soak(&cli.soak, &this)
        }
    };
    if lost { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Does what another of this program has asked for.
fn carry_out(verb: Verb, this: &Path) {
    let read = |path: &Path| std::fs::read(path).expect("a list of ours");
    match verb {
        Verb::Load { root, files, seed, marks } => {
            let files: Vec<FileOf> = serde_json::from_slice(&read(&files)).expect("files");
            let marks = Marks::open(&marks).expect("a place for marks");
            load::run(&root, &files, seed, &marks);
        }
        Verb::Store { path, at } => flight::store(&path, at).expect("a store"),
        Verb::Session { bed, seed, dir, disk, marks, second } => {
            let nodes = Nodes { disk: &disk, second: second.as_deref(), marks: &marks };
            session::run(bed, seed, &dir, nodes, this);
        }
        Verb::Record { bed, seed, dir } => drop(record(bed, seed, &dir, this)),
        Verb::Check { recording, cuts } => {
            let cuts: Vec<Cut> = serde_json::from_slice(&read(&cuts)).expect("cuts");
            let recording = Recording::open(&recording).expect("a recording");
            let outcome = replay::check(&recording, &cuts, 1, this);
            println!("{}", serde_json::to_string(&outcome).expect("JSON"));
        }
    }
}

/// Looks at one cut again; gives whether anything was lost.
fn again(dir: &Path, position: usize, seed: u64, this: &Path) -> bool {
    let recording = Recording::open(dir).expect("a recording that was kept");
    let cut = Cut { position, seed, honest: recording.bed.honest };
    let outcome = replay::check(&recording, &[cut], 1, this);
    let wrong = outcome.losses.iter().flat_map(|loss| &loss.wrong);
    wrong.for_each(|wrong| println!("{wrong}"));
    println!("{} files, {} bytes compared", outcome.files, outcome.bytes);
    !outcome.losses.is_empty()
}

/// Cuts what must lose something, and prints that; nothing else is worth looking at unless each does.
fn can_see(this: &Path) -> Result<(), String> {
    let rows = controls::all(this);
    println!("What must lose something, cut first (the build stops its mover after moves: yes):\n");
    println!("{}", markdown::table(&Row::COLUMNS, 1, rows.iter().map(Row::cells).collect()));
    let blind = rows.iter().filter(|row| row.outcome.losses.is_empty());
    let blind: Vec<&str> = blind.map(|row| row.name.as_str()).collect();
    match blind.is_empty() {
        true => Ok(()),
        false => {
            Err(format!("blind: nothing was lost where something must be: {}", blind.join(", ")))
        }
    }
}

/// So many rows.
const AT_A_TIME: usize = 2;

/// So many cuts of one row.
fn row_of(bed: &'static Bed, options: &Soak, cuts: usize, this: &Path) -> Row {
    let mut row = Row::default();
    let mut seed = options.seed;
    while row.outcome.cuts < cuts as u64 {
        let left = cuts - row.outcome.cuts as usize;
        let tell = |what: &str| eprintln!("soak: {what}");
        let cuts = |recording: &Recording| match options.every_flush {
            true => at_every_flush(recording, seed),
            false => choose(recording, left.min(options.per_recording), seed),
        };
        row.more(bed, seed, cuts, this, tell);
        eprintln!("soak: {}", row.cells().join(" | "));
        seed += 1;
        if options.every_flush {
            break;
        }
    }
    row
}

/// The rows and how many cuts of each, and what of the matrix cannot be tried here.
fn rows(options: &Soak) -> (Vec<(&'static Bed, usize)>, Lacking) {
    if !options.bed.is_empty() {
        let share = options.cuts.div_ceil(options.bed.len());
        return (options.bed.iter().map(|bed| (*bed, share)).collect(), Lacking::default());
    }
    let lacking = Lacking::of_this_kernel();
    let all = bed::ENGINES.iter().chain(&bed::ALONE);
    let cells = matrix::draw(options.cells, options.seed, &lacking);
    let of_cells = cells.len() * options.per_cell;
    let share = options.cuts.saturating_sub(of_cells).div_ceil(all.clone().count());
    let cells = cells.iter().filter_map(|cell| matrix::named(&cell.name));
    let cells = cells.map(|bed| (bed, options.per_cell));
    (all.map(|bed| (bed, share.max(1))).chain(cells).collect(), lacking)
}

/// Gives whether anything was lost, or anything was otherwise than it must be.
fn soak(options: &Soak, this: &Path) -> bool {
    let (beds, lacking) = rows(options);
    // Recording is waiting, comparing is work: two rows at a time keep two processors busy.
    let next = Mutex::new(beds.iter().enumerate());
    let rows = Mutex::new(BTreeMap::new());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let work = || {
            while let Some((n, (bed, cuts))) = { next.lock().expect("the rows to come").next() } {
                // One that cannot be finished must not take the others along.
                let row = catch_unwind(AssertUnwindSafe(|| row_of(bed, options, *cuts, this)));
                match row {
                    Ok(row) => drop(rows.lock().expect("the rows so far").insert(n, row)),
                    Err(_) => failed.lock().expect("what failed").push(bed.name),
                }
            }
        };
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("a row"));
    });
    let rows: Vec<Row> = rows.into_inner().expect("all rows").into_values().collect();
    println!("{}", markdown::table(&Row::COLUMNS, 1, rows.iter().map(Row::cells).collect()));
    let sum = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
    let lost = sum(|row| row.outcome.losses.len() as u64);
    println!(
        "Seed {}: {} rows, {} operations recorded, {} cuts, {} files ({} MiB) compared, {} wrong bytes; {lost} cuts lost something.\n",
        options.seed,
        rows.len(),
        sum(|row| row.operations),
        sum(|row| row.outcome.cuts),
        sum(|row| row.outcome.files),
        sum(|row| row.outcome.bytes) >> 20,
        sum(|row| row.outcome.wrong_bytes()),
    );
    println!("{}", by_primitive(&rows));
    // Not a loss: a move that was synced is not there, which nobody relies on but the counts.
    for row in rows.iter().filter(|row| !row.outcome.not_halfway.is_empty()) {
        eprintln!("soak: {}: not half moved after {:?}", row.name, row.outcome.not_halfway);
    }
    let mut wrong = failed.into_inner().expect("what failed").len();
    for row in &rows {
        let otherwise = bed::named(&row.name).map(|bed| row.otherwise(bed)).unwrap_or_default();
        wrong += otherwise.len();
        otherwise.iter().for_each(|what| eprintln!("soak: {}: {what}", row.name));
    }
    if options.bed.is_empty() {
        println!("{lacking}\n");
        let (table, refused) = refused::table();
        println!("{table}");
        wrong += refused;
    }
    lost > 0 || wrong > 0
}

/// What moved how much, over all rows, and in how many cuts of them it was looked at.
fn by_primitive(rows: &[Row]) -> String {
    let mut by: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for row in rows {
        for (name, bytes) in &row.moves.by {
            let sums = by.entry(name).or_default();
            let more = [1, *bytes, row.outcome.cuts];
            sums.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
        }
    }
    let cells = |(name, [rows, bytes, cuts]): (&str, [u64; 3])| {
        vec![name.to_owned(), rows.to_string(), markdown::mib(bytes), cuts.to_string()]
    };
    let columns = ["moved by", "rows", "MiB moved", "cuts of them"];
    markdown::table(&columns, 1, by.into_iter().map(cells).collect())
}
