//! What requests of other programs meet at disks, measured at the block layer's tracepoints: how long each lasted, and
//! whether one of this process was in flight when it began. The pace goes by that.
//!
//! Invariants: no request of this process counts as another's; what cannot be measured is an error that says why, and
//! never a count of 0.

use crate::TraceError;
use crate::kernel_side::{BPF, PERFMON, kernel, map, put, ready};
use fragmend_layout::{LATENCY_STEPS, Latencies};
use fragmend_sys::disks::Disk;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use std::os::unix::fs::MetadataExt;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/foreground.bpf.o"));

/// The most disks that are watched at once, as in `bpf/foreground.h`.
const MOST_DISKS: usize = 64;

/// The tracepoints, and the first version of Linux that has them.
const TRACEPOINTS: [(&str, &str); 3] =
    [("block_io_start", "6.5"), ("block_rq_merge", "5.11"), ("block_rq_complete", "4.13")];

/// `struct foreground_config` of `bpf/foreground.h`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Config {
    pidns_device: u64,
    pidns_inode: u64,
    self_pid: u32,
    pad: u32,
}

/// `struct foreground` of `bpf/foreground.h`.
#[derive(FromBytes)]
#[repr(C)]
struct Met {
    own_in_flight: i64,
    alone: [u64; LATENCY_STEPS],
    beside: [u64; LATENCY_STEPS],
}

/// A running measurement of some disks; dropping it ends it.
pub struct Foreground {
    met: MapHandle,
    disks: Vec<Disk>,
    _links: Vec<Link>,
    _object: Object,
}

impl Foreground {
    /// Begins to measure on these disks.
    ///
    /// # Errors
    /// The kernel or the privileges of this process do not allow it, or a disk has no requests.
    pub fn start(disks: &[Disk]) -> Result<Self, TraceError> {
        let refuse = |why: String| Err(TraceError::Kernel(why));
        let btf = ready("measuring what others wait for", &[PERFMON, BPF])?;
        if let Some((name, since)) = TRACEPOINTS.into_iter().find(|(name, _)| !has(&btf, name)) {
            return refuse(format!("this kernel has no tracepoint {name} (Linux {since})"));
        }
        if let Some(disk) = disks.iter().find(|disk| disk.bio_based) {
            return refuse(format!("the driver of {} has no requests", disk.name));
        }
        if disks.len() > MOST_DISKS {
            return refuse(format!("{} disks are more than {MOST_DISKS}", disks.len()));
        }
        let object = load()?;
        let watched = map(&object, "watched")?;
        for (index, disk) in disks.iter().enumerate() {
            let (major, minor) = (rustix::fs::major(disk.number), rustix::fs::minor(disk.number));
            let number = major << 20 | minor;
            put(&watched, &number.to_ne_bytes(), &(index as u32).to_ne_bytes())?;
        }
        let attach = |program: libbpf_rs::ProgramMut<'_>| {
            program
                .attach()
                .map_err(|e| kernel("cannot attach to the block layer's tracepoints", &e))
        };
        let links = object.progs_mut().map(attach).collect::<Result<_, _>>()?;
        Ok(Self {
            met: map(&object, "met")?,
            disks: disks.to_vec(),
            _links: links,
            _object: object,
        })
    }

    /// What requests of others have met so far on this disk: those with none of this process in flight when they
    /// began, and those with one.
    ///
    /// # Errors
    /// The disk is not measured, or the kernel's table cannot be read.
    pub fn met(&self, disk: &Disk) -> Result<(Latencies, Latencies), TraceError> {
        let index = self
            .disks
            .iter()
            .position(|d| d == disk)
            .ok_or_else(|| TraceError::Kernel(format!("{} is not measured", disk.name)))?;
        let value = self
            .met
            .lookup(&(index as u32).to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| kernel("cannot read what others met", &e))?;
        let other = || TraceError::Kernel("what others met has another size".into());
        let met =
            Met::read_from_bytes(value.as_deref().unwrap_or_default()).map_err(|_| other())?;
        Ok((Latencies::of_counts(&met.alone), Latencies::of_counts(&met.beside)))
    }
}

fn has(btf: &Btf<'_>, tracepoint: &str) -> bool {
    btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}")).is_some()
}

fn load() -> Result<Object, TraceError> {
    let what = "cannot set up the kernel side of the pace";
    let pidns = std::fs::metadata("/proc/self/ns/pid")
        .map_err(|e| TraceError::Kernel(format!("{what}: /proc/self/ns/pid: {e}")))?;
    let config = Config {
        pidns_device: pidns.dev(),
        pidns_inode: pidns.ino(),
        self_pid: std::process::id(),
        pad: 0,
    };
    let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(|e| kernel(what, &e))?;
    for mut map in open.maps_mut() {
        if map.name().to_string_lossy().ends_with(".rodata") {
            map.set_initial_value(config.as_bytes()).map_err(|e| kernel(what, &e))?;
        }
    }
    open.load().map_err(|e| kernel("the kernel refuses the kernel side of the pace", &e))
}
