//! How the stages of the pipeline are shown: progress while they run, results at the end. Verbs that run the
//! same stage show it in the same way.

pub mod apply;
pub mod measurement;
pub mod plan;
pub mod probe;
pub mod record;
pub mod wear;
