//! The daemon's metrics as an operator has them: a real Prometheus scrapes the daemon, its promtool checks the text, the
//! alert rules and their tests, and the dashboard shows only what there is.

use fragmend_testbed::file_system::{EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, finish, free_address, run};
use fragmend_testbed::reader::Reader;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");
/// How long a scrape, or the daemon's first status, may need on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// The most memory of the daemon that is resident and no file's. The rest is the program, which is twice as large without
/// optimization.
const MOST_ANONYMOUS_KIB: u64 = 16 << 10;

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// The body of what is at a path; `None` while nobody answers.
fn get(at: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// The value of a metric in the text.
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

fn wait_until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A daemon that watches a fragmented file which is read, with its metrics at an address and in a file.
struct Watched {
    daemon: Option<Running>,
    _reader: Reader,
    image: Image,
    at: SocketAddr,
}

impl Watched {
    fn start() -> Self {
        Self::with(&EXT4, "")
    }

    /// The same with more of a policy.
    fn with(file_system: &'static FileSystem, more: &str) -> Self {
        let image = Image::of(file_system, 320 << 20);
        image.set_queue("rotational", "1");
        let path = image.path().join("file");
        interleaved(&path, 8 << 20, &[4096, 65536], true).unwrap();
        image.sync();
        let at = free_address();
        let policy = format!(
            "paths = [\"{}\"]\nmetrics.listen = \"{at}\"\nmetrics.textfile = \"{}\"\n[recording]\nwindow = \"2s\"\nevery = \"3s\"\noverhead_percent = 100\n[planning]\nevery = \"3s\"\n{more}",
            image.path().display(),
            image.scratch().join("fragmend.prom").display(),
        );
        let file = image.scratch().join("watch.toml");
        fs::write(&file, policy).unwrap();
        let reader = Reader::start(&path, 128 << 10, Duration::from_millis(1), 1);
        let mut command = Command::new(FRAGMEND);
        command.arg("watch").arg("--policy").arg(&file);
        command.arg("--store").arg(image.scratch().join("store/watch.db"));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let daemon = Some(Running::start(&mut command));
        wait_until("the daemon serves", || TcpStream::connect(at).ok());
        Self { daemon, _reader: reader, image, at }
    }

    fn text(&self) -> String {
        get(self.at, "/metrics").expect("the daemon answers")
    }

    /// The text once a plan was made.
    fn planned(&self) -> String {
        wait_until("a plan is made", || {
            let text = self.text();
            (value(&text, "fragmend_plans_total") > 0.0).then_some(text)
        })
    }

    /// Its resident memory that is no file's.
    fn anonymous_kib(&self) -> u64 {
        let pid = self.daemon.as_ref().expect("it runs").id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    fn end(mut self) {
        let daemon = self.daemon.take().expect("it runs");
        daemon.signal(Signal::TERM);
        daemon.wait().expect(&[0]);
    }
}

/// The names of the metrics of a text, as queries name them.
fn names(text: &str) -> BTreeSet<String> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
}

/// Every name that begins like ours in a query.
fn named(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("fragmend_")).map(str::to_owned).collect()
}

