//! The tables, and whether those of a file are the same: what another user has made, with triggers or views of its own, is
//! no store of ours.

use rusqlite::Connection;

/// Identifies the file as a store of fragmend watch (`PRAGMA application_id`): "frgw".
pub const APPLICATION: i64 = 0x6672_6777;
/// Version of the tables (`PRAGMA user_version`).
pub const VERSION: i64 = 1;

/// Times are milliseconds since 1970, sizes bytes. Numbers of 64 bits without a sign are stored by their bits.
pub const TABLES: &str = "
CREATE TABLE evidence (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    began INTEGER NOT NULL,
    ended INTEGER,
    accesses INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE file (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    volume TEXT NOT NULL,
    inode INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    path TEXT NOT NULL,
    used INTEGER NOT NULL,
    UNIQUE (volume, inode, generation)
) STRICT;
CREATE TABLE plan (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    evidence INTEGER NOT NULL,
    made INTEGER NOT NULL,
    files INTEGER NOT NULL,
    ranges INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    seconds_saved REAL NOT NULL
) STRICT;
CREATE TABLE finding (
    evidence INTEGER NOT NULL,
    file INTEGER NOT NULL,
    extents INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    seconds_saved REAL NOT NULL,
    PRIMARY KEY (evidence, file)
) STRICT, WITHOUT ROWID;
CREATE TABLE move (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    evidence INTEGER NOT NULL,
    file INTEGER NOT NULL,
    began INTEGER NOT NULL,
    most INTEGER NOT NULL,
    ended INTEGER,
    written INTEGER,
    newest INTEGER,
    outcome TEXT
) STRICT;
CREATE INDEX move_of_file ON move (file);
CREATE INDEX move_by_end ON move (ended);
CREATE TABLE part (
    move INTEGER NOT NULL,
    first INTEGER NOT NULL,
    beyond INTEGER NOT NULL,
    moved INTEGER NOT NULL DEFAULT 0,
    again INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (move, first)
) STRICT, WITHOUT ROWID;
CREATE TABLE recurrence (
    file INTEGER PRIMARY KEY,
    times INTEGER NOT NULL,
    latest INTEGER NOT NULL,
    program TEXT,
    cgroup TEXT,
    pattern TEXT NOT NULL
) STRICT;
CREATE TABLE held (
    until INTEGER NOT NULL,
    reason TEXT NOT NULL
) STRICT;
";

/// Everything that a database defines, in a fixed order.
pub fn definitions(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let query = "SELECT name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name";
    let mut statement = connection.prepare(query)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

/// Makes the tables in an empty database.
pub fn make(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "BEGIN; {TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
    ))
}

/// Removes all rows, and the numbers that were used.
pub fn empty(connection: &Connection) -> rusqlite::Result<()> {
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let tables: Vec<String> =
        connection.prepare(names)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    tables.iter().try_for_each(|table| {
        connection.prepare(&format!("DELETE FROM {table}"))?.execute([]).map(|_| ())
    })
}
