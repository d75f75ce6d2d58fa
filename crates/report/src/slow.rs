//! Documents of `fragmend probe` as an input of planning: the slow ranges of a file.
//!
//! A document may be of any age, edited, or of anything. What makes no sense is refused, and nothing of it is planned; that it
//! is about the file as it is now is checked with the file at hand (`fragmend-pipeline`).

use crate::probe::{FileRange, FileReport};
use fragmend_device::probe::ranges::PART;
use fragmend_layout::{ByteRange, printable, schema};
use fragmend_plan::{SlowFile, SlowRange};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The longest document that is read, in bytes: a probe times at most 4096 ranges.
pub const LONGEST: u64 = 16 << 20;
/// The longest reason, in characters.
const LONGEST_REASON: usize = 300;
/// No drive needs so many nanoseconds for a part, nor so many times more where it is slow: then other programs have used it,
/// or the document was edited.
const LONGEST_NS: u64 = 60_000_000_000;
const MOST_TIMES: u64 = 10_000;

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SlowError {
    /// It is another document, or a damaged one.
    #[error("{name} is not what `fragmend probe --json FILE` prints ({why})")]
    Foreign {
        /// What the document is called.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A fragmend with other formats has written it.
    #[error(
        "{name} is a document of version {found}, this fragmend reads version {}; probe the file again",
        schema::DOCUMENT
    )]
    Version {
        /// What the document is called.
        name: String,
        /// Its version.
        found: u64,
    },
    /// It is of a whole device.
    #[error("{0} is of a device and not of a file; probe the file itself")]
    NoFile(String),
    /// An older fragmend has written it.
    #[error(
        "{0} does not say which file was probed, as an older fragmend has written it; probe the file again"
    )]
    Older(String),
    /// It contradicts itself, or has figures that cannot be.
    #[error("{name}: {what}; nothing is planned by it; probe the file again")]
    Senseless {
        /// What the document is called.
        name: String,
        /// What is wrong.
        what: String,
    },
}

/// What marks a document.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    schema_version: Option<u64>,
    #[serde(default)]
    command: Option<String>,
}

/// What is used of it.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    die_granularity_bytes: Option<u64>,
    #[serde(default)]
    file: Option<FileReport>,
}

/// The slow ranges of a document, which messages call `name`; of a file that has none, no ranges.
///
/// # Errors
/// [`SlowError`], each in one line.
pub fn parse(text: &str, name: &str) -> Result<SlowFile, SlowError> {
    let foreign = |e: serde_json::Error| SlowError::Foreign {
        name: name.into(),
        // It quotes what the document contains, of any length.
        why: printable(&e.to_string()).to_string().chars().take(LONGEST_REASON).collect(),
    };
    let is_json = serde_json::from_str::<IgnoredAny>(text);
    is_json.map_err(foreign)?;
    let head: Head = serde_json::from_str(text).map_err(foreign)?;
    if head.command.as_deref() != Some("probe") {
        let why = "it is no document of that verb".into();
        return Err(SlowError::Foreign { name: name.into(), why });
    }
    match head.schema_version {
        Some(found) if found != u64::from(schema::DOCUMENT) => {
            return Err(SlowError::Version { name: name.into(), found });
        }
        Some(_) => {}
        None => {
            let why = "no schema_version".into();
            return Err(SlowError::Foreign { name: name.into(), why });
        }
    }
    let document: Document = serde_json::from_str(text).map_err(foreign)?;
    let file = document.file.ok_or_else(|| SlowError::NoFile(name.into()))?;
    let probed = file.probed.ok_or_else(|| SlowError::Older(name.into()))?;
    let senseless = |what: String| SlowError::Senseless { name: name.into(), what };
    if !probed.path.to_path().is_some_and(|path| path.is_absolute()) {
        return Err(senseless("the path of its file is not absolute".into()));
    }
    if !file.complete {
        return Err(senseless("the probe had no time to read all ranges often enough".into()));
    }
    let granularity_bytes = document.die_granularity_bytes;
    if granularity_bytes == Some(0) {
        return Err(senseless("a die granularity of 0 bytes".into()));
    }
    if let Some(range) = file.slow.iter().find(|range| range.fragments != 1) {
        let FileRange { offset, fragments, .. } = range;
        let what = format!("the slow range at {offset} is in {fragments} extents, and not in one");
        return Err(senseless(what));
    }
    // Those in several are listed among all that were timed.
    let in_several = file.ranges.iter().filter(|range| range.fragments > 1 && range.is_slow());
    let mut all: Vec<&FileRange> = file.slow.iter().chain(in_several).collect();
    all.sort_by_key(|range| range.offset);
    let mut ranges = Vec::with_capacity(all.len());
    let mut end = 0;
    for range in all {
        let slow = sensible(range, end, granularity_bytes).map_err(senseless)?;
        end = slow.range.end;
        ranges.push(slow);
    }
    Ok(SlowFile { path: probed.path, file: probed.file, ranges })
}

