//! Warnings about what a trace does not contain.

use crate::ui::Ui;
use fragmend_trace::{Meta, Trace};

/// Warns of what is not in a trace.
pub fn warn(trace: &Trace, ui: &Ui) {
    if trace.meta.lost > 0 {
        ui.warn(format!("the recording lost {} accesses", trace.meta.lost));
    }
    for missing in missing(&trace.meta) {
        ui.warn(missing);
    }
    if trace.skipped > 0 {
        ui.warn(format!("{} rows of the trace cannot be true: left out", trace.skipped));
    }
}

/// What the trace does not contain, apart from lost accesses: a line for each kind.
pub fn missing(meta: &Meta) -> Vec<String> {
    let mut lines: Vec<_> =
        meta.unseen_sources.iter().map(|source| format!("not seen: {source}")).collect();
    let mut say = |count: u64, what: &str| {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    };
    say(meta.unseen_compat, "calls of 32-bit programs were not looked into");
    say(
        meta.unseen_splices,
        "splices of io_uring were not recorded: their file was closed already",
    );
    say(
        meta.unseen_uring,
        "requests of io_uring were not recorded: the program wanted no completion, or took none for so \
         long that their ring was full",
    );
    say(
        meta.dropped,
        "accesses were dropped: their place in the file could not be known (a file position \
         moved meanwhile, or an append that failed later)",
    );
    say(
        meta.unplaced,
        "accesses were left out: it is not known whether their files are below the paths (closed during \
         the call; or, unless the whole mount is named, opened by handle or under over 1,024 directories)",
    );
    say(
        meta.loads_lost,
        "requests of disks are not in what they answered: too many were in flight",
    );
    lines
}
