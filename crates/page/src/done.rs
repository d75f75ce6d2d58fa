//! What receipts come to: ranges by how they ended, what moved them, why they were left alone, and the worst of them.

use fragmend_apply::{Event, Outcome, Receipt, Summary};
use fragmend_layout::{ByteRange, PathText};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most receipts that are listed one by one.
pub const MOST_RECEIPTS: usize = 20;

/// The events of one run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What it came to; absent where the end of the run is missing.
    pub summary: Option<Summary>,
    /// By file and place. What could not be made durable has a second receipt, which counts.
    receipts: BTreeMap<PathText, BTreeMap<u64, Receipt>>,
}

/// What a run of `apply` or `auto` came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Which input says so.
    pub input: String,
    /// Its own summary; absent where the end of the run is missing.
    pub summary: Option<Summary>,
    /// Ranges by how they ended.
    pub outcomes: Vec<Counted>,
    /// Ranges that moved by the interface that moved them.
    pub primitives: Vec<Counted>,
    /// Ranges that were left alone by reason.
    pub reasons: Vec<Counted>,
    /// The ranges that are in the most fragments now, or were held longest by one step.
    pub worst: Vec<Receipt>,
}

/// Ranges that have something in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counted {
    /// What that is.
    pub what: String,
    /// How many there are.
    pub ranges: u64,
    /// Bytes in them.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
}

impl Run {
    /// Adds an event.
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Start(_) => {}
            Event::Range(receipt) => {
                let of_file = self.receipts.entry(receipt.path.clone()).or_default();
                of_file.insert(receipt.offset, receipt);
            }
            Event::Summary(summary) => self.summary = Some(summary),
        }
    }

    fn receipts(&self) -> impl Iterator<Item = &Receipt> {
        self.receipts.values().flat_map(BTreeMap::values)
    }

    /// The files in which ranges were moved, with these.
    pub fn moved(&self) -> impl Iterator<Item = (&PathText, Vec<ByteRange>)> {
        self.receipts.iter().filter_map(|(path, receipts)| {
            let moved = receipts.values().filter(|r| r.outcome == Outcome::Moved);
            let ranges: Vec<_> = moved.map(|r| ByteRange::at(r.offset, r.length)).collect();
            (!ranges.is_empty()).then_some((path, ranges))
        })
    }
}

impl Done {
    /// What the run in `input` came to.
    pub fn of(input: &str, run: &Run) -> Self {
        let (mut outcomes, mut primitives, mut reasons) =
            (Counts::default(), Counts::default(), Counts::default());
        for receipt in run.receipts() {
            outcomes.add(name_of(&receipt.outcome), receipt.length);
            if let Some(primitive) = &receipt.primitive {
                primitives.add(primitive.clone(), receipt.moved_bytes);
            }
            if let Some(reason) = &receipt.reason {
                reasons.add(name_of(reason), receipt.length);
            }
        }
        let mut worst: Vec<&Receipt> = run.receipts().collect();
        let badness = |r: &Receipt| (r.extents_after, r.longest_step_seconds);
        worst.sort_by(|a, b| {
            let ((a_after, a_step), (b_after, b_step)) = (badness(a), badness(b));
            b_after.cmp(&a_after).then(b_step.total_cmp(&a_step))
        });
        Self {
            input: input.to_owned(),
            summary: run.summary.clone(),
            outcomes: outcomes.listed(),
            primitives: primitives.listed(),
            reasons: reasons.listed(),
            worst: worst.into_iter().take(MOST_RECEIPTS).cloned().collect(),
        }
    }
}

/// Ranges and bytes by what they have in common.
#[derive(Default)]
struct Counts(BTreeMap<String, (u64, u64)>);

impl Counts {
    fn add(&mut self, what: String, bytes: u64) {
        let (ranges, sum) = self.0.entry(what).or_default();
        *ranges += 1;
        *sum = sum.saturating_add(bytes);
    }

    /// The most frequent first.
    fn listed(self) -> Vec<Counted> {
        let counted = |(what, (ranges, bytes))| Counted { what, ranges, bytes };
        let mut list: Vec<_> = self.0.into_iter().map(counted).collect();
        list.sort_by_key(|counted| std::cmp::Reverse(counted.ranges));
        list.truncate(MOST_RECEIPTS);
        list
    }
}

/// The name of a value in JSON, in words.
pub fn name_of<T: Serialize>(value: &T) -> String {
    let name = serde_json::to_value(value).ok();
    name.as_ref().and_then(|name| name.as_str()).unwrap_or_default().replace(['_', '-'], " ")
}
