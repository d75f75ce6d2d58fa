//! Documents of one service, as verbs write them, with figures that follow from a few numbers.

use fragmend_page::{Inputs, PageReport, html};
use serde_json::{Value, json};
use std::fmt::Write;

/// Number of the file system.
pub const DEVICE: u64 = 2049;
const MIB: u64 = 1 << 20;

/// A file of so many extents of `extent_bytes`, every second one of which is free or another's.
pub struct File {
    pub path: String,
    pub extents: u64,
    pub extent_bytes: u64,
    /// Where its first extent is.
    pub physical: u64,
}

impl File {
    fn json(&self, text: &mut String) {
        let Self { path, extents, extent_bytes, physical } = self;
        let bytes = extents * extent_bytes;
        let figures = json!({
            "path": path, "bytes": bytes, "extents": extents, "ideal_extents": 1, "dof": *extents as f64,
            "requests_now": extents, "requests_best": 1, "median_frag_size_bytes": extent_bytes,
            "median_frag_distance_bytes": extent_bytes, "data_bytes": bytes, "unwritten_bytes": 0,
            "shared_bytes": 0, "encoded_bytes": 0, "inline_bytes": 0,
        });
        let figures = figures.to_string();
        let _ = write!(
            text,
            "{},\"layout\":{{\"device\":{DEVICE},\"extents\":[",
            &figures[..figures.len() - 1]
        );
        for n in 0..*extents {
            let (logical, physical) = (n * extent_bytes, physical + 2 * n * extent_bytes);
            let comma = if n > 0 { "," } else { "" };
            let _ = write!(
                text,
                "{comma}{{\"logical\":{logical},\"physical\":{physical},\"length\":{extent_bytes},\"kind\":\"data\"}}"
            );
        }
        text.push_str("]}}");
    }
}

/// The document of a scan of these files, with a file system of `bytes`, the first MiB of which is metadata and the last
/// quarter free.
pub fn scan(files: &[File], bytes: u64) -> String {
    let mut text = String::from("{\"schema_version\":1,\"command\":\"scan\",\"files\":[");
    for (at, file) in files.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        file.json(&mut text);
    }
    let sum = |of: fn(&File) -> u64| files.iter().map(of).sum::<u64>();
    let extents = sum(|f| f.extents);
    let data = sum(|f| f.extents * f.extent_bytes);
    let totals = json!({
        "files": files.len(), "fragmented_files": sum(|f| u64::from(f.extents > 1)), "bytes": data,
        "extents": extents, "ideal_extents": files.len(), "dof": extents as f64 / files.len() as f64,
        "requests_now": extents, "requests_best": files.len(), "median_frag_size_bytes": 4096,
        "median_frag_distance_bytes": 4096, "data_bytes": data, "unwritten_bytes": 0,
        "shared_bytes": 0, "encoded_bytes": 0, "inline_bytes": 0, "further_names": 0, "skipped": 1,
    });
    let run =
        |start: u64, end: u64, kind: &str| json!({ "start": start, "end": end, "kind": kind });
    let runs = [
        run(0, MIB, "metadata"),
        run(bytes / 4 * 3, bytes / 8 * 7, "free"),
        run(bytes / 8 * 7 + 4096, bytes, "free"),
    ];
    let (free, long) = (bytes / 4 - 4096, bytes / 8);
    let step =
        |from: u64, runs: u64, of: u64| json!({ "from_bytes": from, "runs": runs, "bytes": of });
    let half = (long - 4096).next_power_of_two() / 2;
    let spaces = json!([{
        "path": "/srv", "file_system": "ext4", "device": DEVICE, "bytes": bytes, "block_bytes": 4096,
        "free_bytes": free, "free_runs": 2, "longest_free_run_bytes": long, "free_bytes_in_long_runs": free,
        "metadata_bytes": MIB, "unallocated_bytes": 0, "runs": runs,
        "free_run_distribution": [step(half, 1, long - 4096), step(long, 1, long)],
    }]);
    let skipped =
        json!([{ "path": "/srv/swap", "reason": "an active swap file", "code": "swap_file" }]);
    let _ = write!(
        text,
        "],\"totals\":{totals},\"frag_size_distribution\":[],\"frag_distance_distribution\":[],\"skipped\":{skipped},\"errors\":[],\"spaces\":{spaces}}}"
    );
    text
}

