//! Text values of a trace: paths and command names, created once and shared by all rows that have
//! them. Any user can make as many files and names as there are numbers, so what is kept is bounded,
//! and so is the time for looking up paths.

use super::budget::Budget;
use super::counts::{Counts, Forgotten, PathState};
use super::text;
use super::writer::FindPath;
use crate::Op;
use fragmend_layout::FileId;
use parquet::data_type::ByteArray;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// Files that are known at once; of more, some are looked up again.
pub const MOST_FILES: usize = 450_000;
/// Bytes of the paths that are known at once.
const MOST_TEXT: usize = 32 << 20;

/// Text values, and what is known of the files.
pub struct Names {
    find_path: FindPath,
    files: HashMap<FileId, Known>,
    /// Bytes of their paths.
    text: usize,
    forgotten: Forgotten,
    budget: Budget,
    /// Row groups so far.
    group: u64,
    /// Of this row group.
    comms: HashMap<[u8; 16], ByteArray>,
    ops: [ByteArray; Op::ALL.len()],
    last: Option<(FileId, Option<ByteArray>)>,
}

/// What is known of a file.
#[derive(Clone, Default)]
struct Known {
    path: Option<ByteArray>,
    /// Look-ups that found no path.
    tries: u32,
    /// The row group from which on it is looked up again.
    again: u64,
}

impl Known {
    fn state(&self) -> PathState {
        match (&self.path, self.tries) {
            (Some(_), _) => PathState::Known,
            (None, 0) => PathState::NotLookedUp,
            (None, _) => PathState::NotFound,
        }
    }
}

impl Names {
    pub fn new(find_path: FindPath) -> Self {
        Self {
            find_path,
            files: HashMap::new(),
            text: 0,
            forgotten: Forgotten::default(),
            budget: Budget::new(Instant::now()),
            group: 0,
            comms: HashMap::new(),
            ops: Op::ALL.map(|op| ByteArray::from(op.name())),
            last: None,
        }
    }

    /// Begins a batch of rows.
    pub fn begin_batch(&mut self) {
        self.budget.refill(Instant::now());
        self.last = None;
    }

    /// Allows look-ups for so long, however long they have been already.
    pub fn allow(&mut self, time: Duration) {
        self.budget.grant(time);
    }

    /// Begins a row group. A path that was not found may be found later, once somebody has looked
    /// the file up.
    pub fn begin_row_group(&mut self) {
        self.group += 1;
        self.comms.clear();
        self.last = None;
    }

    pub fn op(&self, op: Op) -> ByteArray {
        self.ops[op as usize].clone()
    }

    pub fn path(&mut self, file: FileId) -> Option<ByteArray> {
        if let Some((last, path)) = &self.last
            && *last == file
        {
            return path.clone();
        }
        let path = match self.files.get(&file) {
            Some(known) if !self.is_due(known) => known.path.clone(),
            known => {
                let known = known.cloned().unwrap_or_default();
                self.look_up(file, known)
            }
        };
        self.last = Some((file, path.clone()));
        path
    }

    /// Whether to look a file up may help, and there is time for it. Not to find a path lasts as long
    /// as to find it: each time, twice as many row groups pass before the next.
    fn is_due(&self, known: &Known) -> bool {
        let due = known.path.is_none() && self.group >= known.again;
        due && self.budget.allows(known.tries > 0)
    }

    /// Looks a file up, if there is time, and keeps what is known of it then.
    fn look_up(&mut self, file: FileId, mut known: Known) -> Option<ByteArray> {
        if self.is_due(&known) {
            let start = Instant::now();
            let found = (self.find_path)(file);
            self.budget.spend(start.elapsed());
            if let Some(path) = found {
                let path = text::escape(path.as_os_str().as_bytes());
                known.path = Some(path.into_bytes().into());
            } else {
                known.again = self.group + (1 << known.tries.min(16));
                known.tries += 1;
            }
        }
        let path = known.path.clone();
        if !self.files.contains_key(&file) {
            self.make_space();
        }
        self.text += path.as_ref().map_or(0, ByteArray::len);
        self.files.insert(file, known);
        path
    }

    /// Forgets all files, if they are too many for another one.
    fn make_space(&mut self) {
        if self.files.len() < MOST_FILES && self.text < MOST_TEXT {
            return;
        }
        self.forgotten.add(self.files.iter().map(|(file, known)| (*file, known.state())));
        self.files.clear();
        self.text = 0;
    }

    /// Whether a file was looked up, with or without success.
    pub fn was_looked_up(&self, file: FileId) -> bool {
        let known = self.files.get(&file).map(Known::state);
        matches!(known, Some(PathState::Known | PathState::NotFound))
    }

