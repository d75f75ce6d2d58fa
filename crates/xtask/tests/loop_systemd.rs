//! The Debian package on a running system: the service under a systemd of its own, as an operator sets it up and lives with
//! it. What the unit promises is looked at where the kernel keeps it, and tried.

use fragmend::commands::watch::KEPT;
use fragmend_testbed::fragment::{FRAGPICKER_EXTENTS, interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::packages::machine::Machine;
use fragmend_testbed::packages::made;
use fragmend_testbed::tools::extents;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 8 * MIB;
const VERSION: &str = env!("CARGO_PKG_VERSION");
const DAEMON: &str = "fragmend-watch.service";
const ONCE: &str = "fragmend-watch-once.service";
const TIMER: &str = "fragmend-watch-once.timer";
const POLICY: &str = "/etc/fragmend/watch.toml";
/// What systemd-analyze(1) may find exposed, from 0 to 10, times ten.
const EXPOSURE: u32 = 40;

/// A policy with short periods; the reader's cgroup decides what applies.
fn policy(mode: &str) -> String {
    format!(
        "paths = [\"/srv/data\"]
[recording]
window = \"2s\"
every = \"3s\"
overhead_percent = 100
[planning]
every = \"3s\"
[budget]
bytes_per_day = \"1G\"
[yield]
rate = \"1G\"
io_pressure_percent = 100
[[rule]]
path = \"/srv/data/**\"
mode = \"{mode}\"
min_gain_s_per_gib = 0
"
    )
}

/// Installs the package. Its version is made a later one with `newer`, for an upgrade.
fn install(machine: &Machine, package: &[u8], newer: bool) {
    machine.put("/root/fragmend.deb", package);
    if newer {
        machine.expect(
            "cd /root; dpkg-deb -R fragmend.deb new; sed -i 's/^Version: .*/Version: 1000-1/' new/DEBIAN/control
             dpkg-deb --root-owner-group -Znone -b new fragmend.deb; rm -r new",
        );
    }
    machine
        .expect("DEBIAN_FRONTEND=noninteractive dpkg -i /root/fragmend.deb; rm /root/fragmend.deb");
}

/// Waits until a unit has logged `words` once more than `before`.
fn until_logged(machine: &Machine, unit: &str, words: &str, before: usize) {
    let logged = || machine.journal(unit).matches(words).count();
    machine.until(&format!("{unit} says '{words}'"), || logged() > before);
}

/// The value of a metric, as it is served on the machine's loopback.
fn metric(machine: &Machine, name: &str) -> Option<f64> {
    let get = "exec 3<>/dev/tcp/127.0.0.1/9796; printf \"GET /metrics HTTP/1.0\\r\\n\\r\\n\" >&3; cat <&3";
    let text = machine.run(&format!("bash -c '{get}'")).stdout;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.parse().ok()
}

/// What the kernel says of the service's process is what the unit says, and what is forbidden fails.
fn is_confined(machine: &Machine) {
    let main = machine.main_process(DAEMON);
    let status = machine.expect(&format!("cat /proc/{main}/status"));
    let line = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    // This machine may have fewer itself.
    let bounding = machine.expect("sed -n 's/^CapBnd:\\t//p' /proc/1/status");
    let bounding = u64::from_str_radix(&bounding, 16).unwrap();
    let kept = format!("{:016x}", KEPT.bits() & bounding);
    let none = "0".repeat(16);
    for (name, value) in [
        ("CapInh:", &*none),
        ("CapPrm:", &kept),
        ("CapEff:", &kept),
        ("CapBnd:", &kept),
        ("CapAmb:", &none),
        ("NoNewPrivs:", "1"),
        ("Seccomp:", "2"),
    ] {
        assert_eq!(line(name), Some(value), "{name} {status}");
    }
    let files = machine
        .expect("stat -c '%a %n' /var/lib/fragmend /var/lib/fragmend/watch.db /run/fragmend");
    assert_eq!(files, "700 /var/lib/fragmend\n600 /var/lib/fragmend/watch.db\n700 /run/fragmend");

    for forbidden in ["/srv/data", "/etc", "/etc/fragmend", "/usr", "/root", "/var/lib", "/home"] {
        let done = machine.run_beside(DAEMON, &format!("touch {forbidden}/new"));
        assert!(done.stderr.contains("Read-only file system"), "{forbidden}: {done:?}");
    }
    for own in ["/var/lib/fragmend", "/run/fragmend", "/tmp"] {
        let done = machine.run_beside(DAEMON, &format!("touch {own}/new && rm {own}/new"));
        assert!(done.status.success(), "{own}: {done:?}");
    }
    // Nobody else sees its temporary files.
    machine.run_beside(DAEMON, "touch /tmp/its").expect(&[0]);
    assert!(!machine.tree().join("tmp/its").exists());
    machine.run_beside(DAEMON, "rm /tmp/its").expect(&[0]);
}

/// A policy that is wrong, or asks for an address that the unit forbids, changes nothing; one that is right applies.
fn reloads(machine: &Machine) {
    let main = machine.main_process(DAEMON);
    let kept = "the one before still applies";
    let elsewhere = format!("{}[metrics]\nlisten = \"127.0.0.1:9797\"\n", policy("advise"));
    for (n, wrong) in ["paths = []", &elsewhere].into_iter().enumerate() {
        machine.put(POLICY, wrong);
        machine.expect(&format!("systemctl reload {DAEMON}"));
        until_logged(machine, DAEMON, kept, n);
    }
    let said = machine.journal(DAEMON);
    let mut refused =
        said.lines().filter(|line| line.contains("cannot be served at 127.0.0.1:9797"));
    assert!(refused.next_back().is_some_and(|l| l.contains("Operation not permitted")), "{said}");
    assert!(metric(machine, "fragmend_budget_left_bytes").is_some());
    machine.put(POLICY, policy("ignore"));
    machine.expect(&format!("systemctl reload {DAEMON}"));
    until_logged(machine, DAEMON, "the policy was read again, and applies", 0);
    assert_eq!(machine.main_process(DAEMON), main);
}

/// Reads the file as long as the daemon's recorder has programs in the kernel, and not while data moves; again if that
/// recording has seen nothing.
fn is_read_while_recorded(machine: &Machine) {
    let recorded = || -> Vec<String> {
        let journal = machine.journal(DAEMON);
        journal.lines().filter(|l| l.starts_with("recorded ")).map(str::to_owned).collect()
    };
    let records = format!("ls -l /proc/{}/fd | grep -q bpf", machine.main_process(DAEMON));
    let read = "dd if=/srv/data/file of=/dev/null bs=128k iflag=direct status=none; sleep 0.3";
    loop {
        let before = recorded().len();
        machine.until("it records", || machine.run(&records).status.success());
        machine.expect(&format!("while {records}; do {read}; done"));
        machine.until("it has recorded", || recorded().len() > before);
        if recorded()[before..].iter().any(|line| !line.starts_with("recorded 0 ")) {
            return;
        }
    }
}

/// The unit keeps the file system read-only: a rule by which data would move is refused until a drop-in names the paths.
fn moves_once_a_drop_in_permits_it(machine: &Machine, image: &Image) {
    let file = image.path().join("file");
    let fragmented = extents(&file);
    machine.put(POLICY, policy("move"));
    machine.expect(&format!("systemctl reload {DAEMON}"));
    until_logged(machine, DAEMON, "name it in ReadWritePaths=", 0);
    assert_eq!(extents(&file), fragmented);
    // The second line is the test's: after a kill it need not wait for a minute.
    for unit in [DAEMON, ONCE] {
        let drop_in = format!("/etc/systemd/system/{unit}.d/override.conf");
        machine.put(&drop_in, "[Service]\nReadWritePaths=/srv/data\nRestartSec=1s\n");
    }
    // The reader would keep it from moving all.
    machine.expect(&format!(
        "systemctl stop reader.service; systemctl daemon-reload; systemctl restart {DAEMON}"
    ));
    is_read_while_recorded(machine);
    until_logged(machine, DAEMON, "/srv/data/file: moved", 0);
    machine.until("the file is in fewer extents", || extents(&file) * 4 < fragmented);
    let done = machine.run_beside(DAEMON, "touch /etc/new");
    assert!(done.stderr.contains("Read-only file system"), "{done:?}");
}

/// A daemon that is killed is started again, and what it has written still counts.
fn survives_a_kill(machine: &Machine) {
    let left = || metric(machine, "fragmend_budget_left_bytes");
    let starts = "watching; data moves by the rules";
    let started = machine.journal(DAEMON).matches(starts).count();
    machine.until("a period without a move", || {
        let before = left();
        std::thread::sleep(std::time::Duration::from_secs(7));
        before == left()
    });
    let (before, main) = (left().unwrap(), machine.main_process(DAEMON));
    assert!(before > 0.0 && before < f64::from(1 << 30), "{before}");
    machine.expect(&format!("systemctl kill --signal=KILL {DAEMON}"));
    until_logged(machine, DAEMON, starts, started);
    machine.until("it serves again", || left().is_some());
    assert_eq!(left(), Some(before));
    assert_eq!(machine.property(DAEMON, "NRestarts"), "1");
    assert_ne!(machine.main_process(DAEMON), main);
}

/// The timer starts its service, and the daemon gives way to it.
fn the_timer_runs_it_once(machine: &Machine) {
    machine.put(
        &format!("/etc/systemd/system/{TIMER}.d/override.conf"),
        "[Timer]\nOnCalendar=\nOnActiveSec=10s\nRandomizedDelaySec=0\nAccuracySec=100ms\n",
    );
    machine.expect(&format!("systemctl daemon-reload; systemctl disable {DAEMON}"));
    machine.expect(&format!("systemctl enable --now {TIMER}"));
    machine.until("the daemon has ended", || machine.property(DAEMON, "ActiveState") == "inactive");
    until_logged(machine, ONCE, "ended; what has moved is safe and stays", 0);
    machine.until("the run has ended", || machine.property(ONCE, "ActiveState") == "inactive");
    assert_eq!(machine.property(ONCE, "Result"), "success");
    let said = machine.journal(ONCE);
    assert!(said.contains("recorded ") && !said.contains("failed: "), "{said}");
    machine.expect(&format!("systemctl disable --now {TIMER}"));
}

/// An upgrade restarts the daemon, a removal ends it, and nothing is left once it is purged.
fn is_upgraded_and_goes(machine: &Machine, package: &[u8]) {
    machine.expect(&format!("systemctl enable --now {DAEMON}"));
    let main = machine.main_process(DAEMON);
    install(machine, package, true);
    assert_ne!(machine.main_process(DAEMON), main);
    assert_eq!(machine.property(DAEMON, "ActiveState"), "active");
    assert_eq!(machine.run(&format!("systemctl is-enabled {DAEMON}")).stdout, "enabled\n");

    machine.expect("dpkg -r fragmend");
    assert!(!machine.run("pgrep -x fragmend").status.success());
    assert_eq!(machine.property(DAEMON, "ActiveState"), "inactive");
    assert!(machine.tree().join("var/lib/fragmend/watch.db").exists());
    machine.expect("dpkg -P fragmend");
    let left = machine.expect(
        "find / -xdev -path /proc -prune -o -name '*fragmend*' ! -path '*.service.d*' ! -path '*.timer.d*' \
         ! -path '/var/lib/dpkg/*' -print",
    );
    assert_eq!(left, "");
}

#[test]
fn loop_the_service_under_systemd() {
    let image = Image::ext4(256 * MIB);
    // Costs are guessed as those of a disk, whatever the one under the image is.
    image.set_queue("rotational", "1");
    let file = image.path().join("file");
    interleaved(&file, SIZE, &FRAGPICKER_EXTENTS, true).unwrap();
    image.sync();
    let machine = Machine::boot(&image);
    let version = format!("{VERSION}-1");
    let out = made(&["deb", &version, "amd64"]);
    let package = std::fs::read(out.path().join(format!("fragmend_{version}_amd64.deb"))).unwrap();
    install(&machine, &package, false);
    assert_eq!(
        machine.run(&format!("systemctl is-enabled {DAEMON} {TIMER}")).stdout,
        "disabled\ndisabled\n"
    );
    // Without a policy it does not start.
    machine.expect(&format!("systemctl start {DAEMON}"));
    assert_eq!(machine.property(DAEMON, "ActiveState"), "inactive");

    let read = "while :; do dd if=/srv/data/file of=/dev/null bs=128k iflag=direct status=none; sleep 0.5; done";
    machine.expect(&format!("systemd-run --unit=reader sh -c '{read}'"));
    machine.put(POLICY, policy("advise"));
    machine.expect(&format!("systemctl enable --now {DAEMON}"));
    assert_eq!(machine.property(DAEMON, "ActiveState"), "active");
    is_confined(&machine);
    let security = format!(
        "systemd-analyze security --offline=true --threshold={EXPOSURE} --no-pager {DAEMON}"
    );
    let rated = machine.expect(&security);
    println!("{}", rated.lines().last().unwrap_or_default());
    until_logged(&machine, DAEMON, "/srv/data/file: moving 8.0 MiB", 0);
    reloads(&machine);
    moves_once_a_drop_in_permits_it(&machine, &image);
    survives_a_kill(&machine);
    the_timer_runs_it_once(&machine);
    is_upgraded_and_goes(&machine, &package);
    assert!(is_intact(&file, SIZE).unwrap());
    drop(machine);
    image.fsck();
}
