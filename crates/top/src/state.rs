//! What is known, and what follows from a key or a report. Pure: the time comes with each change, and what is to be done is
//! returned.

use crate::files::Files;
use crate::keys::Key;
use crate::map::{BlockMap, Mark};
use crate::run::{Offer, Phase, Progress, sentence};
use fragmend_apply::{Event, Summary};
use fragmend_layout::{ByteRange, FileId, ObservedLoad};
use fragmend_plan::FileLoss;
use std::sync::Arc;
use std::time::Duration;

/// How far a page is.
const PAGE: isize = 10;

/// What happens.
pub enum Change {
    /// A key was pressed.
    Key(Key),
    /// The recorder is attached: accesses are seen from now on.
    Attached,
    /// Nothing is recorded, and why.
    NotRecording(String),
    /// So many files were found so far, while layouts are read.
    Scanning(u64),
    /// The layouts of all files below the path.
    Scanned {
        /// Where they are.
        map: BlockMap,
        /// How many files there are,
        files: u64,
        /// and how many of them are in several fragments.
        fragmented: u64,
    },
    /// What disks answered, and how it was recorded, in the last period.
    Period(Period),
    /// Share of the time in which some program waited for input or output, 0 to 1; `None` where the kernel does not report it.
    Pressure(Option<f64>),
    /// What files lost in the last period.
    Losses {
        /// Each of them.
        losses: Vec<FileLoss>,
        /// How long that was, in seconds.
        seconds: f64,
        /// The places that were read.
        read: Vec<ByteRange>,
    },
    /// What a file is to its program.
    Known(FileId, String),
    /// A plan from everything that was recorded.
    Offered(Arc<Offer>),
    /// Something that a person should read.
    Notice(String),
    /// What the run reports.
    Run(Box<Event>),
    /// The run has ended; or it could not begin, and why.
    RunEnded(Result<Box<Summary>, String>),
    /// A signal asks for the end.
    Ending,
}

/// One period of the recording.
#[derive(Clone, Debug, Default)]
pub struct Period {
    /// How long it was, in seconds.
    pub seconds: f64,
    /// For how long of that the disks were watched, in seconds: recording pauses where it would cost too much.
    pub watched: f64,
    /// What the disks answered.
    pub loads: Vec<ObservedLoad>,
    /// Accesses that were lost.
    pub lost: u64,
    /// The share of all places in which it was recorded what reached the device.
    pub places: f64,
}

/// What is to be done.
#[derive(Debug)]
pub enum Action {
    /// Carry out this plan.
    Apply(Arc<Offer>),
    /// End the run at its next safe point.
    EndRun,
    /// Read the layouts of all files again, and forget what was recorded: data has moved.
    Renew,
    /// End.
    Quit,
}

/// What is in front of everything else.
#[derive(Clone, Debug, Default)]
pub enum Dialog {
    /// Nothing.
    #[default]
    None,
    /// The keys.
    Help,
    /// Whether to carry out this plan, the one that was shown when it was asked.
    Confirm(Arc<Offer>),
}

/// Whether accesses are seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Recorder {
    /// Not yet.
    #[default]
    Attaching,
    /// They are.
    Attached,
    /// They are not, and why.
    Failed(String),
}

/// The layouts of all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Being read; so many so far.
    Running(u64),
    /// Read.
    Done {
        /// All files,
        files: u64,
        /// and those in several fragments.
        fragmented: u64,
    },
}

/// Everything that is shown.
pub struct State {
    /// What is watched: file system, size and path, printable.
    pub title: String,
    /// The file system.
    pub map: BlockMap,
    /// How far its files are known.
    pub scan: Scan,
    /// Whether accesses are seen.
    pub recorder: Recorder,
    /// The last period.
    pub period: Option<Period>,
    /// Share of the time in which some program waited for input or output.
    pub pressure: Option<f64>,
    /// The files.
    pub files: Files,
    /// The present plan.
    pub offer: Option<Arc<Offer>>,
    /// Whether one is being carried out.
    pub phase: Phase,
    /// The plan of the run.
    running: Option<Arc<Offer>>,
    /// How far it has come.
    pub progress: Progress,
    /// What is in front.
    pub dialog: Dialog,
    /// The last thing that a person should read.
    pub notice: String,
    /// Whether everything ends once the run has.
    pub quitting: bool,
}

impl State {
    /// Nothing known yet, of a file system of so many bytes.
    pub fn new(title: String, bytes: u64) -> Self {
        Self {
            title,
            map: BlockMap::new(bytes),
            scan: Scan::Running(0),
            recorder: Recorder::default(),
            period: None,
            pressure: None,
            files: Files::default(),
            offer: None,
            phase: Phase::Idle,
            running: None,
            progress: Progress::default(),
            dialog: Dialog::None,
            notice: String::new(),
            quitting: false,
        }
    }

