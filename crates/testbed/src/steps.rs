//! Steps at which a test ends or stops an `apply` that was built with debug assertions
//! (`FRAGMEND_STOP_AT`).

/// Every step of a rewrite, as the head of `engine/rewrite/mod.rs` of `fragmend-apply` numbers them.
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
