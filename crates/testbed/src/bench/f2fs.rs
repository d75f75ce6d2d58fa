//! Table 6: F2FS, in a guest whose kernel has it: FragPicker's file and loads, and `grep` over the
//! files of a file server (SOSP'21, section 5.4: 44 to 52 % fewer writes), against F2FS's own ioctl
//! over whole files. The guest's kernel cannot record, so the readers write the traces themselves.

use super::against::{Against, Figures};
use super::contender::{BYPASS, Contender, F2FS_WHOLE, FRAGPICKER, GAIN};
use super::limits::Limits;
use super::loads::file_in;
use super::{Sizes, markdown, note};
use crate::file_system::F2FS;
use crate::fileserver::{Fileserver, grep};
use crate::fragment::{self, is_intact};
use crate::guest::{self, Guest};
use crate::image::Image;
use crate::measure::measured_map_warm;
use crate::replay::{self, Mode, Request};
use crate::{noted, tools};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The guest's results.
#[derive(Default, Serialize, Deserialize)]
struct GuestResults {
    rows: Vec<Vec<String>>,
    limits: Limits,
    server: String,
}

/// One load: its reads, file after file.
struct Load {
    name: &'static str,
    reads: Vec<(PathBuf, Vec<Request>)>,
    mode: Mode,
    /// Limit of the writes, as a share of the tool's.
    write_share: f64,
}

/// The directory of the file server's files.
const SERVED: &str = "served";

/// Boots the guest and prints the table that it measures.
pub fn run(sizes: Sizes, limits: &mut Limits) {
    note("booting a guest with F2FS");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args((sizes == Sizes::QUICK).then_some("--quick")).arg("f2fs");
    command.env("FRAGMEND", tools::fragmend());
    let guest = Guest::new().memory_mib(1024).time_limit(Duration::from_secs(1800));
    let finished = guest.run(&command).unwrap_or_else(|lost| panic!("{lost}"));
    eprint!("{}", finished.stderr);
    let found: GuestResults =
        serde_json::from_str(&finished.expect(&[0])).expect("the guest's JSON");
    limits.extend(found.limits);
    let named = ["load", "contender", "extents"];
    let columns: Vec<&str> = named.into_iter().chain(Against::COLUMNS).collect();
    let mib = file_bytes(sizes) >> 20;
    println!("### F2FS: FragPicker's file ({mib} MiB), and a file server ({})\n", found.server);
    println!("{}\n", markdown::table(&columns, 2, found.rows));
}

fn file_bytes(sizes: Sizes) -> u64 {
    sizes.file_bytes / 4
}

/// In the guest: measures, and returns the results as JSON.
///
/// # Panics
/// Outside of a guest.
pub fn measure(sizes: Sizes) -> String {
    assert!(guest::inside(), "F2FS is measured in a guest");
    let mut found = GuestResults::default();
    let bytes = file_bytes(sizes);
    note("making FragPicker's file on f2fs");
    let master = Image::of(&F2FS, bytes * 4 + (512 << 20));
    fragment::interleaved(&file_in(&master), bytes, &fragment::FRAGPICKER_EXTENTS, true)
        .expect("the fragmented file can be written");
    let file = |requests| vec![(PathBuf::from("file"), requests)];
    let direct = |name, requests, write_share| Load {
        name,
        reads: file(requests),
        mode: Mode::Direct,
        write_share,
    };
    for load in [
        direct("sequential", replay::sequential(bytes), 0.51),
        direct("stride", replay::stride(bytes), 0.28),
        direct("zipfian", replay::zipfian(bytes, 42), 0.34),
    ] {
        compare(&master, &load, &mut found);
    }
    drop(master);

    note("running a file server on f2fs");
    let server = Fileserver { files: 64, mean_bytes: bytes / 64, threads: 2, rounds: 64, seed: 5 };
    let master = Image::of(&F2FS, bytes * 4 + (512 << 20));
    let files = server.run(&master.path().join(SERVED)).expect("the file server's files");
    master.sync();
    let extents: u64 = files.iter().map(|(path, _)| tools::extents(path)).sum();
    let total: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    found.server = format!(
        "{} files, {} MiB, {:.1} extents a file",
        files.len(),
        total >> 20,
        extents as f64 / files.len() as f64
    );
    let name = |path: PathBuf| PathBuf::from(SERVED).join(path.file_name().expect("a name"));
    let reads = files.into_iter().map(|(path, bytes)| (name(path), grep(bytes))).collect();
    let load = Load { name: "grep", reads, mode: Mode::Buffered, write_share: 0.56 };
    compare(&master, &load, &mut found);
    serde_json::to_string(&found).expect("plain data")
}

/// Measures every contender on one load; the first is the reference for all others.
fn compare(master: &Image, load: &Load, found: &mut GuestResults) {
    let mut reference = None;
    for contender in [F2FS_WHOLE, Contender::None, BYPASS, FRAGPICKER, GAIN] {
        note(format_args!("{} mends for {} on f2fs", contender.name(), load.name));
        let image = master.copy();
        let reads: Vec<(PathBuf, Vec<Request>)> =
            load.reads.iter().map(|(file, r)| (image.path().join(file), r.clone())).collect();
        let files: Vec<PathBuf> = reads.iter().map(|(file, _)| file.clone()).collect();
        let trace = image.scratch().join("trace.parquet");
        noted::note(&trace, &reads, load.mode);
        let cost = contender.mend_as_noted(&image, &files, &trace);
        let play = || {
            let play = |(file, r): &(PathBuf, Vec<Request>)| replay::replay(file, r, load.mode);
            reads.iter().try_for_each(play).expect("the load can be replayed");
        };
        let after = measured_map_warm(&image, &files, play).1.device.reads;
        let is_whole = |(file, requests): &(PathBuf, Vec<Request>)| {
            let bytes = file.metadata().expect("a file").len();
            let read = requests.last().map_or(0, |last| last.offset + last.len);
            bytes >= read && is_intact(file, bytes).expect("it can be read")
        };
        assert!(reads.iter().all(is_whole), "a file was damaged on f2fs");
        let extents: u64 = files.iter().map(|file| tools::extents(file)).sum();
        let against = Against::first(&mut reference, Figures { cost, requests: after });
        let named = [load.name.to_owned(), contender.name(), extents.to_string()];
        found.rows.push(named.into_iter().chain(against.cells()).collect());
        if contender == GAIN {
            let limits = &mut found.limits;
            let writes = against.writes();
            limits.at_most(format!("f2fs, {}: writes", load.name), writes, load.write_share);
            let requests = against.requests();
            limits.at_most(format!("f2fs, {}: requests", load.name), requests, 1.035);
        }
    }
}
