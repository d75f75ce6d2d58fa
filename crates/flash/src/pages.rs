//! The flash pages of the physical units of a read: which must be sensed, and how much of each is read.

use crate::geometry::{Page, Shape};

/// A flash page, and how many units of it are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRun {
    pub page: Page,
    pub units: u32,
}

impl PageRun {
    /// Bytes of the page that are read.
    pub fn bytes(&self, shape: &Shape) -> u32 {
        self.units * shape.unit_bytes
    }
}

/// The pages of physical units that are read in this order. Consecutive units of one page need one sensing,
/// also where units that are not in the flash were left out between them.
pub(crate) fn page_runs(
    shape: &Shape,
    physical: impl Iterator<Item = u32>,
) -> impl Iterator<Item = PageRun> {
    let mut pages = physical.map(|unit| shape.page_of(unit)).peekable();
    std::iter::from_fn(move || {
        let page = pages.next()?;
        let mut units = 1;
        while pages.next_if_eq(&page).is_some() {
            units += 1;
        }
        Some(PageRun { page, units })
    })
}

/// The degree of physical fragmentation of physical units, in the order in which they are read; see [`crate::device::Device::dof_p_per_mille`].
pub(crate) fn dof_p_per_mille(shape: &Shape, physical: impl Iterator<Item = u32>) -> u32 {
    let mut on_die = vec![0u64; shape.dies as usize];
    let mut units = 0;
    for run in page_runs(shape, physical) {
        on_die[run.page.die as usize] += 1;
        units += run.units;
    }
    let (pages, busiest) = (on_die.iter().sum::<u64>(), on_die.into_iter().max().unwrap_or(0));
    let at_once = u64::from(shape.dies.min(units.div_ceil(shape.units_per_page)));
    let parallelism = (pages * 1000).checked_div(busiest * at_once).unwrap_or(1000).min(1000);
    1000 - parallelism as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::tests::small;

    #[test]
    fn units_of_a_page_that_follow_each_other_are_one_run() {
        let shape = small().shape().expect("a consistent geometry");
        assert_eq!(shape.units_per_page, 2);
        let runs: Vec<(u32, u32)> = page_runs(&shape, [4, 5, 7, 6, 4, 12, 12].into_iter())
            .map(|run| (run.page.number, run.units))
            .collect();
        assert_eq!(runs, [(2, 2), (3, 2), (2, 1), (6, 2)]);
        assert_eq!(dof_p_per_mille(&shape, [4, 5, 7].into_iter()), 0, "there is but one die");
        assert_eq!(page_runs(&shape, std::iter::empty()).count(), 0);
    }
}
