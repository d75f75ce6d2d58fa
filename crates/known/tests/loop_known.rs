//! Files that the programs themselves have made are recognised, by the names that these have given.

mod support;

use fragmend_known::Recogniser;
use fragmend_testbed::image::run;
use fragmend_testbed::process::finish;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use support::{directory, what};

/// The user `nobody`: PostgreSQL does not run as root.
const NOBODY: u32 = 65534;

#[test]
fn loop_sqlite_is_recognised_with_its_log() {
    let (_dir, path) = directory();
    let script = "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1);";
    let copy = ".shell cp shop.db-wal kept-wal";
    let mut command = Command::new("sqlite3");
    finish(command.arg("shop.db").args([script, copy]).current_dir(&path)).expect(&[0]);
    fs::write(path.join("other"), "SQLite format 3\0").unwrap();
    let mut recogniser = Recogniser::default();
    let mut of = |name: &str| what(&mut recogniser, &path.join(name));
    let log = of("kept-wal");
    assert_eq!(log.as_deref(), Some("SQLite: write-ahead log of pages of 8192 bytes"));
    let database = of("shop.db");
    let expected = "SQLite: database in pages of 8192 bytes, with a write-ahead log";
    assert_eq!(database.as_deref(), Some(expected));
    assert_eq!(of("other"), None);
}

/// The programs of the newest PostgreSQL that is installed.
fn postgresql(program: &str, data: &Path, args: &[&str]) -> Command {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed");
    let newest = versions.map(|version| version.unwrap().path()).max().expect("a version of it");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(newest.join("bin").join(program));
    command.args(args).arg("-D").arg(data).current_dir(data.parent().unwrap());
    command
}

/// Runs statements in the server's mode for one user: without a socket, and it ends with them.
fn statements(data: &Path, database: &str, lines: &str) -> String {
    let mut command = postgresql("postgres", data, &["--single"]);
    command.args(["-c", "fsync=off", database]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("ERROR"), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn loop_postgresql_relations_have_their_names() {
    let (dir, path) = directory();
    let data = path.join("data");
    fs::create_dir(&data).unwrap();
    chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let init = ["--no-sync", "--locale=C", "--encoding=UTF8", "--auth=reject"];
    finish(&mut postgresql("initdb", &data, &init)).expect(&[0]);
    statements(&data, "postgres", "CREATE DATABASE shop;\n");
    let said = statements(
        &data,
        "shop",
        "CREATE SCHEMA sales;\n\
         CREATE TABLE sales.old_name (id int PRIMARY KEY, note text);\n\
         INSERT INTO sales.old_name SELECT n, repeat('x', 100) FROM generate_series(1, 20000) n;\n\
         ALTER TABLE sales.old_name RENAME TO orders;\n\
         VACUUM FULL sales.orders;\n\
         VACUUM sales.orders;\n\
         SELECT pg_relation_filepath('sales.orders') AS t, pg_relation_filepath('sales.old_name_pkey') AS i, \
         pg_relation_filepath('pg_class') AS c, pg_relation_filepath('pg_database') AS d, \
         pg_relation_filepath('pg_toast.pg_toast_' || 'sales.orders'::regclass::oid) AS o;\n",
    );
    let place = |column: &str| {
        let begin = format!("{column} = \"");
        let (_, rest) = said.split_once(&begin).unwrap_or_else(|| panic!("{said}"));
        data.join(rest.split('"').next().unwrap())
    };
    let mut recogniser = Recogniser::default();
    let mut of = |path: &Path| what(&mut recogniser, path).unwrap_or_default();
    let table = place("t");
    assert_eq!(of(&table), "PostgreSQL: table sales.orders of database shop");
    let map = table.with_file_name(format!("{}_fsm", table.file_name().unwrap().to_str().unwrap()));
    assert_eq!(of(&map), "PostgreSQL: free space map of table sales.orders of database shop");
    assert_eq!(of(&place("i")), "PostgreSQL: index sales.old_name_pkey of database shop");
    assert_eq!(of(&place("c")), "PostgreSQL: table pg_catalog.pg_class of database shop");
    let toast = of(&place("o"));
    assert!(toast.starts_with("PostgreSQL: TOAST table pg_toast.pg_toast_"), "{toast}");
    let shared = of(&place("d"));
    assert!(shared.ends_with(" of all databases"), "{shared}");
    let log = fs::read_dir(data.join("pg_wal")).unwrap().map(|entry| entry.unwrap().path());
    let log = log.filter(|path| path.is_file()).max().unwrap();
    assert_eq!(of(&log), "PostgreSQL: write-ahead log");

    // Through a link nothing is read, and without the catalogue there are numbers.
    let elsewhere = path.join("link");
    symlink(&data, &elsewhere).unwrap();
    let behind = elsewhere.join(table.strip_prefix(&data).unwrap());
    assert_eq!(of(&behind), "");
    fs::remove_file(table.with_file_name("pg_filenode.map")).unwrap();
    let numbers = what(&mut Recogniser::default(), &table).unwrap();
    let file = table.file_name().unwrap().to_str().unwrap();
    assert_eq!(numbers, format!("PostgreSQL: relation with file number {file} of database shop"));
}

#[test]
fn loop_qcow2_images_show_fragments_inside() {
    let (_dir, path) = directory();
    let image = path.join("disk.qcow2");
    let name = image.to_str().unwrap();
    run("qemu-img", ["create", "-q", "-f", "qcow2", name, "1G"]);
    // The guest's order, and then every second cluster of 64 KiB first.
    let write = |at: u64, bytes: u64| format!("write -q {at} {bytes}");
    let mut commands = vec![write(0, 1 << 20)];
    let cluster = 64 << 10;
    let scattered = |n: u64| write((16 << 20) + n * cluster, cluster);
    commands.extend((0..16).step_by(2).map(scattered));
    commands.extend((1..16).step_by(2).map(scattered));
    let args = commands.iter().flat_map(|command| ["-c", command]);
    run("qemu-io", ["-f", "qcow2"].into_iter().chain(args).chain([name]));
    let mut recogniser = Recogniser::default();
    let found = what(&mut recogniser, &image).unwrap();
    let expected = "QEMU: disk of 1024 MiB of a virtual machine (qcow2): what is contiguous for the guest in 2 runs is \
                    in 17 of the image";
    assert_eq!(found, expected);
    // Written anew, it has as few as it can.
    let anew = path.join("anew");
    let anew = anew.to_str().unwrap();
    run("qemu-img", ["convert", "-f", "qcow2", "-O", "qcow2", name, anew].map(OsStr::new));
    let found = what(&mut recogniser, Path::new(anew)).unwrap();
    assert!(found.ends_with("in 2 runs is in 2 of the image"), "{found}");
}
