//! What fragmented files are to their programs, and how these prevent fragments. Only files with more extents than necessary are
//! opened for that.

use fragmend_known::{Known, Recogniser};
use fragmend_layout::printable_path;
use fragmend_report::known;
use fragmend_scan::{FileMeasures, Opener, Tree};
use fragmend_sys::handle;
use std::fs::File;
use std::io::{self, Write};

/// The programs whose files were found.
#[derive(Default)]
pub(super) struct Programs {
    opener: Opener,
    recogniser: Recogniser,
}

impl Programs {
    /// What a file is, if it is in more extents than necessary and that is known.
    pub fn known(&mut self, tree: &Tree, file: &FileMeasures) -> Option<Known> {
        if file.measures.extents <= file.measures.ideal_extents {
            return None;
        }
        let opened = File::from(self.opener.open(tree, &file.entry).ok()?.0);
        // The path without links.
        let path = handle::path_of(&opened)?;
        self.recogniser.known(&opened, &path)
    }

    /// Writes what these files are, and each advice once.
    pub fn write(
        &mut self,
        out: &mut impl Write,
        tree: &Tree,
        files: &[FileMeasures],
    ) -> io::Result<()> {
        let named = files.iter().filter_map(|file| {
            let path = printable_path(&tree.path(&file.entry)).to_string();
            Some((path, self.known(tree, file)?))
        });
        let text = known::text(named);
        if text.is_empty() { Ok(()) } else { writeln!(out, "{text}") }
    }
}
