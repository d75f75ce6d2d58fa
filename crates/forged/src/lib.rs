//! The promises that every parser keeps for any input: one target for each parser. The fuzzer
//! (`fuzz/`, `make fuzz`) generates inputs for them; `tests/replay.rs` replays every input that was
//! ever of interest (`fuzz/corpus`).
//!
//! A target panics when its parser breaks a promise: a panic of its own, an overflow, a value outside
//! of its documented bounds, a difference after writing and reading again, an endless loop, or more
//! memory than its input justifies ([`Target::memory`]).
//!
//! | module | its job |
//! |---|---|
//! | [`targets`] | the promises, one module for each parser |
//! | [`kernel`] | answers of a forged kernel (it replaces `ioctl(2)`) |
//! | [`memory`] | counts allocated memory |
//! | [`bytes`] | numbers and files made from the fuzzer's bytes |

pub mod bytes;
pub mod kernel;
pub mod memory;
pub mod targets;

/// A parser and its promises.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name of the target and of its directory in the corpus.
    pub name: &'static str,
    /// Panics when a promise is broken; returns whether the parser accepted the input.
    pub run: fn(&[u8]) -> bool,
    /// The most bytes of memory at any time: a constant, and an amount per byte of input.
    pub memory: (usize, usize),
}

const fn target(name: &'static str, run: fn(&[u8]) -> bool) -> Target {
    // Read buffers have up to 1 MiB, whatever the input.
    Target { name, run, memory: (4 << 20, 64) }
}

/// All targets.
pub const TARGETS: [Target; 23] = [
    target("plan", targets::plan::run),
    Target { memory: (16 << 20, 1024), ..target("trace", targets::trace::run) },
    target("profile", targets::profile::profile),
    target("health", targets::health::health),
    target("record", targets::record::run),
    target("ext4-image", targets::ext4::image),
    target("ext4-tree", targets::ext4::tree),
    target("f2fs", targets::f2fs::f2fs),
    target("fiemap", targets::ioctls::fiemap),
    target("btrfs", targets::ioctls::btrfs),
    target("xfs", targets::ioctls::xfs),
    // A bit of a bitmap may be half a run.
    Target { memory: (4 << 20, 512), ..target("space", targets::space::space_of) },
    // A pattern becomes an automaton.
    Target { memory: (16 << 20, 1024), ..target("policy", targets::policy::policy) },
    target("store", targets::store::store),
    target("drive", targets::toml::drive),
    target("load", targets::toml::load),
    target("block-trace", targets::lab::block_trace),
    target("scan", targets::lab::scan),
    // A page has up to 16,384 cells, of whatever document.
    Target { memory: (32 << 20, 1024), ..target("page", targets::page::run) },
    target("known", targets::known::file),
    target("catalogue", targets::known::catalogue),
    target("mounts", targets::text::mounts),
    target("text", targets::text::text),
];

impl Target {
    /// The target of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Runs the parser on an input; returns whether it was accepted.
    ///
    /// # Panics
    /// When a promise is broken.
    pub fn check(&self, input: &[u8]) -> bool {
        let (taken, most) = memory::most(|| (self.run)(input));
        let (base, each) = self.memory;
        let allowed = base + each * input.len();
        assert!(most <= allowed, "{most} bytes of memory for {} of input", input.len());
        taken
    }
}