    /// Takes a change at a time since the start, and returns what is to be done.
    pub fn update(&mut self, change: Change, now: Duration) -> Option<Action> {
        match change {
            Change::Key(key) => return self.key(key, now),
            Change::Ending => return self.quit(),
            Change::Attached => self.recorder = Recorder::Attached,
            Change::NotRecording(why) => self.recorder = Recorder::Failed(why),
            Change::Scanning(files) => self.scan = Scan::Running(files),
            Change::Scanned { map, files, fragmented } => {
                self.scan = Scan::Done { files, fragmented };
                self.map.renew(map);
                self.mark_planned();
            }
            Change::Period(period) => self.period = Some(period),
            Change::Pressure(share) => self.pressure = share,
            Change::Losses { losses, seconds, read } => {
                self.files.report(&losses, seconds);
                self.map.clear(Mark::Read);
                read.into_iter().for_each(|range| self.map.mark(range, Mark::Read));
            }
            Change::Known(file, what) => self.files.know(file, &what),
            Change::Offered(offer) => {
                self.files.plan(&offer.plan);
                self.offer = Some(offer);
                if self.phase == Phase::Idle {
                    self.mark_planned();
                }
            }
            Change::Notice(text) => self.notice = text,
            Change::Run(event) => self.note(&event, now),
            Change::RunEnded(result) => return self.run_ended(result),
        }
        None
    }

    fn key(&mut self, key: Key, now: Duration) -> Option<Action> {
        if key == Key::Interrupt {
            return self.quit();
        }
        match std::mem::take(&mut self.dialog) {
            Dialog::Confirm(offer) => {
                return match key {
                    Key::Char('y' | 'Y') => self.begin(offer, now),
                    Key::Char('n' | 'N' | 'q') | Key::Escape => None,
                    // Nothing else answers the question.
                    _ => {
                        self.dialog = Dialog::Confirm(offer);
                        None
                    }
                };
            }
            Dialog::Help => return None,
            Dialog::None => {}
        }
        match key {
            Key::Char('q') => return self.quit(),
            Key::Char('?' | 'h') => self.dialog = Dialog::Help,
            Key::Char('s') => self.ask(),
            Key::Char('p') if self.phase == Phase::Running => return self.end_run(Phase::Pausing),
            Key::Char('r') if self.phase == Phase::Paused => {
                let offer = self.running.clone()?;
                return self.begin(offer, now);
            }
            Key::Char('x') => match self.phase {
                Phase::Running | Phase::Pausing => return self.end_run(Phase::Stopping),
                Phase::Paused => return self.finish("stopped; what has moved is safe and stays"),
                Phase::Idle | Phase::Stopping => {}
            },
            Key::Char('o') => self.files.sort_by_next(),
            Key::Up | Key::Char('k') => self.files.select(-1),
            Key::Down | Key::Char('j') => self.files.select(1),
            Key::PageUp => self.files.select(-PAGE),
            Key::PageDown => self.files.select(PAGE),
            _ => {}
        }
        None
    }

    /// Asks whether to carry out the present plan.
    fn ask(&mut self) {
        if self.phase != Phase::Idle {
            self.notice = "a plan is being carried out: p pauses, r resumes, x stops it".into();
            return;
        }
        match &self.offer {
            Some(offer) if offer.plan.summary.ranges > 0 => {
                self.dialog = Dialog::Confirm(Arc::clone(offer));
            }
            Some(_) => self.notice = "nothing to start: the plan moves nothing (see above)".into(),
            None => self.notice = "nothing to start: there is no plan yet".into(),
        }
    }

    fn begin(&mut self, offer: Arc<Offer>, now: Duration) -> Option<Action> {
        if self.phase == Phase::Idle {
            self.progress = Progress::default();
        }
        self.phase = Phase::Running;
        self.progress.begin(now, offer.plan.summary.bytes_to_move);
        self.running = Some(Arc::clone(&offer));
        self.notice.clear();
        Some(Action::Apply(offer))
    }

    fn end_run(&mut self, phase: Phase) -> Option<Action> {
        self.phase = phase;
        Some(Action::EndRun)
    }

    fn quit(&mut self) -> Option<Action> {
        if !self.phase.is_active() {
            return Some(Action::Quit);
        }
        self.quitting = true;
        self.dialog = Dialog::None;
        self.end_run(Phase::Stopping)
    }

    /// A range has ended.
    fn note(&mut self, event: &Event, now: Duration) {
        self.progress.note(event, now);
        let (Event::Range(receipt), Some(offer)) = (event, &self.running) else { return };
        if receipt.outcome == fragmend_apply::Outcome::Moved {
            let range = ByteRange::at(receipt.offset, receipt.length);
            for place in offer.places_of(&receipt.path.path, range) {
                self.map.unmark(place, Mark::Planned);
                self.map.mark(place, Mark::Moved);
            }
        }
    }

    fn run_ended(&mut self, result: Result<Box<Summary>, String>) -> Option<Action> {
        let pausing = self.phase == Phase::Pausing;
        match result {
            Ok(summary) if pausing && summary.interrupted && !self.quitting => {
                self.phase = Phase::Paused;
                self.notice = "paused: nothing is half moved; r resumes, x stops".into();
                None
            }
            Ok(summary) => self.finish(&sentence(&summary)),
            Err(why) => self.finish(&format!("nothing was moved: {why}")),
        }
    }

    fn finish(&mut self, notice: &str) -> Option<Action> {
        self.phase = Phase::Idle;
        self.running = None;
        // It was made before data moved.
        self.offer = None;
        self.map.clear(Mark::Planned);
        self.notice = notice.to_owned();
        Some(if self.quitting { Action::Quit } else { Action::Renew })
    }

    fn mark_planned(&mut self) {
        self.map.clear(Mark::Planned);
        let offer = self.running.as_ref().or(self.offer.as_ref());
        for place in offer.into_iter().flat_map(|offer| offer.places()) {
            self.map.mark(place, Mark::Planned);
        }
    }
}
