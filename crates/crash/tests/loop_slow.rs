//! The slow disk, and its holds on chosen requests, below a real file system.

use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_testbed::file_system::EXT4;
use fragmend_testbed::replay::Aligned;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn loop_a_write_is_held_while_others_are_written_synced_and_read() {
    let mut slow = SlowMount::new(&EXT4, 64 << 20, "");
    let path = slow.root().join("held");
    std::fs::write(&path, vec![1; 64 << 10]).unwrap();
    slow.sync();
    let hold = slow.gate().hold(|r| r.carries(&[7; 512]));
    let writer = std::thread::spawn(move || {
        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let file = File::options().write(true).custom_flags(direct).open(path).unwrap();
        let mut bytes = Aligned::new(4096);
        bytes.bytes().fill(7);
        file.write_all_at(bytes.bytes(), 8192).unwrap();
    });
    assert!(hold.wait_for(1, PATIENCE), "the write has not arrived");
    let other = slow.root().join("other");
    std::fs::write(&other, vec![2; 1 << 20]).unwrap();
    File::open(&other).unwrap().sync_all().unwrap();
    assert!(!writer.is_finished());
    assert_eq!(hold.held(), 1);
    hold.release();
    writer.join().unwrap();
    slow.unmount();
    slow.mount();
    let read = std::fs::read(slow.root().join("held")).unwrap();
    let at = |n: usize| read[n..n + 4096].iter().all(|b| *b == 7);
    assert!(at(8192) && !at(4096) && !at(12288));

    slow.unmount();
    slow.mount();
    slow.gate().pace(Kind::Read, Some(100));
    let started = Instant::now();
    let file = fragmend_testbed::replay::open(&other, fragmend_testbed::replay::Mode::Direct);
    let (file, mut bytes) = (file.unwrap(), Aligned::new(4096));
    for n in 0..20 {
        file.read_exact_at(bytes.bytes(), n * 32768).unwrap();
    }
    assert!(started.elapsed() >= Duration::from_millis(190), "{:?}", started.elapsed());
}
