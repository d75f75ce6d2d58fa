//! The content of physical units, in drives that keep it: for tests, and for hosts that read their data back.

use crate::device::Bytes;
use crate::geometry::Shape;

/// The bytes of each physical unit; `None` is zeroes.
#[derive(Clone, Debug)]
pub(crate) struct Content(Vec<Bytes>);

impl Content {
    pub fn new(shape: &Shape) -> Self {
        Self(vec![None; shape.units() as usize])
    }

    pub fn get(&self, physical: u32) -> Bytes {
        self.0[physical as usize].clone()
    }

    pub fn put(&mut self, physical: u32, bytes: Bytes) {
        self.0[physical as usize] = bytes;
    }

    /// Overwrites the units of a program that was cut off with garbage.
    pub fn spoil(&mut self, first: u32, count: u32, unit_bytes: u32) {
        let units = &mut self.0[first as usize..(first + count) as usize];
        units.fill_with(|| Some(vec![0xA5; unit_bytes as usize].into()));
    }

    /// Removes and returns the content of units.
    pub fn take(&mut self, first: u32, count: u32) -> Vec<Bytes> {
        let units = &mut self.0[first as usize..(first + count) as usize];
        units.iter_mut().map(Option::take).collect()
    }

    /// Restores content that [`Self::take`] returned.
    pub fn restore(&mut self, first: u32, taken: Vec<Bytes>) {
        for (unit, bytes) in self.0[first as usize..].iter_mut().zip(taken) {
            *unit = bytes;
        }
    }
}
