//! From the latest recording to a queue of batches, and to advice.

use super::{Batch, Daemon, WatchError};
use crate::activity::FileActivity;
use crate::cause::Pattern;
use crate::choose::{self, Ruled};
use crate::event::Event;
use crate::policy::rules::Mode;
use crate::store::{EvidenceId, FileKey, Finding, Found, KnownFile, Recurrence};
use crate::world::World;
use fragmend_layout::FsKind;
use fragmend_plan::wear::Drive;
use fragmend_plan::{Plan, PlannedFile};

/// The most files of one plan that are advised on by name: those that it would save most for.
const MOST_ADVISED: usize = 20;

/// The most ranges that one plan queues: they are stored when they move.
const MOST_QUEUED: usize = 10_000;

/// What a plan comes to.
#[derive(Default)]
struct Outcome {
    findings: Vec<Finding>,
    ranges: u64,
    queued_ranges: usize,
    queued_bytes: u64,
    moved_before_bytes: u64,
    too_long_bytes: u64,
    advice: Vec<(Finding, String)>,
}

impl<W: World> Daemon<'_, W> {
    /// Plans from the latest recording; what was queued before is replaced.
    pub(super) fn plan(&mut self) -> Result<(), WatchError> {
        let now = self.world.now();
        self.schedule.planned(now, &self.policy);
        let Some(evidence) = self.evidence.take() else { return Ok(()) };
        let survey = match self.world.survey(&self.policy) {
            Ok(survey) => survey,
            Err(error) => {
                self.failed("planning", &error);
                self.evidence = Some(evidence);
                return Ok(());
            }
        };
        self.queue.clear();
        self.rated_bytes = lowest_rating(&survey.drives);
        let mut outcome = Outcome::default();
        let budget = self.budget_bytes();
        for ruled in choose::plans(survey, &self.policy, &evidence.activity, budget) {
            let Ruled { mode, mut plan } = ruled;
            // What is not worth it as a whole costs no time that is worth a word.
            let files = std::mem::take(&mut plan.files);
            for file in files.into_iter().filter(|_| plan.summary.worth) {
                let seen = evidence.activity.of(file.file);
                self.take((mode, evidence.id, seen), &plan, file, &mut outcome)?;
            }
        }
        let id = evidence.id;
        self.evidence = Some(evidence);
        self.status.plans += 1;
        self.keep(id, outcome)
    }

    /// Queues what may move of a file, and keeps the rest as advice.
    fn take(
        &mut self,
        (mode, evidence, seen): (Mode, EvidenceId, Option<&FileActivity>),
        plan: &Plan,
        file: PlannedFile,
        outcome: &mut Outcome,
    ) -> Result<(), WatchError> {
        let Some(volume) = self.world.volume(file.file.device) else { return Ok(()) };
        let key = FileKey { volume, inode: file.file.inode, generation: file.file.generation };
        let recurrence = self.recurrence(&key, &file, evidence, seen, file_system(plan, &file))?;
        let finding = finding(&key, &file);
        outcome.ranges += file.ranges.len() as u64;
        outcome.findings.push(finding.clone());
        let again = recurrence.map_or(0, |recurrence| recurrence.times);
        if mode != Mode::Move {
            let why = if self.policy.moves() {
                "no rule says so"
            } else {
                "nothing moves by this policy"
            };
            outcome.advice.push((finding, why.to_owned()));
        } else if again > 0 && again >= self.policy.advise_after {
            let why = format!("it was fragmented again {again} times after it was mended");
            outcome.advice.push((finding, why));
        } else {
            self.enqueue(key, evidence, plan, file, outcome)?;
        }
        Ok(())
    }

    /// How often a file was fragmented again after it was mended; reports it when it is seen for the first time.
    fn recurrence(
        &mut self,
        key: &FileKey,
        file: &PlannedFile,
        evidence: EvidenceId,
        seen: Option<&FileActivity>,
        file_system: FsKind,
    ) -> Result<Option<Recurrence>, WatchError> {
        let pattern = seen.map_or(Pattern::NotSeen, |seen| Pattern::of(&seen.writing, file.size));
        let writer = (seen.and_then(FileActivity::writer), pattern);
        let now = self.world.now();
        let noted =
            self.store.note_fragmented(key, &choose::ranges(file), evidence, writer, now)?;
        if let Some(recurrence) = noted.as_ref().filter(|noted| noted.is_new) {
            self.status.recurrences += 1;
            (self.tell)(Event::again(file.path.clone(), recurrence, file_system));
        }
        Ok(noted)
    }

    fn enqueue(
        &mut self,
        key: FileKey,
        evidence: EvidenceId,
        plan: &Plan,
        mut file: PlannedFile,
        outcome: &mut Outcome,
    ) -> Result<(), WatchError> {
        let mut kept = Vec::with_capacity(file.ranges.len());
        for range in std::mem::take(&mut file.ranges) {
            if self.store.moved_since(&key, &[range.range()], evidence)?.is_some() {
                outcome.moved_before_bytes += range.length;
            } else if outcome.queued_ranges < MOST_QUEUED {
                outcome.queued_ranges += 1;
                kept.push(range);
            }
        }
        file.ranges = kept;
        let device = file.file.device;
        let copies = self.world.copies(device);
        let (batches, too_long) = choose::batches(&file, self.budget_bytes().unwrap_or(0), copies);
        outcome.too_long_bytes += too_long;
        for file in batches {
            let (path, ranges) = (file.path.clone(), choose::ranges(&file));
            outcome.queued_bytes += ranges.iter().map(|range| range.len()).sum::<u64>();
            let plan = Plan { files: vec![file], ..plan.clone() };
            let file = key.clone();
            self.queue.push_back(Batch { evidence, file, device, path, ranges, copies, plan });
        }
        Ok(())
    }

    /// Stores what was found, and reports it.
    fn keep(&mut self, evidence: EvidenceId, outcome: Outcome) -> Result<(), WatchError> {
        let Outcome {
            findings,
            ranges,
            queued_bytes,
            moved_before_bytes,
            too_long_bytes,
            mut advice,
            ..
        } = outcome;
        self.store.keep_plan(&Found { evidence, ranges, findings: &findings }, self.world.now())?;
        // The sum of none is -0.0.
        let seconds_saved = findings.iter().fold(0.0, |sum, f| sum + f.seconds_saved);
        self.status.planned_saved_seconds = seconds_saved;
        (self.tell)(Event::Planned {
            files: findings.len() as u64,
            ranges,
            bytes: findings.iter().map(|f| f.bytes).sum(),
            seconds_saved,
            queued_bytes,
            moved_before_bytes,
            too_long_bytes,
        });
        advice.sort_by(|(a, _), (b, _)| b.seconds_saved.total_cmp(&a.seconds_saved));
        for (finding, why) in advice.into_iter().take(MOST_ADVISED) {
            let Finding { file, extents, bytes, seconds_saved } = finding;
            (self.tell)(Event::Advice { path: file.path, bytes, extents, seconds_saved, why });
        }
        Ok(())
    }
}

fn finding(key: &FileKey, file: &PlannedFile) -> Finding {
    let sum = |of: fn(&fragmend_plan::PlannedRange) -> u64| file.ranges.iter().map(of).sum();
    Finding {
        file: KnownFile { key: key.clone(), path: file.path.clone() },
        extents: sum(|range| range.extents),
        bytes: sum(|range| range.length),
        seconds_saved: file.ranges.iter().map(|range| range.seconds_saved).sum(),
    }
}

fn file_system(plan: &Plan, file: &PlannedFile) -> FsKind {
    let device = plan.devices.iter().find(|device| device.device == file.file.device);
    device.map_or(FsKind::Other, |device| device.file_system)
}

/// The least that one of the drives is rated to be written in its life; `None` if one of them does not report it, or there is
/// none that does.
fn lowest_rating(drives: &[Drive]) -> Option<u64> {
    let rated = |drive: &Drive| Some(drive.health.as_ref().ok()?.rated_bytes?.low);
    let all: Option<Vec<u64>> = drives.iter().map(rated).collect();
    all?.into_iter().min()
}
