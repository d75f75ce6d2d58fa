//! One call for each of many items, on all processors, with the results in the items' order. Rayon sees the same function
//! whatever the items are, so it is compiled once: an iterator of its own for each would be a quarter of this crate.

use std::ops::Range;
use std::sync::Mutex;

/// Into so many parts the items are divided at most: enough that unequal ones keep all processors busy.
const PARTS: usize = 256;

/// The results of `one` for the numbers below `count`.
pub fn map<T: Send>(count: usize, one: impl Fn(usize) -> T + Sync) -> Vec<T> {
    in_parts(count, &|_, numbers| numbers.map(&one).collect())
}

/// The results of `one` for these items, each of which it consumes.
pub fn map_owned<I: Send, T: Send>(items: Vec<I>, one: impl Fn(I) -> T + Sync) -> Vec<T> {
    let count = items.len();
    let mut items = items.into_iter();
    let take = |part| Mutex::new(items.by_ref().take(part_of(count, part).len()).collect());
    let parts: Vec<Mutex<Vec<I>>> = (0..count.min(PARTS)).map(take).collect();
    drop(items);
    in_parts(count, &|part, _| {
        let items = std::mem::take(&mut *parts[part].lock().expect("used once"));
        items.into_iter().map(&one).collect()
    })
}

/// The numbers of a part, of `count` in all.
fn part_of(count: usize, part: usize) -> Range<usize> {
    let parts = count.min(PARTS);
    part * count / parts..(part + 1) * count / parts
}

/// The results of all parts, one after the other; `work` has the number of a part and those in it.
fn in_parts<T: Send>(
    count: usize,
    work: &(dyn Fn(usize, Range<usize>) -> Vec<T> + Sync),
) -> Vec<T> {
    let parts: Vec<Mutex<Vec<T>>> = (0..count.min(PARTS)).map(|_| Mutex::default()).collect();
    run(0..parts.len(), &|part| {
        let results = work(part, part_of(count, part));
        *parts[part].lock().expect("used once") = results;
    });
    let mut all = Vec::with_capacity(count);
    for part in parts {
        all.append(&mut part.into_inner().expect("used once"));
    }
    all
}

/// Calls `part` for each of `parts`.
fn run(parts: Range<usize>, part: &(dyn Fn(usize) + Sync)) {
    if parts.len() > 1 {
        let middle = parts.start + parts.len() / 2;
        rayon::join(|| run(parts.start..middle, part), || run(middle..parts.end, part));
    } else if !parts.is_empty() {
        part(parts.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_however_many() {
        for count in [0, 1, 2, PARTS - 1, PARTS, PARTS + 1, 3 * PARTS + 7] {
            let squares: Vec<usize> = (0..count).map(|n| n * n).collect();
            assert_eq!(map(count, |n| n * n), squares);
            let items: Vec<Box<usize>> = (0..count).map(Box::new).collect();
            assert_eq!(map_owned(items, |n| *n * *n), squares);
        }
    }
}
