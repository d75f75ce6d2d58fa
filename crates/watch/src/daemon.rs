//! Carries out the steps of the schedule in a world, and remembers in the store.
//!
//! A move is stated and debited before its first byte, and settled after its last ([`store`](crate::store) has the crash argument). A
//! recording is numbered before it begins, so that no access is evidence for a move that ended after it.

mod plan;

use crate::activity::Activity;
use crate::choose::{self, most_written};
use crate::event::Event;
use crate::policy::PolicyError;
use crate::schedule::{Known, Schedule, Step, Why};
use crate::status::Status;
use crate::store::{Claim, Ended, EvidenceId, FileKey, NotNow, Outcome, StoreError};
use crate::world::{Applied, World};
use crate::{Policy, Store, Time};
use fragmend_layout::{ByteRange, PathText, schema};
use fragmend_plan::Plan;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often what is old is removed from the store.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// What signals ask for.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// To end at the next safe point.
    pub stop: Arc<AtomicBool>,
    /// To read the policy again.
    pub reload: Arc<AtomicBool>,
}

impl Control {
    /// Whether something is asked for.
    pub fn is_set(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.reload.load(Ordering::Relaxed)
    }
}

/// Why the daemon cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The store. Without it no budget is known.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Some ranges of a file that are to move by one evidence.
#[derive(Clone, Debug)]
struct Batch {
    evidence: EvidenceId,
    file: FileKey,
    /// Device number of its file system.
    device: u64,
    path: PathText,
    ranges: Vec<ByteRange>,
    /// How many bytes the device is written for each.
    copies: u64,
    plan: Plan,
}

impl Batch {
    /// The most bytes that it can write.
    fn most_written(&self) -> u64 {
        most_written(&self.ranges, self.copies)
    }
}

/// The latest recording.
struct Evidence {
    id: EvidenceId,
    activity: Activity,
}

/// Reads the policy again.
pub type Reread<'a> = dyn Fn() -> Result<Policy, PolicyError> + 'a;

/// A daemon in a world.
pub struct Daemon<'a, W: World> {
    world: W,
    store: Store,
    policy: Policy,
    schedule: Schedule,
    evidence: Option<Evidence>,
    queue: VecDeque<Batch>,
    /// What the drives of the latest plan are rated to be written, the lowest of them.
    rated_bytes: Option<u64>,
    status: Status,
    pruned: Option<Time>,
    waited: Option<Why>,
    tell: &'a mut dyn FnMut(Event),
}

