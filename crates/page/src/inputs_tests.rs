//! Tests of the inputs: what is recognised, and what is refused.

use super::*;

const EVENT: &str = r#"{"event":"range","path":"/a","offset":0,"length":8,"outcome":"moved","moved_bytes":8,"seconds":0,"longest_step_seconds":0}"#;

#[test]
fn a_text_is_refused_as_a_whole_and_in_a_line() {
    let scan = |spaces: &str| {
        format!(
            r#"{{"schema_version":1,"command":"scan","files":[],"totals":{{"files":0,"fragmented_files":0,"bytes":0,"extents":0,"ideal_extents":0,"dof":1,"requests_now":0,"requests_best":0,"median_frag_size_bytes":0,"median_frag_distance_bytes":0,"data_bytes":0,"unwritten_bytes":0,"shared_bytes":0,"encoded_bytes":0,"inline_bytes":0,"further_names":0,"skipped":0}},"frag_size_distribution":[],"frag_distance_distribution":[],"skipped":[],"errors":[],"spaces":[{{"path":"/m","file_system":"ext4","device":1,"bytes":100,"block_bytes":1,"free_bytes":90,"free_runs":2,"longest_free_run_bytes":80,"free_bytes_in_long_runs":0,"metadata_bytes":0,"unallocated_bytes":0,"runs":[{spaces}]}}]}}"#
        )
    };
    let run = |start, end| format!(r#"{{"start":{start},"end":{end},"kind":"free"}}"#);
    let runs = |a: (u64, u64), b: (u64, u64)| scan(&format!("{},{}", run(a.0, a.1), run(b.0, b.1)));
    let mut inputs = Inputs::default();
    for (text, why) in [
        (String::new(), "empty"),
        ("{".into(), "EOF"),
        ("[1]".into(), "none of fragmend's"),
        ("{}".into(), "none of fragmend's"),
        (r#"{"command":"scan"}"#.into(), "no schema_version"),
        (r#"{"command":"scan","schema_version":1}"#.into(), "missing field"),
        (r#"{"command":"scan","schema_version":2}"#.into(), "version 2"),
        (r#"{"format":"fragmend-plan","schema_version":9}"#.into(), "version 9"),
        (r#"{"profile_version":7}"#.into(), "version 7"),
        (format!("{EVENT}\n{EVENT}\n{{\"event\":\"fly\"}}"), "unknown variant"),
        (format!("{EVENT} nonsense"), "expected"),
        ("{\"command\":\"\u{1b}[2J\"}".into(), "control character"),
        (runs((10, 20), (15, 30)), "makes no sense"),
        (runs((10, 20), (30, 30)), "makes no sense"),
        (runs((10, 20), (30, 101)), "makes no sense"),
    ] {
        let error = inputs.add("in\nput", &text).expect_err(&text).to_string();
        assert!(error.contains(why) && error.starts_with(r"in\nput"), "{text}: {error}");
        assert!(!error.contains(char::is_control), "{error}");
        assert!(inputs.names.is_empty() && inputs.runs.is_empty(), "{text}");
    }
    inputs.add("good", &runs((10, 20), (20, 100))).unwrap();
    assert_eq!(inputs.scans.len(), 1);
}

#[test]
fn the_later_receipt_of_a_range_counts() {
    let mut inputs = Inputs::default();
    let later = EVENT
        .replace("moved\",\"moved_bytes\":8", "skipped\",\"moved_bytes\":0,\"reason\":\"failed\"");
    assert_ne!(EVENT, later);
    inputs.add("events", &format!("{EVENT}\n{later}\n")).unwrap();
    let done = crate::done::Done::of("events", &inputs.runs[0].document);
    let counted: Vec<_> =
        done.outcomes.iter().map(|c| (c.what.as_str(), c.ranges, c.bytes)).collect();
    assert_eq!(counted, [("skipped", 1, 8)]);
    assert_eq!(done.reasons[0].what, "failed");
    assert!(done.primitives.is_empty() && inputs.runs[0].document.moved().next().is_none());
}

#[test]
fn there_are_not_too_many_inputs() {
    let mut inputs = Inputs::default();
    (0..MOST_INPUTS).for_each(|n| inputs.add(&n.to_string(), EVENT).unwrap());
    assert!(matches!(inputs.add("one more", EVENT), Err(InputError::TooMany)));
}
