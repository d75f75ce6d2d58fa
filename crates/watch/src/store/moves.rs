//! The budget and the moves.
//!
//! Every 24 hours count, not days: what was written is in the account until 24 hours after the end of its move, so that in no 24
//! hours more is written than the budget. A move that has not ended counts with the most that it can write.
//!
//! Whether evidence is new is decided by numbers, not by the clock: a recording has its number from before it begins, and
//! a move notes the newest number when it has ended. Evidence with a higher number began later.

use super::{EvidenceId, FileKey, KnownFile, Result, Store, StoreError};
use crate::Time;
use fragmend_layout::{ByteRange, PathText};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

/// The longest path that is kept, in characters: it is only shown, and users make them as long as they like.
const LONGEST_PATH: usize = 256;

/// The number of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveId(i64);

/// A move that is about to begin.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// The recording that it rests on.
    pub evidence: EvidenceId,
    /// Which file.
    pub file: &'a FileKey,
    /// Where it is.
    pub path: &'a PathText,
    /// What is to be moved.
    pub ranges: &'a [ByteRange],
    /// The most bytes that this can write.
    pub most_bytes: u64,
    /// The bytes that may be written in any 24 hours.
    pub budget_bytes: u64,
}

/// Why a move must not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// So many bytes are left of the budget, and the move may write more.
    OverBudget(u64),
    /// This range was moved, or it was tried, and the recording did not begin later.
    NoNewEvidence(ByteRange),
}

/// How a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every range was reached.
    Done,
    /// It was stopped at a safe point.
    Stopped,
    /// Something that should work failed.
    Failed,
    /// The process ended before it.
    Killed,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Killed => "killed",
        }
    }
}

/// The end of a move.
#[derive(Clone, Debug)]
pub struct Ended<'a> {
    /// Bytes that were written.
    pub written_bytes: u64,
    /// The ranges that have moved.
    pub moved: &'a [ByteRange],
    /// How it ended.
    pub outcome: Outcome,
}

/// Why nothing may be written for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Until then.
    pub until: Time,
    /// Why.
    pub reason: String,
}

impl Store {
    /// States a move and debits the most that it can write, or returns why it must not begin. To be called before the first
    /// byte is written.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is stated, and the move must not begin.
    pub fn begin_move(
        &mut self,
        claim: &Claim<'_>,
        now: Time,
    ) -> Result<std::result::Result<MoveId, NotNow>> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let left = left(&transaction, claim.budget_bytes, now)?;
        if claim.most_bytes > left {
            return Ok(Err(NotNow::OverBudget(left)));
        }
        let known = KnownFile { key: claim.file.clone(), path: claim.path.clone() };
        let file = file_number(&transaction, &known, now)?;
        if let Some(range) = moved_since(&transaction, file, claim.ranges, claim.evidence)? {
            return Ok(Err(NotNow::NoNewEvidence(range)));
        }
        transaction.execute(
            "INSERT INTO move (evidence, file, began, most) VALUES (?1, ?2, ?3, ?4)",
            params![claim.evidence.0, file, now.ms(), signed(claim.most_bytes)],
        )?;
        let id = transaction.last_insert_rowid();
        for range in claim.ranges {
            transaction.execute(
                "INSERT OR REPLACE INTO part (move, first, beyond) VALUES (?1, ?2, ?3)",
                params![id, signed(range.start), signed(range.end)],
            )?;
        }
        transaction.commit()?;
        Ok(Ok(MoveId(id)))
    }

    /// Settles a move at what it has written. All its ranges count as moved or tried from now on.
    ///
    /// # Errors
    /// [`StoreError`]; the debit stands.
    pub fn end_move(&mut self, id: MoveId, ended: &Ended<'_>, now: Time) -> Result<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        end(&transaction, id.0, Some(ended.written_bytes), ended.outcome, now)?;
        for range in ended.moved {
            transaction.execute(
                "UPDATE part SET moved = 1 WHERE move = ?1 AND first = ?2",
                params![id.0, signed(range.start)],
            )?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Bytes that may still be written.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn budget_left(&self, budget_bytes: u64, now: Time) -> Result<u64> {
        left(&self.connection, budget_bytes, now)
    }

    /// Whether all of these ranges may move by this evidence; otherwise the first one that may not.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn moved_since(
        &self,
        file: &FileKey,
        ranges: &[ByteRange],
        evidence: EvidenceId,
    ) -> Result<Option<ByteRange>> {
        match find_file(&self.connection, file)? {
            Some(file) => moved_since(&self.connection, file, ranges, evidence),
            None => Ok(None),
        }
    }

    /// Why nothing may be written now, apart from the budget.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn held(&self, now: Time) -> Result<Option<Held>> {
        held(&self.connection, now)
    }

    /// Nothing may be written until a time.
    pub(super) fn hold(&mut self, until: Time, reason: &str) -> Result<()> {
        self.connection.execute(
            "INSERT INTO held (until, reason) VALUES (?1, ?2)",
            params![until.ms(), reason],
        )?;
        Ok(())
    }

    /// Ends the moves of a process that was killed: they may have written up to now.
    pub(super) fn recover(&mut self, now: Time) -> Result<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let open: Vec<i64> = {
            let mut statement = transaction.prepare("SELECT id FROM move WHERE ended IS NULL")?;
            let rows = statement.query_map([], |row| row.get(0))?;
            rows.collect::<rusqlite::Result<_>>()?
        };
        open.iter().try_for_each(|id| end(&transaction, *id, None, Outcome::Killed, now))?;
        transaction.commit()?;
        Ok(())
    }
}

