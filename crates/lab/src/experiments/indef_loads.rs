//! The loads of InDeF's section IV-B: Filebench's file server and mail server, after which the files are read whole (grep), and moved.
//!
//! What the text says of them is the number of files, their mean length, and 50 threads. The rest is Filebench's own, with its run of 60
//! seconds, but for two things without which the files would not fragment as the paper's did:
//!
//! - Writes are direct, as in the experiment of FragPicker that this one follows, or synced at once. Through the page cache one thread of the
//!   kernel writes file after file, and files of 4 MB come to be in few fragments.
//! - Threads that write at the same time alternate block by block ([`Personality::TURN_OF_F2FS`]): the paper's guest has Linux 4.10.
//!
//! The mail server appends a MiB on average, so that a turn of its flow, which deletes one file, adds as much as that has: with Filebench's
//! 16 KiB the mean length would not stay at the paper's 2 MB.
//!
//! Scale: one part in `parts` of the drive, of the files and of the time; threads and the drive's dies stay.

use super::indef::{CALL, formatted};
use crate::loads::Scale;
use crate::loads::filebench::{FILESERVER, Personality, VARMAIL};
use crate::loads::schedule::Programs;
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::segments::LogStructured;
use std::path::PathBuf;

/// A load of the paper.
#[derive(Clone, Copy, Debug)]
pub struct Macro {
    /// Its name in the figures.
    pub name: &'static str,
    /// What its threads do.
    pub personality: Personality,
    /// The per cent of ranges that are truncated in figures 12 and 14.
    pub truncated: f64,
    /// The scale at which there are enough files for 50 threads.
    pub parts: u32,
}

const MIB: u64 = 1 << 20;
const COMMON: Personality = Personality {
    threads: 50,
    access: Access::Direct,
    turn_bytes: Personality::TURN_OF_F2FS,
    ..FILESERVER
};

/// The file server.
pub const SERVER: Macro = Macro {
    name: "fileserver",
    personality: Personality { files: 3072, mean_bytes: 4 * MIB, ..COMMON },
    truncated: 30.0,
    parts: 4,
};

/// The mail server.
pub const MAIL: Macro = Macro {
    name: "varmail",
    personality: Personality {
        flow: VARMAIL.flow,
        files: 6496,
        mean_bytes: 2 * MIB,
        append_bytes: 2 * MIB,
        ..COMMON
    },
    truncated: 20.0,
    parts: 8,
};

/// Filebench's `run 60`.
const RUN_NS: u64 = 60_000_000_000;
const SET: &str = "set";

/// Files as a load has left them.
pub struct Aged {
    /// The file system.
    pub fs: LogStructured,
    /// Its files, in the order of their paths.
    pub files: Vec<FileId>,
}

impl Macro {
    /// Makes the file set and runs the load, on a new drive.
    ///
    /// # Panics
    /// The file system has too little space.
    pub fn aged(&self, parts: u32, seed: u64) -> Aged {
        let fs = formatted(parts);
        let mut programs = Programs::default();
        let scale = Scale::one_in(parts.into());
        self.personality.start(&fs, &mut programs, SET, scale, seed).expect("space for the files");
        let until = fs.machine().now_ns() + RUN_NS / u64::from(parts);
        programs.run_until(&fs, until).expect("space for the load");
        fs.machine().wait_until(programs.tally().ended_ns);
        fs.sync().expect("the drive writes");
        let mut files: Vec<(PathBuf, FileId)> = Vec::new();
        fs.files(&mut |path, file| files.push((path.into(), file.expect("a file"))))
            .expect("files");
        files.sort();
        Aged { fs, files: files.into_iter().map(|(_, file)| file).collect() }
    }
}

impl Aged {
    /// Bytes of all files, and the bytes of the requests of them that are in several fragments, and in more than half as many as they
    /// have blocks.
    ///
    /// # Panics
    /// A file is gone.
    pub fn degrees(&self) -> [u64; 3] {
        let mut bytes = [0; 3];
        for file in &self.files {
            let layout = self.fs.layout(*file, PathBuf::new().as_path()).expect("its layout");
            let size = self.fs.size(*file).expect("a file");
            for request in ByteRange::at(0, size).steps(CALL) {
                let fragments = layout.fragments(request);
                let most = request.len().div_ceil(self.fs.block_bytes());
                let degrees = [true, fragments > 1, fragments * 2 > most];
                for (bytes, _) in bytes.iter_mut().zip(degrees).filter(|(_, is)| *is) {
                    *bytes += request.len();
                }
            }
        }
        bytes
    }
}
