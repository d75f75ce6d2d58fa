//! janusdL and janusdP, and what janusd's conclusion proposes: that files and free space are joined, and that no data is written for it.

use super::{EXCLUSIVE, Moves};
use crate::support::drives;
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::InPlace;
use fragmend_simfs::janusd::{self, Reads};
use fragmend_simfs::machine::Machine;
use std::path::Path;

fn mounted(machine: &Machine, defrag_on_write: bool) -> InPlace {
    let kind = Moves { by: EXCLUSIVE, small: None, omit: None, beyond: defrag_on_write };
    InPlace::format(machine, &kind.options(machine)).expect("it is made")
}

fn fragments(fs: &InPlace, file: FileId) -> u64 {
    let layout = Volume::layout(fs, file, Path::new("")).expect("its layout");
    layout.fragments(ByteRange { start: 0, end: u64::MAX })
}

/// Two files whose blocks were written in turn, so that each is in as many fragments.
fn interleaved(fs: &InPlace, blocks: u64) -> [FileId; 2] {
    let files = ["/a", "/b"].map(|name| fs.create(Path::new(name)).expect("a new file"));
    let block = fs.block_bytes();
    for n in 0..blocks {
        for file in files {
            fs.write(file, ByteRange::at(n * block, block), Access::Direct).expect("space");
        }
    }
    fs.sync().expect("it is durable");
    files
}

#[test]
fn janusd_l_joins_files_and_writes_metadata_alone() {
    let machine = drives::large();
    let fs = mounted(&machine, false);
    let files = interleaved(&fs, 100);
    let content = files.map(|file| fs.content(file, 0..100).expect("its content"));
    assert!(files.iter().all(|file| fragments(&fs, *file) == 100));
    let before = machine.counters();
    let summary = janusd::join_files(&fs, 1.0).expect("it is done").expect("they are in fragments");
    let done = machine.counters().since(&before);
    assert!(files.iter().all(|file| fragments(&fs, *file) == 1));
    assert_eq!((done.remapped, summary.moved_bytes), (200, 200 * fs.block_bytes()));
    assert!(done.host_written < 30, "{} blocks", done.host_written);
    assert_eq!(summary.written_bytes, done.host_written * fs.block_bytes());
    assert_eq!(files.map(|file| fs.content(file, 0..100).expect("its content")), content);
    assert!(janusd::join_files(&fs, 1.0).expect("it is done").is_none());
    fs.check().unwrap();
}

#[test]
fn janusd_p_spreads_what_is_read_often_and_is_on_few_dies() {
    let machine = drives::large();
    let fs = mounted(&machine, false);
    let (block, page) = (fs.block_bytes(), 4);
    let [few, even] = ["/few", "/even"].map(|name| fs.create(Path::new(name)).expect("a new file"));
    let between = fs.create(Path::new("/between")).expect("a new file");
    // A flash page of the file, and three of another one on the other dies.
    for n in 0..16 {
        let at = |pages: u64| ByteRange::at(n * pages * page * block, pages * page * block);
        fs.write(few, at(1), Access::Direct).expect("space");
        fs.write(between, at(3), Access::Direct).expect("space");
    }
    fs.write(even, ByteRange::at(0, 64 * block), Access::Direct).expect("space");
    fs.sync().expect("it is durable");
    let degree = |file| {
        let layout = Volume::layout(&fs, file, Path::new("")).expect("its layout");
        let units: Vec<_> = layout
            .extents()
            .iter()
            .map(|e| {
                fragmend_flash::command::Units::new(
                    (e.physical / block) as u32,
                    (e.length / block) as u32,
                )
            })
            .collect();
        machine.drive(|drive| drive.dof_p_per_mille(&units))
    };
    assert!(degree(few) >= janusd::PHYSICAL_PER_MILLE, "{}", degree(few));
    let content = fs.content(few, 0..64).expect("its content");
    let mut reads = Reads::default();
    [few, even, few].into_iter().for_each(|file| reads.count(file));
    assert_eq!(reads.most(1), [few]);
    let done = janusd::spread_files(&fs, &reads, page as u32).expect("it is done");
    assert_eq!((done.looked_at, done.files, done.blocks), (2, 1, 64));
    machine.flush().expect("it is durable");
    assert_eq!(degree(few), 0);
    assert_eq!(fs.content(few, 0..64).expect("its content"), content);
}

#[test]
fn files_that_are_written_in_fragments_are_in_one_after_the_commit() {
    let machine = drives::large();
    let fs = mounted(&machine, true);
    let files = interleaved(&fs, 100);
    assert_eq!(files.map(|file| fragments(&fs, file)), [1, 1]);
    let done = machine.counters();
    assert_eq!(done.remapped, 200);
    assert!(done.host_written < 400, "{} blocks: data was copied", done.host_written);
    fs.check().unwrap();
}

#[test]
fn free_space_is_gathered_by_remaps() {
    let machine = drives::large();
    let fs = mounted(&machine, false);
    let block = fs.block_bytes();
    for n in 0..60 {
        let file = fs.create(Path::new(&format!("/{n}"))).expect("a new file");
        fs.write(file, ByteRange::at(0, 8 * block), Access::Direct).expect("space");
    }
    fs.sync().expect("it is durable");
    for n in (0..60).step_by(2) {
        fs.remove(Path::new(&format!("/{n}"))).expect("it was there");
    }
    fs.sync().expect("it is durable");
    let (runs, before) = (fs.free_runs().len(), machine.counters());
    let gathered = fs.gather_free_space().expect("it is done");
    let done = machine.counters().since(&before);
    assert!(runs >= 30, "{runs}");
    assert_eq!(gathered.skip, None);
    assert_eq!((gathered.blocks, done.remapped), (15 * 8, 15 * 8));
    // Before the first place that is aligned to eight blocks, there are too few for any of these files.
    let left: Vec<_> = fs.free_runs().into_iter().filter(|run| run.count >= 8).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    fs.check().unwrap();
}
