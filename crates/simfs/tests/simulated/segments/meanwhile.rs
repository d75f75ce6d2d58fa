//! Another program overwrites, punches and syncs files while the drive copies them, and the power fails: what was synced is there.

use super::Segments;
use super::drives::{small_zoned, small_zones};
use super::in_device::moved;
use crate::support::Kind;
use crate::support::drives::SMALL_BLOCK;
use fragmend_layout::{ByteRange, FileId};
use fragmend_simfs::cuts::Random;
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem, Token};
use fragmend_simfs::machine::{Machine, PowerCut};
use fragmend_simfs::segments::{Barrier, LogStructured, Settings};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

const FILES: usize = 3;
/// Blocks of each file.
const BLOCKS: u64 = 40;

/// What each block of the files may hold after a power cut: what it held when its file was last durable, or anything since.
struct Allowed(Vec<Vec<BTreeSet<Token>>>);

impl Allowed {
    fn add(&mut self, fs: &LogStructured, files: &[FileId], file: usize) {
        let content = fs.content(files[file], 0..BLOCKS).expect("its content");
        for (allowed, token) in self.0[file].iter_mut().zip(content) {
            allowed.insert(token);
        }
    }

    fn is_durable(&mut self, fs: &LogStructured, files: &[FileId], file: usize) {
        self.0[file] = vec![BTreeSet::new(); BLOCKS as usize];
        self.add(fs, files, file);
    }
}

/// Files that were written block by block in turns, and are durable.
fn written(fs: &LogStructured) -> Vec<FileId> {
    let name = |n| format!("/file-{n}");
    let files: Vec<FileId> =
        (0..FILES).map(|n| fs.create(Path::new(&name(n))).expect("a new file")).collect();
    for block in 0..BLOCKS {
        for file in &files {
            let range = ByteRange::at(block * SMALL_BLOCK, SMALL_BLOCK);
            fs.write(*file, range, Access::Direct).expect("space");
        }
    }
    fs.sync().expect("it is durable");
    files
}

/// A call of the other program.
fn call(
    fs: &LogStructured,
    files: &[FileId],
    random: &mut Random,
    allowed: &mut Allowed,
) -> Result<(), Error> {
    let file = random.below(FILES as u64) as usize;
    let (block, count) = (random.below(BLOCKS), 1 + random.below(4));
    let range = ByteRange::at(block * SMALL_BLOCK, count.min(BLOCKS - block) * SMALL_BLOCK);
    let done = match random.below(8) {
        0 => fs.punch(files[file], range),
        1 | 2 => fs.write(files[file], range, Access::Direct),
        3 | 4 => fs.write(files[file], range, Access::Buffered),
        5 => fs.read(files[file], range, Access::Direct),
        6 => {
            fs.sync_file(files[file])?;
            allowed.is_durable(fs, files, file);
            Ok(())
        }
        _ => {
            fs.sync()?;
            (0..FILES).for_each(|file| allowed.is_durable(fs, files, file));
            Ok(())
        }
    };
    allowed.add(fs, files, file);
    done
}

/// Moves all files twice, with another program at work, until the power fails before the drive's command with this number; returns what
/// was wrong afterwards, and how many blocks the drive had copied.
fn cut(settings: Settings, before: u64, seed: u64) -> Result<u64, String> {
    let (machine, kind) = (small_zoned(seed), Segments::in_device(settings));
    kind.format(&machine).expect("it is made");
    kind.mount(&machine).expect("it is mounted");
    let fs = kind.last.borrow().clone().expect("it is mounted");
    let files = written(&fs);
    let allowed = Rc::new(RefCell::new(Allowed(vec![Vec::new(); FILES])));
    (0..FILES).for_each(|file| allowed.borrow_mut().is_durable(&fs, &files, file));
    let mut random = Random(seed);
    let after_ns = random.below(400_000);
    machine.cut_power(PowerCut { before: machine.commands() + before, after_ns });
    let other = machine.add_program();
    let theirs = (fs.clone(), files.clone(), Rc::clone(&allowed));
    machine.set_others(move |machine: &Machine, now| {
        let (fs, files, allowed) = &theirs;
        let mover = machine.switch_to(other);
        while machine.is_on() && machine.now_ns() < now {
            machine.spend(20_000);
            let _ = call(fs, files, &mut random, &mut allowed.borrow_mut());
        }
        machine.switch_to(mover);
    });
    for _ in 0..2 {
        if machine.is_on() {
            moved(&machine, &fs);
        }
    }
    machine.set_others(|_, _| ());
    let copied = fs.counts().copied_in_device;
    machine.restart(0);
    let again = kind.mount(&machine).map_err(|error| error.to_string())?;
    again.check()?;
    for (n, (file, allowed)) in files.iter().zip(&allowed.borrow().0).enumerate() {
        let content = again.content(*file, 0..BLOCKS).map_err(|error| error.to_string())?;
        for (block, (token, allowed)) in content.iter().zip(allowed).enumerate() {
            if !allowed.contains(token) {
                return Err(format!("file {n}, block {block}: {token}, not one of {allowed:?}"));
            }
        }
    }
    Ok(copied)
}

fn cuts(settings: &Settings) -> (u64, Vec<String>) {
    let (mut copied, mut wrong) = (0, Vec::new());
    for seed in 0..4 {
        for before in (1..400).step_by(3) {
            match cut(settings.clone(), before, seed << 32 | before) {
                Ok(blocks) => copied += blocks,
                Err(why) => wrong.push(format!("seed {seed}, before {before}: {why}")),
            }
        }
    }
    (copied, wrong)
}

#[test]
fn nothing_synced_is_lost_of_files_that_change_while_the_drive_copies_them() {
    let (copied, wrong) = cuts(&small_zones());
    eprintln!("{copied} blocks copied");
    assert_eq!(wrong, [] as [String; 0]);
    assert!(copied > 1000, "{copied} blocks copied");
    let omit = Some(Barrier::CopiesBeforeFlush);
    let (_, wrong) = cuts(&Settings { omit, ..small_zones() });
    assert_ne!(wrong, [] as [String; 0]);
}
