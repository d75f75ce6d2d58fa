//! Loads the kernel side. The features of the running kernel are looked up in its BTF first, so that a
//! missing one results in a clear message and not in a verifier log.

use super::Options;
use super::request::{Request, with_descendants};
use super::shared::{FoldKey, FoldValue, Held, RawEvent, Stats};
use crate::{Level, TraceError};
use libbpf_rs::btf::types::{FuncProto, Ptr, Typedef};
use libbpf_rs::btf::{Btf, BtfKind, BtfType};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel,
    ReferencesType,
};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;
use zerocopy::{FromBytes, IntoBytes};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/recorder.bpf.o"));

/// The loaded and attached kernel side; dropping it detaches and unloads everything.
pub(super) struct Kernel {
    links: Vec<Link>,
    events: MapHandle,
    stats: MapHandle,
    folded: MapHandle,
    coarse: MapHandle,
    faults: MapHandle,
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
    let (programs, unseen_sources) = choose(options, &btf)?;
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_warning)));
    let mut open = ObjectBuilder::default()
        .open_memory(OBJECT)
        .map_err(|e| kernel("cannot open the recorder's kernel side", &e))?;
    tune(&mut open, options, request, &programs)?;
    let object =
        open.load().map_err(|e| kernel("the kernel refuses the recorder's kernel side", &e))?;
    fill(&object, request)?;
    let mut started = Kernel {
        links: Vec::new(),
        events: map(&object, "events")?,
        stats: map(&object, "stats")?,
        folded: map(&object, "folded")?,
        coarse: map(&object, "coarse")?,
        faults: map(&object, "faults")?,
        unseen_sources,
        _object: object,
    };
    // The fork program first: a child created between reading /proc and attaching would be missed.
    started.attach(&["on_fork", "on_exit"])?;
    if !options.pids.is_empty() {
        let processes = map(&started._object, "processes")?;
        for pid in with_descendants(&options.pids) {
            put(&processes, &pid.to_ne_bytes(), &[1])?;
        }
    }
    started.attach(&programs)?;
    Ok(started)
}

impl Kernel {
    fn attach(&mut self, names: &[&str]) -> Result<(), TraceError> {
        for program in self._object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if names.contains(&name.as_str()) && program.autoload() {
                let link =
                    program.attach().map_err(|e| kernel(&format!("cannot attach {name}"), &e))?;
                self.links.push(link);
            }
        }
        Ok(())
    }

    /// The ring buffer.
    pub fn events(&self) -> Result<MapHandle, TraceError> {
        MapHandle::try_from(&self.events).map_err(|e| kernel("cannot open the event buffer", &e))
    }

    /// Detaches the programs, and waits for those that are running: no more events arrive; those in the buffer are
    /// kept.
    pub fn detach(&mut self) {
        self.links.clear();
        fragmend_sys::grace::period();
    }

    /// Runs that the kernel skipped because the same program was already running on that processor; `None`
    /// where the kernel does not report them (before Linux 5.12). Which accesses such a run would have seen is not
    /// known: none, one, or those of a whole `io_submit`.
    pub fn skipped_runs(&self) -> Option<u64> {
        let misses = |program: libbpf_rs::Program<'_>| -> Option<u64> {
            let fd = program.as_fd().as_raw_fd();
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            let count = info.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?;
            count.trim().parse().ok()
        };
        self._object.progs().filter(|p| p.autoload()).map(misses).sum()
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

fn range_of(key: &[u8], value: &[u8]) -> Option<(FoldKey, FoldValue)> {
    Some((FoldKey::read_from_bytes(key).ok()?, FoldValue::read_from_bytes(value).ok()?))
}

const RA_ORDER: &str = "page_cache_ra_order";
const RA_UNBOUNDED: &str = "page_cache_ra_unbounded";
const READAHEAD: [&str; 2] = ["on_ra_order", "on_ra_unbounded"];