/// The files of a small service.
pub fn files() -> Vec<File> {
    let file = |path: &str, extents, extent_bytes, physical| File {
        path: path.to_owned(),
        extents,
        extent_bytes,
        physical,
    };
    vec![
        file("/srv/db/orders.sqlite", 200, 64 << 10, 2 * MIB),
        file("/srv/db/wal", 20, MIB, 40 * MIB),
        file("/srv/www/video.mp4", 1, 24 * MIB, 96 * MIB),
        file("/srv/log/access.log", 7, 128 << 10, 130 * MIB),
    ]
}

pub const BYTES: u64 = 256 * MIB;

/// A plan file: the first two files, of which the first saves more.
pub fn plan_file() -> Value {
    let range = |offset: u64, length: u64, extents: u64, seconds: f64| {
        json!({ "offset": offset, "length": length, "extents": extents, "seen": 900, "requests_before": extents,
            "requests_after": 1, "seconds_saved": seconds, "reason": "seen" })
    };
    json!({
        "format": "fragmend-plan", "schema_version": 1, "settings": settings(),
        "devices": [{
            "device": DEVICE, "path": "/srv", "file_system": "ext4", "total_bytes": BYTES, "block_bytes": 4096,
            "profile": { "name": "vdb", "readahead_bytes": 131072, "max_request_bytes": 1310720, "rotational": false },
        }],
        "summary": summary(),
        "files": [
            { "path": "/srv/db/orders.sqlite", "device": DEVICE, "inode": 12, "generation": 1, "size": 200 * (64 << 10),
              "ranges": [range(0, 4 * MIB, 64, 3.0), range(8 * MIB, 2 * MIB, 32, 0.5)] },
            { "path": "/srv/db/wal", "device": DEVICE, "inode": 13, "generation": 1, "size": 20 * MIB,
              "ranges": [range(0, 4 * MIB, 4, 0.25)] },
        ],
        "left_alone": [{ "path": "/srv/swap", "reason": "an active swap file", "code": "swap_file" }],
    })
}

fn settings() -> Value {
    serde_json::to_value(fragmend_plan::Settings::default()).unwrap()
}

fn summary() -> Value {
    json!({
        "seconds_before": 37.5, "seconds_after": 33.75, "seconds_saved": 3.75, "bytes_to_move": 10 * MIB,
        "ranges": 3, "files": 2, "files_considered": 4, "accesses": 52_000, "requests_before": 9_000,
        "requests_after": 4_000, "saved_share": 0.55, "whole_file_bytes": 33 * MIB, "file_system_share": 0.04,
        "over_budget_bytes": 0, "basis": "misses-recorded", "cost_source": "probed", "depth": 1.0, "depth_seen": true,
        "worth": true, "verdict": "worth it: 3.8 s less waiting (10 %) for 10.0 MiB written",
    })
}

/// What `plan --json` prints of it.
pub fn plan_document() -> Value {
    let mut document = summary();
    document["schema_version"] = 1.into();
    document["command"] = "plan".into();
    let point = |mib: u64, seconds: f64| json!({ "bytes": mib * MIB, "seconds_saved": seconds });
    document["curve"] =
        json!([point(0, 0.0), point(4, 3.0), point(10, 3.75), point(20, 3.8), point(33, 3.81)]);
    document["files_left_alone"] = 1.into();
    document["skipped"] =
        json!([{ "reason": "an active swap file", "code": "swap_file", "files": 1 }]);
    document
}

/// The events of `auto --json`, one a line.
pub fn events() -> String {
    let range = |path: &str, offset: u64, length: u64, before: u64| {
        json!({ "event": "range", "path": path, "offset": offset, "length": length, "outcome": "moved",
            "extents_before": before, "extents_after": 1, "moved_bytes": length, "primitive": "EXT4_IOC_MOVE_EXT",
            "seconds": 0.25, "longest_step_seconds": 0.002 })
    };
    let skipped = json!({ "event": "range", "path": "/srv/db/wal", "offset": 0, "length": 4 * MIB, "outcome": "skipped",
        "extents_before": 4, "moved_bytes": 0, "seconds": 0.0, "longest_step_seconds": 0.0, "reason": "no_better_place",
        "detail": "free space is in 9 runs" });
    let times = |before: f64, after: f64| json!({ "seconds_before": before, "seconds_after": after, "seconds_saved": before - after });
    let measurement = json!({ "method": "replayed", "predicted": times(12.0, 8.5), "predicted_ranges": 2, "planned_ranges": 3,
        "measured": times(12.5, 9.5), "not_measured": null, "saved_of_predicted": 0.857, "clock": "wall", "noise": 0.01,
        "rounds": 3, "reads": 4000, "read_bytes": 16_000_000, "recorded_reads": 52_000, "in_flight": 1.0 });
    let summary = json!({ "event": "summary", "schema_version": 1, "moved_bytes": 6 * MIB, "written_bytes": 6 * MIB + 8192,
        "read_bytes": 6 * MIB, "ranges_moved": 2, "ranges_skipped": 1, "ranges_left": 0, "extents_before": 96, "extents_after": 2,
        "seconds": 1.5, "paused_seconds": 0.5, "longest_step_seconds": 0.002, "interrupted": false, "dry_run": false,
        "skipped_by_reason": { "no_better_place": 1 }, "skipped": [], "measurement": measurement });
    let start = json!({ "event": "start", "schema_version": 1, "bytes_to_move": 10 * MIB, "ranges": 3, "files": 2 });
    let orders = "/srv/db/orders.sqlite";
    let lines = [
        start,
        range(orders, 0, 4 * MIB, 64),
        range(orders, 8 * MIB, 2 * MIB, 32),
        skipped,
        summary,
    ];
    lines.map(|line| line.to_string() + "\n").concat()
}

