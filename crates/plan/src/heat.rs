//! Of a recording of a part of all places at a time: whether a window that was chosen because it is hot would be without one of
//! the turns in which it was recorded.

use crate::input::{Policy, Settings};
use crate::merge;
use crate::requests::Request;
use crate::select::{Analysed, Candidate, fragpicker};
use fragmend_layout::Recorded;
use std::collections::{BTreeMap, BTreeSet};

/// The hottest window that was not chosen because others are hotter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rival {
    /// How often it was asked for.
    heat: u64,
    /// The share that is chosen of windows as hot as this one, if there is one more of them, and one more is chosen.
    share: f64,
}

impl Rival {
    /// That of windows of which these were chosen, and these were not: how often each was asked for. Of the latter, one that is
    /// hotter was left out because it is longer than a budget.
    fn of(chosen: &[u64], left: &[u64]) -> Option<Self> {
        let least = chosen.iter().min()?;
        let heat = *left.iter().filter(|heat| *heat <= least).max()?;
        let as_hot = |of: &[u64]| of.iter().filter(|other| **other == heat).count() as f64;
        let share = (as_hot(chosen) + 1.0) / (as_hot(chosen) + as_hot(left) + 1.0);
        Some(Self { heat, share })
    }
}

/// The rival of what was chosen; `None` if there is none. FragPicker's policy takes the hottest that fit a budget; and a part of
/// all windows may be asked for, of which the `cold` requests are the rest.
pub fn rival(
    files: &[Analysed],
    chosen: &[Candidate],
    cold: &[Vec<Request>],
    settings: &Settings,
) -> Option<Rival> {
    if settings.policy == Policy::Fragpicker && settings.budget_bytes.is_some() {
        let window = |c: &Candidate| (c.file, files[c.file].window_at(c.range.start));
        let seen = |(file, window): &(usize, usize)| Some(files[*file].windows.get(*window)?.seen);
        let taken: BTreeSet<(usize, usize)> = chosen.iter().map(window).collect();
        let all: BTreeSet<_> = fragpicker::choose(files).iter().map(window).collect();
        let left: Vec<u64> = all.difference(&taken).filter_map(seen).collect();
        let rival = Rival::of(&taken.iter().filter_map(seen).collect::<Vec<_>>(), &left);
        if rival.is_some() {
            return rival;
        }
    }
    let hot: Vec<u64> = files.iter().flat_map(|file| &file.windows).map(|w| w.seen).collect();
    let cold = cold.iter().flat_map(|cold| merge::windows(cold)).map(|window| window.seen);
    Rival::of(&hot, &cold.collect::<Vec<_>>())
}

/// How often windows were asked for in single turns.
pub struct Heats {
    rival: Rival,
    /// By window and turn.
    of: BTreeMap<(usize, u32), u64>,
    /// By window, of what was recorded in many turns: what one access stands for, and what the heaviest turn does.
    many: BTreeMap<usize, (u64, u64)>,
}

impl Heats {
    /// Those of a file, beside such a rival.
    pub fn of(file: &Analysed, rival: Rival) -> Self {
        let mut heats = Self { rival, of: BTreeMap::new(), many: BTreeMap::new() };
        for part in file.turns.iter().filter(|part| part.is_heat) {
            let Recorded { turn, times, most } = part.recorded;
            let window = file.window_at(part.range.start);
            if turn == Recorded::MANY {
                let one = u64::from(part.count / times.max(1));
                let (least, heaviest) = heats.many.entry(window).or_insert((u64::MAX, 0));
                (*least, *heaviest) = (one.min(*least), *heaviest + u64::from(most));
            } else {
                *heats.of.entry((window, turn)).or_default() += u64::from(part.count);
            }
        }
        heats
    }

    /// How certainly the window of a part would be chosen without its turn: 1, or 0, or a share of those that are as hot.
    /// Turns of which only the heaviest is known are taken to be evenly spread between one access and that.
    pub fn share_without(&self, file: &Analysed, part: usize) -> f64 {
        let part = &file.turns[part];
        let (window, turn) = (file.window_at(part.range.start), part.recorded.turn);
        let heat = file.windows.get(window).map_or(0, |window| window.seen);
        let beyond = heat as f64 - self.rival.heat as f64;
        let own = if turn == Recorded::MANY {
            self.many.get(&window).map(|(one, heaviest)| (*one as f64, *heaviest as f64))
        } else {
            self.of.get(&(window, turn)).map(|own| (*own as f64, *own as f64))
        };
        // What was not recorded by places is no matter of chance.
        let Some((least, most)) = own else { return 1.0 };
        if beyond > most {
            1.0
        } else if beyond < least {
            0.0
        } else if most > least {
            (beyond - least) / (most - least)
        } else {
            self.rival.share
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_is_the_hottest_that_was_left() {
        assert_eq!(Rival::of(&[5, 7], &[]), None);
        assert_eq!(Rival::of(&[], &[5]), None);
        let rival = |chosen: &[u64], left: &[u64]| {
            let Rival { heat, share } = Rival::of(chosen, left).unwrap();
            (heat, share)
        };
        assert_eq!(rival(&[9, 7], &[5, 4]), (5, 0.5));
        assert_eq!(rival(&[9, 5], &[5, 5, 4]), (5, 0.5));
        // A longer one did not fit.
        assert_eq!(rival(&[9, 7], &[8, 3, 3]), (3, 1.0 / 3.0));
    }
}
