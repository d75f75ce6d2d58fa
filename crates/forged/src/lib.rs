//! What every parser must hold to, whatever it is given: one target for each. The fuzzer
//! (`fuzz/`, `make fuzz`) makes up inputs for them; `tests/replay.rs` shows them every input that
//! was ever of interest (`fuzz/corpus`).
//!
//! A target panics when its parser breaks a promise: a panic of its own, a sum that overflows, a
//! value out of the bounds it documents, something else after writing and reading again, a loop
//! that does not end, or more memory than its input is worth ([`Target::memory`]).
//!
//! | module | its job |
//! |---|---|
//! | [`targets`] | the promises, one module for each parser |
//! | [`kernel`] | answers of a kernel that nobody has (it stands in for `ioctl(2)`) |
//! | [`memory`] | how much memory was taken |
//! | [`bytes`] | numbers and files out of the fuzzer's bytes |

pub mod bytes;
pub mod kernel;
pub mod memory;
pub mod targets;

/// A parser and what it must hold to.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name of the target and of its directory in the corpus.
    pub name: &'static str,
    /// Panics when a promise is broken; tells whether the parser took the input.
    pub run: fn(&[u8]) -> bool,
    /// Most bytes of memory at any time: so many, and so many for each byte of input.
    pub memory: (usize, usize),
}

const fn target(name: &'static str, run: fn(&[u8]) -> bool) -> Target {
    // Buffers for reading are of up to 1 MiB, whatever is read.
    Target { name, run, memory: (4 << 20, 64) }
}

/// All of them.
pub const TARGETS: [Target; 12] = [
    target("plan", targets::plan::run),
    Target { memory: (16 << 20, 1024), ..target("trace", targets::trace::run) },
    target("record", targets::record::run),
    target("ext4-image", targets::ext4::image),
    target("ext4-tree", targets::ext4::tree),
    target("fiemap", targets::ioctls::fiemap),
    target("btrfs", targets::ioctls::btrfs),
    target("xfs", targets::ioctls::xfs),
    target("drive", targets::toml::drive),
    target("load", targets::toml::load),
    target("mounts", targets::text::mounts),
    target("text", targets::text::text),
];

impl Target {
    /// The target of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Shows an input to the parser; tells whether it was taken.
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
