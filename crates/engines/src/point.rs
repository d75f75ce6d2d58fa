//! What tests decide about a move: instants at which they stop the process: those that all engines have, and those of a rewrite,
//! numbered as in the crash argument at the head of `rewrite/engine.rs`. Builds without debug assertions have
//! none.

/// The step that has just ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// The donor has its space, nothing is copied.
    Staged,
    /// XFS: the file is sampled; whatever changes it from now on must show.
    Sampled,
    /// The copy is in the donor, and on the device; the file has not taken it over.
    Filled,
    /// ext4: a step was found to be data, and nothing of it has moved; Btrfs, compressed: all was brought in that
    /// the kernel would read.
    Checked,
    /// The kernel was asked to move a part, and has answered.
    Moved,
    /// Every range has been driven; what has moved is not made durable yet.
    Driven,
    /// What has moved is durable.
    Settled,
    /// Btrfs: the kernel has marked the file as not to be compressed.
    Marked,
    /// 1: the range is copied, the copy is no record yet.
    Copied,
    /// 2: the file is leased and is what was copied.
    Leased,
    /// 3: the record is durable.
    Sealed,
    /// 4: the range is a hole.
    Punched,
    /// No space: the reserve was released, and the next try follows.
    RoomMade,
    /// 5: new space is allocated.
    Allocated,
    /// Another change is to be made to the file, which has not been looked at for that.
    Looking,
    /// The lease was looked at, and a part of the range is about to be written.
    Writing,
    /// The lease was looked at, and another change is about to be made to the file.
    Changing,
    /// A change was made to the file, and is not noted yet.
    Changed,
    /// The file was not touched and is left alone; its record is about to be removed.
    Leaving,
    /// `recover`: it was judged what is missing, and what is there is the rewrite's; nothing is changed yet.
    Judged,
    /// 6: half of the bytes are back.
    HalfWritten,
    /// 7: all are, in the page cache.
    Written,
    /// 8: they are durable.
    Synced,
    /// 9: they were read back.
    Compared,
    /// 10: the record is gone.
    Removed,
}

/// Ends (`kill`) or stops (`stop`) this process here if `FRAGMEND_STOP_AT` says so, for example
/// `punched=kill` or `punched=stop,room-made=kill`; a number is a signal that it sends itself.
#[cfg(debug_assertions)]
pub(crate) fn reached(point: Point) {
    use rustix::process::{Signal, getpid, kill_process};
    let Ok(wanted) = std::env::var("FRAGMEND_STOP_AT") else { return };
    let name = match point {
        Point::Staged => "staged",
        Point::Sampled => "sampled",
        Point::Filled => "filled",
        Point::Checked => "checked",
        Point::Moved => "moved",
        Point::Driven => "driven",
        Point::Settled => "settled",
        Point::Marked => "marked",
        Point::Copied => "copied",
        Point::Sealed => "sealed",
        Point::Leased => "leased",
        Point::Punched => "punched",
        Point::RoomMade => "room-made",
        Point::Allocated => "allocated",
        Point::Looking => "looking",
        Point::Writing => "writing",
        Point::Changing => "changing",
        Point::Changed => "changed",
        Point::Leaving => "leaving",
        Point::Judged => "judged",
        Point::HalfWritten => "half-written",
        Point::Written => "written",
        Point::Synced => "synced",
        Point::Compared => "compared",
        Point::Removed => "removed",
    };
    let how = wanted.split(',').filter_map(|w| w.split_once('=')).find(|(at, _)| *at == name);
    if let Some(number) = how.and_then(|(_, how)| how.parse().ok()) {
        let _ = fragmend_sys::signals::send_to_this_process(number);
    } else if let Some((_, how)) = how {
        let signal = if how == "stop" { Signal::STOP } else { Signal::KILL };
        let _ = kill_process(getpid(), signal);
    }
}

#[cfg(not(debug_assertions))]
pub(crate) fn reached(_: Point) {}

/// Whether this process is to move data as beside others that read (`FRAGMEND_OTHERS_READ`): so a test of that need not be
/// in time with a reader.
#[cfg(debug_assertions)]
pub(crate) fn others_read() -> bool {
    std::env::var_os("FRAGMEND_OTHERS_READ").is_some()
}

#[cfg(not(debug_assertions))]
pub(crate) fn others_read() -> bool {
    false
}
