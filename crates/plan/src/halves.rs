//! Of a recording of a part of all places at a time: what one half of the turns chooses, judged by the other half.
//!
//! Each turn is judged by the others range by range ([`crate::chance`]), as if a choice did nothing to what was not recorded but
//! to save time in these ranges. It may do worse: a range ends where no read was seen to cross, and what was not recorded crosses
//! there, which on a disk is a way to the moved range and back; policies and settings that take the hottest windows take those
//! that look hottest by chance. So a plan is made from a half of the turns, whose accesses count twice, and what its moves save in
//! the other half is set beside what is promised of turns that were not recorded; and the other way round. Both estimate the
//! same. Where the promise is more by three standard errors, the promise of the plan from all turns is scaled by their quotient.

use crate::chance::{self, How};
use crate::parallel;
use crate::requests::Request;
use crate::select::{Analysed, Candidate};
use crate::turns::{InTurn, counted};
use std::mem::take;

/// How many standard errors the promise must be off.
const ERRORS: f64 = 3.0;

/// The quotient for files whose counts are those of a thinned out recording; 1 if the promise holds, and at most. `choose`
/// chooses by the counts of files, and says how what it chose is judged.
pub fn scale(
    files: &mut [Analysed],
    choose: impl Fn(&mut [Analysed]) -> (Vec<Candidate>, How),
) -> f64 {
    let whole: Vec<(Vec<Request>, Vec<InTurn>)> =
        files.iter_mut().map(|file| (take(&mut file.requests), take(&mut file.turns))).collect();
    let count = |files: &mut [Analysed], part: &dyn Fn(&InTurn) -> Option<InTurn>, rest: bool| {
        for (file, (requests, turns)) in files.iter_mut().zip(&whole) {
            file.turns = turns.iter().filter_map(part).collect();
            file.count_anew(counted(requests, turns, &file.turns, rest));
        }
    };
    let (mut promised, mut saved, mut variance) = (0.0, 0.0, 0.0);
    for half in [0, 1] {
        count(files, &|part| part.of_half(half), true);
        let (chosen, how) = choose(files);
        // Without what was chosen from: cold requests are there again.
        count(files, &|part| part.of_half(half), true);
        let judged = chance::those_that_pay(files, chosen, how, 1.0);
        promised += judged.others_ns;
        variance += judged.variance;
        count(files, &|part| part.others_of(1 - half), false);
        let all =
            parallel::map(files.len(), |i| chance::saved_by_turns(&files[i], &judged.moves[i]));
        saved += all.iter().map(|(ns, _)| ns).sum::<f64>();
        variance += all.iter().map(|(_, variance)| variance).sum::<f64>();
    }
    for (file, (requests, turns)) in files.iter_mut().zip(whole) {
        file.turns = turns;
        file.count_anew(requests);
    }
    if promised - saved <= ERRORS * variance.sqrt() {
        1.0
    } else if saved <= 0.0 {
        0.0
    } else {
        (saved / promised).min(1.0)
    }
}
