//! What a recording of a part of all places at a time stands for, and has not seen.
//!
//! Accesses of such a recording stand for others as well, in part of ranges of which it has nothing, or too little for a plan to
//! choose them: of files that are read once each, it has a few, and each stands for many. A plan moves what was seen, and
//! promises what that saves. The others last as long, and would save as much, if they are like those that were seen; how long
//! that is, is said besides. A plan from everything comes to the sum of both. How many bytes it would move besides is not known:
//! what a range that was seen once stands for may be as many ranges, or one that is read as often.

use crate::chance::Counted;
use crate::file::Summary;
use crate::fragments::Bill;
use crate::outlook::{Outlook, weigh};
use crate::parallel;
use crate::requests::Request;
use crate::select::Analysed;
use crate::turns::take_unseen;
use fragmend_layout::ByteRange;

/// Whether a part of all places was recorded at a time of what these files' requests are of.
pub fn is_thinned(files: &[Analysed]) -> bool {
    files.iter().any(|file| file.turns.iter().any(|part| part.others() > 0))
}

/// Takes what requests of files, and `cold` ones besides, stand for and was not seen out of their counts; it is in
/// [`Analysed::unseen`] afterwards. Of what was chosen, it counts as it was judged; of all else, as far as it was recorded in
/// another turn.
pub fn tell_apart(files: &mut [Analysed], cold: &mut [Vec<Request>], counted: &[Counted]) {
    for ((file, cold), counted) in files.iter_mut().zip(cold).zip(counted) {
        let mut requests = std::mem::take(&mut file.requests);
        file.unseen = take_unseen(&mut requests, &file.turns, |part| counted.of(part));
        file.unseen.extend(take_unseen(cold, &file.turns, |part| counted.of(part)));
        file.unseen.sort_unstable();
        file.count_anew(requests);
    }
}

/// What the unseen requests of a file come to, for the verdict.
pub fn outlook(file: &Analysed) -> Outlook {
    weigh(file, &file.unseen, |_| {})
}

/// Enters what the unseen requests of all files cost, and would cost if ranges like these moves were contiguous as well.
pub fn enter(summary: &mut Summary, files: &[Analysed], moves: &[Vec<ByteRange>]) {
    let all = parallel::map(files.len(), |i| bills(&files[i], &moves[i]));
    let sum = |which: usize| all.iter().map(|bills| bills[which]).sum::<Bill>();
    let [now, then] = [sum(0), sum(1)];
    summary.unseen_seconds_before = now.seconds();
    summary.unseen_seconds_saved = (now.seconds() - then.seconds()).max(0.0);
}

/// One replay of a file's unseen requests, as it is and once `moves` are contiguous.
fn bills(file: &Analysed, moves: &[ByteRange]) -> [Bill; 2] {
    let (limit, mut clock) = (file.limits.max_request, file.costs.clock());
    let now = file.fragments.replay(&file.unseen, limit, &mut clock);
    if moves.is_empty() || file.unseen.is_empty() {
        return [now; 2];
    }
    [now, file.fragments_after(moves).replay(&file.unseen, limit, &mut clock)]
}
