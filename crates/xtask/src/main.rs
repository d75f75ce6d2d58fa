//! Chores of the workspace: `cargo run -p xtask -- generate [--check]`.
fn main() {}
