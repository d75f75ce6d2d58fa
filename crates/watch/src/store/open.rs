//! Opens the store so that no other user can have a part in it.
//!
//! Its directory is this user's, for this user alone (0700), and no other user can rename it or one above it. In it,
//! the store is a regular file of this user's with one name, for this user alone (0600); a symbolic link is never followed. So
//! between the check and SQLite's use of the path nobody else can put another file there.
//!
//! A file that is no store, or a damaged one, is renamed and kept, and a new one is made. What it knew of bytes written is lost
//! with it: so for 24 hours nothing moves. A store of a later version is refused, for it is nobody's mistake but the operator's.

use super::schema::{self, APPLICATION, VERSION};
use super::{Result, Store, StoreError};
use crate::Time;
use fragmend_sys::{directory, held};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The largest store, in bytes: findings are removed long before.
const LARGEST: i64 = 256 << 20;
const PAGE: i64 = 4096;

/// Files that SQLite keeps beside the database.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

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
        let (connection, aside) = match connect(&path) {
            Ok(connection) => (connection, None),
            Err(StoreError::Damaged(why)) => {
                let to = set_aside(&path, now)?;
                (connect(&path)?, Some(MovedAside { to, why }))
            }
            Err(other) => return Err(other),
        };
        let mut store = Self { connection };
        if aside.is_some() {
            store.hold(now.after(Time::DAY), "the store was damaged")?;
        }
        store.recover(now)?;
        Ok((store, aside))
    }
}

fn refused(path: &Path, what: &'static str) -> StoreError {
    StoreError::Refused { path: path.to_owned(), what }
}

/// Checks, or makes, the directory and the file; returns the path without links.
fn secure(path: &Path) -> Result<PathBuf> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| StoreError::Io { path, source }
    };
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
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let path = canonical.join(name);
    let file = match rustix::fs::openat(dir.as_fd(), name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
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

/// Opens the database, makes its tables if it is empty, and checks it.
fn connect(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    // Nothing that a file defines is run, and no page is trusted to be what its number says.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    // The lock is kept, so that a second process is refused.
    connection.execute_batch(&format!(
        "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = -512; PRAGMA temp_store = MEMORY;
         PRAGMA locking_mode = EXCLUSIVE; PRAGMA max_page_count = {};",
        LARGEST / PAGE
    ))?;
    let is_empty = schema::definitions(&connection)?.is_empty();
    if !is_empty {
        check(&connection)?;
    }
    // From here on it is ours to write. A transaction is durable once it has returned.
    let text = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let journal = connection.pragma_update_and_check(None, "journal_mode", "WAL", text)?;
    if journal != "wal" {
        return Err(StoreError::Damaged(format!("its journal is {journal}, not wal")));
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    if is_empty {
        schema::make(&connection)?;
    }
    // Taken now, so that it is this call that another process makes fail.
    connection.execute_batch("BEGIN IMMEDIATE; COMMIT;")?;
    Ok(connection)
}

/// Checks that a database with contents is a store; reads only.
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

/// Renames what is no store, with what SQLite keeps beside it, and makes an empty file in its place.
fn set_aside(path: &Path, now: Time) -> Result<PathBuf> {
    let failed = |source| StoreError::Io { path: path.to_owned(), source };
    let with = |path: &Path, end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let to = with(path, &format!(".damaged-{}", now.ms()));
    for end in BESIDE {
        match std::fs::rename(with(path, end), with(&to, end)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
    }
    std::fs::rename(path, &to).map_err(failed)?;
    secure(path)?;
    Ok(to)
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
