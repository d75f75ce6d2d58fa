//! Evidence, plans, findings and recurrence, and how long they are kept.

use super::moves::{file_number, find_file, signed};
use super::{EvidenceId, FileKey, KnownFile, Result, Store, StoreError};
use crate::Time;
use crate::activity::Program;
use crate::cause::Pattern;
use fragmend_layout::ByteRange;
use rusqlite::{OptionalExtension, TransactionBehavior, params};
use std::time::Duration;

/// The most findings that are kept: some 30 MB of a store.
const MOST_FINDINGS: u32 = 200_000;
/// The most ranges of moves that are kept besides those of the last day: some 40 MB.
const MOST_PARTS: u32 = 1_000_000;
/// The most moves that are kept besides those of the last day: some 15 MB.
const MOST_MOVES: u32 = 200_000;
/// The most files of one plan whose findings are kept, those that save most first.
const MOST_OF_A_PLAN: usize = 1000;

/// What a plan found of a file.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which file.
    pub file: KnownFile,
    /// Fragments of the ranges that are worth moving.
    pub extents: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Seconds that moving them saves in one replay of the recording.
    pub seconds_saved: f64,
}

/// What a plan found, to be stored.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// The recording that it rests on.
    pub evidence: EvidenceId,
    /// Ranges that are worth moving.
    pub ranges: u64,
    /// By file.
    pub findings: &'a [Finding],
}

/// How often a file was fragmented again after it was mended, and what makes it so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// How often.
    pub times: u32,
    /// Whether the latest time was entered only now.
    pub is_new: bool,
    /// The command name and the cgroup of what wrote most of it; `None` if no write was seen.
    pub program: Option<(String, Option<String>)>,
    /// How it was written.
    pub pattern: Pattern,
}

/// What was written, for the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Moves that have ended.
    pub moves: u64,
    /// Bytes that they have written, or may have.
    pub bytes: u64,
}