impl<'a, W: World> Daemon<'a, W> {
    /// A daemon that is about to begin; with `once`, it ends when it has recorded and planned, and what may move now has
    /// moved.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn new(
        world: W,
        store: Store,
        policy: Policy,
        once: bool,
        tell: &'a mut dyn FnMut(Event),
    ) -> Result<Self, WatchError> {
        let schedule = Schedule::new(once);
        let schedule = match store.latest_evidence()? {
            Some(began) => schedule.after(began, &policy),
            None => schedule,
        };
        let (evidence, queue, status) = (None, VecDeque::new(), Status::default());
        let (rated_bytes, pruned, waited) = (None, None, None);
        Ok(Self {
            world,
            store,
            policy,
            schedule,
            evidence,
            queue,
            rated_bytes,
            status,
            pruned,
            waited,
            tell,
        })
    }

    /// Works until `control` says to end, or until all is done that is to be done once. Returns what was done.
    ///
    /// # Errors
    /// [`WatchError`]: the store cannot be used any more.
    pub fn run(mut self, control: &Control, reread: &Reread<'_>) -> Result<Status, WatchError> {
        (self.tell)(Event::Start { schema_version: schema::DOCUMENT, moves: self.policy.moves() });
        if let Some(held) = self.store.held(self.world.now())? {
            (self.tell)(Event::Held { until: held.until.to_string(), why: held.reason });
        }
        self.report()?;
        loop {
            if control.reload.swap(false, Ordering::Relaxed) {
                self.reload(reread);
                self.report()?;
            }
            let now = self.world.now();
            self.prune(now)?;
            let known = self.known(now, control)?;
            let step = self.schedule.next(now, &self.policy, &known);
            if !matches!(step, Step::Wait(..)) {
                self.waited = None;
            }
            match step {
                Step::End => break,
                Step::Record => self.record(control)?,
                Step::Plan => self.plan()?,
                Step::Move => self.carry_out(control)?,
                Step::Wait(until, why) => {
                    if self.waited.replace(why) != Some(why) {
                        (self.tell)(Event::waiting(until, why));
                    }
                    self.world.wait(until, control);
                    continue;
                }
            }
            self.report()?;
        }
        (self.tell)(Event::End);
        Ok(self.status)
    }

    fn reload(&mut self, reread: &Reread<'_>) {
        (self.tell)(Event::Reloading);
        match reread() {
            Ok(policy) => {
                // What is queued may be forbidden now; the latest recording is planned for anew.
                self.queue.clear();
                self.schedule.reloaded(self.evidence.is_some());
                self.policy = policy;
                (self.tell)(Event::Reloaded);
            }
            Err(error) => {
                self.status.policies_refused += 1;
                (self.tell)(Event::PolicyRefused { why: chain(&error) });
            }
        }
    }

    fn prune(&mut self, now: Time) -> Result<(), WatchError> {
        let is_due = |at: Time| now.since(at) >= PRUNE_EVERY || now < at;
        if self.pruned.is_none_or(is_due) {
            let in_use = self.evidence.as_ref().map(|evidence| evidence.id);
            self.store.prune(self.policy.keep, in_use, now)?;
            self.pruned = Some(now);
        }
        Ok(())
    }

    /// Bytes that may be written in any 24 hours.
    fn budget_bytes(&self) -> Option<u64> {
        self.policy.moves().then(|| self.policy.budget.bytes(self.rated_bytes)).flatten()
    }

    fn known(&self, now: Time, control: &Control) -> Result<Known, WatchError> {
        Ok(Known {
            stop: control.stop.load(Ordering::Relaxed),
            next_batch: self.queue.front().map(Batch::most_written),
            budget_left: self.store.budget_left(self.budget_bytes().unwrap_or(0), now)?,
            io_pressure_percent: self.world.io_pressure_percent(),
        })
    }

    fn record(&mut self, control: &Control) -> Result<(), WatchError> {
        let began = self.world.now();
        let id = self.store.begin_evidence(began)?;
        let recorded = self.world.record(&self.policy, control);
        self.schedule.recorded([began, self.world.now()], recorded.is_ok(), &self.policy);
        match recorded {
            Ok(recorded) => {
                let (accesses, lost) = (recorded.accesses, recorded.lost);
                self.store.end_evidence(id, self.world.now(), accesses, lost)?;
                self.status.recordings += 1;
                self.status.accesses += accesses;
                self.status.accesses_lost += lost;
                self.evidence = Some(Evidence { id, activity: recorded.activity });
                let left_out = recorded.left_out.into_iter();
                left_out.for_each(|why| self.has_failed(format!("watching {why}")));
                (self.tell)(Event::Recorded { accesses, lost });
            }
            Err(error) => self.failed("recording", &error),
        }
        Ok(())
    }

    /// Moves the first batch of the queue.
    fn carry_out(&mut self, control: &Control) -> Result<(), WatchError> {
        let Some(mut batch) = self.queue.pop_front() else { return Ok(()) };
        batch.copies = batch.copies.max(self.world.copies(batch.device));
        let most_bytes = batch.most_written();
        let Batch { evidence, file, device, path, ranges, copies, plan } = batch;
        let claim = Claim {
            evidence,
            file: &file,
            path: &path,
            ranges: &ranges,
            most_bytes,
            budget_bytes: self.budget_bytes().unwrap_or(0),
        };
        let id = match self.store.begin_move(&claim, self.world.now())? {
            Ok(id) => id,
            Err(NotNow::OverBudget(_) | NotNow::NoNewEvidence(_)) => return Ok(()),
        };
        // A move may last, and its debit counts from now on.
        self.report()?;
        // Killed from here on: the debit of the most that it can write stands, and no range of it moves again by this evidence.
        let applied = self.world.apply(&plan, &self.policy, control);
        let applied = match applied {
            Ok(applied) => {
                if applied.failed {
                    let why = applied.left_alone.as_deref().unwrap_or_default();
                    self.has_failed(format!("moving {}: {why}", path.printable()));
                }
                applied
            }
            Err(error) => {
                self.failed("moving", &error);
                Applied { failed: true, ..Applied::default() }
            }
        };
        // What the budget limits is what the device is written; data may have been converted meanwhile.
        let copies = copies.max(self.world.copies(device));
        let written_bytes = choose::settled(&applied, copies, &ranges);
        let Applied { moved, left_alone, stopped, failed, .. } = applied;
        let outcome = match (failed, stopped) {
            (true, _) => Outcome::Failed,
            (false, true) => Outcome::Stopped,
            (false, false) => Outcome::Done,
        };
        let ended = Ended { written_bytes, moved: &moved, outcome };
        self.store.end_move(id, &ended, self.world.now())?;
        let (ranges, ranges_moved) = (ranges.len() as u64, moved.len() as u64);
        self.status.moves += 1;
        self.status.ranges_moved += ranges_moved;
        self.status.written_bytes += written_bytes;
        (self.tell)(Event::Moved { path, ranges, ranges_moved, written_bytes, left_alone });
        Ok(())
    }

    fn failed(&mut self, what: &str, error: &W::Error) {
        self.has_failed(format!("{what}: {}", chain(error)));
    }

    fn has_failed(&mut self, what: String) {
        self.status.failures += 1;
        (self.tell)(Event::Failed { what });
    }

    fn report(&mut self) -> Result<(), WatchError> {
        let bytes = |batch: &Batch| batch.ranges.iter().map(|range| range.len()).sum::<u64>();
        self.status.queued_batches = self.queue.len() as u64;
        self.status.queued_bytes = self.queue.iter().map(bytes).sum();
        self.status.budget_bytes = self.budget_bytes();
        let budget = self.status.budget_bytes.unwrap_or(0);
        self.status.budget_left_bytes = self.store.budget_left(budget, self.world.now())?;
        (self.tell)(Event::Status(self.status.clone()));
        Ok(())
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text += &format!(": {cause}");
        next = cause.source();
    }
    text
}
