//! Loads the kernel side and reads its tables.

use super::Options;
use super::links::Links;
use super::request::{Request, with_descendants};
use super::shared::{
    self, Answers, CLASSES, Control, Disk, Fetch, FoldKey, FoldValue, Held, RawEvent, Stats,
};
use super::sources::{Choice, DIRECT, MAY_BE_SKIPPED, PAUSABLE, READAHEAD, choose};
use crate::{Level, TraceError};
use fragmend_sys::bpf_stats::{self, RunTime};
use libbpf_rs::btf::Btf;
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel,
};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;
use zerocopy::{FromBytes, IntoBytes};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/recorder.bpf.o"));

/// The variables of the kernel side that change while it runs.
const CONTROL: &str = ".data";

/// The loaded and attached kernel side; dropping it detaches and unloads everything.
pub(super) struct Kernel {
    links: Links,
    /// The programs that can be paused.
    pausable_names: Vec<&'static str>,
    control: MapHandle,
    issued: MapHandle,
    events: MapHandle,
    stats: MapHandle,
    folded: MapHandle,
    coarse: MapHandle,
    faults: MapHandle,
    fetches: MapHandle,
    disks: MapHandle,
    answers: MapHandle,
    /// What is really recorded: the level that was asked for, or the one that this kernel can record.
    pub level: Level,
    /// Whether the block layer's tracepoints are recorded.
    pub loads: bool,
    /// Sources of events that this kernel lacks.
    pub unseen_sources: Vec<String>,
    _object: Object,
}

/// Loads and attaches the kernel side.
pub(super) fn start(options: &Options, request: &Request) -> Result<Kernel, TraceError> {
    check_capabilities()?;
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(TraceError::Kernel(
            "this kernel carries no BTF type information, which recording needs: use a kernel \
             built with CONFIG_DEBUG_INFO_BTF=y"
                .into(),
        ));
    }
    let btf = Btf::from_vmlinux().map_err(|e| kernel("cannot read the kernel's BTF", &e))?;
    let Choice { level, programs, unseen_sources } = choose(options, request, &btf)?;
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_warning)));
    let mut open = ObjectBuilder::default()
        .open_memory(OBJECT)
        .map_err(|e| kernel("cannot open the recorder's kernel side", &e))?;
    tune(&mut open, options, request, level, &programs)?;
    let object =
        open.load().map_err(|e| kernel("the kernel refuses the recorder's kernel side", &e))?;
    fill(&object, request)?;
    let mut started = Kernel {
        links: Links::default(),
        pausable_names: programs.iter().copied().filter(|p| PAUSABLE.contains(p)).collect(),
        control: map(&object, CONTROL)?,
        issued: map(&object, "issued")?,
        events: map(&object, "events")?,
        stats: map(&object, "stats")?,
        folded: map(&object, "folded")?,
        coarse: map(&object, "coarse")?,
        faults: map(&object, "faults")?,
        fetches: map(&object, "fetches")?,
        disks: map(&object, "disks")?,
        answers: map(&object, "answers")?,
        level,
        loads: programs.contains(&"on_rq_issue") || programs.contains(&"on_bio_queue"),
        unseen_sources,
        _object: object,
    };
    // The fork program first: a child created between reading /proc and attaching would be missed.
    started.links.keep(started.attach(&["on_fork", "on_exit"])?);
    if !options.pids.is_empty() {
        let processes = map(&started._object, "processes")?;
        for pid in with_descendants(&options.pids) {
            put(&processes, &pid.to_ne_bytes(), &[1])?;
        }
    }
    let rest: Vec<&str> = programs.into_iter().filter(|p| !PAUSABLE.contains(p)).collect();
    started.links.keep(started.attach(&rest)?);
    started.resume()?;
    Ok(started)
}

impl Kernel {
    /// Attaches those of these programs that were loaded, in this order.
    fn attach(&self, names: &[&str]) -> Result<Vec<Link>, TraceError> {
        let mut links = Vec::new();
        for name in names {
            for program in self._object.progs_mut().filter(|p| p.name() == *name && p.autoload()) {
                let link =
                    program.attach().map_err(|e| kernel(&format!("cannot attach {name}"), &e))?;
                links.push(link);
            }
        }
        Ok(links)
    }

