//! The store: who may have a part in it, what it refuses, what it remembers after a kill.

use super::*;
use crate::Time;
use crate::activity::Program;
use crate::cause::Pattern;
use fragmend_layout::ByteRange;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3600);
const BUDGET: u64 = 1000;

fn at(hours: u32) -> Time {
    Time::from_ms(0).after(hours * HOUR)
}

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("below/watch.db");
    (dir, path)
}

fn open(path: &Path) -> Store {
    let (store, aside) = Store::open(path, at(0)).unwrap();
    assert_eq!(aside, None);
    store
}

fn key(inode: u64) -> FileKey {
    FileKey { volume: "volume".into(), inode, generation: u32::MAX }
}

/// Begins to move bytes of a file, which may write twice as many.
fn begin(
    store: &mut Store,
    file: u64,
    range: std::ops::Range<u64>,
    evidence: EvidenceId,
    now: Time,
) -> std::result::Result<MoveId, NotNow> {
    let ranges = [ByteRange { start: range.start, end: range.end }];
    let path = Path::new("/srv/x").into();
    let claim = Claim {
        evidence,
        file: &key(file),
        path: &path,
        ranges: &ranges,
        most_bytes: 2 * (range.end - range.start),
        budget_bytes: BUDGET,
    };
    store.begin_move(&claim, now).unwrap()
}

fn end(store: &mut Store, id: MoveId, written_bytes: u64, range: std::ops::Range<u64>, now: Time) {
    let moved = [ByteRange { start: range.start, end: range.end }];
    let ended = Ended { written_bytes, moved: &moved, outcome: Outcome::Done };
    store.end_move(id, &ended, now).unwrap();
}

#[test]
fn it_is_for_its_owner_alone() {
    let (_dir, path) = place();
    let store = open(&path);
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    assert_eq!(mode(&path.with_extension("db-wal")), 0o600);
    // Another process would get the same answer as another connection.
    assert!(matches!(Store::open(&path, at(0)), Err(StoreError::InUse)));
    drop(store);
    open(&path);
}

/// A full file system gives a mapped file no block: the process would end by SIGBUS, not by an error.
#[test]
fn no_file_beside_it_is_mapped() {
    let (_dir, path) = place();
    for _ in 0..2 {
        let mut store = open(&path);
        store.begin_evidence(at(0)).unwrap();
        let names = fs::read_dir(path.parent().unwrap()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["watch.db", "watch.db-wal"]);
    }
}