/// A range of a document behind `end`.
///
/// # Errors
/// What about it cannot be.
fn sensible(
    range: &FileRange,
    end: u64,
    granularity_bytes: Option<u64>,
) -> Result<SlowRange, String> {
    let FileRange { offset, bytes, fragments, physical, ns, expected_ns } = *range;
    let at = format_args!("the slow range at {offset} of {bytes} bytes");
    let Some(physical) = physical else {
        return Err(format!("{at} has no place on the device"));
    };
    if offset.checked_add(bytes).is_none() || physical.checked_add(bytes).is_none() {
        return Err(format!("{at} has no end"));
    }
    if bytes == 0 || !offset.is_multiple_of(PART) || !bytes.is_multiple_of(PART) {
        return Err(format!("{at} is not in whole parts of {PART} bytes"));
    }
    if offset < end {
        return Err(format!("{at} overlaps the one before it or is out of order"));
    }
    let parts = bytes / PART;
    let can_be = expected_ns > 0
        && ns > expected_ns
        && ns / parts <= LONGEST_NS
        && ns / expected_ns <= MOST_TIMES;
    if !can_be {
        return Err(format!(
            "{at} lasts {ns} ns, and {expected_ns} ns on the drive, which cannot be"
        ));
    }
    let range = ByteRange::at(offset, bytes);
    Ok(SlowRange {
        range,
        physical,
        fragments,
        ns,
        expected_ns,
        part_bytes: PART,
        granularity_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::FileId;
    use serde_json::{Value, json};

    fn document() -> Value {
        let range = |mib: u64| {
            json!({ "offset": mib << 20, "bytes": 2 << 20, "fragments": 1, "physical": 4096,
                "ns": 500, "expected_ns": 100 })
        };
        json!({
            "schema_version": 1, "command": "probe", "die_granularity_bytes": null,
            "unknown": { "to": ["this", "version"] },
            "file": {
                "probed": { "path": "/srv/a", "device": 7, "inode": 12, "generation": 1 },
                "data_bytes": 9, "timed_bytes": 9, "slow_bytes": 9, "ratio": 2.0, "complete": true,
                "limits": { "bytes": 1, "requests": 1, "seconds": 1.0 },
                "slow": [range(1), range(8)], "ranges": [],
            },
        })
    }

    fn spoiled(spoil: impl FnOnce(&mut Value)) -> String {
        let mut value = document();
        spoil(&mut value);
        let error = parse(&value.to_string(), "slow.json").unwrap_err().to_string();
        assert!(error.starts_with("slow.json") && !error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn what_a_probe_prints_is_read() {
        let read = parse(&document().to_string(), "slow.json").unwrap();
        assert_eq!(read.file, FileId { device: 7, inode: 12, generation: 1 });
        let places: Vec<_> =
            read.ranges.iter().map(|r| (r.range.start >> 20, r.physical)).collect();
        assert_eq!(places, [(1, 4096), (8, 4096)]);
    }

    #[test]
    fn what_is_slower_than_its_extents_explain_is_read_as_well() {
        let timed = |mib: u64, fragments: u64, ns: u64| {
            json!({ "offset": mib << 20, "bytes": 1 << 20, "fragments": fragments, "physical": 8192,
                "ns": ns, "expected_ns": 100 })
        };
        let mut value = document();
        // Of those in one extent, the slow ones are in a list of their own.
        value["file"]["ranges"] = json!([timed(0, 1, 500), timed(4, 3, 131), timed(5, 2, 130)]);
        let read = parse(&value.to_string(), "slow.json").unwrap();
        let found: Vec<_> =
            read.ranges.iter().map(|r| (r.range.start >> 20, r.fragments)).collect();
        assert_eq!(found, [(1, 1), (4, 3), (8, 1)]);
        value["file"]["ranges"] = json!([timed(2, 3, 200)]);
        let why = parse(&value.to_string(), "slow.json").unwrap_err().to_string();
        assert!(why.contains("overlaps"), "{why}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_a_line() {
        fn first(v: &mut Value) -> &mut Value {
            &mut v["file"]["slow"][0]
        }
        type Case = (&'static str, fn(&mut Value));
        let cases: [Case; 19] = [
            ("no document of that verb", |v| v["command"] = "scan".into()),
            ("version 2, this fragmend reads version 1", |v| v["schema_version"] = 2.into()),
            ("no schema_version", |v| drop(v.as_object_mut().unwrap().remove("schema_version"))),
            ("of a device", |v| v["file"] = Value::Null),
            ("older fragmend", |v| drop(v["file"].as_object_mut().unwrap().remove("probed"))),
            ("has no place", |v| drop(first(v).as_object_mut().unwrap().remove("physical"))),
            ("not absolute", |v| v["file"]["probed"]["path"] = "a".into()),
            ("no time", |v| v["file"]["complete"] = false.into()),
            ("granularity of 0", |v| v["die_granularity_bytes"] = 0.into()),
            ("whole parts", |v| first(v)["offset"] = 4096.into()),
            ("whole parts", |v| first(v)["bytes"] = 0.into()),
            ("has no end", |v| first(v)["bytes"] = (u64::MAX - 5).into()),
            ("has no end", |v| first(v)["physical"] = (u64::MAX - 5).into()),
            ("out of order", |v| first(v)["bytes"] = (8 << 20).into()),
            ("in 2 extents", |v| first(v)["fragments"] = 2.into()),
            ("cannot be", |v| first(v)["expected_ns"] = 0.into()),
            ("cannot be", |v| first(v)["expected_ns"] = 500.into()),
            ("cannot be", |v| first(v)["ns"] = u64::MAX.into()),
            ("invalid value", |v| first(v)["ns"] = (-5).into()),
        ];
        for (why, spoil) in cases {
            let error = spoiled(spoil);
            assert!(error.contains(why), "{why}: {error}");
        }
        for text in ["", "{", "[]", "null", "{\"command\": \"probe\"}", "{\"command\": 5}", "NaN"] {
            assert!(matches!(parse(text, "x"), Err(SlowError::Foreign { .. })), "{text}");
        }
        let nan = document().to_string().replace("500", "NaN");
        assert!(matches!(parse(&nan, "x"), Err(SlowError::Foreign { .. })));
    }

    /// Whatever is edited, the ranges that are accepted make sense, and a reason is one short line.
    #[test]
    fn edited_documents_are_sensible_or_refused() {
        let good = document().to_string().into_bytes();
        let (mut state, mut accepted) = (42u64, 0);
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let inserted: [&[u8]; 8] =
            [b"9", b"0", b"-", b".5", b"e300", b"null", b"\"", b"18446744073709551615"];
        for _ in 0..20_000 {
            let mut text = good.clone();
            for _ in 0..=below(3) {
                let at = below(text.len());
                let end = (at + below(3)).min(text.len());
                text.splice(at..end, inserted[below(8)].iter().copied());
            }
            let Ok(text) = String::from_utf8(text) else { continue };
            match parse(&text, "x") {
                Ok(slow) => {
                    accepted += 1;
                    assert!(slow.path.to_path().unwrap().is_absolute());
                    assert!(slow.ranges.windows(2).all(|r| r[0].range.end <= r[1].range.start));
                    for r in &slow.ranges {
                        assert!(!r.range.is_empty() && r.ns > r.expected_ns && r.expected_ns > 0);
                        assert!(r.physical.checked_add(r.range.len()).is_some());
                    }
                }
                Err(why) => {
                    let why = why.to_string();
                    assert!(!why.contains(char::is_control) && why.len() < 2000, "{why}");
                }
            }
        }
        assert!((100..19_000).contains(&accepted), "{accepted}");
        let long = format!("{{\"command\": [\"{}\"]}}", "a".repeat(1 << 20));
        assert!(parse(&long, "x").unwrap_err().to_string().len() < 2000);
    }
}