    /// Attaches the programs that can be paused. What was in flight when they were paused is forgotten.
    pub fn resume(&mut self) -> Result<(), TraceError> {
        for address in self.issued.keys() {
            let _ = self.issued.delete(&address);
        }
        for number in self.disks.keys() {
            let Ok(Some(value)) = self.disks.lookup(&number, MapFlags::ANY) else { continue };
            let Ok(disk) = Disk::read_from_bytes(&value) else { continue };
            let none = [0; shared::BURSTS];
            let disk =
                Disk { in_flight: 0, bursts_in_flight: 0, completed: 1, bursts: none, ..disk };
            put(&self.disks, &number, disk.as_bytes())?;
        }
        self.links.resume(self.attach(&self.pausable_names)?);
        Ok(())
    }

    /// Detaches them.
    pub fn pause(&mut self) {
        self.links.pause();
    }

    /// Sets what is recorded from now on.
    pub fn set_control(&self, control: &Control) -> Result<(), TraceError> {
        put(&self.control, &0u32.to_ne_bytes(), control.as_bytes())
    }

    /// Each program's name and what it has run so far, as far as the kernel counts that.
    pub fn run_times(&self) -> Vec<(String, RunTime)> {
        let of = |program: libbpf_rs::Program<'_>| {
            let name = program.name().to_string_lossy().into_owned();
            (name, bpf_stats::run_time(&program).unwrap_or_default())
        };
        self._object.progs().filter(|p| p.autoload()).map(of).collect()
    }

    /// The ring buffer.
    pub fn events(&self) -> Result<MapHandle, TraceError> {
        MapHandle::try_from(&self.events).map_err(|e| kernel("cannot open the event buffer", &e))
    }

    /// What detaches the programs: no more events arrive then; those in the buffer are kept.
    pub fn links(&self) -> Links {
        self.links.clone()
    }

    /// Runs that the kernel skipped because the same program was already running on that processor; `None`
    /// where the kernel does not report them (before Linux 5.12). Which accesses such a run would have seen is not
    /// known: none, one, or those of a whole `io_submit`.
    pub fn skipped_runs(&self) -> Option<u64> {
        let misses = |program: libbpf_rs::Program<'_>| program_info(&program, "recursion_misses:");
        let counts = |p: &libbpf_rs::Program<'_>| p.autoload() && p.name() != MAY_BE_SKIPPED;
        self._object.progs().filter(counts).map(misses).sum()
    }

    /// The counters, summed over the processors.
    pub fn stats(&self) -> Result<Stats, TraceError> {
        let per_cpu = self
            .stats
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| kernel("cannot read the recorder's counters", &e))?
            .unwrap_or_default();
        let mut sum = Stats::default();
        for bytes in &per_cpu {
            let Ok((one, _)) = Stats::read_from_prefix(bytes) else { continue };
            for (total, part) in sum.events.iter_mut().zip(one.events) {
                *total += part;
            }
            for (total, part) in sum.bytes.iter_mut().zip(one.bytes) {
                *total += part;
            }
            sum.lost += one.lost;
            sum.dropped += one.dropped;
            sum.unplaced += one.unplaced;
            sum.compat += one.compat;
            sum.splices += one.splices;
            sum.coarsened += one.coarsened;
            sum.uring += one.uring;
            sum.sent += one.sent;
            sum.ranges += one.ranges;
            sum.unanswered += one.unanswered;
            sum.device_events += one.device_events;
        }
        Ok(sum)
    }

    /// Page faults that are still held back, at most one per thread; to be called once, after detaching.
    pub fn held(&self) -> impl Iterator<Item = RawEvent> {
        self.faults.keys().filter_map(|thread| {
            let value = self.faults.lookup(&thread, MapFlags::ANY).ok()??;
            let held = Held::read_from_bytes(&value).ok()?;
            (held.state != 0).then_some(held.event)
        })
    }

    /// What threads were fetching into the page cache and may have gone on with; to be called once, after detaching.
    pub fn fetched(&self) -> impl Iterator<Item = RawEvent> {
        self.fetches.keys().filter_map(|thread| {
            let value = self.fetches.lookup(&thread, MapFlags::ANY).ok()??;
            let fetch = Fetch::read_from_bytes(&value).ok()?;
            (fetch.event.length != 0).then_some(fetch.event)
        })
    }

    /// The first `count` disks of the request, and the classes of each, summed over the processors. Where the kernel cannot
    /// read many classes at once (before Linux 5.13), they are read one by one.
    pub fn answers(&self, count: usize) -> Result<Vec<(Disk, Vec<Answers>)>, TraceError> {
        let failed = |e: libbpf_rs::Error| kernel("cannot read what the disks answered", &e);
        let mut classes = vec![Answers::default(); count * CLASSES];
        let mut add = |class: &[u8], per_cpu: &[u8]| {
            let Ok(class) = u32::read_from_bytes(class) else { return };
            let Some(sum) = classes.get_mut(class as usize) else { return };
            let each = per_cpu.chunks_exact(size_of::<Answers>());
            let each = each.filter_map(|one| Answers::read_from_bytes(one).ok());
            *sum = each.fold(Answers::default(), Answers::plus);
        };
        if fragmend_sys::bpf_table::elements(&self.answers, &mut add).is_err() {
            for class in 0..(count * CLASSES) as u32 {
                let class = class.to_ne_bytes();
                let per_cpu = self.answers.lookup_percpu(&class, MapFlags::ANY).map_err(failed)?;
                add(&class, &per_cpu.unwrap_or_default().concat());
            }
        }
        let disk = |(index, classes): (usize, &[Answers])| {
            let number = (index as u32).to_ne_bytes();
            let disk = self.disks.lookup(&number, MapFlags::ANY).map_err(failed)?;
            let disk = Disk::read_from_bytes(&disk.unwrap_or_default())
                .map_err(|_| TraceError::Kernel("a disk's counts have another size".into()))?;
            Ok((disk, classes.to_vec()))
        };
        classes.chunks_exact(CLASSES).enumerate().map(disk).collect()
    }

    /// Distinct ranges, of which there are `count`, and their counts, in no particular order. Where the kernel
    /// cannot read many at once (before Linux 5.6), they are read one by one.
    pub fn folded(&self, count: u64) -> Vec<(FoldKey, FoldValue)> {
        let mut all = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        for map in [&self.folded, &self.coarse] {
            let before = all.len();
            let add = |key: &[u8], value: &[u8]| all.extend(range_of(key, value));
            if fragmend_sys::bpf_table::elements(map, add).is_err() {
                all.truncate(before);
                all.extend(
                    map.keys()
                        .filter_map(|key| range_of(&key, &map.lookup(&key, MapFlags::ANY).ok()??)),
                );
            }
        }
        all
    }
}

