//! The last check of a range before it is touched: nothing in the plan about it is believed.

use fragmend_layout::{ByteRange, Extent, Movable, Skip, SkipReason};
use fragmend_plan::PlannedRange;

/// A range that was checked again and is still worth moving.
pub(crate) struct Ready<'a> {
    pub planned: &'a PlannedRange,
    pub fragments: u64,
    /// Whether it is contiguous, and slow where it is: it is written anew.
    pub anew: bool,
    /// Bytes of space that become free once it has moved: those that it occupies and does not share.
    pub own_space: u64,
    /// Bytes of space that the move costs permanently, as far as that can be known before.
    pub space_cost: u64,
}

/// Checks a range again. Returns its present layout figures, or why it is to be left alone, with its fragments
/// if they were counted. `block` is the file's allocation block in bytes; shared data may move if `unshare`.
pub(crate) fn look<'a>(
    file: &mut dyn Movable,
    planned: &'a PlannedRange,
    block: u64,
    unshare: bool,
) -> Result<Ready<'a>, (Option<u64>, Skip)> {
    let range: ByteRange = planned.range();
    let size = file.size().map_err(|skip| (None, skip))?;
    // The last block may be partly behind the end of the file, but not all of it.
    if range.start >= size || range.end > size.next_multiple_of(block) {
        let now = format!("the file has {size} bytes now");
        return Err((None, Skip::new(SkipReason::SizeChanged, now)));
    }
    // The new space belongs to a file, too, which is no longer than this one.
    file.may_reach(range.end.min(size)).map_err(|skip| (None, skip))?;
    let layout = file.layout(range).map_err(|skip| (None, skip))?;
    let fragments = layout.fragments(range);
    let leave = |skip| Err((Some(fragments), skip));
    let parts: Vec<Extent> = layout.within(range).filter(|e| e.kind.is_addressed()).collect();
    if parts.iter().map(|e| e.length).sum::<u64>() != range.len() {
        let why = "part of the range holds no data now";
        return leave(Skip::new(SkipReason::LayoutChanged, why));
    }
    let space_cost = layout.shared_bytes(range);
    if space_cost > 0 && !unshare {
        let how = format!("with --unshare it moves, for {space_cost} bytes of space");
        return leave(Skip::new(SkipReason::Shared, how));
    }
    if let Err(skip) = file.accepts(&parts) {
        return leave(skip);
    }
    if fragments <= 1 && planned.slow_at.is_some() && parts.iter().any(|e| e.kind.is_encoded()) {
        let why = "it is compressed, and what is was never measured";
        return leave(Skip::new(SkipReason::Encoded, why));
    }
    let is_slow_here = parts.first().is_some_and(|e| planned.slow_at == Some(e.physical));
    let mut anew = fragments == 1 && is_slow_here;
    // What was written anew is at another place: a plan that is applied again repeats nothing.
    // Where all ranges move together, this one moves with the others.
    if fragments <= 1 && !file.all_or_nothing() {
        if anew {
            file.writes_anew().map_err(|skip| (Some(fragments), skip))?;
        } else {
            return leave(already_contiguous(planned));
        }
    }
    anew &= !file.all_or_nothing();
    let own_space = layout.stored_bytes(range) - space_cost;
    Ok(Ready { planned, fragments, anew, own_space, space_cost })
}

/// Why a range in one fragment is left alone.
pub(crate) fn already_contiguous(planned: &PlannedRange) -> Skip {
    let why = match planned.slow_at {
        Some(_) => "it is at another place than when it was measured to be slow",
        None => "",
    };
    Skip::new(SkipReason::AlreadyContiguous, why)
}
