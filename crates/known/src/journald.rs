//! Journals of systemd (<https://systemd.io/JOURNAL_FILE_FORMAT/>): of the system, of users, of other machines.

use crate::bytes::{le32, le64};
use crate::{Candidate, Known};

const ADVICE: (&str, &str) = (
    "SystemMaxUse= and journalctl --vacuum-size= delete old journals, which need not be moved then; on Btrfs, tmpfiles.d/journal-nocow.conf keeps new ones from being copied on write",
    "journald.conf(5), journalctl(1)",
);

/// What the header of a journal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether it is written to.
    pub state: State,
    /// Entries in it, as far as the header has them.
    pub entries: u64,
}

/// Whether a journal is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Closed, or never written to.
    Offline,
    /// Being written, or not closed.
    Online,
    /// Rotated: nothing is added any more.
    Archived,
}

impl Header {
    /// Parses the first bytes of a file; `None` if it is no journal.
    pub fn parse(head: &[u8]) -> Option<Self> {
        /// The header's size in the first version, and more than it has had in any.
        const SIZES: std::ops::RangeInclusive<u64> = 208..=4096;
        /// No later version has defined more flags for what a reader has to know.
        const INCOMPATIBLE: u32 = 0xFF;
        let state = match head.get(16).filter(|_| head.starts_with(b"LPKSHHRH"))? {
            0 => State::Offline,
            1 => State::Online,
            2 => State::Archived,
            _ => return None,
        };
        let is_sound = le32(head, 12)? <= INCOMPATIBLE && SIZES.contains(&le64(head, 88)?);
        let entries = le64(head, 152)?;
        is_sound.then_some(Self { state, entries })
    }
}

/// A journal: of the system or of a user, according to its name, and of a namespace, according to that of its directory.
pub fn known(file: &Candidate) -> Option<Known> {
    let Header { state, entries } = Header::parse(&file.head)?;
    let state = match state {
        State::Offline => "",
        State::Online => ", being written",
        State::Archived => ", archived",
    };
    let name = file.name(0)?.to_string_lossy();
    let base = name.split(['.', '@']).next().unwrap_or_default();
    let whose = match base.strip_prefix("user-") {
        Some(user) => format!("journal of user {user}"),
        None if base == "system" => "journal of the system".into(),
        None => "journal".into(),
    };
    let directory = file.name(1).map(|name| name.to_string_lossy()).unwrap_or_default();
    let namespace =
        namespace(&directory).map_or(String::new(), |name| format!(", namespace {name}"));
    let what = format!("{whose}{namespace}{state}, with {entries} entries");
    Some(crate::known("systemd-journald", what, Some(ADVICE)))
}

/// The namespace in the name of a journal's directory: that of the machine, a dot, and the namespace's.
fn namespace(directory: &str) -> Option<&str> {
    let (machine, namespace) = directory.split_once('.')?;
    let is_machine = machine.len() == 32 && machine.bytes().all(|b| b.is_ascii_hexdigit());
    is_machine.then_some(namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(state: u8) -> [u8; 208] {
        let mut head = [0; 208];
        head[..8].copy_from_slice(b"LPKSHHRH");
        (head[12], head[16], head[88], head[152]) = (0x1C, state, 208, 7);
        head
    }

    #[test]
    fn a_journal_has_one_of_three_states() {
        let of = |state: u8| Header::parse(&header(state)).map(|header| header.state);
        use State::{Archived, Offline, Online};
        assert_eq!([0, 1, 2, 3].map(of), [Some(Offline), Some(Online), Some(Archived), None]);
    }

    #[test]
    fn what_makes_no_sense_is_no_journal() {
        let good = header(1);
        assert_eq!(Header::parse(&good).map(|header| header.entries), Some(7));
        for (at, value) in [(0, b'l'), (13, 1), (88, 207), (90, 1), (95, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(Header::parse(&bad), None, "{at}");
        }
        for length in [0, 8, 16, 17, 88, 159] {
            assert_eq!(Header::parse(&good[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_namespace_comes_behind_the_machine() {
        let machine = "0123456789abcdef0123456789abcdef";
        assert_eq!(namespace(&format!("{machine}.web")), Some("web"));
        for other in [machine, "web", ".web", "0123.web"] {
            assert_eq!(namespace(other), None, "{other}");
        }
    }
}