/// A figure of a loaded program.
fn program_info(program: &libbpf_rs::Program<'_>, field: &str) -> Option<u64> {
    let fd = program.as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    info.lines().find_map(|line| line.strip_prefix(field))?.trim().parse().ok()
}

fn range_of(key: &[u8], value: &[u8]) -> Option<(FoldKey, FoldValue)> {
    Some((FoldKey::read_from_bytes(key).ok()?, FoldValue::read_from_bytes(value).ok()?))
}

/// Sets the settings, and the sizes of the maps, before loading.
fn tune(
    open: &mut OpenObject,
    options: &Options,
    request: &Request,
    level: Level,
    programs: &[&str],
) -> Result<(), TraceError> {
    let failed = |e: libbpf_rs::Error| kernel("cannot set up the recorder's kernel side", &e);
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let lineage = ["on_fork", "on_exit"].contains(&name.as_str());
        let wanted = programs.contains(&name.as_str()) || (lineage && !options.pids.is_empty());
        program.set_autoload(wanted);
    }
    let mut config = request.config;
    config.requests = u8::from(level != Level::Miss);
    config.misses = u8::from(level != Level::Syscall);
    config.direct_seen = DIRECT.iter().all(|p| programs.contains(p)).into();
    config.readahead_seen = READAHEAD.iter().all(|p| programs.contains(p)).into();
    config.start_ns = super::monotonic_ns();
    let ranges = options.max_ranges.unwrap_or(1).max(1);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match name.as_str() {
            "events" => map.set_max_entries(buffer_bytes(options)?).map_err(failed)?,
            "folded" => map.set_max_entries(ranges).map_err(failed)?,
            "answers" => {
                let classes = request.disks.len().max(1) * CLASSES;
                map.set_max_entries(classes as u32).map_err(failed)?;
            }
            "coarse" => map.set_max_entries((ranges / 4).max(1)).map_err(failed)?,
            name if name.ends_with(".rodata") => {
                map.set_initial_value(config.as_bytes()).map_err(failed)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The ring buffer's size: a power of two of at least a page. A folded recording does not use the buffer.
fn buffer_bytes(options: &Options) -> Result<u32, TraceError> {
    let page = rustix::param::page_size() as u32;
    if options.max_ranges.is_some() {
        return Ok(page);
    }
    let wanted = options.buffer_bytes.max(page);
    wanted
        .checked_next_power_of_two()
        .filter(|bytes| *bytes <= 1 << 30)
        .ok_or_else(|| TraceError::Request(format!("--buffer {wanted}: at most 1 GiB can be had")))
}

/// Fills the tables, after loading.
fn fill(object: &Object, request: &Request) -> Result<(), TraceError> {
    let devices = map(object, "devices")?;
    for (number, device) in &request.devices {
        put(&devices, &number.to_ne_bytes(), device.as_bytes())?;
    }
    let roots = map(object, "roots")?;
    for root in &request.roots {
        put(&roots, root.as_bytes(), &[1])?;
    }
    if let Some(directory) = &request.cgroup {
        let fd = directory.as_raw_fd() as u32;
        put(&map(object, "cgroup")?, &0u32.to_ne_bytes(), &fd.to_ne_bytes())?;
    }
    Ok(())
}

fn map(object: &Object, name: &str) -> Result<MapHandle, TraceError> {
    let is_it = |m: &libbpf_rs::Map<'_>| {
        let found = m.name().to_string_lossy();
        found == name || name == CONTROL && found.ends_with(CONTROL)
    };
    let found = object.maps().find(is_it);
    let found = found.ok_or_else(|| TraceError::Kernel(format!("no map {name} was loaded")))?;
    MapHandle::try_from(&found).map_err(|e| kernel(&format!("cannot open the map {name}"), &e))
}

fn put(map: &MapHandle, key: &[u8], value: &[u8]) -> Result<(), TraceError> {
    map.update(key, value, MapFlags::ANY)
        .map_err(|e| kernel(&format!("cannot fill the table {}", map.name().to_string_lossy()), &e))
}

/// The last warning of libbpf, which would be printed to stderr otherwise.
static WARNING: Mutex<String> = Mutex::new(String::new());

fn keep_warning(_: PrintLevel, text: String) {
    if let Ok(mut warning) = WARNING.lock() {
        *warning = text.lines().last().unwrap_or_default().trim().to_owned();
    }
}

fn kernel(what: &str, error: &libbpf_rs::Error) -> TraceError {
    let warning = WARNING.lock().map(|w| w.clone()).unwrap_or_default();
    let sep = if warning.is_empty() { "" } else { "; " };
    TraceError::Kernel(format!("{what}: {error}{sep}{warning}"))
}

/// Names all missing capabilities at once, instead of failing at the first.
fn check_capabilities() -> Result<(), TraceError> {
    const SYS_ADMIN: u32 = 21;
    const NEEDED: [(u32, &str); 3] =
        [(2, "CAP_DAC_READ_SEARCH"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];
    let effective = effective_capabilities().unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    let lacks = |bit: u32| !(has(bit) || bit > SYS_ADMIN && has(SYS_ADMIN));
    let missing: Vec<_> =
        NEEDED.iter().filter(|(bit, _)| lacks(*bit)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(TraceError::Kernel(format!(
        "recording needs the privilege {}: run it as root (sudo), or give these capabilities",
        missing.join(", ")
    )))
}

fn effective_capabilities() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}
