//! `fragmend plan`.

use crate::exit::Exit;
use crate::ui::Ui;

/// Options of `fragmend plan`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the verb.
pub fn run(_args: &Args, _ui: &Ui) -> anyhow::Result<Exit> {
    anyhow::bail!("plan is not built yet")
}
