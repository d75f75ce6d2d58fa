//! What the pages about programs begin with: an ext4 whose free space is in holes of removed small files, but for an old archive that a
//! page may remove, and files on it that the program itself has written.

use fragmend_testbed::aging::{Cache, fill_up, reserve};
use fragmend_testbed::image::Image;
use fragmend_testbed::scratch;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SIZE: u64 = 320 << 20;
const ARCHIVE: u64 = 96 << 20;

/// The file system, and the directory in which a page's commands run.
pub struct Machine {
    image: Image,
    dir: tempfile::TempDir,
}

impl Machine {
    /// A file system full of small files, half of which were removed.
    pub fn aged() -> Self {
        let image = Image::ext4_with(SIZE, &["-m", "0", "-N", "49152"], "");
        reserve(&image.path().join("archive"), ARCHIVE);
        let mut cache = Cache::fill(&image.path().join("cache"), 16 << 10, 2021);
        // What has no place on the disk yet leaves no hole.
        image.sync();
        drop(fill_up(&image.path().join("rest")));
        cache.evict(cache.len() / 2);
        image.sync();
        let dir = scratch::directory("pages");
        // Programs that do not run as root look for their files below these.
        for path in [dir.path(), image.scratch(), image.path()] {
            fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        Self { image, dir }
    }

    /// Where it is mounted.
    pub fn data(&self) -> PathBuf {
        self.image.path().canonicalize().unwrap()
    }

    /// Where the commands run.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// What the program of a page has done before, as commands of the shell.
pub fn written_before(page: &str) -> &'static str {
    match page {
        "docs/integrations/sqlite.md" => SQLITE,
        "docs/integrations/postgresql.md" => POSTGRESQL,
        "docs/integrations/mysql.md" => MYSQL,
        "docs/integrations/vm-images.md" => DISKS,
        "docs/integrations/journald.md" => JOURNALD,
        "docs/integrations/downloads.md" => DOWNLOADS,
        other => panic!("nothing has written before {other}"),
    }
}

const SQLITE: &str = r#"
    sqlite3 "$DATA/shop.db" "PRAGMA journal_mode = WAL; CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
        INSERT INTO orders SELECT i, hex(randomblob(100)) FROM n;" > /dev/null
    sync -f "$DATA"
"#;

/// The server does not run as root.
const POSTGRESQL: &str = r#"
    install -d -o nobody "$DATA/pg"
    bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
    as_nobody() { (cd "$DATA/pg" && setpriv --reuid=nobody --regid=nogroup --clear-groups "$bin/$@"); }
    as_nobody initdb --no-sync --locale=C --encoding=UTF8 --auth=reject -D "$DATA/pg" > /dev/null
    statements() { as_nobody postgres --single -c fsync=off -D "$DATA/pg" "$1" > /dev/null; }
    echo "CREATE DATABASE shop;" | statements postgres
    statements shop <<< "CREATE TABLE orders (id int PRIMARY KEY, note text);
INSERT INTO orders SELECT n, repeat('x', 200) FROM generate_series(1, 40000) n;
VACUUM orders;"
    sync -f "$DATA"
"#;

const MYSQL: &str = r#"
    mkdir "$DATA/mysql"
    statements() {
        mariadbd --no-defaults --bootstrap --user=root --datadir="$DATA/mysql" \
            --innodb-log-file-size=4M --innodb-buffer-pool-size=8M 2> log || { cat log >&2; exit 1; }
    }
    statements << 'END'
CREATE DATABASE shop;
USE shop;
CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(200)) ENGINE=InnoDB;
INSERT INTO orders SELECT seq, REPEAT('x', 200) FROM seq_1_to_40000;
CREATE TABLE visits (id INT PRIMARY KEY, note VARCHAR(200)) ENGINE=Aria;
INSERT INTO visits SELECT seq, REPEAT('y', 200) FROM seq_1_to_20000;
END
    sync -f "$DATA"
"#;

/// A guest writes every second cluster of its disk first; another one writes 64 parts of its disk in an order that jumps.
const DISKS: &str = r#"
    qemu-img create -q -f qcow2 "$DATA/disk.qcow2" 2G
    commands=()
    for first in 0 1; do
        for n in $(seq $first 2 199); do commands+=(-c "write -q $((n * 64))k 64k"); done
    done
    qemu-io -f qcow2 "${commands[@]}" "$DATA/disk.qcow2"
    truncate -s 64M "$DATA/web.raw"
    echo "label: gpt" > table
    echo "size=48MiB" >> table
    sfdisk --quiet --no-reread "$DATA/web.raw" < table
    for n in $(seq 0 63); do
        dd if=/dev/zero of="$DATA/web.raw" bs=256K count=1 seek=$((4 + n * 37 % 64)) conv=notrunc,fsync status=none
    done
"#;

/// A journald of its own writes here, in a namespace of mounts of its own.
const JOURNALD: &str = r#"
    cat > journald << 'END'
mount -t tmpfs none /run
mount -t tmpfs none /var/log
mkdir -p /var/log/journal /run/systemd "$DATA/journal"
mount --bind "$DATA/journal" /var/log/journal
machine=0123456789abcdef0123456789abcdef
echo $machine > machine-id
mount --bind machine-id /etc/machine-id
/usr/lib/systemd/systemd-journald web &
journald=$!
trap 'kill $journald; wait' EXIT
within() { for n in $(seq 100); do if "$@"; then return; fi; sleep 0.1; done; exit 1; }
within test -S /run/systemd/journal.web/socket
python3 -c 'import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("/run/systemd/journal.web/socket")
for n in range(6000): s.send(b"MESSAGE=%d %s\nPRIORITY=6\n" % (n, b"x" * 400))'
counted() { [ "$(journalctl --quiet -D "$DATA/journal/$machine.web" PRIORITY=6 | grep -c " 5999 ")" -eq 1 ]; }
within counted
END
    unshare --mount bash -eu journald
    sync -f "$DATA"
"#;

/// A server of the page's own, a download that was interrupted, and a finished one.
const DOWNLOADS: &str = r#"
    head -c 12M /dev/urandom > disk.iso
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    python3 -m http.server --bind 127.0.0.1 "$port" > log 2>&1 &
    server=$!
    trap 'kill $server; wait' EXIT
    for n in $(seq 100); do if curl -s -o /dev/null "http://127.0.0.1:$port/log"; then break; fi; sleep 0.1; done
    aria2c --no-conf --quiet --file-allocation=none --max-download-limit=4M --dir="$DATA" \
        "http://127.0.0.1:$port/disk.iso" &
    aria2=$!
    is_begun() { [ "$(stat -c %s "$DATA/disk.iso" 2> /dev/null || echo 0)" -gt 4000000 ]; }
    for n in $(seq 300); do if is_begun; then break; fi; sleep 0.1; done
    kill $aria2
    wait $aria2 || true
    curl --silent --fail --xattr -o "$DATA/finished.iso" "http://127.0.0.1:$port/disk.iso"
    sync -f "$DATA"
"#;
