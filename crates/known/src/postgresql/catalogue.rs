//! Names of databases, schemas and relations, in the catalogues of PostgreSQL 12 to 18 (src/include/catalog/pg_database.h,
//! pg_namespace.h and pg_class.h): since version 12, the number is the first column, and the name the second one.

use super::heap::{PAGE, mapped, rows};
use crate::bytes::le32;
use crate::candidate::{open, read};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Numbers of catalogues.
const PG_DATABASE: u32 = 1262;
const PG_CLASS: u32 = 1259;
const PG_NAMESPACE: &str = "pg_namespace";
/// Pages of a catalogue that are read: those of some 250,000 relations.
const MOST_PAGES: u64 = (64 << 20) / PAGE as u64;
/// Bytes of `pg_filenode.map`, at most.
const MAP: u64 = 4096;

/// A table, index or the like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Its name.
    pub name: String,
    /// The number of its schema.
    pub schema: u32,
    /// The number of its file; 0 if that is in the map.
    pub file: u32,
    /// What it is, as `pg_class.relkind` has it.
    pub kind: u8,
}

impl Relation {
    /// Parses a row of `pg_class` of this version.
    pub fn parse(columns: &[u8], version: u32) -> Option<Self> {
        // Since version 18, there is a column more before it.
        let kind_at = if version < 18 { 115 } else { 119 };
        let (_, name) = named(columns)?;
        let (schema, file) = (le32(columns, 68)?, le32(columns, 88)?);
        Some(Self { name, schema, file, kind: *columns.get(kind_at)? })
    }

    /// What it is, in words.
    pub fn kind(&self) -> &'static str {
        match self.kind {
            b'r' => "table",
            b'i' => "index",
            b't' => "TOAST table",
            b'm' => "materialized view",
            b'S' => "sequence",
            _ => "relation",
        }
    }
}

/// Number and name of a row of any catalogue that begins with them.
pub fn named(columns: &[u8]) -> Option<(u32, String)> {
    let name = columns.get(4..68)?;
    let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
    Some((le32(columns, 0)?, String::from_utf8_lossy(name).into_owned()))
}

/// The names of all databases of a data directory, by number.
pub fn databases(data: &Path) -> Option<HashMap<u32, String>> {
    let map = read(&data.join("global/pg_filenode.map"), MAP)?;
    let file = data.join("global").join(mapped(&map, PG_DATABASE)?.to_string());
    let mut names = HashMap::new();
    each(&file, |row| names.extend(named(row)))?;
    Some(names)
}

/// The relations of a database, by the numbers of their files, with the names of their schemas.
pub fn relations(directory: &Path, version: u32) -> Option<HashMap<u32, (Relation, String)>> {
    let map = read(&directory.join("pg_filenode.map"), MAP)?;
    let file = directory.join(mapped(&map, PG_CLASS)?.to_string());
    let mut relations = Vec::new();
    each(&file, |row| {
        let relation = Relation::parse(row, version);
        let file = relation.as_ref().map_or(0, |relation| relation.file);
        let file =
            if file == 0 { le32(row, 0).and_then(|of| mapped(&map, of)) } else { Some(file) };
        relations.extend(file.zip(relation));
    })?;
    let schemas = relations.iter().find(|(_, relation)| relation.name == PG_NAMESPACE);
    let mut names = HashMap::new();
    if let Some((file, _)) = schemas {
        each(&directory.join(file.to_string()), |row| names.extend(named(row)));
    }
    let named = relations.into_iter().map(|(file, relation)| {
        let schema = names.get(&relation.schema).cloned().unwrap_or_default();
        (file, (relation, schema))
    });
    Some(named.collect())
}

/// Calls `visit` with each row of a catalogue.
fn each(file: &Path, mut visit: impl FnMut(&[u8])) -> Option<()> {
    let catalogue = open(file)?;
    let mut page = vec![0; PAGE];
    let mut pages = 0..MOST_PAGES;
    while pages
        .next()
        .is_some_and(|at| catalogue.read_exact_at(&mut page, at * PAGE as u64).is_ok())
    {
        rows(&page, &mut visit);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_its_columns_where_the_version_has_them() {
        let mut row = vec![0; 120];
        let mut put = |at: usize, value: &[u8]| row[at..at + value.len()].copy_from_slice(value);
        put(0, &16385u32.to_le_bytes());
        put(4, b"orders");
        put(68, &2200u32.to_le_bytes());
        put(88, &16390u32.to_le_bytes());
        put(115, b"r");
        put(119, b"i");
        let orders = Relation { name: "orders".into(), schema: 2200, file: 16390, kind: b'r' };
        assert_eq!(Relation::parse(&row, 15).as_ref(), Some(&orders));
        let later = Relation::parse(&row, 18).unwrap();
        assert_eq!((orders.kind(), later.kind()), ("table", "index"));
        assert_eq!(named(&row), Some((16385, "orders".into())));
        assert_eq!(Relation::parse(&row[..115], 15), None);
        assert_eq!(named(&[0; 68]), None);
    }
}
