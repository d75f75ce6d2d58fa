//! The answer at the top of a page says nothing that its documents do not, also where those are incomplete, or many.

#[allow(dead_code)]
mod support;

use fragmend_page::{Inputs, PageReport};
use serde_json::json;
use support::{BYTES, events, files, page, plan_document, plan_file, scan};

fn report(texts: &[&str]) -> PageReport {
    let mut inputs = Inputs::default();
    for (n, text) in texts.iter().enumerate() {
        inputs.add(&n.to_string(), text).unwrap();
    }
    page(&inputs).0
}

/// The events of a run that measured nothing.
fn run() -> String {
    events().replace("\"measurement\":{", "\"unknown\":{")
}

/// The events of a run without its end.
fn cut() -> String {
    let run = run();
    let lines = run.lines().filter(|line| !line.contains("\"summary\""));
    lines.map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn a_run_whose_end_is_missing_has_moved_what_its_receipts_say() {
    let moved = "2 ranges of 6.0 MiB moved, as far as the receipts go: the end of the run is not in the inputs.";
    for texts in [vec![cut()], vec![cut(), plan_file().to_string()]] {
        let answer = report(&texts.iter().map(String::as_str).collect::<Vec<_>>()).answer;
        assert_eq!((&*answer.sentence, &*answer.what_did_it_change), (moved, moved));
        assert!(answer.what_would_it_cost.starts_with("Not in the inputs"), "{answer:?}");
        assert!(!answer.is_it_bad.contains("would be saved"), "{answer:?}");
    }
    // A whole run besides.
    let both = report(&[&cut(), &run()]).answer;
    assert!(
        both.what_did_it_change.contains("That leaves out what another run has moved"),
        "{both:?}"
    );
}

#[test]
fn several_runs_are_added_up_and_several_plans_named() {
    let (one, two) = (run(), run() + &run());
    let expected = "12.0 MiB moved in 2 runs: 4 ranges from 192 fragments to 4.";
    for answer in [report(&[&one, &one]).answer, report(&[&two]).answer] {
        assert_eq!(answer.sentence, expected);
        assert!(answer.what_would_it_cost.starts_with("12.0 MiB were written"), "{answer:?}");
        assert!(answer.what_did_it_change.starts_with("4 ranges moved, 2 left"), "{answer:?}");
    }
    let mut other = plan_file();
    other["summary"]["seconds_saved"] = 1.0.into();
    let plans = [plan_file().to_string(), other.to_string()];
    let of_plans = report(&[&plans[0], &plans[1]]).answer.sentence;
    assert!(of_plans.ends_with(" That is the first of 2 plans."), "{of_plans}");
    let with_run = report(&[&one, &plans[0], &plans[1]]).answer.sentence;
    assert!(with_run.contains(" The first of 2 plans predicts 3.8 s less waiting"), "{with_run}");
}

#[test]
fn a_run_that_was_stopped_says_what_it_has_not_reached() {
    let stopped = run().replace("\"ranges_left\":0", "\"ranges_left\":3");
    let change = report(&[&stopped]).answer.what_did_it_change;
    assert!(
        change.starts_with("2 ranges moved, 1 left alone, 3 not reached or not finished: in"),
        "{change}"
    );
    let in_the_middle = stopped
        .replace("\"ranges_moved\":2", "\"ranges_moved\":0")
        .replace("\"interrupted\":false", "\"interrupted\":true");
    let change = report(&[&in_the_middle]).answer.what_did_it_change;
    assert_eq!(
        change,
        "No range as a whole: what had moved when it was stopped stays where it is."
    );
}

#[test]
fn what_a_summary_of_a_plan_does_not_name_is_not_none() {
    let mut plan = plan_document();
    assert!(report(&[&plan.to_string()]).answer.which_files.starts_with("Not in the inputs"));
    plan["files"] = 0.into();
    assert!(report(&[&plan.to_string()]).answer.which_files.starts_with("None: "));
}

#[test]
fn what_was_not_recorded_is_not_said_to_be() {
    let mut plan = plan_document();
    assert!(report(&[&plan.to_string()]).answer.is_it_bad.contains("all reads that were recorded"));
    plan["basis"] = json!("sequential-read");
    let is_it_bad = report(&[&plan.to_string()]).answer.is_it_bad;
    assert!(
        is_it_bad.starts_with("One read of the files (nothing was recorded) waits "),
        "{is_it_bad}"
    );
}

#[test]
fn counts_agree_with_their_words() {
    let all = files();
    let scanned = |some| report(&[&scan(some, BYTES)]).answer.sentence;
    assert!(scanned(&all[..1]).starts_with("1 of 1 file is fragmented; "));
    assert!(scanned(&all[..2]).starts_with("2 of 2 files are fragmented; "));
    assert_eq!(scanned(&all[2..3]), "None of 1 file is fragmented: leave it as it is.");
    let none = scan(&all[2..3], BYTES).replace("\"files\":1,", "\"files\":0,");
    assert!(report(&[&none]).answer.sentence.starts_with("No file was scanned"));
}

/// An XFS without `rmapbt=1` reports free space alone.
#[test]
fn metadata_that_was_not_reported_is_not_said_to_be_none() {
    let with = scan(&files(), BYTES);
    let without = with.replacen("\"metadata\"", "\"free\"", 1);
    let shown = |text: &str| {
        let mut inputs = Inputs::default();
        inputs.add("scan", text).unwrap();
        page(&inputs).1
    };
    assert!(shown(&with).contains("metadata: 1.0 MiB"));
    let page = shown(&without);
    assert!(
        page.contains("metadata: not reported")
            && page.contains("does not report where its metadata is")
    );
}