impl Store {
    /// Numbers a recording. To be called before it begins.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn begin_evidence(&mut self, now: Time) -> Result<EvidenceId> {
        self.connection.execute("INSERT INTO evidence (began) VALUES (?1)", [now.ms()])?;
        Ok(EvidenceId(self.connection.last_insert_rowid()))
    }

    /// The recording has ended, with so many accesses, of which some were lost.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn end_evidence(
        &mut self,
        id: EvidenceId,
        now: Time,
        accesses: u64,
        lost: u64,
    ) -> Result<()> {
        self.connection.execute(
            "UPDATE evidence SET ended = ?2, accesses = ?3, lost = ?4 WHERE id = ?1",
            params![id.0, now.ms(), signed(accesses), signed(lost)],
        )?;
        Ok(())
    }

    /// When the latest recording began that has ended.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn latest_evidence(&self) -> Result<Option<Time>> {
        let query = "SELECT began FROM evidence WHERE ended IS NOT NULL ORDER BY id DESC LIMIT 1";
        Ok(self.connection.query_row(query, [], |row| Ok(Time::from_ms(row.get(0)?))).optional()?)
    }

    /// Stores what a plan found.
    ///
    /// # Errors
    /// [`StoreError`]; nothing of it is stored.
    pub fn keep_plan(&mut self, found: &Found<'_>, now: Time) -> Result<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut findings: Vec<&Finding> = found.findings.iter().collect();
        let bytes: u64 = findings.iter().map(|f| f.bytes).sum();
        let saved: f64 = findings.iter().map(|f| f.seconds_saved).sum();
        transaction.execute(
            "INSERT INTO plan (evidence, made, files, ranges, bytes, seconds_saved) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![found.evidence.0, now.ms(), findings.len() as i64, signed(found.ranges), signed(bytes), saved],
        )?;
        findings.sort_by(|a, b| b.seconds_saved.total_cmp(&a.seconds_saved));
        for finding in findings.into_iter().take(MOST_OF_A_PLAN) {
            let file = file_number(&transaction, &finding.file, now)?;
            transaction.execute(
                "INSERT OR REPLACE INTO finding (evidence, file, extents, bytes, seconds_saved) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![found.evidence.0, file, signed(finding.extents), signed(finding.bytes), finding.seconds_saved],
            )?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Enters that a recording shows these ranges of a file fragmented: if some of them were mended before, and that was not
    /// counted yet, the file was fragmented again. Returns how often that is by now, and what makes it so, if it ever was.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is entered.
    pub fn note_fragmented(
        &mut self,
        file: &FileKey,
        ranges: &[ByteRange],
        evidence: EvidenceId,
        writer: (Option<&Program>, Pattern),
        now: Time,
    ) -> Result<Option<Recurrence>> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let Some(id) = find_file(&transaction, file)? else { return Ok(None) };
        let mut again = 0;
        for range in ranges {
            again += transaction.execute(
                "UPDATE part SET again = 1 WHERE again = 0 AND moved = 1 AND first < ?4 AND beyond > ?3
                 AND move IN (SELECT id FROM move WHERE file = ?1 AND newest < ?2)",
                params![id, evidence.0, signed(range.start), signed(range.end)],
            )?;
        }
        if again > 0 {
            let (program, pattern) = writer;
            let (comm, cgroup) =
                (program.map(|p| &p.comm), program.and_then(|p| p.cgroup.as_ref()));
            // What was seen once is not forgotten because a later recording did not see it.
            transaction.execute(
                "INSERT INTO recurrence (file, times, latest, program, cgroup, pattern) VALUES (?1, 1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (file) DO UPDATE SET times = times + 1, latest = excluded.latest,
                 cgroup = iif(excluded.program IS NULL, cgroup, excluded.cgroup),
                 pattern = iif(excluded.program IS NULL, pattern, excluded.pattern),
                 program = coalesce(excluded.program, program)",
                params![id, now.ms(), comm, cgroup, pattern.name()],
            )?;
        }
        let known = transaction
            .query_row(
                "SELECT times, program, cgroup, pattern FROM recurrence WHERE file = ?1",
                [id],
                |row| {
                    Ok((
                        row.get::<_, u32>(0)?,
                        row.get::<_, Option<String>>(1)?,
                        row.get(2)?,
                        row.get::<_, String>(3)?,
                    ))
                },
            )
            .optional()?;
        transaction.commit()?;
        let Some((times, program, cgroup, pattern)) = known else { return Ok(None) };
        let damaged = || StoreError::Damaged("a pattern that does not exist".into());
        let pattern = Pattern::from_name(&pattern).ok_or_else(damaged)?;
        Ok(Some(Recurrence {
            times,
            is_new: again > 0,
            program: program.map(|name| (name, cgroup)),
            pattern,
        }))
    }

    /// What was written since a time.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn written_since(&self, since: Time) -> Result<Written> {
        let query = "SELECT count(*), coalesce(sum(max(written, 0)), 0) FROM move WHERE ended > ?1";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let (moves, bytes) = self.connection.query_row(query, [since.ms()], row)?;
        Ok(Written { moves: moves.unsigned_abs(), bytes: bytes.unsigned_abs() })
    }

    /// Removes what is older than `keep`, and the oldest findings and ranges beyond the most that are kept. What the budget and
    /// the promise of new evidence rest on stays: moves of the last 24 hours, those that are not older than the evidence that
    /// is still in use, and the number of the newest recording.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is removed.
    pub fn prune(&mut self, keep: Duration, in_use: Option<EvidenceId>, now: Time) -> Result<()> {
        let old = now.before(keep.max(Time::DAY)).ms();
        let day = now.before(Time::DAY).ms();
        let used = in_use.map_or(i64::MAX, |evidence| evidence.0);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute("DELETE FROM held WHERE until < ?1", [old])?;
        transaction.execute(
            "DELETE FROM part WHERE move IN (SELECT id FROM move WHERE newest < ?2 AND (ended < ?1 OR ended < ?3 AND id <=
             coalesce((SELECT move FROM part ORDER BY move DESC LIMIT 1 OFFSET ?4), 0)))",
            params![old, used, day, MOST_PARTS],
        )?;
        transaction.execute(
            "DELETE FROM move WHERE newest < ?2 AND (ended < ?1 OR ended < ?3 AND id <=
             coalesce((SELECT id FROM move ORDER BY id DESC LIMIT 1 OFFSET ?4), 0))",
            params![old, used, day, MOST_MOVES],
        )?;
        transaction.execute("DELETE FROM part WHERE move NOT IN (SELECT id FROM move)", [])?;
        transaction.execute("DELETE FROM plan WHERE made < ?1", [old])?;
        transaction.execute("DELETE FROM recurrence WHERE latest < ?1", [old])?;
        // AUTOINCREMENT: a number is never used again, so an evidence that is removed stays older than the next.
        transaction.execute("DELETE FROM evidence WHERE began < ?1", [old])?;
        transaction.execute(
            "DELETE FROM finding WHERE evidence < coalesce((SELECT min(id) FROM evidence), 0)
             OR evidence <= coalesce((SELECT evidence FROM finding ORDER BY evidence DESC, file LIMIT 1 OFFSET ?1), 0)",
            [MOST_FINDINGS],
        )?;
        transaction.execute(
            "DELETE FROM file WHERE id NOT IN (SELECT file FROM move UNION SELECT file FROM finding
             UNION SELECT file FROM recurrence)",
            [],
        )?;
        transaction.commit()?;
        Ok(())
    }
}
