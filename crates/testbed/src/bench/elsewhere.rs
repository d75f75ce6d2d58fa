//! Table 4: FragPicker's file and its three loads on other file systems, `O_DIRECT`, against the
//! file system's own tool.

use super::against::{Against, Figures};
use super::contender::{BTRFS_DEFRAGMENT, BTRFS_DEFRAGMENT_128K, Contender, GAIN, XFS_FSR};
use super::limits::Limits;
use super::loads::file_in;
use super::{Sizes, markdown, note};
use crate::file_system::{BTRFS, FileSystem, XFS, XFS_EXCHANGE};
use crate::fragment;
use crate::image::Image;
use crate::measure::measured_map_warm;
use crate::replay::{self, Mode, Request};

/// A file system with its own tools; the first is the reference for all others.
struct Place {
    file_system: &'static FileSystem,
    tools: &'static [Contender],
}

const PLACES: [Place; 3] = [
    Place { file_system: &XFS, tools: &[XFS_FSR] },
    Place { file_system: &XFS_EXCHANGE, tools: &[XFS_FSR] },
    Place { file_system: &BTRFS, tools: &[BTRFS_DEFRAGMENT, BTRFS_DEFRAGMENT_128K] },
];

/// Measures and prints the table.
pub fn run(sizes: Sizes, limits: &mut Limits) {
    let bytes = sizes.file_bytes / 4;
    let loads: [(&str, Vec<Request>); 3] = [
        ("sequential", replay::sequential(bytes)),
        ("stride", replay::stride(bytes)),
        ("zipfian", replay::zipfian(bytes, 42)),
    ];
    let mut rows = Vec::new();
    for place in &PLACES {
        let name = place.file_system.name;
        note(format_args!("making FragPicker's file on {name}"));
        let master = Image::of(place.file_system, bytes * 4 + (512 << 20));
        fragment::interleaved(&file_in(&master), bytes, &fragment::FRAGPICKER_EXTENTS, true)
            .expect("the fragmented file can be written");
        for (load, requests) in &loads {
            let mut reference = None;
            let contenders = place.tools.iter().copied().chain([Contender::None, GAIN]);
            for contender in contenders {
                note(format_args!("{} mends for {load} on {name}", contender.name()));
                let image = master.copy();
                let file = file_in(&image);
                let play = || replay::replay(&file, requests, Mode::Direct).expect("a replay");
                let cost = contender.mend(&image, &file, play);
                let after = measured_map_warm(&image, &[&file], play).1.device.reads;
                let intact = fragment::is_intact(&file, bytes).expect("it can be read");
                assert!(intact, "the file was damaged on {name}");
                let against = Against::first(&mut reference, Figures { cost, requests: after });
                let named = [name.to_owned(), (*load).to_owned(), contender.name()];
                rows.push(named.into_iter().chain(against.cells()).collect());
                if contender == GAIN {
                    let what = format!("{name}, {load}: requests against the tool");
                    limits.at_most(what, against.requests(), 1.02);
                }
            }
        }
    }
    let named = ["file system", "load", "contender"];
    let columns: Vec<&str> = named.into_iter().chain(Against::COLUMNS).collect();
    println!("### Other file systems, FragPicker's file ({} MiB)\n", bytes >> 20);
    println!("{}\n", markdown::table(&columns, 3, rows));
}