/// Which programs to run, and which sources of accesses the kernel lacks.
fn choose(
    options: &Options,
    btf: &Btf<'_>,
) -> Result<(Vec<&'static str>, Vec<String>), TraceError> {
    let has = |tracepoint: &str| {
        btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}")).is_some()
    };
    let mut programs = vec!["on_sys_exit"];
    let mut unseen = Vec::new();
    let mut optional = |programs: &mut Vec<_>, tracepoint: &str, program, usable, what: &str| {
        if usable {
            programs.push(program);
        } else {
            unseen.push(format!("{what}: this kernel has no usable tracepoint {tracepoint}"));
        }
    };
    let io_uring = uring_passes_request(btf);
    optional(&mut programs, "io_uring_complete", "on_io_uring_complete", io_uring, "io_uring");
    if io_uring {
        let (tracepoint, program, usable) = uring_submission(btf);
        let what = "requests of io_uring that want no completion";
        optional(&mut programs, tracepoint, program, usable, what);
        let full = "io_uring_cqe_overflow";
        let what = "requests of io_uring whose completion finds the ring full";
        optional(&mut programs, full, "on_io_uring_overflow", has(full) && usable, what);
        if has("io_uring_create") {
            programs.push("on_io_uring_create");
        }
    }
    match options.level {
        Level::Syscall => {
            for (tracepoint, program, what) in [
                ("mm_filemap_fault", "on_fault", "page faults on mapped files"),
                ("mm_filemap_map_pages", "on_map_pages", "faults on cached pages of mapped files"),
            ] {
                optional(&mut programs, tracepoint, program, has(tracepoint), what);
            }
            if has(RA_ORDER) && has(RA_UNBOUNDED) {
                programs.extend(READAHEAD);
            }
        }
        Level::Miss => {
            if !has(RA_ORDER) || !has(RA_UNBOUNDED) {
                return Err(TraceError::Kernel(
                    "this kernel has no readahead tracepoints, which --level miss needs: record \
                     with --level syscall"
                        .into(),
                ));
            }
            programs.extend(READAHEAD);
            let faults = has("mm_filemap_fault") && has("mm_filemap_add_to_page_cache");
            optional(
                &mut programs,
                "mm_filemap_fault",
                "on_fault",
                faults,
                "faults without readahead",
            );
            if faults {
                programs.push("on_add_page");
            }
        }
    }
    if programs.contains(&"on_fault") {
        programs.push("on_thread_exit");
    }
    Ok((programs, unseen))
}

/// Whether `io_uring_complete` passes the request second; before Linux 5.18 it did not.
fn uring_passes_request(btf: &Btf<'_>) -> bool {
    parameter(btf, "io_uring_complete", 1).is_some_and(|ty| ty.kind() == BtfKind::Ptr)
}

/// The tracepoint of submitted requests, its program, and whether it passes the request first, as it
/// does since Linux 5.19.
fn uring_submission(btf: &Btf<'_>) -> (&'static str, &'static str, bool) {
    let (new, old) = ("io_uring_submit_req", "io_uring_submit_sqe");
    let passes_request = |tracepoint| {
        let pointer = parameter(btf, tracepoint, 0).and_then(|ty| Ptr::try_from(ty).ok());
        pointer.is_some_and(|to| to.referenced_type().name().is_some_and(|n| n == "io_kiocb"))
    };
    if passes_request(new) {
        (new, "on_io_uring_submit_req", true)
    } else {
        (old, "on_io_uring_submit_sqe", passes_request(old))
    }
}

/// The type of a parameter of a tracepoint.
fn parameter<'a>(btf: &'a Btf<'_>, tracepoint: &str, index: usize) -> Option<BtfType<'a>> {
    let typedef = btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}"))?;
    let pointer = Ptr::try_from(typedef.referenced_type()).ok()?;
    let function = FuncProto::try_from(pointer.referenced_type()).ok()?;
    // First comes the tracepoint's private pointer.
    let parameter = function.get(index + 1)?;
    btf.type_by_id::<BtfType<'_>>(parameter.ty)
}

/// Sets the settings, and the sizes of the maps, before loading.
fn tune(
    open: &mut OpenObject,
    options: &Options,
    request: &Request,
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
    config.readahead_seen = READAHEAD.iter().all(|p| programs.contains(p)).into();
    config.start_ns = super::monotonic_ns();
    let ranges = options.max_ranges.unwrap_or(1).max(1);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match name.as_str() {
            "events" => map.set_max_entries(buffer_bytes(options)?).map_err(failed)?,
            "folded" => map.set_max_entries(ranges).map_err(failed)?,
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
    let found = object.maps().find(|m| m.name() == name);
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
