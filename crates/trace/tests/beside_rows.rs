//! What a trace says of disks and of pauses beside its rows: which accesses are in one order, and what those stand for that were
//! thinned out.

use fragmend_layout::FileId;
use fragmend_trace::{
    DeviceMeta, Event, Existing, Filter, Level, Meta, Op, Order, Recorded, Sampling, TraceWriter,
    read,
};

fn event(op: Op) -> Event {
    Event {
        time_ns: 0,
        file: FileId { device: 1, inode: 1, generation: 1 },
        offset: 0,
        length: 4096,
        bytes: 4096,
        count: 1,
        pid: 1,
        thread: 1,
        uid: 0,
        comm: [0; 16],
        op,
        direct: false,
        windowed: false,
    }
}

#[test]
fn what_is_on_one_disk_has_one_order() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("trace.parquet");
    // Reads of two subvolumes in turns, and of a third one that was not named.
    let events = [1, 2, 1, 3, 1, 1]
        .map(|n| Event { file: FileId { device: n, inode: n, generation: 1 }, ..event(Op::Miss) });
    let ranks = |disks: [&[u64]; 2]| -> Vec<u32> {
        let device = |(device, disks): (u64, &[u64])| DeviceMeta {
            device,
            mount: "/mnt".into(),
            readahead_bytes: None,
            disks: disks.to_vec(),
        };
        let mut writer =
            TraceWriter::create(&target, Existing::ReplaceTrace, Box::new(|_| None)).unwrap();
        writer.append(&events).unwrap();
        let devices = [1, 2].into_iter().zip(disks).map(device).collect();
        writer.finish(&Meta { devices, ..Meta::new(Level::Both, 0) }).unwrap();
        let order = Some(Order { up_to: 9, cold: false });
        let trace = read(&target, &Filter { order, ..Filter::default() }).unwrap();
        trace.files[0].ranks.clone()
    };
    assert_eq!(ranks([&[8], &[8]]), [1, 3, 5, 6]);
    assert_eq!(ranks([&[8], &[16]]), [1, 2, 3, 4]);
    assert_eq!(ranks([&[], &[]]), [1, 2, 3, 4]);
}

#[test]
fn what_pauses_stand_for_is_in_no_other_places() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("trace.parquet");
    let read_once = |direct, offset| Event { offset, count: 64, direct, ..event(Op::Read) };
    let sampling = Sampling {
        region_bytes: 1 << 20,
        watched_ns: 7,
        places_ppm: 1_000_000,
        turn_ns: 1 << 21,
        most: 64,
    };
    for level in [Level::Both, Level::Syscall] {
        let mut writer =
            TraceWriter::create(&target, Existing::ReplaceTrace, Box::new(|_| None)).unwrap();
        writer.append(&[read_once(false, 0), read_once(true, 8192)]).unwrap();
        writer.finish(&Meta { sampling: Some(sampling), ..Meta::new(level, 0) }).unwrap();
        let trace = read(&target, &Filter { turns: true, ..Filter::default() }).unwrap();
        let [file] = &trace.files[..] else { panic!("{:?}", trace.files) };
        assert_eq!(file.accesses.iter().map(|a| a.count).collect::<Vec<_>>(), [64, 64]);
        assert_eq!(file.recorded, [Recorded { turn: 0, times: 1, most: 64 }; 2], "{level:?}");
    }
}
