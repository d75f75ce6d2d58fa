//! One file per verb: its options and its `run`.

pub mod apply;
pub mod auto;
pub mod lab;
pub mod plan;
pub mod record;
pub mod recover;
pub mod scan;

/// The option about what is shared with others, which several verbs have.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Sharing {
    /// Also move what is shared with snapshots or other files, which takes the space anew
    #[arg(long)]
    pub unshare: bool,
}
