//! Decides when to record, plan and move, within budgets, and remembers.
//!
//! | module | its job |
//! |---|---|
//! | [`policy`] | what an operator allows: rules, hours, budget; read from TOML, checked, explained |
//! | [`schedule`] | the next step, a pure function of the time and of what is known |
//! | [`choose`] | which ranges of a survey move, which are advised, by the rules |
//! | [`activity`] | which programs use which files, and in which pattern they write |
//! | [`cause`] | what makes a file fragmented again, and what would prevent it |
//! | [`store`] | evidence, plans, moves, bytes written; durable, bounded, for its owner alone |
//! | [`world`] | the seam: the clock, a recording, a survey, a move, the load of the machine |
//! | [`live`] | this machine as a world, on `fragmend-pipeline` |
//! | [`daemon`] | carries out the steps in a world |
//! | [`event`] | what it reports |
//! | [`status`] | counters and gauges |
//! | [`notify`] | readiness, state and sign of life for systemd |
//!
//! What must hold, also if the process is killed at any instant:
//!
//! - In any 24 hours no more bytes are written than the budget: a move is debited at the most that it can write in the
//!   transaction that states it, before its first byte, and settled at what it wrote afterwards ([`store`]).
//! - No range moves twice without new evidence: a recording that began after the earlier move had ended, and in which
//!   the range was read at a cost while fragmented. The same transaction refuses anything else.
//! - Data moves only where a rule says so, in the allowed hours. Without a rule it is advised.
//!
//! Neighbours: the stages are those of `fragmend-pipeline`; the verb `watch` has the options, signals and output.

pub mod activity;
pub mod cause;
pub mod choose;
pub mod daemon;
pub mod event;
pub mod live;
pub mod notify;
pub mod policy;
pub mod schedule;
pub mod status;
pub mod store;
pub mod time;
pub mod world;

pub use daemon::{Control, Daemon, WatchError};
pub use event::Event;
pub use policy::Policy;
pub use status::Status;
pub use store::Store;
pub use time::Time;
pub use world::World;
