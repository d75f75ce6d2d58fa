//! A SQLite database that keeps accounts: transfers between them in transactions, each of which a
//! reader in another process must see afterwards.
//!
//! No transfer makes or destroys money, and every row names its last transfer, in some hundred
//! bytes. From time to time the database is closed and rewritten into scattered blocks; so are its
//! journal or log, as far as SQLite keeps them.

use super::load::{Failure, Load, Step};
use crate::fragment::scatter;
use crate::random::Random;
use crate::sqlite::Shell;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How SQLite makes a transaction durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// New pages go to a log first, and from there to the database from time to time.
    Wal,
    /// Old pages go to a journal first, whose header is zeroed at the commit.
    Rollback,
}

const ACCOUNTS: usize = 500;
const AT_FIRST: i64 = 1000;

/// Bytes of a row that are a function of its last transfer.
const NOTE_BYTES: u64 = 800;

/// Bytes of the log or journal that are allocated before SQLite uses it.
const JOURNAL_BYTES: u64 = 256 << 10;

/// Steps between two restorations.
pub const OFTEN: u64 = 120;

#[derive(Clone, Copy)]
struct Account {
    balance: i64,
    last: u64,
}

/// A database, and what it must hold.
pub struct Bank {
    path: PathBuf,
    journal: Journal,
    random: Random,
    accounts: Vec<Account>,
    transfers: u64,
    steps: u64,
    /// Steps from one restoration to the next.
    restored: u64,
    sessions: Option<Sessions>,
}

struct Sessions {
    writer: Shell,
    reader: Shell,
}

impl Bank {
    /// Creates `name` in `dir`; it is restored at its first step, and then every `restored` steps.
    ///
    /// # Errors
    /// When sqlite3 refuses.
    pub fn create(
        dir: &Path,
        name: &str,
        journal: Journal,
        restored: u64,
        seed: u64,
    ) -> io::Result<Self> {
        let path = dir.join(name);
        let mut shell = Shell::open(&path, &[]);
        let note = note("0");
        shell.run(&format!(
            "PRAGMA page_size=4096; \
             CREATE TABLE account(id INTEGER PRIMARY KEY, balance, last, note TEXT);\
             CREATE INDEX rich ON account(balance);\
             CREATE TABLE transfer(id INTEGER PRIMARY KEY, source, target, amount);\
             INSERT INTO account SELECT value, {AT_FIRST}, 0, {note} \
             FROM generate_series(0, {});",
            ACCOUNTS - 1
        ))?;
        shell.close();
        let accounts = vec![Account { balance: AT_FIRST, last: 0 }; ACCOUNTS];
        let random = Random::new(seed);
        let (transfers, steps, sessions) = (0, 0, None);
        Ok(Self { path, journal, random, accounts, transfers, steps, restored, sessions })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Rewrites the database and its journal into scattered blocks, while no program has them open.
    fn restore(&self) -> io::Result<()> {
        let bytes = std::fs::read(&self.path)?;
        let file = File::options().read(true).write(true).open(&self.path)?;
        scatter(&file, &self.path, 0..bytes.len() as u64, |at, buffer| {
            buffer.copy_from_slice(&bytes[at as usize..][..buffer.len()]);
        })?;
        // SQLite treats a journal of zeroes as none, but keeps its blocks.
        let suffix = if self.journal == Journal::Wal { "-wal" } else { "-journal" };
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        let file =
            File::options().create(true).truncate(true).read(true).write(true).open(&name)?;
        scatter(&file, Path::new(&name), 0..JOURNAL_BYTES, |_, buffer| buffer.fill(0))
    }

    /// One transaction of several transfers.
    fn transfer(&mut self) -> String {
        let mut sql = String::from("BEGIN IMMEDIATE;");
        for _ in 0..=self.random.below(6) {
            self.transfers += 1;
            let source = self.random.below(ACCOUNTS as u64) as usize;
            let target = (source + 1 + self.random.below(ACCOUNTS as u64 - 1) as usize) % ACCOUNTS;
            let amount = self.random.below(100) as i64;
            let n = self.transfers;
            let note = note(&n.to_string());
            for (id, change) in [(source, -amount), (target, amount)] {
                let account = &mut self.accounts[id];
                account.balance += change;
                account.last = n;
                let _ = write!(
                    sql,
                    "UPDATE account SET balance = balance + {change}, last = {n}, note = {note} \
                     WHERE id = {id};"
                );
            }
            let _ = write!(sql, "INSERT INTO transfer VALUES({n}, {source}, {target}, {amount});");
        }
        sql + "COMMIT;"
    }

    /// Every row, as [`all_rows`] prints it.
    fn rows(&self) -> String {
        let rows = self.accounts.iter().enumerate();
        rows.map(|(id, a)| format!("{id}|{}|{}|1\n", a.balance, a.last)).collect()
    }

    fn ask(&mut self, who: fn(&mut Sessions) -> &mut Shell, sql: &str) -> Result<String, Failure> {
        let sessions = self.sessions.as_mut().ok_or(io::ErrorKind::NotConnected.into());
        let answer = sessions.and_then(|sessions| who(sessions).run(sql));
        answer.map_err(Failure::refused(format_args!("{}: {sql}", self.path.display())))
    }

    /// Runs a query that must have this result.
    fn expect(
        &mut self,
        who: fn(&mut Sessions) -> &mut Shell,
        sql: &str,
        expected: &str,
    ) -> Result<(), Failure> {
        let found = self.ask(who, sql)?;
        if found == expected {
            return Ok(());
        }
        let what = format!("{}, after transfer {}: {sql}", self.path.display(), self.transfers);
        let unequal = expected.lines().zip(found.lines()).find(|(e, f)| e != f);
        let (expected, found) = unequal.unwrap_or((expected.trim_end(), found.trim_end()));
        let (expected, found) = (expected.to_owned(), found.to_owned());
        Err(Failure::Unexpected { what, expected, found })
    }

    fn everything(&mut self) -> Result<u64, Failure> {
        let (rows, transfers) = (self.rows(), format!("{}\n", self.transfers));
        self.expect(reader, &all_rows(), &rows)?;
        self.expect(reader, "SELECT count(*) FROM transfer;", &transfers)?;
        Ok(ACCOUNTS as u64 * NOTE_BYTES)
    }
}

fn writer(sessions: &mut Sessions) -> &mut Shell {
    &mut sessions.writer
}

fn reader(sessions: &mut Sessions) -> &mut Shell {
    &mut sessions.reader
}

/// An expression for the note of a row about its last transfer: [`NOTE_BYTES`] characters.
fn note(last: &str) -> String {
    let words = NOTE_BYTES / 20;
    format!("replace(hex(zeroblob({words})), '00', printf('%020d', {last} * 40503))")
}

fn all_rows() -> String {
    format!("SELECT id, balance, last, note = {} FROM account ORDER BY id;", note("last"))
}

impl Load for Bank {
    fn kind(&self) -> &'static str {
        match self.journal {
            Journal::Wal => "SQLite, WAL",
            Journal::Rollback => "SQLite, rollback journal",
        }
    }

