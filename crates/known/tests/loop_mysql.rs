//! Files of a MariaDB server that has made its tables itself. It runs in its mode for one user, without a socket, and ends
//! with what it is given; its files are looked at afterwards.

mod support;

use fragmend_known::Recogniser;
use fragmend_testbed::process::Finished;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{directory, what};

const TABLES: &str = "CREATE DATABASE `my-shop`;\n\
    USE `my-shop`;\n\
    CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(200)) ENGINE=InnoDB;\n\
    INSERT INTO orders SELECT seq, REPEAT('x', 150) FROM seq_1_to_1000;\n\
    CREATE TABLE parts (id INT PRIMARY KEY) ENGINE=InnoDB PARTITION BY HASH(id) PARTITIONS 2;\n\
    CREATE TABLE `a/b` (id INT PRIMARY KEY, note VARCHAR(100)) ENGINE=MyISAM;\n\
    INSERT INTO `a/b` VALUES (1, 'one');\n\
    CREATE TABLE aria (id INT PRIMARY KEY, note VARCHAR(100)) ENGINE=Aria;\n\
    INSERT INTO aria VALUES (1, 'one');\n";

/// Runs statements in a data directory.
fn statements(data: &Path, lines: &str) {
    let mut command = Command::new("mariadbd");
    command.args(["--no-defaults", "--bootstrap", "--user=root", "--innodb-flush-method=nosync"]);
    command.args(["--innodb-log-file-size=4M", "--innodb-buffer-pool-size=8M"]);
    let mut datadir = std::ffi::OsString::from("--datadir=");
    datadir.push(data);
    command.arg(datadir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("mariadbd starts");
    running.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = running.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    Finished::new("mariadbd", output.status, stdout, stderr).expect(&[0]);
}

#[test]
fn loop_mariadb_tables_have_their_names() {
    let (_dir, path) = directory();
    let data = path.join("data");
    fs::create_dir(&data).unwrap();
    statements(&data, TABLES);
    let mut recogniser = Recogniser::default();
    let mut of = |name: &str| what(&mut recogniser, &data.join(name)).unwrap_or_default();
    for (name, expected) in [
        ("my@002dshop/orders.ibd", "table orders of database my-shop"),
        ("my@002dshop/parts#P#p1.ibd", "table parts of database my-shop, partition p1"),
        ("my@002dshop/a@002fb.MYD", "table a/b of database my-shop"),
        ("my@002dshop/a@002fb.MYI", "indexes of table a/b of database my-shop"),
        ("my@002dshop/aria.MAD", "table aria of database my-shop"),
        ("my@002dshop/aria.MAI", "indexes of table aria of database my-shop"),
        ("ibdata1", "system tablespace"),
        ("ib_logfile0", "redo log"),
        ("aria_log.00000001", "log of Aria"),
    ] {
        assert_eq!(of(name), format!("MySQL or MariaDB: {expected}"), "{name}");
    }
    assert_eq!(of("my@002dshop/orders.frm"), "");

    // Data without its indexes beside it could be anything, and a link is not followed to them.
    let index = data.join("my@002dshop/a@002fb.MYI");
    fs::rename(&index, path.join("index")).unwrap();
    assert_eq!(of("my@002dshop/a@002fb.MYD"), "");
    symlink(path.join("index"), &index).unwrap();
    assert_eq!(of("my@002dshop/a@002fb.MYD"), "");
    // Neither does a name make a table.
    fs::write(data.join("my@002dshop/forged.ibd"), [0xFF; 4096]).unwrap();
    assert_eq!(of("my@002dshop/forged.ibd"), "");
}

#[test]
fn loop_a_file_is_named_while_it_is_the_same_one() {
    let (_dir, path) = directory();
    let table = path.join("orders.ibd");
    let mut page = [0; 4096];
    page[25] = 8;
    fs::write(&table, page).unwrap();
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let number = inode(&table);
    let mut recogniser = Recogniser::default();
    assert!(recogniser.at(&table, number).is_some());
    assert_eq!(recogniser.at(&table, number + 1), None);
    symlink(&table, path.join("link.ibd")).unwrap();
    assert_eq!(recogniser.at(&path.join("link.ibd"), number), None);
    assert!(File::open(path.join("link.ibd")).is_ok());
}