#[test]
fn loop_the_text_is_what_promtool_dashboard_and_alerts_expect() {
    let watched = Watched::start();
    let text = watched.planned();
    assert!(value(&text, "fragmend_accesses_total") > 0.0, "{text}");
    assert!(value(&text, "fragmend_planned_saved_seconds") > 0.0, "{text}");
    assert!(!text.contains(watched.image.path().to_str().unwrap()), "no path is in it");
    assert!(watched.anonymous_kib() < MOST_ANONYMOUS_KIB, "{} KiB", watched.anonymous_kib());
    let names = names(&text);
    // The budget depends on a policy that lets data move.
    let optional = "fragmend_budget_bytes";

    let written = watched.image.scratch().join("fragmend.prom");
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(fs::File::open(&written).unwrap());
    let said = finish(&mut promtool).expect(&[0]);
    assert!(said.is_empty(), "{said}");

    let dashboard = fs::read_to_string(packaging("grafana/fragmend.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let rules = fs::read_to_string(packaging("prometheus/fragmend.rules.yml")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut shown = named(&rules);
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        shown.extend(named(target["expr"].as_str().unwrap()));
    }
    let missing: Vec<_> = shown.iter().filter(|n| !names.contains(*n) && *n != optional).collect();
    assert!(missing.is_empty(), "{missing:?} of {names:?}");
    let queued = "fragmend_queued_batches";
    let unseen: Vec<_> = names.iter().filter(|n| !shown.contains(*n)).collect();
    assert_eq!(unseen, ["fragmend_build_info", queued], "metrics that nothing shows");

    let file = fs::read_to_string(written).unwrap();
    assert_eq!(self::names(&file), names);
    watched.end();
}

/// A move that lasts is in the figures from its begin: what it may write at most is not left of the budget.
#[test]
fn loop_a_move_is_debited_in_the_figures_while_it_lasts() {
    let more = "[budget]\nbytes_per_day = \"1G\"\n[yield]\nrate = \"1M\"\nio_pressure_percent = 100\n[[rule]]\nmode = \"move\"\nmin_gain_s_per_gib = 0\n";
    let watched = Watched::with(&XFS, more);
    let budget = (1u64 << 30) as f64;
    let text = wait_until("something moves", || {
        let text = watched.planned();
        (value(&text, "fragmend_budget_left_bytes") < budget).then_some(text)
    });
    assert_eq!(value(&text, "fragmend_moves_total"), 0.0, "it has not ended: {text}");
    assert_eq!(value(&text, "fragmend_written_bytes_total"), 0.0, "{text}");
    assert_eq!(value(&text, "fragmend_queued_batches"), 0.0, "it is not queued any more: {text}");
    // All of the file there and back, and a MiB of metadata.
    let held = budget - value(&text, "fragmend_budget_left_bytes");
    assert!(held > 9e6 && held <= (2.0 * 8.0 + 1.0) * 1024.0 * 1024.0, "{held}");
    let settled = wait_until("it has ended", || {
        let text = watched.text();
        (value(&text, "fragmend_moves_total") > 0.0).then_some(text)
    });
    let left = value(&settled, "fragmend_budget_left_bytes");
    assert_eq!(left, budget - value(&settled, "fragmend_written_bytes_total"), "{settled}");
    assert!(budget - left < held, "{settled}");
    watched.end();
}

#[test]
fn loop_prometheus_scrapes_the_daemon() {
    let watched = Watched::start();
    watched.planned();
    let (at, dir) = (free_address(), watched.image.scratch().join("prometheus"));
    fs::create_dir(&dir).unwrap();
    let config = format!(
        "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files:\n  - {}\nscrape_configs:\n  - job_name: fragmend\n    static_configs:\n      - targets: [\"{}\"]\n",
        packaging("prometheus/fragmend.rules.yml").canonicalize().unwrap().display(),
        watched.at
    );
    let file = dir.join("prometheus.yml");
    fs::write(&file, config).unwrap();
    run("promtool", ["check", "config", file.to_str().unwrap()]);
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", dir.join("data").display()));
    command.arg(format!("--web.listen-address={at}"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let prometheus = Running::start(&mut command);
    let query = |query: &str| -> Option<f64> {
        let answer = get(at, &format!("/api/v1/query?query={query}"))?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    };
    let seen = wait_until("Prometheus has scraped it", || query("fragmend_plans_total"));
    assert!(seen >= 1.0);
    assert_eq!(query("up"), Some(1.0));
    assert_eq!(query("fragmend_build_info"), Some(1.0));
    let saved = query("fragmend_planned_saved_seconds").unwrap();
    assert!(saved > 0.0, "{saved}");
    // Both are scraped in base units.
    let accesses = query("fragmend_accesses_total").unwrap();
    assert!(accesses <= value(&watched.text(), "fragmend_accesses_total"));
    watched.end();
    wait_until("Prometheus sees that it is gone", || query("up").filter(|up| *up == 0.0));
    drop(prometheus);
}

#[test]
fn loop_alerts_fire_on_what_they_are_for() {
    let dir = packaging("prometheus");
    let check = |args: &[&str]| {
        let mut promtool = Command::new("promtool");
        finish(promtool.args(args).current_dir(&dir)).expect(&[0])
    };
    check(&["check", "rules", "--lint-fatal", "fragmend.rules.yml"]);
    check(&["test", "rules", "fragmend.rules.test.yml"]);
}
