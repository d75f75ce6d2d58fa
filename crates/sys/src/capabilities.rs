//! The privileges of this process: capabilities that it keeps, for good (capabilities(7)), and the mode of files that it makes.
//!
//! They belong to a thread and are inherited by those that it starts: so they are dropped before there is a second one.

use rustix::io::Errno;
use rustix::thread::{self, CapabilitySet, CapabilitySets};
use std::io;

pub use rustix::thread::CapabilitySet as Capabilities;

/// The number of capabilities that a set of 64 bits can have.
const MOST: u32 = 64;

/// From now on this thread, and those that it starts, have no capability but those of `kept` that they have now, and no
/// program that they execute has more (`PR_SET_NO_NEW_PRIVS`). Files that they make are for their owner alone (umask 077).
/// Returns what is kept.
///
/// # Errors
/// Those of `capset(2)` and `prctl(2)`. What was dropped until then stays dropped.
pub fn keep_only(kept: Capabilities) -> io::Result<Capabilities> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    thread::set_no_new_privs(true)?;
    let now = thread::capabilities(None)?;
    match thread::clear_ambient_capability_set() {
        // Before Linux 4.3 there is no such set.
        Err(Errno::INVAL) | Ok(()) => {}
        Err(e) => return Err(e.into()),
    }
    // The bounding set limits what a program that is executed can get. Only who may set capabilities may change it, and who
    // may not has nothing to pass on.
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..MOST {
            let one = CapabilitySet::from_bits_retain(1 << number);
            if kept.contains(one) {
                continue;
            }
            match thread::remove_capability_from_bounding_set(one) {
                Ok(()) => {}
                // The kernel has no capability with this number, and none with a higher one.
                Err(Errno::INVAL) => break,
                Err(e) => return Err(e.into()),
            }
        }
    }
    let kept = now.permitted & kept;
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    thread::set_capabilities(None, sets)?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `/proc/thread-self/status` that have capabilities, by name.
    fn status(name: &str) -> String {
        let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().to_owned()
    }

    #[test]
    fn what_is_dropped_is_gone_for_good() {
        // In a thread of its own: the other tests keep theirs.
        let test = || {
            let all = thread::capabilities(None).unwrap().permitted;
            let kept = Capabilities::DAC_READ_SEARCH | Capabilities::LEASE;
            assert_eq!(keep_only(kept).unwrap(), all & kept);
            let expected = format!("{:016x}", (all & kept).bits());
            for name in ["CapPrm", "CapEff"] {
                assert_eq!(status(name), expected, "{name}");
            }
            if all.contains(Capabilities::SETPCAP) {
                assert_eq!(status("CapBnd"), format!("{:016x}", kept.bits()));
            }
            assert_eq!([status("CapInh"), status("CapAmb")], ["0".repeat(16), "0".repeat(16)]);
            assert_eq!(status("NoNewPrivs"), "1");
            // Neither by asking for it.
            let sets = CapabilitySets { effective: all, permitted: all, inheritable: all };
            let again = thread::set_capabilities(None, sets);
            assert!((all - kept).is_empty() || again == Err(Errno::PERM), "{again:?}");
        };
        std::thread::spawn(test).join().unwrap();
    }
}
