//! Which ranges of a batch are relocated together.

use fragmend_layout::ByteRange;

/// The staged ranges in groups of at most `most` bytes, or of one range. A range that is left alone is in a
/// group of its own.
pub(super) fn groups(
    most: u64,
    ranges: &[ByteRange],
    better: impl Fn(usize) -> bool,
) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let (mut bytes, mut open) = (0, false);
    for (index, range) in ranges.iter().enumerate() {
        bytes += range.len();
        match groups.last_mut().filter(|_| open && bytes <= most && better(index)) {
            Some(group) => group.push(index),
            None => {
                groups.push(vec![index]);
                (bytes, open) = (range.len(), better(index));
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_full_and_leave_out_what_stays() {
        let ranges: Vec<ByteRange> =
            [4, 4, 4, 9, 1, 1].into_iter().map(|len| ByteRange::at(0, len)).collect();
        let groups = |most, stays: usize| groups(most, &ranges, |index| index != stays);
        assert_eq!(groups(0, 9), [vec![0], vec![1], vec![2], vec![3], vec![4], vec![5]]);
        assert_eq!(groups(8, 9), [vec![0, 1], vec![2], vec![3], vec![4, 5]]);
        assert_eq!(groups(100, 9), [vec![0, 1, 2, 3, 4, 5]]);
        assert_eq!(groups(100, 2), [vec![0, 1], vec![2], vec![3, 4, 5]]);
    }
}
