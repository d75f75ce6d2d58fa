//! Rows of the daemon's store, whatever they say: no more is written in 24 hours than the budget by what the rows say, nothing
//! moves twice without new evidence, and removing what is old permits nothing more.

use crate::bytes::Bytes;
use fragmend_layout::{ByteRange, PathText};
use fragmend_watch::Time;
use fragmend_watch::cause::Pattern;
use fragmend_watch::store::{
    Claim, Ended, EvidenceId, FileKey, NotNow, Outcome, Store, StoreError,
};
use std::cell::RefCell;
use std::fmt::Write;
use std::path::Path;

const BUDGET: u64 = 1 << 30;
const NOW: i64 = 1_000_000_000_000;
/// Rows have numbers below this, so that they refer to each other.
const MOST: u8 = 8;

thread_local! {
    /// To make its tables takes longer than all else.
    static STORE: RefCell<Store> = RefCell::new(Store::in_memory().expect("memory"));
}

/// A move, as its row says.
struct Move {
    id: i64,
    file: i64,
    most: i64,
    ended: Option<i64>,
    written: Option<i64>,
    newest: Option<i64>,
}

/// A range of a move.
#[derive(Clone, Copy)]
struct Part {
    of: i64,
    first: i64,
    beyond: i64,
}

/// What the rows say of budget and moves, reckoned without SQL.
#[derive(Default)]
struct Rows {
    moves: Vec<Move>,
    parts: Vec<Part>,
    held: Vec<i64>,
    newest_evidence: i64,
}

/// The rows of a store, and a claim on it.
pub fn store(input: &[u8]) -> bool {
    let mut bytes = Bytes::new(input);
    let file = key(bytes.u8());
    let range = range(&mut bytes);
    let mut rows = Rows::default();
    let sql = rows.forge(&mut bytes);
    let now = Time::from_ms(NOW);
    rows.recover();
    STORE.with_borrow_mut(|store| {
        store.forge(&sql, now).expect("rows of the columns' types");
        claims(store, (&file, range), &rows, &sql);
    });
    true
}

/// Claims a range of a file, of a store with these rows.
fn claims(store: &mut Store, (file, range): (&FileKey, ByteRange), rows: &Rows, sql: &str) {
    let now = Time::from_ms(NOW);

    let left = rows.left();
    assert_eq!(store.budget_left(BUDGET, now).ok(), left, "{sql}");
    let evidence = store.begin_evidence(now).expect("a number");
    let said = store.moved_since(file, &[range], evidence).expect("an answer");
    assert_eq!(said.is_some(), rows.moved_since(file, range), "{range:?} after {sql}");
    let path = PathText::from(Path::new("/srv/\u{1b}x"));
    let most_bytes = range.end - range.start;
    let claim =
        Claim { evidence, file, path: &path, ranges: &[range], most_bytes, budget_bytes: BUDGET };
    let Some(left) = left else {
        assert!(matches!(store.begin_move(&claim, now), Err(StoreError::Damaged(_))), "{sql}");
        return;
    };
    match store.begin_move(&claim, now).expect("an answer") {
        Err(NotNow::OverBudget(bytes)) => assert!(bytes == left && most_bytes > left),
        Err(NotNow::NoNewEvidence(_)) => assert!(said.is_some()),
        Ok(id) => {
            assert!(said.is_none() && most_bytes <= left, "{sql}");
            assert_eq!(store.budget_left(BUDGET, now).ok(), Some(left - most_bytes));
            let twice = store.begin_move(&claim, now).expect("an answer");
            assert!(twice.is_err(), "the same again, by the same evidence");
            let written_bytes = most_bytes / 2;
            let ended = Ended { written_bytes, moved: &[range], outcome: Outcome::Done };
            store.end_move(id, &ended, now).expect("an end");
            assert_eq!(store.budget_left(BUDGET, now).ok(), Some(left - written_bytes));
        }
    }
    later(store, file, range, evidence, sql);
}

/// What is asked of a store later; none of it permits more.
fn later(store: &mut Store, file: &FileKey, range: ByteRange, evidence: EvidenceId, sql: &str) {
    let now = Time::from_ms(NOW);
    let left = store.budget_left(BUDGET, now).expect("an answer");
    let moved = store.moved_since(file, &[range], evidence).expect("an answer");
    match store.note_fragmented(file, &[range], evidence, (None, Pattern::NotSeen), now) {
        Ok(_) | Err(StoreError::Damaged(_) | StoreError::Sqlite(_)) => {}
        Err(other) => panic!("{other} after {sql}"),
    }
    store.prune(Time::DAY, Some(evidence), now).expect("old rows to go");
    assert_eq!(store.budget_left(BUDGET, now).ok(), Some(left), "pruned {sql}");
    let still = store.moved_since(file, &[range], evidence).expect("an answer");
    assert_eq!(still, moved, "pruned {sql}");
}

