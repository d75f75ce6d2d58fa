//! What fragmented files are to their programs, and how these prevent fragments. Only files with more extents than necessary are
//! opened for that.

use fragmend_known::{Known, Recogniser};
use fragmend_layout::{printable, printable_path};
use fragmend_scan::{FileMeasures, Opener, Tree};
use fragmend_sys::handle;
use std::collections::BTreeMap;
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
        let mut advice = BTreeMap::new();
        let mut title = "What is known of these files:\n\n";
        for file in files {
            let Some(known) = self.known(tree, file) else { continue };
            let (path, what) = (tree.path(&file.entry), printable(&known.what));
            let path = printable_path(&path);
            writeln!(
                out,
                "{}  {path}\n     {}: {what}",
                std::mem::take(&mut title),
                known.program
            )?;
            advice.extend(known.advice.map(|advice| (advice.text, (known.program, advice.source))));
        }
        for (text, (program, source)) in &advice {
            writeln!(out, "\n  {program} against fragments: {text}\n     ({source})")?;
        }
        if title.is_empty() { writeln!(out) } else { Ok(()) }
    }
}