    fn open(&mut self) -> Result<(), Failure> {
        let writer = Shell::open(&self.path, &[]);
        let reader = Shell::open(&self.path, &["-readonly"]);
        self.sessions = Some(Sessions { writer, reader });
        let mode = match self.journal {
            Journal::Wal => "journal_mode=WAL; PRAGMA wal_autocheckpoint=50",
            Journal::Rollback => "journal_mode=PERSIST",
        };
        let sql = format!("PRAGMA busy_timeout=20000; PRAGMA {mode}; PRAGMA synchronous=FULL;");
        self.ask(self::writer, &sql)?;
        // The reader of one kind of database reads through a mapping, the other's does not.
        let mapped = if self.journal == Journal::Rollback { 64 << 20 } else { 0 };
        let sql = format!("PRAGMA busy_timeout=20000; PRAGMA mmap_size={mapped};");
        self.ask(self::reader, &sql).map(drop)
    }

    fn step(&mut self) -> Result<Step, Failure> {
        self.steps += 1;
        if self.steps % self.restored == 1 {
            self.close()?;
            self.restore().map_err(Failure::refused(self.path.display()))?;
            self.open()?;
            return Ok(Step::default());
        }
        let started = Instant::now();
        let compared = match self.random.below(24) {
            0 => {
                self.expect(writer, "PRAGMA integrity_check;", "ok\n")?;
                0
            }
            1 => self.everything()?,
            2..8 => {
                let sum = format!("{}\n", ACCOUNTS as i64 * AT_FIRST);
                self.expect(reader, "SELECT sum(balance) FROM account;", &sum)?;
                0
            }
            _ => {
                let sql = self.transfer();
                self.ask(writer, &sql)?;
                0
            }
        };
        Ok(Step { waited: Some(started.elapsed()), compared })
    }

    fn close(&mut self) -> Result<(), Failure> {
        if let Some(Sessions { writer, reader }) = self.sessions.take() {
            // The last to close the database removes the log, which a reader cannot.
            reader.close();
            writer.close();
        }
        Ok(())
    }

    fn verify(&mut self) -> Result<u64, Failure> {
        self.open()?;
        self.expect(reader, "PRAGMA integrity_check;", "ok\n")?;
        let compared = self.everything()?;
        self.close()?;
        Ok(compared)
    }
}