/// A profile of a drive with eight dies.
pub fn profile() -> Value {
    let mut reads = Vec::new();
    for length in [4096u64, 32768, 262_144, 1 << 20] {
        for depth in [1u64, 4, 16] {
            let one = 60_000 + length / 2;
            reads.push(json!({ "request_bytes": length, "in_flight": depth, "burst_ns": one * (1 + depth / 4),
                "interval_ns": one / depth.min(8) }));
        }
    }
    let interval = |n: u64| json!({ "distance_bytes": n * 65536, "mb_per_second": if n.is_multiple_of(8) { 90.0 } else { 700.0 } });
    json!({
        "profile_version": 1,
        "device": { "name": "nvme0n1", "kind": "flash", "identity": null, "partition_start_bytes": null },
        "die_granularity_bytes": 65536, "stripe_bytes": 524_288, "confidence": 0.99, "die_granularity_confidence": 0.99,
        "stripe_confidence": 0.99, "cannot_tell": null, "costs": { "source": "probed", "reads": reads, "seeks": [] },
        "one_more_request": [{ "in_flight": 1, "ns": 52_000 }, { "in_flight": 16, "ns": 900 }],
        "intervals": (1..17).map(interval).collect::<Vec<_>>(), "clock": "wall", "content": "data", "read_bytes": 1_000_000,
        "read_requests": 400, "seconds": 12.5, "disturbed": 0.0, "complete": true, "probed_at": 1_790_000_000,
    })
}

/// Results of the lab: one figure in its band, one that is not, one that the paper does not have.
pub fn lab() -> Value {
    json!({
        "schema_version": 1, "experiment": "A-fig3", "source": "FAST'24, figure 3", "seed": 1,
        "rows": [
            { "name": "slow-down", "unit": "%", "paper": 19.0, "ours": 22.0, "band": { "points": 4.0 }, "within": true, "fitted": false },
            { "name": "requests", "unit": "count", "paper": 100.0, "ours": 130.0, "band": { "percent": 20.0 }, "within": false,
              "fitted": false, "reason": "the host merges fewer" },
            { "name": "time", "unit": "s", "paper": null, "ours": null, "band": "none", "within": true, "fitted": false },
        ],
    })
}

/// All documents of the service.
pub fn inputs() -> Inputs {
    let mut inputs = Inputs::default();
    for (name, text) in [
        ("scan.json", scan(&files(), BYTES)),
        ("plan.json", plan_file().to_string()),
        ("summary.json", plan_document().to_string()),
        ("events.jsonl", events()),
        ("profile.json", profile().to_string()),
        ("lab.json", lab().to_string()),
    ] {
        inputs.add(name, &text).unwrap_or_else(|e| panic!("{e}"));
    }
    inputs
}

/// A page of these inputs, and the report behind it.
pub fn page(inputs: &Inputs) -> (PageReport, String) {
    let report = PageReport::of(inputs);
    let page = html(&report);
    (report, page)
}

/// A scan of a thousand files of a thousand extents each.
pub fn a_million_extents() -> Inputs {
    let file = |n: u64| File {
        path: format!("/srv/store/{:02}/object-{n:06}.data", n % 100),
        extents: 1000,
        extent_bytes: 4096,
        physical: MIB + n * 8_192_000,
    };
    let files: Vec<File> = (0..1000).map(file).collect();
    let mut inputs = Inputs::default();
    inputs.add("scan.json", &scan(&files, 16 << 30)).unwrap();
    inputs
}
