//! Chooses the programs to load. What the running kernel offers is looked up in its BTF first, so that something
//! missing results in a clear message and not in a verifier log.

use super::Options;
use super::request::Request;
use crate::{Level, TraceError};
use libbpf_rs::ReferencesType;
use libbpf_rs::btf::types::{FuncProto, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, BtfKind, BtfType};

const RA_ORDER: &str = "page_cache_ra_order";
const RA_UNBOUNDED: &str = "page_cache_ra_unbounded";
const FAULT: &str = "mm_filemap_fault";
const ADD_PAGE: &str = "mm_filemap_add_to_page_cache";

/// The programs that see readahead.
pub(super) const READAHEAD: [&str; 2] = ["on_ra_order", "on_ra_unbounded"];

/// The programs that see direct I/O.
pub(super) const DIRECT: [&str; 3] = ["on_dio_complete", "on_dio_queued", "on_dio_begin"];

/// The program that the kernel may skip: what it would have seen then, another one has.
pub(super) const MAY_BE_SKIPPED: &str = "on_dio_complete";

/// The programs that run only while requests are watched: those that see what programs ask for, and the disks.
pub(super) const PAUSABLE: [&str; 10] = [
    "on_sys_exit",
    "on_map_pages",
    "on_io_uring_complete",
    "on_io_uring_submit_req",
    "on_io_uring_submit_sqe",
    "on_io_uring_overflow",
    "on_rq_complete",
    "on_rq_issue",
    "on_bio_complete",
    "on_bio_queue",
];

/// Which programs to run.
pub(super) struct Choice {
    /// The level that this kernel can record.
    pub level: Level,
    /// Names of programs.
    pub programs: Vec<&'static str>,
    /// What the kernel does not show, each named as a person would.
    pub unseen_sources: Vec<String>,
}

impl Choice {
    /// Adds a program, or notes what is not seen without it.
    fn optional(&mut self, tracepoint: &str, program: &'static str, usable: bool, what: &str) {
        if usable {
            self.programs.push(program);
        } else {
            self.unseen_sources
                .push(format!("{what}: this kernel has no usable tracepoint {tracepoint}"));
        }
    }
}

/// The tracepoints of a kernel, apart from those that are to be done without.
struct Tracepoints<'a> {
    btf: &'a Btf<'a>,
    without: &'a [&'static str],
}

impl Tracepoints<'_> {
    fn has(&self, tracepoint: &str) -> bool {
        !self.without.contains(&tracepoint)
            && self.btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}")).is_some()
    }

    /// The type of a parameter of a tracepoint.
    fn parameter(&self, tracepoint: &str, index: usize) -> Option<BtfType<'_>> {
        if !self.has(tracepoint) {
            return None;
        }
        let typedef = self.btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}"))?;
        let pointer = Ptr::try_from(typedef.referenced_type()).ok()?;
        let function = FuncProto::try_from(pointer.referenced_type()).ok()?;
        // First comes the tracepoint's private pointer.
        let parameter = function.get(index + 1)?;
        self.btf.type_by_id::<BtfType<'_>>(parameter.ty)
    }

    /// Whether atomic operations of programs return a value, which is so since Linux 5.12, as is the count of skipped runs.
    fn atomics_return(&self) -> bool {
        let stats = self.btf.type_by_name::<Struct<'_>>("bpf_prog_stats");
        stats.is_some_and(|stats| stats.iter().any(|m| m.name.is_some_and(|name| name == "misses")))
    }

    /// Whether a tracepoint passes a pointer to this structure there.
    fn passes(&self, tracepoint: &str, index: usize, structure: &str) -> bool {
        let pointer = self.parameter(tracepoint, index).and_then(|ty| Ptr::try_from(ty).ok());
        pointer.is_some_and(|to| to.referenced_type().name().is_some_and(|n| n == structure))
    }
}

