//! Files of PostgreSQL: a data directory has a file `PG_VERSION`, and a relation has the number of its file as its name
//! (<https://www.postgresql.org/docs/current/storage-file-layout.html>).
//!
//! Names are read in the catalogues as they are on disk: what the server has not written yet is not known, and the file then
//! goes by its numbers, as it does where the version is not known here.
//!
//! | module | its job |
//! |---|---|
//! | [`heap`] | rows in pages, and the map of catalogues to files |
//! | [`catalogue`] | names in rows |

pub mod catalogue;
pub mod heap;

use crate::Known;
use crate::{Candidate, candidate};
use catalogue::{Relation, databases, relations};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "PostgreSQL";
const ADVICE: (&str, &str) = (
    "VACUUM FULL or CLUSTER writes a table anew; on XFS a hint on its directory lets files that are made there grow in large extents: xfs_io -c 'extsize 16m'",
    "https://www.postgresql.org/docs/current/sql-vacuum.html, xfs_io(8)",
);
/// Versions whose catalogues are known.
const VERSIONS: std::ops::RangeInclusive<u32> = 12..=18;
/// Data directories and databases whose catalogues are kept; of further ones there are numbers.
const MOST: usize = 64;

/// A database, by the data directory and its number there.
type Database = (PathBuf, u32);

/// A data directory.
struct Data {
    version: u32,
    /// The names of its databases, as far as they are known.
    databases: HashMap<u32, String>,
}

/// What was read of catalogues.
#[derive(Default)]
pub struct Catalogues {
    /// By its path; `None` where it is none.
    data: HashMap<PathBuf, Option<Data>>,
    relations: HashMap<Database, HashMap<u32, (Relation, String)>>,
}

/// A relation's file, of its name: number, fork and segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelationFile {
    /// Number of the file.
    pub number: u32,
    /// What it holds besides data.
    pub fork: Option<&'static str>,
    /// Which GiB of it.
    pub segment: u32,
}

impl RelationFile {
    /// Parses a name, for example `16385_vm` or `16385.2`.
    pub fn parse(name: &str) -> Option<Self> {
        const FORKS: [(&str, &str); 3] =
            [("fsm", "free space map"), ("vm", "visibility map"), ("init", "initial state")];
        let (name, segment) = match name.split_once('.') {
            Some((name, segment)) => (name, segment.parse().ok()?),
            None => (name, 0),
        };
        let (number, fork) = match name.split_once('_') {
            Some((number, fork)) => {
                (number, Some(FORKS.iter().find(|(short, _)| *short == fork)?.1))
            }
            None => (name, None),
        };
        // No sign, and no zero in front.
        let is_number = number.starts_with(|c: char| ('1'..='9').contains(&c));
        let number = number.parse().ok().filter(|_| is_number)?;
        Some(Self { number, fork, segment })
    }
}

impl Catalogues {
    /// A relation or a log in a data directory.
    pub fn known(&mut self, file: &Candidate) -> Option<Known> {
        let name = file.name(0)?.to_str()?;
        let above = |levels: usize| file.path.ancestors().nth(levels);
        if file.name(1) == Some(OsStr::new("pg_wal")) {
            self.open(above(2)?)?;
            let is_log = name.len() == 24 && name.bytes().all(|b| b.is_ascii_hexdigit());
            return is_log.then(|| crate::known(PROGRAM, "write-ahead log", None));
        }
        let relation = RelationFile::parse(name)?;
        if file.name(2) == Some(OsStr::new("base")) {
            let number = file.name(1)?.to_str()?.parse().ok()?;
            let data = self.open(above(3)?)?;
            let database = match data.databases.get(&number) {
                Some(name) => format!("database {name}"),
                None => format!("database number {number}"),
            };
            let version = data.version;
            let named = self.relation(above(3)?, above(1)?, number, relation.number, version);
            return Some(described(relation, named, &database));
        }
        if file.name(1) == Some(OsStr::new("global")) {
            self.open(above(2)?)?;
            return Some(described(relation, None, "all databases"));
        }
        None
    }

    /// A data directory; `None` if it is none.
    fn open(&mut self, data: &Path) -> Option<&Data> {
        if !self.data.contains_key(data) {
            let version = candidate::read(&data.join("PG_VERSION"), 16)
                .and_then(|text| String::from_utf8(text).ok()?.trim().parse::<u32>().ok());
            let names = |version: u32| {
                let is_known = VERSIONS.contains(&version) && self.data.len() < MOST;
                let databases = is_known.then(|| databases(data)).flatten().unwrap_or_default();
                Data { version, databases }
            };
            let found = version.map(names);
            if self.data.len() >= MOST {
                self.data.clear();
            }
            self.data.insert(data.to_owned(), found);
        }
        self.data.get(data)?.as_ref()
    }

    /// The relation that a file of a database belongs to, with its schema.
    fn relation(
        &mut self,
        data: &Path,
        directory: &Path,
        database: u32,
        file: u32,
        version: u32,
    ) -> Option<&(Relation, String)> {
        if !VERSIONS.contains(&version) {
            return None;
        }
        let key = (data.to_owned(), database);
        if !self.relations.contains_key(&key) && self.relations.len() >= MOST {
            self.relations.clear();
        }
        let read = || relations(directory, version).unwrap_or_default();
        self.relations.entry(key).or_insert_with(read).get(&file)
    }
}

fn described(file: RelationFile, relation: Option<&(Relation, String)>, database: &str) -> Known {
    let what = match relation {
        Some((relation, schema)) => format!("{} {schema}.{}", relation.kind(), relation.name),
        None => format!("relation with file number {}", file.number),
    };
    let fork = file.fork.map_or(String::new(), |fork| format!("{fork} of "));
    let segment =
        if file.segment > 0 { format!(", segment {}", file.segment) } else { String::new() };
    let advice = Some(ADVICE).filter(|_| file.fork.is_none());
    crate::known(PROGRAM, format!("{fork}{what} of {database}{segment}"), advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_number_fork_and_segment() {
        let of = |name: &str| RelationFile::parse(name).map(|f| (f.number, f.fork, f.segment));
        assert_eq!(of("16385"), Some((16385, None, 0)));
        assert_eq!(of("16385.12"), Some((16385, None, 12)));
        assert_eq!(of("16385_vm"), Some((16385, Some("visibility map"), 0)));
        assert_eq!(of("16385_fsm.1"), Some((16385, Some("free space map"), 1)));
        for other in
            ["", "0", "016385", "+1", "t3_16385", "16385_x", "16385.", "4294967296", "1.-1"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
