//! What is to be moved: what a policy wants within the budget, with what is slow in one fragment; of a thinned out recording,
//! what of that pays by more than chance.

use crate::between::Between;
use crate::chance::{self, How};
use crate::choose::{candidates, choose, joined};
use crate::halves;
use crate::heat;
use crate::input::{Policy, Settings};
use crate::requests::Request;
use crate::select::gain::bytes;
use crate::select::{Analysed, Candidate, fragpicker, segments};
use crate::slow::with_slow;
use crate::unseen;

/// What is to be moved.
pub struct Chosen {
    /// In any order.
    pub ranges: Vec<Candidate>,
    /// Bytes of those that the budget leaves out.
    pub over_budget_bytes: u64,
    /// Of each file, the requests that are not hot enough.
    pub cold: Vec<Vec<Request>>,
    /// Whether a thinned out recording has too little to tell what pays.
    pub left_to_chance: bool,
}

/// What a policy wants within the budget, with what is slow.
fn wanted(analysed: &[Analysed], between: &Between, settings: &Settings) -> Vec<Candidate> {
    with_slow(analysed, choose(analysed, between, settings), settings.budget_bytes)
}

/// The same settings without their budget; `None` if they have none.
fn unlimited(settings: &Settings) -> Option<Settings> {
    settings.budget_bytes.map(|_| Settings { budget_bytes: None, ..settings.clone() })
}

impl Chosen {
    /// What of `files` files moves out of segments.
    pub fn of_segments(choice: segments::Choice, files: usize) -> Self {
        let segments::Choice { ranges, over_budget_bytes, .. } = choice;
        Self { ranges, over_budget_bytes, cold: vec![Vec::new(); files], left_to_chance: false }
    }

    /// Chooses by the counts of files.
    fn by_counts(analysed: &mut [Analysed], between: &Between, settings: &Settings) -> Self {
        let cold = fragpicker::cool(analysed, settings.hot_fraction);
        let ranges = wanted(analysed, between, settings);
        let over_budget_bytes = unlimited(settings).map_or(0, |settings| {
            bytes(&wanted(analysed, between, &settings)).saturating_sub(bytes(&ranges))
        });
        Self { ranges, over_budget_bytes, cold, left_to_chance: false }
    }

    /// The same; of a thinned out recording those that pay by more than chance.
    /// Places that were recorded at a time have so many bytes.
    pub fn of(
        analysed: &mut [Analysed],
        between: &Between,
        settings: &Settings,
        place_bytes: u64,
    ) -> Self {
        let mut chosen = if unseen::is_thinned(analysed) {
            Self::by_more_than_chance(analysed, between, settings, place_bytes)
        } else {
            Self::by_counts(analysed, between, settings)
        };
        if settings.policy == Policy::Gain {
            chosen.ranges = joined(analysed, chosen.ranges);
        }
        chosen
    }

    /// Those that pay by more than chance. Afterwards counts only what of the recording is in ranges that the trace has.
    fn by_more_than_chance(
        analysed: &mut [Analysed],
        between: &Between,
        settings: &Settings,
        place_bytes: u64,
    ) -> Self {
        let by_savings = settings.policy == Policy::Gain;
        let by_counts = |analysed: &mut [Analysed]| {
            let chosen = Self::by_counts(analysed, between, settings);
            let unlimited = unlimited(settings).filter(|_| by_savings);
            let wanted = unlimited.map(|settings| wanted(analysed, between, &settings));
            let rival = heat::rival(analysed, &chosen.ranges, &chosen.cold, settings);
            (chosen, How { by_savings, wanted, rival, place_bytes })
        };
        let scales = halves::scales(analysed, place_bytes, |files| {
            let (chosen, how) = by_counts(files);
            (chosen.ranges, how)
        });
        let (mut chosen, how) = by_counts(analysed);
        let wanted = chosen.ranges.len();
        let pays = chance::those_that_pay(analysed, chosen.ranges, how, &scales);
        chosen.ranges = candidates(pays.moves);
        let counts = |c: &Candidate| scales[c.file].is_some();
        chosen.left_to_chance = wanted > 0 && !chosen.ranges.iter().any(counts);
        if chosen.left_to_chance {
            // No budget would change that.
            chosen.over_budget_bytes = 0;
        }
        unseen::tell_apart(analysed, &mut chosen.cold, &pays.counted);
        chosen
    }
}
