//! One file per verb: its options and its `run`.

pub mod apply;
pub mod auto;
pub mod lab;
pub mod plan;
pub mod probe;
pub mod record;
pub mod recover;
pub mod report;
pub mod scan;
pub mod surveys;
pub mod timed;
pub mod top;
pub mod watch;
