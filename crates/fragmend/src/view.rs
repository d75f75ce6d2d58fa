//! What the stages of the pipeline look like to who called a verb: progress on the way, results at the end.
//! Verbs that go through the same stage show it in the same way.

pub mod apply;
pub mod plan;
pub mod record;
