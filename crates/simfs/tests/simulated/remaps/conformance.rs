//! The conformance suite, with the production planner and mover.

use super::{EXCLUSIVE, Moves, SHARED};
use crate::support::drives;
use crate::support::fixture::SimFixture;
use fragmend_conformance::cases;

macro_rules! conforms {
    ($($case:ident)*) => {
        mod exclusive { use super::*; $(#[test] fn $case() {
            let kind = Moves { by: EXCLUSIVE, small: None, omit: None, beyond: false };
            cases::$case(&SimFixture::new(kind, drives::large(), 128 << 10));
        })* }
        mod shared { use super::*; $(#[test] fn $case() {
            let kind = Moves { by: SHARED, small: None, omit: None, beyond: false };
            cases::$case(&SimFixture::new(kind, drives::large(), 128 << 10));
        })* }
    };
}

fragmend_conformance::cases_in_steps! { conforms }
