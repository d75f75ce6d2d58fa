//! The list of files, by the time that is lost because of them.

use fragmend_layout::{FileId, printable, printable_path};
use fragmend_plan::{FileLoss, Plan};
use std::collections::HashMap;

/// For so many reports a file stays listed that is not read any more.
const LINGERS: u32 = 5;
/// Files that are listed at most.
const MOST: usize = 1000;

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which one.
    pub file: FileId,
    /// Its path, printable.
    pub path: String,
    /// How many fragments it is in.
    pub fragments: u64,
    /// Requests a second that reach the device for it (predicted).
    pub requests: f64,
    /// Seconds a second that programs wait because of its breaks (predicted).
    pub lost: f64,
    /// Bytes of it that the present plan would move.
    pub to_move: u64,
    /// What it is to its program, printable, where that is known.
    pub known: Option<String>,
    /// Reports since it was last read.
    age: u32,
}

/// What the list is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The time that is lost.
    #[default]
    Lost,
    /// The number of fragments.
    Fragments,
    /// The bytes that would be moved.
    ToMove,
}

impl Sort {
    /// The next one.
    pub fn next(self) -> Self {
        match self {
            Self::Lost => Self::Fragments,
            Self::Fragments => Self::ToMove,
            Self::ToMove => Self::Lost,
        }
    }

    /// What the list is sorted by, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "time lost",
            Self::Fragments => "fragments",
            Self::ToMove => "bytes to move",
        }
    }
}

/// The list, in the order in which it is shown.
#[derive(Clone, Debug, Default)]
pub struct Files {
    rows: Vec<Row>,
    sort: Sort,
    selected: Option<FileId>,
    to_move: HashMap<FileId, u64>,
}

impl Files {
    /// The rows, in order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// What they are sorted by.
    pub fn sort(&self) -> Sort {
        self.sort
    }

    /// Which row is selected.
    pub fn selected(&self) -> Option<usize> {
        let selected = self.selected?;
        self.rows.iter().position(|row| row.file == selected)
    }

    /// Takes what files lost in so many seconds.
    pub fn report(&mut self, losses: &[FileLoss], seconds: f64) {
        let per_second = |value: f64| value / seconds.max(1e-3);
        let mut rows: HashMap<FileId, Row> = std::mem::take(&mut self.rows)
            .into_iter()
            .filter(|row| row.age < LINGERS)
            .map(|row| (row.file, Row { requests: 0.0, lost: 0.0, age: row.age + 1, ..row }))
            .collect();
        for loss in losses {
            let row = Row {
                file: loss.file,
                path: printable_path(&loss.path).to_string(),
                fragments: loss.fragments,
                requests: per_second(loss.requests as f64),
                lost: per_second(loss.seconds_lost),
                to_move: self.to_move.get(&loss.file).copied().unwrap_or(0),
                known: rows.remove(&loss.file).and_then(|row| row.known),
                age: 0,
            };
            rows.insert(loss.file, row);
        }
        self.rows = rows.into_values().collect();
        self.order();
    }

    /// Takes what a listed file is to its program.
    pub fn know(&mut self, file: FileId, what: &str) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.file == file) {
            row.known = Some(printable(what).to_string());
        }
    }

    /// Takes what a plan would move.
    pub fn plan(&mut self, plan: &Plan) {
        let bytes = |file: &fragmend_plan::PlannedFile| file.ranges.iter().map(|r| r.length).sum();
        self.to_move = plan.files.iter().map(|file| (file.file, bytes(file))).collect();
        for row in &mut self.rows {
            row.to_move = self.to_move.get(&row.file).copied().unwrap_or(0);
        }
        self.order();
    }

    /// Sorts by the next figure.
    pub fn sort_by_next(&mut self) {
        self.sort = self.sort.next();
        self.order();
    }

    /// Selects the row so many below the present one, or above.
    pub fn select(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        let to = self.selected().map_or(0, |at| at.saturating_add_signed(by).min(last));
        self.selected = self.rows.get(to).map(|row| row.file);
    }

    fn order(&mut self) {
        let sort = self.sort;
        let figure = |row: &Row| match sort {
            Sort::Lost => row.lost,
            Sort::Fragments => row.fragments as f64,
            Sort::ToMove => row.to_move as f64,
        };
        let rest = |row: &Row| (row.requests, row.file);
        self.rows.sort_by(|a, b| {
            let by_figure = figure(b).total_cmp(&figure(a));
            let ((requests_a, file_a), (requests_b, file_b)) = (rest(a), rest(b));
            by_figure.then(requests_b.total_cmp(&requests_a)).then(file_a.cmp(&file_b))
        });
        self.rows.truncate(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn loss(inode: u64, lost: f64, fragments: u64) -> FileLoss {
        FileLoss {
            path: format!("/mnt/{inode}").into(),
            file: FileId { device: 1, inode, generation: 1 },
            size: 1 << 20,
            fragments,
            requests: 10 * inode,
            seconds: 2.0 * lost,
            seconds_lost: lost,
        }
    }

    fn shown(files: &Files) -> Vec<u64> {
        files.rows().iter().map(|row| row.file.inode).collect()
    }

    #[test]
    fn rows_are_sorted_by_what_is_asked_for() {
        let mut files = Files::default();
        files.report(&[loss(1, 0.1, 9), loss(2, 0.3, 2), loss(3, 0.1, 5)], 2.0);
        assert_eq!(
            shown(&files),
            [2, 3, 1],
            "of two that lose as much, the one with more requests"
        );
        assert_eq!((files.rows()[0].lost, files.rows()[0].requests), (0.15, 10.0));
        files.sort_by_next();
        assert_eq!((files.sort().name(), shown(&files)), ("fragments", vec![1, 3, 2]));
    }

    #[test]
    fn what_is_read_no_more_stays_for_a_while_and_the_selection_follows_its_file() {
        let mut files = Files::default();
        files.select(1);
        assert_eq!(files.selected(), None);
        files.report(&[loss(1, 0.2, 9), loss(2, 0.1, 2)], 1.0);
        files.select(0);
        files.select(1);
        files.select(1);
        assert_eq!(files.selected(), Some(1));
        files.report(&[loss(2, 0.3, 2)], 1.0);
        assert_eq!((shown(&files), files.selected()), (vec![2, 1], Some(0)));
        assert_eq!(files.rows()[1].lost, 0.0);
        (0..LINGERS).for_each(|_| files.report(&[loss(2, 0.3, 2)], 1.0));
        assert_eq!(shown(&files), [2]);
        files.report(&[], 1.0);
        assert_eq!(files.selected(), Some(0));
    }

    #[test]
    fn what_a_file_is_stays_with_it_while_it_is_listed() {
        let mut files = Files::default();
        files.report(&[loss(1, 0.2, 9), loss(2, 0.1, 2)], 1.0);
        files.know(loss(2, 0.0, 0).file, "SQLite: \u{1b}");
        files.know(loss(3, 0.0, 0).file, "of none that is listed");
        files.report(&[loss(2, 0.3, 2), loss(1, 0.2, 9)], 1.0);
        let known: Vec<_> = files.rows().iter().map(|row| row.known.as_deref()).collect();
        assert_eq!(known, [Some("SQLite: \\x1b"), None]);
    }
}
