//! Opens the store so that no other user can have a part in it.
//!
//! Its directory is this user's, for this user alone (0700), and no other user can rename it or one above it. In it,
//! the store is a regular file of this user's with one name, for this user alone (0600); a symbolic link is never followed. So
//! between the check and SQLite's use of the path nobody else can put another file there.
//!
//! A file that is no store, or a damaged or empty one, is renamed and kept, and a new one is made. What it knew of bytes written
//! is lost with it: so for 24 hours nothing moves. A store of a later version is refused, for it is nobody's mistake but the
//! operator's.
//!
//! Crash argument. A new store is made under another name, and has the store's name only once it is whole and durable, with
//! what holds moves in it. If the process is killed, or power fails
//!
//! - before what is damaged has its other name: it is found again.
//! - after that, before the new store has its name: there is none, and what is kept beside it has the time in its name. A store
//!   that is made within a day of that holds moves as well.

use super::schema::{self, APPLICATION, VERSION};
use super::{Result, Store, StoreError};
use crate::Time;
use fragmend_sys::{directory, held};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The largest store, in bytes: findings are removed long before.
const LARGEST: i64 = 256 << 20;
const PAGE: i64 = 4096;

/// Files that SQLite keeps beside the database.
const BESIDE: [&str; 2] = ["-wal", "-shm"];
/// Between the name of a store that was set aside and the time.
const DAMAGED: &str = ".damaged-";

/// What was found instead of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedAside {
    /// Where it is now.
    pub to: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl Store {
    /// Opens the store at `path`, or makes it with its directory. Returns besides what was moved aside because it is no
    /// store. Moves that an earlier process had not ended count as written in full from then on.
    ///
    /// # Errors
    /// [`StoreError`]; the store is unchanged.
    pub fn open(path: &Path, now: Time) -> Result<(Self, Option<MovedAside>)> {
        let path = secure(path)?;
        // Until this returns, so that no two processes make a store.
        let above = std::fs::File::open(above(&path)).map_err(at(&path))?;
        let alone = rustix::fs::flock(&above, FlockOperation::LockExclusive);
        alone.map_err(|e| at(&path)(e.into()))?;
        if !path.try_exists().map_err(at(&path))? {
            // One that is gone, and was in use, has left a log.
            let was_in_use = with(&path, BESIDE[0]).try_exists().map_err(at(&path))?;
            make(&path, was_in_use || was_set_aside(&path, now)?, now)?;
        }
        let (connection, aside) = match connect(&path) {
            Ok(connection) => (connection, None),
            Err(StoreError::Damaged(why)) => {
                let to = set_aside(&path, now)?;
                make(&path, true, now)?;
                (connect(&path)?, Some(MovedAside { to, why }))
            }
            Err(other) => return Err(other),
        };
        let mut store = Self { connection };
        store.recover(now)?;
        Ok((store, aside))
    }

    /// A store in memory alone, without rows. For tests.
    ///
    /// # Errors
    /// [`StoreError`].
    #[doc(hidden)]
    pub fn in_memory() -> Result<Self> {
        let connection = Connection::open_in_memory()?;
        schema::make(&connection)?;
        Ok(Self { connection })
    }

    /// Instead of its rows, has those that this SQL inserts, as [`Self::open`] returns a file that somebody else has written.
    /// For tests of what such a file can do.
    ///
    /// # Errors
    /// [`StoreError`].
    #[doc(hidden)]
    pub fn forge(&mut self, rows: &str, now: Time) -> Result<()> {
        schema::empty(&self.connection)?;
        self.connection.execute_batch(rows)?;
        self.recover(now)
    }
}

fn refused(path: &Path, what: &'static str) -> StoreError {
    StoreError::Refused { path: path.to_owned(), what }
}

fn at(path: &Path) -> impl Fn(io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |source| StoreError::Io { path: path.clone(), source }
}

