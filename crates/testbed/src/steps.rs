//! Steps at which a test ends or stops an `apply` that was built with debug assertions
//! (`FRAGMEND_STOP_AT`).

/// Every step of a rewrite, as the head of `rewrite/engine.rs` of `fragmend-engines` numbers them.
pub const OF_REWRITE: [&str; 10] = [
    "copied",
    "leased",
    "sealed",
    "punched",
    "allocated",
    "half-written",
    "written",
    "synced",
    "compared",
    "removed",
];
