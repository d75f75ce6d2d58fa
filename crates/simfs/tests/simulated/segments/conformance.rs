//! The log-structured file system through the conformance suite, on a drive with zones and on one without.
//!
//! All cases but three: its files share no blocks; like F2FS, it moves a range in one go, and not in steps as long as the pace allows; it
//! writes anew what is slow in one extent, and so does not leave it alone.

use super::Segments;
use super::drives::{large_zoned, large_zones};
use crate::support::drives::large;
use crate::support::fixture::SimFixture;
use fragmend_conformance::cases;
use fragmend_simfs::segments::{Primitive, Settings};

/// Bytes of nodes that a case's files may have besides their data.
const SLACK: u64 = 1 << 20;

fn plain() -> SimFixture<Segments> {
    let settings = Settings { segment_bytes: 1 << 20, ..Settings::default() };
    SimFixture::new(Segments::new(settings), large(), SLACK)
}

fn in_place() -> SimFixture<Segments> {
    let settings = Settings { segment_bytes: 1 << 20, in_place: true, ..Settings::default() };
    SimFixture::new(Segments::new(settings), large(), SLACK)
}

fn zoned() -> SimFixture<Segments> {
    SimFixture::new(Segments::new(large_zones()), large_zoned(), SLACK)
}

fn in_device() -> SimFixture<Segments> {
    SimFixture::new(Segments::in_device(large_zones()), large_zoned(), SLACK)
}

fn block_by_block() -> SimFixture<Segments> {
    let settings = Settings { segment_bytes: 1 << 20, ..Settings::default() };
    SimFixture::new(Segments::by(Primitive::BlockByBlock, settings), large(), SLACK)
}

macro_rules! conforms {
    ($($case:ident)*) => {
        mod plain { $(#[test] fn $case() { super::cases::$case(&super::plain()) })* }
        mod block_by_block { $(#[test] fn $case() { super::cases::$case(&super::block_by_block()) })* }
        mod in_place { $(#[test] fn $case() { super::cases::$case(&super::in_place()) })* }
        mod in_device { $(#[test] fn $case() { super::cases::$case(&super::in_device()) })* }
        mod zoned { $(#[test] fn $case() { super::cases::$case(&super::zoned()) })* }
    };
}

fragmend_conformance::cases_in_one_go! { conforms }
