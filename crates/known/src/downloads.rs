//! Downloads: unfinished ones by the file beside them in which aria2 keeps what it has of them
//! (<https://aria2.github.io/manual/en/html/technical-notes.html>), or by their names; finished ones by the attribute in
//! which curl and Chromium keep where they are from (<https://www.freedesktop.org/wiki/CommonExtendedAttributes/>).

use crate::bytes::{be16, be32, be64};
use crate::{Candidate, Known, candidate};
use std::ffi::OsString;
use std::path::PathBuf;

const PROGRAM: &str = "Download";
const ADVICE: (&str, &str) = (
    "let the program allocate the whole file first, as aria2c --file-allocation=falloc does, and clients of BitTorrent where that is switched on; move a file once it is finished: nothing is written to it any more",
    "aria2c(1)",
);
/// Bytes of a control file, at most: those of some 8 million pieces.
const MOST: u64 = 1 << 20;
/// Names of unfinished files.
const UNFINISHED: [(&str, &str); 3] =
    [(".crdownload", "Chromium"), (".part", "Firefox and others"), (".!qB", "qBittorrent")];

/// How far a download is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Size of the whole file in bytes.
    pub bytes: u64,
    /// Pieces that it is divided into.
    pub pieces: u64,
    /// Pieces that are there.
    pub done: u64,
}

impl Progress {
    /// Parses aria2's control file (version 1); `None` if it is none.
    pub fn parse(control: &[u8]) -> Option<Self> {
        const VERSION: u16 = 1;
        let hash_bytes = be32(control, 6).filter(|_| be16(control, 0) == Some(VERSION))?;
        // SHA-1 of BitTorrent, or none.
        let rest = control.get(10 + [0, 20].into_iter().find(|n| *n == hash_bytes)? as usize..)?;
        let (piece_bytes, bytes) = (be32(rest, 0).filter(|n| *n > 0)?, be64(rest, 4)?);
        let pieces = bytes.div_ceil(piece_bytes.into());
        let map_bytes = be32(rest, 20).filter(|n| u64::from(*n) == pieces.div_ceil(8))?;
        let map = rest.get(24..)?.get(..map_bytes as usize)?;
        let done = map.iter().map(|byte| u64::from(byte.count_ones())).sum();
        (pieces > 0 && done <= pieces).then_some(Self { bytes, pieces, done })
    }
}

/// A download that is not finished.
pub fn unfinished(file: &Candidate) -> Option<Known> {
    let mut beside = OsString::from(file.path);
    beside.push(".aria2");
    let control = candidate::read(&PathBuf::from(beside), MOST);
    if let Some(Progress { pieces, done, .. }) = control
        .and_then(|control| Progress::parse(&control))
        // The file is as long as what it holds of the whole, or as the whole.
        .filter(|progress| file.size <= progress.bytes)
    {
        return Some(known(format!("not finished, {done} of {pieces} pieces are there (aria2)")));
    }
    let name = file.name(0)?.to_str()?;
    let (_, by) =
        UNFINISHED.iter().find(|(end, _)| name.len() > end.len() && name.ends_with(end))?;
    Some(known(format!("not finished, by its name (that of {by})")))
}

/// A finished download.
pub fn finished(file: &Candidate) -> Option<Known> {
    let origin = file.attribute("user.xdg.origin.url")?;
    Some(known(format!("finished, from {}", host(&origin)?)))
}

/// The host of an address: the rest of it may be confidential.
fn host(url: &str) -> Option<&str> {
    /// No name of a host is longer (RFC 1035, section 2.3.4).
    const LONGEST: usize = 253;
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    (1..=LONGEST).contains(&host.len()).then_some(host)
}

fn known(what: String) -> Known {
    crate::known(PROGRAM, what, Some(ADVICE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control file of 20 pieces of 1 MiB, of which 9 are there.
    fn control(hash: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 1, 0, 0, 0, 0];
        bytes.extend((hash.len() as u32).to_be_bytes());
        bytes.extend(hash);
        bytes.extend((1u32 << 20).to_be_bytes());
        bytes.extend(((19u64 << 20) + 1).to_be_bytes());
        bytes.extend(0u64.to_be_bytes());
        bytes.extend(3u32.to_be_bytes());
        bytes.extend([0xFF, 0x80, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn a_control_file_says_which_pieces_are_there() {
        let expected = Progress { bytes: (19 << 20) + 1, pieces: 20, done: 9 };
        assert_eq!(Progress::parse(&control(&[])), Some(expected));
        assert_eq!(Progress::parse(&control(&[7; 20])), Some(expected));
        assert_eq!(Progress::parse(&control(&[7; 19])), None);
        let good = control(&[]);
        for (at, value) in [(1, 0), (9, 1), (11, 0x20), (11, 0), (33, 4), (36, 0xFF)] {
            let mut bad = good.clone();
            bad[at] = value;
            if at == 36 {
                // More pieces than there are.
                bad[34..37].fill(0xFF);
            }
            assert_eq!(Progress::parse(&bad), None, "{at}");
        }
        for length in [0, 9, 20, 33, 36] {
            assert_eq!(Progress::parse(&good[..length]), None, "{length}");
        }
    }

    #[test]
    fn of_an_address_only_the_host_is_shown() {
        let of = |url: &str| host(url).map(str::to_owned);
        assert_eq!(
            of("https://me:secret@example.org:8080/a?token=1").as_deref(),
            Some("example.org:8080")
        );
        assert_eq!(of("ftp://example.org?x@y").as_deref(), Some("example.org"));
        for none in ["", "example.org", "file:///home", "https://"] {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(of(&format!("https://{}", "a".repeat(300))), None);
    }
}