#[test]
fn what_others_have_a_part_in_is_refused() {
    let refused = |prepare: &dyn Fn(&Path), words: &str| {
        let (_dir, path) = place();
        let above = path.parent().unwrap();
        fs::create_dir(above).unwrap();
        fs::set_permissions(above, Permissions::from_mode(0o700)).unwrap();
        prepare(&path);
        let stat = || fs::metadata(&path).map(|stat| (stat.len(), stat.mtime_nsec())).ok();
        let before = stat();
        let error = Store::open(&path, at(0)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(stat(), before, "{words}: it was changed");
    };
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let make = |path: &Path| {
        fs::write(path, "").unwrap();
        mode(path, 0o600);
    };
    refused(&|path| mode(path.parent().unwrap(), 0o750), "chmod 0700");
    refused(
        &|path| {
            make(path);
            mode(path, 0o640)
        },
        "chmod 0600",
    );
    refused(&|path| symlink("/etc/passwd", path).unwrap(), "symbolic link");
    refused(&|path| symlink(path.with_extension("new"), path).unwrap(), "symbolic link");
    refused(&|path| fs::create_dir(path).unwrap(), "no regular file");
    refused(
        &|path| {
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
                .unwrap()
        },
        "no regular file",
    );
    refused(
        &|path| {
            make(&path.with_extension("other"));
            fs::hard_link(path.with_extension("other"), path).unwrap();
        },
        "another name",
    );
    // A directory above it in which others may rename.
    refused(&|path| mode(path.parent().unwrap().parent().unwrap(), 0o777), "other users can put");
}

#[test]
fn what_is_no_store_is_kept_aside_and_nothing_moves_for_a_day() {
    type Spoil<'a> = &'a dyn Fn(&Path);
    let sql = |path: &Path, text: &str| {
        Connection::open(path).unwrap().execute_batch(text).unwrap();
    };
    let cases: [(&str, Spoil<'_>); 9] = [
        ("nothing", &|path| fs::write(path, "").unwrap()),
        ("garbage", &|path| fs::write(path, [0x5a; 10_000]).unwrap()),
        ("another database", &|path| {
            fs::remove_file(path).unwrap();
            sql(path, "CREATE TABLE t (x)");
        }),
        ("a trigger", &|path| {
            sql(path, "CREATE TRIGGER t AFTER INSERT ON evidence BEGIN DELETE FROM move; END");
        }),
        ("a view in the place of a table", &|path| {
            sql(path, "DROP TABLE held; CREATE VIEW held AS SELECT 0 AS until, '' AS reason");
        }),
        ("a table of other types", &|path| sql(path, "ALTER TABLE move ADD COLUMN x INTEGER")),
        ("an older version", &|path| sql(path, "PRAGMA user_version = 0")),
        ("half of it", &|path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("overwritten pages", &|path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[4096..].fill(0xa5);
            fs::write(path, bytes).unwrap();
        }),
    ];
    for (what, spoil) in cases {
        let (_dir, path) = place();
        drop(open(&path));
        spoil(&path);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let spoiled = fs::read(&path).unwrap();
        let (mut store, aside) = Store::open(&path, at(0)).unwrap();
        let aside = aside.unwrap_or_else(|| panic!("{what} was believed"));
        assert!(fs::read(&aside.to).unwrap() == spoiled, "{what} was changed");
        let evidence = store.begin_evidence(at(1)).unwrap();
        assert_eq!(
            begin(&mut store, 1, 0..10, evidence, at(23)),
            Err(NotNow::OverBudget(0)),
            "{what}"
        );
        assert!(store.held(at(23)).unwrap().is_some());
        assert!(begin(&mut store, 1, 0..10, evidence, at(25)).is_ok(), "{what}");
    }
}

#[test]
fn a_kill_after_the_store_was_set_aside_frees_no_budget() {
    let (_dir, path) = place();
    drop(open(&path));
    fs::write(&path, [0x5a; 10_000]).unwrap();
    let (_, aside) = Store::open(&path, at(0)).unwrap();
    // Killed before the new one has its name, and while it is made.
    fs::remove_file(&path).unwrap();
    fs::write(path.with_extension("db.new"), "half").unwrap();
    let (store, again) = Store::open(&path, at(1)).unwrap();
    assert_eq!(again, None);
    assert_eq!(store.budget_left(BUDGET, at(24)).unwrap(), 0);
    assert_eq!(store.budget_left(BUDGET, at(25)).unwrap(), BUDGET);
    drop(store);
    // One that was set aside long ago holds nothing.
    fs::remove_file(&path).unwrap();
    let (store, _) = Store::open(&path, at(24)).unwrap();
    assert_eq!(store.budget_left(BUDGET, at(24)).unwrap(), BUDGET);
    assert!(aside.unwrap().to.exists());
}

#[test]
fn a_store_of_a_later_version_is_refused_and_stays() {
    let (_dir, path) = place();
    drop(open(&path));
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 2").unwrap();
    assert!(matches!(Store::open(&path, at(0)), Err(StoreError::Later { found: 2, known: 1 })));
    assert!(path.exists());
}

#[test]
fn values_that_cannot_be_are_an_error() {
    let (_dir, path) = place();
    let mut store = open(&path);
    let evidence = store.begin_evidence(at(0)).unwrap();
    let id = begin(&mut store, 1, 0..10, evidence, at(1)).unwrap();
    end(&mut store, id, 10, 0..10, at(1));
    for (forge, undo) in
        [("written = -5", "written = 5"), ("written = -9223372036854775808", "written = 5")]
    {
        store.connection.execute(&format!("UPDATE move SET {forge}"), []).unwrap();
        assert!(matches!(store.budget_left(BUDGET, at(2)), Err(StoreError::Damaged(_))), "{forge}");
        store.connection.execute(&format!("UPDATE move SET {undo}"), []).unwrap();
    }
    store.connection.execute("UPDATE move SET written = 9223372036854775807", []).unwrap();
    assert_eq!(store.budget_left(BUDGET, at(2)).unwrap(), 0);
    store
        .connection
        .execute("UPDATE move SET ended = 9223372036854775807, began = -9223372036854775808", [])
        .unwrap();
    assert_eq!(store.budget_left(BUDGET, at(2)).unwrap(), 0);
    store.prune(Duration::MAX, None, at(2)).unwrap();
}

#[test]
fn what_was_written_counts_for_a_day_from_its_end_on() {
    let (_dir, path) = place();
    let mut store = open(&path);
    let evidence = store.begin_evidence(at(0)).unwrap();
    let id = begin(&mut store, 1, 0..400, evidence, at(1)).unwrap();
    // Until it has ended, the most that it can write.
    assert_eq!(store.budget_left(BUDGET, at(1)).unwrap(), 200);
    assert_eq!(begin(&mut store, 2, 0..101, evidence, at(1)), Err(NotNow::OverBudget(200)));
    // Also if that lasts for days.
    assert_eq!(store.budget_left(BUDGET, at(50)).unwrap(), 200);
    end(&mut store, id, 450, 0..400, at(50));
    assert_eq!(store.budget_left(BUDGET, at(73)).unwrap(), 550);
    assert_eq!(store.budget_left(BUDGET, at(74)).unwrap(), 1000);
    // A clock that was set back frees nothing.
    assert_eq!(store.budget_left(BUDGET, at(3)).unwrap(), 550);
    assert_eq!(store.written_since(at(0)).unwrap(), Written { moves: 1, bytes: 450 });
}

#[test]
fn a_move_without_end_counts_in_full_and_needs_new_evidence() {
    let (_dir, path) = place();
    let mut store = open(&path);
    let evidence = store.begin_evidence(at(0)).unwrap();
    begin(&mut store, 1, 0..400, evidence, at(1)).unwrap();
    drop(store);
    let (mut store, _) = Store::open(&path, at(5)).unwrap();
    assert_eq!(store.budget_left(BUDGET, at(28)).unwrap(), 200);
    assert_eq!(store.budget_left(BUDGET, at(29)).unwrap(), 1000);
    let again = ByteRange { start: 399, end: 500 };
    assert_eq!(begin(&mut store, 1, 399..500, evidence, at(30)), Err(NotNow::NoNewEvidence(again)));
    let evidence = store.begin_evidence(at(30)).unwrap();
    assert!(begin(&mut store, 1, 399..500, evidence, at(31)).is_ok());
}

#[test]
fn no_range_moves_twice_without_new_evidence() {
    let (_dir, path) = place();
    let mut store = open(&path);
    let first = store.begin_evidence(at(0)).unwrap();
    let id = begin(&mut store, 1, 100..200, first, at(1)).unwrap();
    // A recording that began before the move had ended is no evidence for the next one.
    let during = store.begin_evidence(at(1)).unwrap();
    end(&mut store, id, 100, 100..200, at(2));
    for evidence in [first, during] {
        for range in [100..200, 0..101, 199..300, 150..160, 0..300] {
            let refused = begin(&mut store, 1, range.clone(), evidence, at(2));
            assert!(matches!(refused, Err(NotNow::NoNewEvidence(_))), "{range:?}");
        }
        assert_eq!(
            store
                .moved_since(&key(1), &[ByteRange::at(0, 101)], evidence)
                .unwrap()
                .map(|r| r.start),
            Some(0)
        );
    }
    // Beside it, and in another file, there is nothing in the way.
    for (file, range) in [(1, 0..100), (1, 200..300), (2, 100..200)] {
        let id = begin(&mut store, file, range.clone(), first, at(2)).unwrap();
        end(&mut store, id, 0, range, at(2));
    }
    // The clock does not matter.
    let after = store.begin_evidence(at(0)).unwrap();
    assert!(begin(&mut store, 1, 100..200, after, at(0)).is_ok());
}

#[test]
fn what_is_fragmented_again_is_counted_once_for_each_time_it_was_mended() {
    let (_dir, path) = place();
    let mut store = open(&path);
    let program =
        Program { comm: "postgres".into(), cgroup: Some("db.service".into()), written_bytes: 1 };
    let range = [ByteRange::at(0, 100)];
    let note = |store: &mut Store, evidence, writer, pattern| {
        store.note_fragmented(&key(1), &range, evidence, (writer, pattern), at(1)).unwrap()
    };
    let first = store.begin_evidence(at(0)).unwrap();
    assert_eq!(note(&mut store, first, None, Pattern::NotSeen), None);
    let id = begin(&mut store, 1, 0..100, first, at(1)).unwrap();
    end(&mut store, id, 100, 0..100, at(1));
    // By the evidence that it was moved for, it is not fragmented again.
    assert_eq!(note(&mut store, first, None, Pattern::NotSeen), None);
    let second = store.begin_evidence(at(2)).unwrap();
    let seen = note(&mut store, second, Some(&program), Pattern::Overwrites).unwrap();
    let by = Some(("postgres".to_owned(), Some("db.service".to_owned())));
    assert_eq!(
        seen,
        Recurrence { times: 1, is_new: true, program: by.clone(), pattern: Pattern::Overwrites }
    );
    let third = store.begin_evidence(at(3)).unwrap();
    let known = note(&mut store, third, None, Pattern::NotSeen).unwrap();
    assert_eq!((known.times, known.is_new), (1, false));
    let id = begin(&mut store, 1, 0..100, third, at(4)).unwrap();
    end(&mut store, id, 100, 0..100, at(4));
    let fourth = store.begin_evidence(at(5)).unwrap();
    // The writer that was seen once is not forgotten.
    let seen = note(&mut store, fourth, None, Pattern::NotSeen).unwrap();
    assert_eq!(
        seen,
        Recurrence { times: 2, is_new: true, program: by, pattern: Pattern::Overwrites }
    );
    // What was tried and did not move has not become fragmented again.
    let id = begin(&mut store, 2, 0..100, fourth, at(5)).unwrap();
    end(&mut store, id, 0, 500..600, at(5));
    let fifth = store.begin_evidence(at(6)).unwrap();
    assert_eq!(
        store.note_fragmented(&key(2), &range, fifth, (None, Pattern::NotSeen), at(6)).unwrap(),
        None
    );
}

#[test]
fn what_is_old_is_removed_and_what_matters_stays() {
    let (_dir, path) = place();
    let mut store = open(&path);
    let count = |store: &Store, table: &str| {
        let query = format!("SELECT count(*) FROM {table}");
        store.connection.query_row(&query, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let mut latest = store.begin_evidence(at(0)).unwrap();
    for n in 0..10 {
        latest = store.begin_evidence(at(n * 24)).unwrap();
        store.end_evidence(latest, at(n * 24), 1, 0).unwrap();
        let file = KnownFile { key: key(n.into()), path: Path::new("/srv/x").into() };
        let finding = Finding { file, extents: 2, bytes: 10, seconds_saved: 1.0 };
        let found = Found { evidence: latest, ranges: 1, findings: &[finding] };
        store.keep_plan(&found, at(n * 24)).unwrap();
        let id = begin(&mut store, n.into(), 0..10, latest, at(n * 24)).unwrap();
        end(&mut store, id, 10, 0..10, at(n * 24));
    }
    // Whatever is asked for, a day is kept.
    store.prune(Duration::ZERO, None, at(9 * 24 + 1)).unwrap();
    for table in ["evidence", "plan", "finding", "move", "part", "file"] {
        assert_eq!(count(&store, table), 1, "{table}");
    }
    assert_eq!(store.budget_left(BUDGET, at(9 * 24 + 1)).unwrap(), BUDGET - 10);
    // Also when all are removed, a number is not used again.
    // What the evidence that is still in use has moved stays.
    store.prune(Time::DAY, Some(latest), at(1000)).unwrap();
    assert!(matches!(begin(&mut store, 9, 0..10, latest, at(1000)), Err(NotNow::NoNewEvidence(_))));
    store.prune(Time::DAY, None, at(1000)).unwrap();
    assert_eq!(count(&store, "evidence"), 0);
    let id = begin(&mut store, 1, 0..10, latest, at(1000)).unwrap();
    end(&mut store, id, 10, 0..10, at(1000));
    assert!(matches!(begin(&mut store, 1, 0..10, latest, at(1000)), Err(NotNow::NoNewEvidence(_))));
    assert!(store.begin_evidence(at(1000)).unwrap() > latest);
}

#[test]
fn files_with_long_names_do_not_fill_the_store() {
    let (_dir, path) = place();
    let mut store = open(&path);
    let name: Vec<u8> = (0..4000).map(|n| if n % 200 == 0 { b'/' } else { 1 }).collect();
    let long: PathText = Path::new(OsStr::from_bytes(&name)).into();
    let mut pages = [0; 2];
    for n in 0..20 {
        let evidence = store.begin_evidence(at(n)).unwrap();
        let finding = |file: u64| Finding {
            file: KnownFile { key: key(u64::from(n) * 1000 + file), path: long.clone() },
            extents: 2,
            bytes: 10,
            seconds_saved: 1.0,
        };
        let findings: Vec<_> = (0..1000).map(finding).collect();
        store.keep_plan(&Found { evidence, ranges: 1, findings: &findings }, at(n)).unwrap();
        store.prune(90 * Time::DAY, None, at(n)).unwrap();
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        pages[n as usize % 2] =
            store.connection.pragma_query_value(None, "page_count", count).unwrap();
    }
    // 1000 files of each plan, the longest there is of each.
    let of_a_plan = (pages[1] - pages[0]) * 4096;
    assert!(of_a_plan < 1_000_000, "{of_a_plan} bytes for each plan");
}