/// Ends a move; without `written`, at its debit.
fn end(
    connection: &Connection,
    id: i64,
    written: Option<u64>,
    outcome: Outcome,
    now: Time,
) -> Result<()> {
    connection.execute(
        "UPDATE move SET ended = ?2, written = coalesce(?3, most), outcome = ?4,
         newest = coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'evidence'), 0) WHERE id = ?1",
        params![id, now.ms(), written.map(signed), outcome.name()],
    )?;
    Ok(())
}

/// What was written in the last 24 hours, or may have been. An end in the future is one before the clock was set back.
fn left(connection: &Connection, budget_bytes: u64, now: Time) -> Result<u64> {
    if held(connection, now)?.is_some() {
        return Ok(0);
    }
    let since = now.before(Time::DAY).ms();
    let query = "SELECT coalesce(written, most) FROM move WHERE ended IS NULL OR ended > ?1";
    let mut statement = connection.prepare(query)?;
    let rows = statement.query_map([since], |row| row.get::<_, i64>(0))?;
    let mut left = budget_bytes;
    for bytes in rows {
        // No move writes less than nothing: a forged store frees no budget.
        let bytes = u64::try_from(bytes?)
            .map_err(|_| StoreError::Damaged("a move of less than nothing".into()))?;
        left = left.saturating_sub(bytes);
    }
    Ok(left)
}

fn held(connection: &Connection, now: Time) -> Result<Option<Held>> {
    let query = "SELECT until, reason FROM held WHERE until > ?1 ORDER BY until DESC LIMIT 1";
    let row = |row: &rusqlite::Row<'_>| {
        Ok(Held { until: Time::from_ms(row.get(0)?), reason: row.get(1)? })
    };
    Ok(connection.query_row(query, [now.ms()], row).optional()?)
}

/// The first range that overlaps with one that was moved, or tried, and not before the evidence began.
fn moved_since(
    connection: &Connection,
    file: i64,
    ranges: &[ByteRange],
    evidence: EvidenceId,
) -> Result<Option<ByteRange>> {
    let query = "SELECT 1 FROM part JOIN move ON move.id = part.move
        WHERE move.file = ?1 AND (move.newest IS NULL OR move.newest >= ?2)
        AND part.first < ?4 AND part.beyond > ?3 LIMIT 1";
    let mut statement = connection.prepare(query)?;
    for range in ranges {
        let found = params![file, evidence.0, signed(range.start), signed(range.end)];
        if statement.exists(found)? {
            return Ok(Some(*range));
        }
    }
    Ok(None)
}

/// The number of a file in the store, if it is there.
pub(super) fn find_file(connection: &Connection, key: &FileKey) -> Result<Option<i64>> {
    let query = "SELECT id FROM file WHERE volume = ?1 AND inode = ?2 AND generation = ?3";
    let mut statement = connection.prepare(query)?;
    let key = params![key.volume, key.inode.cast_signed(), key.generation];
    Ok(statement.query_row(key, |row| row.get(0)).optional()?)
}

/// The number of a file in the store, which is entered if it is not there.
pub(super) fn file_number(connection: &Connection, file: &KnownFile, now: Time) -> Result<i64> {
    let KnownFile { key, path } = file;
    let query = "INSERT INTO file (volume, inode, generation, path, used) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (volume, inode, generation) DO UPDATE SET path = excluded.path, used = excluded.used
        RETURNING id";
    let mut statement = connection.prepare(query)?;
    let inode = key.inode.cast_signed();
    let path: String = path.printable().to_string().chars().take(LONGEST_PATH).collect();
    let row = params![key.volume, inode, key.generation, path, now.ms()];
    Ok(statement.query_row(row, |row| row.get(0))?)
}

/// A size or an offset of a file, which the kernel keeps below 2 to the power of 63.
pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