/// Checks, or makes, the directory, and checks the file, if there is one; returns the path without links.
fn secure(path: &Path) -> Result<PathBuf> {
    let name =
        path.file_name().ok_or_else(|| refused(path, "is a directory; name a file in one"))?;
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let dir = directory::create(above, true).map_err(at(above))?;
    let stat = rustix::fs::fstat(&dir).map_err(|e| at(above)(e.into()))?;
    if !held::is_ours(&stat) {
        return Err(refused(above, "is another user's; use a directory of your own"));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(refused(above, "is open to other users; run chmod 0700 on it"));
    }
    let canonical = above.canonicalize().map_err(at(above))?;
    if let Some(open) = held::open_to_others(&canonical).map_err(at(above))? {
        return Err(refused(
            &open,
            "is a directory in which other users can put another one in the place of the store's",
        ));
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let path = canonical.join(name);
    let file = match rustix::fs::openat(dir.as_fd(), name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(path),
        Err(Errno::LOOP) => {
            return Err(refused(&path, "is a symbolic link, which is not followed; remove it"));
        }
        Err(Errno::ISDIR | Errno::NXIO) => {
            return Err(refused(&path, "is no regular file; name another one"));
        }
        Err(e) => return Err(at(&path)(e.into())),
    };
    let stat = rustix::fs::fstat(&file).map_err(|e| at(&path)(e.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refused(&path, "is no regular file; name another one"));
    }
    if !held::is_ours(&stat) || stat.st_nlink != 1 {
        return Err(refused(
            &path,
            "is another user's, or has another name besides; name another one",
        ));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(refused(&path, "is open to other users; run chmod 0600 on it"));
    }
    Ok(path)
}

fn database(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    Connection::open_with_flags(path, flags)
}

/// Makes an empty store, in which nothing moves for a day if `holds`: under another name first.
fn make(path: &Path, holds: bool, now: Time) -> Result<()> {
    let new = with(path, ".new");
    // What a process has left that was killed here, and what a store has left that is gone.
    let left = [new.clone(), with(&new, "-journal"), with(path, BESIDE[0]), with(path, BESIDE[1])];
    for left in left {
        match std::fs::remove_file(&left) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(&left)(e)),
            _ => {}
        }
    }
    let exclusive = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(&new, exclusive, Mode::RUSR | Mode::WUSR);
    let file = std::fs::File::from(file.map_err(|e| at(&new)(e.into()))?);
    let mut store = Store { connection: database(&new)? };
    schema::make(&store.connection)?;
    if holds {
        store.hold(now.after(Time::DAY), "the store was damaged")?;
    }
    drop(store);
    file.sync_all().map_err(at(&new))?;
    std::fs::rename(&new, path).map_err(at(path))?;
    let above = above(path);
    std::fs::File::open(above).and_then(|above| above.sync_all()).map_err(at(above))
}

/// Opens the database, and checks it.
fn connect(path: &Path) -> Result<Connection> {
    let connection = database(path)?;
    // Nothing that a file defines is run, and no page is trusted to be what its number says.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    // The lock is kept, so that a second process is refused. It comes first: only before the file is read does it also keep
    // the index of the log in memory, instead of a mapped file, for which a full disk ends the process (SIGBUS).
    connection.execute_batch(&format!(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = -512;
         PRAGMA temp_store = MEMORY; PRAGMA max_page_count = {};",
        LARGEST / PAGE
    ))?;
    check(&connection)?;
    // From here on it is ours to write. A transaction is durable once it has returned.
    let text = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let journal = connection.pragma_update_and_check(None, "journal_mode", "WAL", text)?;
    if journal != "wal" {
        return Err(StoreError::Damaged(format!("its journal is {journal}, not wal")));
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Taken now, so that it is this call that another process makes fail.
    connection.execute_batch("BEGIN IMMEDIATE; COMMIT;")?;
    Ok(connection)
}

/// Checks that a database is a store; reads only.
fn check(connection: &Connection) -> Result<()> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    match (number("application_id")?, number("user_version")?) {
        (APPLICATION, VERSION) => {}
        (APPLICATION, found) if found > VERSION => {
            return Err(StoreError::Later { found, known: VERSION });
        }
        _ => return Err(StoreError::Damaged("it is no store of fragmend watch".into())),
    }
    let ours = Connection::open_in_memory()?;
    schema::make(&ours)?;
    if schema::definitions(&ours)? != schema::definitions(connection)? {
        return Err(StoreError::Damaged("its tables are not those of a store".into()));
    }
    let sound: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if sound != "ok" {
        return Err(StoreError::Damaged(sound));
    }
    Ok(())
}

/// The directory of an absolute path.
fn above(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn with(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Renames what is no store, with what SQLite keeps beside it.
fn set_aside(path: &Path, now: Time) -> Result<PathBuf> {
    let to = with(path, &format!("{DAMAGED}{}", now.ms()));
    for end in BESIDE {
        match std::fs::rename(with(path, end), with(&to, end)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(path)(e)),
            _ => {}
        }
    }
    std::fs::rename(path, &to).map_err(at(path))?;
    Ok(to)
}

/// Whether a store with this name was set aside within a day, or in the future of a clock that was set back.
fn was_set_aside(path: &Path, now: Time) -> Result<bool> {
    let above = above(path);
    let kept = with(Path::new(path.file_name().unwrap_or_default()), DAMAGED);
    for entry in above.read_dir().map_err(at(above))? {
        let name = entry.map_err(at(above))?.file_name();
        let time = name.as_bytes().strip_prefix(kept.as_os_str().as_bytes());
        let time = time.and_then(|time| std::str::from_utf8(time).ok()?.parse().ok());
        if time.is_some_and(|ms| now.since(Time::from_ms(ms)) < Time::DAY) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::InUse,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged(error.to_string())
            }
            Some(_) => Self::Sqlite(error),
            // A value that is not of its column's type, or out of its bounds.
            None => Self::Damaged(error.to_string()),
        }
    }
}
