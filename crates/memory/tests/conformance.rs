//! The volume in memory through the conformance suite.

mod support;

use fragmend_conformance::cases;
use support::MemoryFixture;

macro_rules! conforms {
    ($($case:ident)*) => {
        $(#[test] fn $case() { cases::$case(&MemoryFixture::new()) })*
    };
}

fragmend_conformance::cases_in_steps! { conforms what_is_shared_moves_only_if_that_is_asked_for }
