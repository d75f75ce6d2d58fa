//! What each file loses: the time that programs wait for the device because of it in one replay of what was recorded, and how
//! much of that is due to its breaks. By the same costs as the plan, of all files, also where nothing pays.

use crate::make::Kept;
use crate::outlook::Outlook;
use crate::select::Analysed;
use fragmend_layout::{ByteRange, FileId};
use std::path::PathBuf;

/// One file in one replay. Predicted, not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct FileLoss {
    /// Where it is.
    pub path: PathBuf,
    /// Which one.
    pub file: FileId,
    /// Its size in bytes.
    pub size: u64,
    /// How many fragments it is in.
    pub fragments: u64,
    /// Requests that reach the device.
    pub requests: u64,
    /// Seconds that its reads wait for the device.
    pub seconds: f64,
    /// Seconds of these that they would not wait if all of it were contiguous.
    pub seconds_lost: f64,
}

/// Of files that were analysed, each with its replay.
pub(crate) fn of(kept: &[Kept], analysed: &[Analysed], outlooks: &[Outlook]) -> Vec<FileLoss> {
    let everything = ByteRange { start: 0, end: u64::MAX };
    let of = |((kept, analysed), outlook): ((&Kept, &Analysed), &Outlook)| FileLoss {
        path: kept.path.clone(),
        file: kept.file,
        size: kept.size,
        fragments: analysed.fragments.count(everything),
        requests: outlook.now.requests,
        seconds: outlook.now.seconds(),
        seconds_lost: outlook.now.ns.saturating_sub(outlook.contiguous_ns) as f64 / 1e9,
    };
    kept.iter().zip(analysed).zip(outlooks).map(of).collect()
}
