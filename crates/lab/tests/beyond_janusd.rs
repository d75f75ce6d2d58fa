//! What janusd's conclusion proposes, measured beside janusdL: files that are remapped once they are written, and free space that is gathered
//! by remaps. Six months of a phone on simUFS, a sixteenth of the paper's partition. Prints a table.

use fragmend_lab::loads::mobile::{Habits, Phone};
use fragmend_lab::loads::{Load, Scale};
use fragmend_lab::presets;
use fragmend_lab::setup::DriveKind;
use fragmend_layout::{DeviceLimits, DeviceProfile, Measures, Volume};
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::janusd;
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::{Primitive, Remap};

/// The partition is one part in so many of the paper's.
const PARTS: u64 = 16;
const DAYS: u32 = 180;
const WEEK: u32 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    Nothing,
    Copies,
    JanusdL,
    OnWrite,
    FreeSpace,
    FreeSpaceAndL,
}

/// What came of a remedy.
struct Outcome {
    fragmented_percent: f64,
    extents: u64,
    free_runs: usize,
    longest_free: u32,
    log_bytes: u64,
    remapped: u64,
    programmed: u64,
    /// Of all, and of what was done once a week.
    days_ns: u64,
    weekly_ns: u64,
}

impl Outcome {
    fn print(&self, remedy: Remedy) {
        let seconds = |ns: u64| ns as f64 / 1e9;
        println!(
            "{remedy:?}: {:.2} % of files fragmented, {} extents; free: {} runs, the longest of {} blocks; remapped: {} blocks, log: {} \
             bytes; programmed: {} blocks; {:.2} s, of which weekly {:.2} s",
            self.fragmented_percent,
            self.extents,
            self.free_runs,
            self.longest_free,
            self.remapped,
            self.log_bytes,
            self.programmed,
            seconds(self.days_ns),
            seconds(self.weekly_ns),
        );
    }
}

fn live(remedy: Remedy) -> Outcome {
    let mut setup = presets::named("simufs").expect("a drive of the lab");
    let DriveKind::Flash(drive) = &mut setup.drive else { panic!("simUFS is flash") };
    drive.geometry.blocks_per_plane /= PARTS as u32;
    let program_bytes = u64::from(setup.flash().geometry.program_unit_bytes);
    let machine = Machine::new(setup.device(), false, setup.host.clone());
    let mut options = Options::of(&machine);
    let exclusive = Primitive::Remap(Remap { shared: false, or_copy: false });
    options.primitive = if remedy == Remedy::Copies { Primitive::Copy } else { exclusive };
    options.defrag_on_write = remedy == Remedy::OnWrite;
    let fs = InPlace::format(&machine, &options).expect("it is made");
    let mut phone = Phone::new(&fs, Habits::default(), Scale::one_in(PARTS), 42).expect("space");
    let (before, began, mut weekly_ns) = (machine.counters(), machine.now_ns(), 0);
    for day in 1..=DAYS {
        phone.next(&fs).expect("space");
        if day % WEEK == 0 {
            let began = machine.now_ns();
            if matches!(remedy, Remedy::FreeSpace | Remedy::FreeSpaceAndL) {
                let gathered = fs.gather_free_space().expect("it is done");
                assert_eq!(gathered.skip, None);
            }
            if matches!(remedy, Remedy::Copies | Remedy::JanusdL | Remedy::FreeSpaceAndL) {
                janusd::join_files(&fs, 1.0).expect("it is done");
            }
            weekly_ns += machine.now_ns() - began;
        }
    }
    fs.sync().expect("it is durable");
    let done = machine.counters().since(&before);
    let limits = DeviceLimits::new(fs.kind(), fs.block_bytes(), &DeviceProfile::unknown());
    let (mut files, mut fragmented, mut extents) = (0, 0, 0);
    fs.files(&mut |path, file| {
        let layout = Volume::layout(&fs, file.expect("a file"), path).expect("its layout");
        let measures = Measures::of(&layout, &limits, |_, _| ());
        files += 1;
        fragmented += u64::from(measures.extents > measures.ideal_extents);
        extents += measures.extents;
    })
    .expect("all files");
    fs.check().expect("its tables agree");
    let free = fs.free_runs();
    Outcome {
        fragmented_percent: fragmented as f64 * 100.0 / f64::from(files),
        extents,
        free_runs: free.len(),
        longest_free: free.iter().map(|run| run.count).max().unwrap_or(0),
        log_bytes: done.log_programs * program_bytes,
        remapped: done.remapped,
        programmed: done.flash_written(),
        days_ns: machine.now_ns() - began,
        weekly_ns,
    }
}

#[test]
#[ignore = "some ten seconds: cargo test -p fragmend-lab --test beyond_janusd -- --ignored --nocapture"]
fn files_and_free_space_joined_by_remaps_against_weekly_janusd_l() {
    let of = |remedy| {
        let outcome = live(remedy);
        outcome.print(remedy);
        outcome
    };
    let nothing = of(Remedy::Nothing);
    let copies = of(Remedy::Copies);
    let weekly = of(Remedy::JanusdL);
    let on_write = of(Remedy::OnWrite);
    let free = of(Remedy::FreeSpace);
    let both = of(Remedy::FreeSpaceAndL);
    assert!(weekly.extents < nothing.extents && on_write.extents < nothing.extents);
    assert!(weekly.programmed < copies.programmed);
    assert!(free.longest_free > nothing.longest_free && both.longest_free > weekly.longest_free);
    assert!(both.free_runs < weekly.free_runs);
}