    pub fn comm(&mut self, comm: [u8; 16]) -> ByteArray {
        let name = || {
            let end = comm.iter().position(|b| *b == 0).unwrap_or(comm.len());
            text::escape(&comm[..end]).into_bytes().into()
        };
        self.comms.entry(comm).or_insert_with(name).clone()
    }

    /// Files so far.
    pub fn counts(&self) -> Counts {
        self.forgotten.counts(self.files.iter().map(|(file, known)| (*file, known.state())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::RESERVE;
    use super::*;
    use std::cell::Cell;
    use std::path::PathBuf;
    use std::rc::Rc;

    fn file(inode: u64) -> FileId {
        FileId { device: 1, inode, generation: 0 }
    }

    /// Names whose look-ups last so long and find nothing; how many there were.
    fn nameless(lasting: Duration) -> (Names, Rc<Cell<u64>>) {
        let look_ups = Rc::new(Cell::new(0));
        let counted = Rc::clone(&look_ups);
        let find = move |_| {
            counted.update(|n| n + 1);
            std::thread::sleep(lasting);
            None
        };
        (Names::new(Box::new(find)), look_ups)
    }

    #[test]
    fn slow_look_ups_end_with_their_budget_and_the_rest_is_counted() {
        const FILES: u64 = 2000;
        let (mut names, look_ups) = nameless(Duration::from_millis(5));
        let start = Instant::now();
        names.begin_batch();
        assert!((0..FILES).all(|inode| names.path(file(inode)).is_none()));
        assert!(start.elapsed() < 3 * RESERVE, "{:?}", start.elapsed());
        let asked = look_ups.get();
        assert!(asked > 0 && asked < FILES / 10, "{asked}");
        let not_looked_up = FILES - asked;
        assert_eq!(names.counts(), Counts { files: FILES, without_path: FILES, not_looked_up });
        // They get their turn when there is time again.
        names.allow(RESERVE);
        (0..FILES).for_each(|inode| drop(names.path(file(inode))));
        assert!(look_ups.get() > asked);
        assert_eq!(names.counts().not_looked_up, FILES - look_ups.get());
    }

    #[test]
    fn a_file_without_a_path_is_asked_for_less_and_less_often() {
        let (mut names, look_ups) = nameless(Duration::ZERO);
        for _ in 0..1000 {
            names.begin_batch();
            (0..3).for_each(|_| drop(names.path(file(7))));
            names.begin_row_group();
        }
        assert_eq!(look_ups.get(), 10, "in row groups 0, 1, 3, 7 and so on");
    }

    #[test]
    fn what_is_kept_of_names_and_files_is_bounded() {
        const FILES: u64 = 2 * MOST_FILES as u64 + 10;
        let mut names = Names::new(Box::new(|_| None));
        for inode in 0..FILES {
            names.path(file(inode));
            assert!(names.files.len() <= MOST_FILES);
        }
        assert_eq!(names.counts().files, FILES);
        assert_eq!(names.counts().without_path, FILES);
        let long = PathBuf::from("/x".repeat(2000));
        let mut names = Names::new(Box::new(move |_| Some(long.clone())));
        for inode in 0..20_000 {
            assert!(names.path(file(inode)).is_some());
            assert!(names.text < MOST_TEXT + (1 << 14));
        }
        assert_eq!(names.counts(), Counts { files: 20_000, ..Counts::default() });
        (0..1000u128).for_each(|n| drop(names.comm(n.to_ne_bytes())));
        names.begin_row_group();
        assert_eq!(names.comms.len(), 0);
    }

    #[test]
    fn files_that_are_forgotten_and_seen_again_count_once() {
        const FILES: u64 = MOST_FILES as u64 + 1000;
        let find = |file: FileId| file.inode.is_multiple_of(2).then(|| PathBuf::from("/f"));
        let mut names = Names::new(Box::new(find));
        names.allow(Duration::from_secs(1000));
        for _ in 0..3 {
            (0..FILES).for_each(|inode| drop(names.path(file(inode))));
        }
        let all = Counts { files: FILES, without_path: FILES / 2, not_looked_up: 0 };
        assert_eq!(names.counts(), all);
        // Long paths fill the memory with fewer files.
        const FEW: u64 = 20_000;
        let long = PathBuf::from("/x".repeat(2000));
        let mut names = Names::new(Box::new(move |_| Some(long.clone())));
        names.allow(Duration::from_secs(1000));
        for _ in 0..2 {
            (0..FEW).for_each(|inode| drop(names.path(file(inode))));
        }
        assert_eq!(names.counts(), Counts { files: FEW, ..Counts::default() });
    }
}