impl Rows {
    /// Makes rows of an input; returns the statements that insert them.
    fn forge(&mut self, bytes: &mut Bytes<'_>) -> String {
        let mut sql = String::new();
        for inode in 0..MOST {
            let FileKey { volume, inode, generation } = key(inode);
            let _ = writeln!(
                sql,
                "INSERT INTO file VALUES ({inode}, '{volume}', {inode}, {generation}, 'x', 0);"
            );
        }
        while !bytes.is_empty() {
            let kind = bytes.u8();
            let id = i64::from(bytes.u8() % MOST);
            let _ = match kind % 5 {
                0 => {
                    let (file, most) = (i64::from(bytes.u8() % MOST), number(bytes));
                    let [ended, written, newest] = [(); 3].map(|()| maybe(bytes));
                    let row = Move { id, file, most, ended, written, newest };
                    let [ended, written, newest] = [ended, written, newest].map(literal);
                    if self.moves.iter().all(|other| other.id != id) {
                        self.moves.push(row);
                    }
                    writeln!(
                        sql,
                        "INSERT OR IGNORE INTO move VALUES ({id}, 0, {file}, 0, {most}, {ended}, {written}, {newest}, 'x');"
                    )
                }
                1 => {
                    let part = Part { of: id, first: number(bytes), beyond: number(bytes) };
                    let (Part { first, beyond, .. }, moved) = (part, number(bytes));
                    let again = bytes.u8() % 2;
                    let row = writeln!(
                        sql,
                        "INSERT OR IGNORE INTO part VALUES ({id}, {first}, {beyond}, {moved}, {again});"
                    );
                    if self.parts.iter().all(|other| (other.of, other.first) != (id, first)) {
                        self.parts.push(part);
                    }
                    row
                }
                2 => {
                    let until = number(bytes);
                    self.held.push(until);
                    writeln!(sql, "INSERT INTO held VALUES ({until}, 'x');")
                }
                3 => {
                    let began = number(bytes);
                    self.newest_evidence = self.newest_evidence.max(id);
                    writeln!(
                        sql,
                        "INSERT OR IGNORE INTO evidence VALUES ({id}, {began}, {began}, 0, 0);"
                    )
                }
                _ => {
                    let (times, latest) = (number(bytes), number(bytes));
                    let pattern = if bytes.u8().is_multiple_of(2) { "overwrites" } else { "none" };
                    writeln!(
                        sql,
                        "INSERT OR IGNORE INTO recurrence VALUES ({id}, {times}, {latest}, 'x', NULL, '{pattern}');"
                    )
                }
            };
        }
        sql
    }

    /// Moves that have not ended, end now, at the most that they can have written.
    fn recover(&mut self) {
        for of in self.moves.iter_mut().filter(|of| of.ended.is_none()) {
            *of =
                Move { ended: Some(NOW), written: None, newest: Some(self.newest_evidence), ..*of };
        }
    }

    /// What is left of the budget; `None` where a move has written less than nothing.
    fn left(&self) -> Option<u64> {
        if self.held.iter().any(|until| *until > NOW) {
            return Some(0);
        }
        let since = Time::from_ms(NOW).before(Time::DAY).ms();
        let counts = |of: &&Move| of.ended.is_some_and(|ended| ended > since);
        self.moves.iter().filter(counts).try_fold(BUDGET, |left, of| {
            Some(left.saturating_sub(u64::try_from(of.written.unwrap_or(of.most)).ok()?))
        })
    }

    /// Whether a range overlaps with one of a move that is not older than the evidence that is begun next.
    fn moved_since(&self, file: &FileKey, range: ByteRange) -> bool {
        let evidence = self.newest_evidence + 1;
        let signed = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        self.parts.iter().any(|part| {
            let is_of = |of: &&Move| of.id == part.of && of.file == file.inode.cast_signed();
            part.first < signed(range.end)
                && part.beyond > signed(range.start)
                && self
                    .moves
                    .iter()
                    .find(is_of)
                    .is_some_and(|of| of.newest.is_none_or(|n| n >= evidence))
        })
    }
}

fn key(inode: u8) -> FileKey {
    FileKey { volume: "v".into(), inode: (inode % MOST).into(), generation: 7 }
}

fn range(bytes: &mut Bytes<'_>) -> ByteRange {
    let (start, length) = (bytes.u32(), bytes.u32());
    ByteRange { start: start.into(), end: u64::from(start) + u64::from(length) + 1 }
}

/// A number of a row: a small one, one at a bound, or any.
fn number(bytes: &mut Bytes<'_>) -> i64 {
    match bytes.u8() {
        small @ 0..200 => small.into(),
        200 => i64::MIN,
        201 => i64::MAX,
        202 => -1,
        203 => NOW,
        204 => NOW + 1,
        205 => BUDGET.cast_signed(),
        206 => Time::from_ms(NOW).before(Time::DAY).ms(),
        207..220 => bytes.u32().into(),
        _ => bytes.u64().cast_signed(),
    }
}

fn maybe(bytes: &mut Bytes<'_>) -> Option<i64> {
    (!bytes.u8().is_multiple_of(3)).then(|| number(bytes))
}

fn literal(number: Option<i64>) -> String {
    number.map_or("NULL".into(), |number| number.to_string())
}