/// Which programs to run, and which sources of accesses the kernel lacks.
pub(super) fn choose(
    options: &Options,
    request: &Request,
    btf: &Btf<'_>,
) -> Result<Choice, TraceError> {
    let kernel = Tracepoints { btf, without: &options.without };
    let mut choice =
        Choice { level: options.level, programs: Vec::new(), unseen_sources: Vec::new() };
    direct(&kernel, &mut choice);
    // With the misses there is only direct I/O to record.
    if choice.programs.is_empty() || options.level != Level::Miss {
        choice.programs.push("on_sys_exit");
        uring(&kernel, &mut choice);
    }
    let lacking = [RA_ORDER, RA_UNBOUNDED, ADD_PAGE].into_iter().find(|t| !kernel.has(t));
    match (options.level, lacking) {
        (Level::Miss, Some(tracepoint)) => {
            return Err(TraceError::Kernel(format!(
                "this kernel has no tracepoint {tracepoint}, which --level miss needs: record with \
                 --level syscall"
            )));
        }
        (Level::Both, Some(tracepoint)) => {
            choice.level = Level::Syscall;
            choice.unseen_sources.push(format!(
                "what missed the page cache: this kernel has no tracepoint {tracepoint}; only what programs \
                 asked for is recorded (--level syscall)"
            ));
        }
        _ => {}
    }
    if choice.level != Level::Miss {
        let what = "page faults on mapped files";
        choice.optional(FAULT, "on_fault", kernel.has(FAULT), what);
        let (tracepoint, what) = ("mm_filemap_map_pages", "faults on cached pages of mapped files");
        choice.optional(tracepoint, "on_map_pages", kernel.has(tracepoint), what);
        if kernel.has(RA_ORDER) && kernel.has(RA_UNBOUNDED) {
            choice.programs.extend(READAHEAD);
        }
    } else {
        choice.programs.extend(READAHEAD);
        choice.optional(FAULT, "on_fault", kernel.has(FAULT), "faults without readahead");
    }
    if choice.level != Level::Syscall {
        choice.programs.push("on_add_page");
    }
    if choice.programs.iter().any(|p| ["on_fault", "on_add_page"].contains(p)) {
        choice.programs.push("on_thread_exit");
    }
    disks(&kernel, request, &mut choice);
    Ok(choice)
}

/// The programs for direct I/O, since Linux 6.6.
fn direct(kernel: &Tracepoints<'_>, choice: &mut Choice) {
    let [begin, queued, complete] =
        ["iomap_dio_rw_begin", "iomap_dio_rw_queued", "iomap_dio_complete"];
    let waits = kernel.passes(begin, 0, "kiocb") && kernel.passes(complete, 0, "kiocb");
    if waits && kernel.passes(queued, 0, "inode") {
        choice.programs.extend(DIRECT);
    } else {
        choice.unseen_sources.push(format!(
            "direct I/O during pauses of the recording: this kernel has no usable tracepoints {begin}, \
             {queued} and {complete}; it is recorded in turns, and each stands for several"
        ));
    }
}

/// The programs for io_uring. Before Linux 5.18 `io_uring_complete` does not pass the request.
fn uring(kernel: &Tracepoints<'_>, choice: &mut Choice) {
    let completed = kernel.parameter("io_uring_complete", 1);
    let usable = completed.is_some_and(|ty| ty.kind() == BtfKind::Ptr);
    choice.optional("io_uring_complete", "on_io_uring_complete", usable, "io_uring");
    if !usable {
        return;
    }
    let (tracepoint, program, usable) = uring_submission(kernel);
    let what = "requests of io_uring that want no completion";
    choice.optional(tracepoint, program, usable, what);
    let full = "io_uring_cqe_overflow";
    let what = "requests of io_uring whose completion finds the ring full";
    choice.optional(full, "on_io_uring_overflow", kernel.has(full) && usable, what);
    if kernel.has("io_uring_create") {
        choice.programs.push("on_io_uring_create");
    }
}

/// The tracepoint of submitted requests, its program, and whether it passes the request first, as it
/// does since Linux 5.19.
fn uring_submission(kernel: &Tracepoints<'_>) -> (&'static str, &'static str, bool) {
    let (new, old) = ("io_uring_submit_req", "io_uring_submit_sqe");
    if kernel.passes(new, 0, "io_kiocb") {
        (new, "on_io_uring_submit_req", true)
    } else {
        (old, "on_io_uring_submit_sqe", kernel.passes(old, 0, "io_kiocb"))
    }
}

/// The programs for what the disks answer. Before Linux 5.11 the tracepoints pass a queue first, and before 5.12 the
/// programs cannot be loaded.
fn disks(kernel: &Tracepoints<'_>, request: &Request, choice: &mut Choice) {
    for bios in [false, true] {
        let mut names = request.disks.iter().filter(|d| d.bio_based == bios).map(|d| &d.name);
        let Some(first) = names.next() else { continue };
        let (issue, complete, programs, usable) = if bios {
            let (issue, complete) = ("block_bio_queue", "block_bio_complete");
            let usable = kernel.passes(issue, 0, "bio") && kernel.passes(complete, 1, "bio");
            (issue, complete, ["on_bio_complete", "on_bio_queue"], usable)
        } else {
            let (issue, complete) = ("block_rq_issue", "block_rq_complete");
            let usable =
                kernel.passes(issue, 0, "request") && kernel.passes(complete, 0, "request");
            (issue, complete, ["on_rq_complete", "on_rq_issue"], usable)
        };
        if usable && kernel.atomics_return() {
            // In this order: what is issued before completions are seen would be in flight without end.
            choice.programs.extend(programs);
        } else {
            choice.unseen_sources.push(format!(
                "what {first} answered: this kernel has no usable tracepoints {issue} and {complete}"
            ));
        }
    }
}
