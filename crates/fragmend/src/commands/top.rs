//! `fragmend top`: the file system while it is used, and a plan that can be carried out from there.
//!
//! | thread | its job |
//! |---|---|
//! | this one | keys, signals, drawing, once a second |
//! | `watch` | the recorder, period by period; what files lose; plans |
//! | `layouts` | where all files are, at first and after data has moved |
//! | `carry_out` | the run of a plan |
//!
//! All of them report [`Change`]s; what follows from one is decided in `fragmend-top`, without any of this.

mod carry_out;
mod layouts;
mod screen;
mod watch;

use crate::exit::{Exit, Usage};
use crate::interrupt;
use crate::options::{Choice, Pace, Sharing, duration};
use crate::ui::Ui;
use crate::view;
use anyhow::Context;
use carry_out::Runs;
use fragmend_layout::{printable, printable_path, shell_word};
use fragmend_plan::Policy;
use fragmend_report::{Unit, human};
use fragmend_sys::mounts;
use fragmend_top::{Action, Change, State, Theme};
use layouts::Layouts;
use screen::{Input, Screen};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use watch::Watch;

/// How often it is looked whether a signal has come, or a run has ended.
const LOOK: Duration = Duration::from_millis(200);

/// Options of `fragmend top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How often to draw, and over which time rates are counted
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Duration,
    /// How ranges are chosen, and how many
    #[command(flatten)]
    choice: Choice,
    /// How to move
    #[command(flatten)]
    pace: Pace,
    /// What is shared
    #[command(flatten)]
    sharing: Sharing,
    /// A directory, file or mount point
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// Runs the verb.
pub fn run(args: &Args, ui: &Ui) -> anyhow::Result<Exit> {
    if ui.json || !Screen::is_possible() {
        let why = "top needs a terminal, for keys and to draw on; fragmend auto --dry-run --json is for scripts";
        return Err(Usage(why.into()).into());
    }
    let settings = args.choice.settings(args.sharing)?;
    if settings.policy == Policy::Segments {
        let why = "the policy segments needs no recording: use fragmend plan, and fragmend apply";
        return Err(Usage(why.into()).into());
    }
    let wanted = args.pace.wanted()?;
    let options = args.pace.options(args.sharing, false);
    let path = fragmend_pipeline::absolute(std::slice::from_ref(&args.path))?.swap_remove(0);
    let device = fragmend_pipeline::device(&path)?;
    let stop = interrupt::install_for_all()?;

    let (send, changes) = channel();
    let bytes = human(device.total_bytes as f64, Unit::Bytes);
    let kind = mounts::of_path(&path).with_context(|| path.display().to_string())?.fs_type;
    let title = format!("{}, {bytes}  {}", printable(&kind), printable_path(&path));
    let mut view = View {
        state: State::new(title, device.total_bytes),
        begun: Instant::now(),
        layouts: Layouts::new(path.clone(), device.total_bytes, send.clone()),
        watch: Watch::start(path.clone(), args.interval, settings, send.clone())?,
        runs: Runs::new(wanted, options, send),
    };
    let theme = Theme::of(variable("NO_COLOR").as_deref(), variable("TERM").as_deref());
    let mut screen = Screen::enter(theme)?;
    view.layouts.read()?;
    let result = view.until_it_ends(&mut screen, &changes, args.interval, stop);
    let panicked = !screen.leave();
    result?;
    if panicked {
        anyhow::bail!("it ended by an error in itself, which is reported above");
    }
    Ok(view.close(&path, ui))
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// The state, and all that works on it.
struct View {
    state: State,
    begun: Instant,
    layouts: Layouts,
    watch: Watch,
    runs: Runs,
}

impl View {
    /// Draws, and does what keys and reports ask for, until the end.
    fn until_it_ends(
        &mut self,
        screen: &mut Screen,
        changes: &Receiver<Change>,
        interval: Duration,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let (mut next, mut ending) = (Instant::now(), false);
        loop {
            for change in changes.try_iter() {
                if self.take(change)? {
                    return Ok(());
                }
            }
            let over = stop.load(Ordering::Relaxed) || !screen.is_there();
            if over && !std::mem::replace(&mut ending, over) && self.take(Change::Ending)? {
                return Ok(());
            }
            let taken_again = screen.take_again()?;
            let now = Instant::now();
            if taken_again || now >= next {
                self.state.update(Change::Pressure(pressure()), self.begun.elapsed());
                screen.draw(&self.state)?;
                next = now + interval;
            }
            match screen.wait(LOOK.min(next.saturating_duration_since(now)))? {
                Input::Nothing => {}
                Input::Keys(keys) => {
                    for key in keys {
                        if self.take(Change::Key(key))? {
                            return Ok(());
                        }
                    }
                    // A key is answered at once.
                    screen.draw(&self.state)?;
                }
            }
        }
    }

    /// Takes a change, and does what follows from it. Returns whether that is the end.
    fn take(&mut self, change: Change) -> anyhow::Result<bool> {
        match self.state.update(change, self.begun.elapsed()) {
            None => {}
            Some(Action::Apply(offer)) => self.runs.begin(offer)?,
            Some(Action::EndRun) => self.runs.end(),
            Some(Action::Renew) => {
                self.watch.forget();
                self.layouts.read()?;
            }
            Some(Action::Quit) => return Ok(true),
        }
        Ok(false)
    }

    /// What to do next, and the exit code.
    fn close(&self, path: &Path, ui: &Ui) -> Exit {
        let Some(last) = self.runs.last() else {
            ui.note(format!("nothing was moved; next: fragmend auto {}", shell_word(path)));
            return Exit::DONE;
        };
        ui.note(fragmend_top::run::sentence(&last));
        ui.note(format!("next: fragmend scan {}", shell_word(path)));
        view::apply::exit_of(&last)
    }
}

/// The share of the last ten seconds in which some program waited for input or output, 0 to 1
/// (Documentation/accounting/psi.rst); `None` where the kernel does not report it.
fn pressure() -> Option<f64> {
    some_avg10(&std::fs::read_to_string("/proc/pressure/io").ok()?)
}

fn some_avg10(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent = some.split(' ').find_map(|field| field.strip_prefix("avg10="))?;
    percent.parse::<f64>().ok().map(|percent| percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_that_of_some_programs() {
        let text = "some avg10=12.50 avg60=3.00 avg300=0.78 total=1234\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(some_avg10(text), Some(0.125));
        assert_eq!(some_avg10("full avg10=1.00\n"), None);
        assert_eq!(some_avg10("some total=9"), None);
    }
}
