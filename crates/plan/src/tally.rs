//! What a read of many fragments comes to, without a look at each of them.
//!
//! A trace may have any number of reads of a whole file, and the file any number of fragments. All fragments of a read but the
//! first and the last ones count the same for every read that has them, so of every [`STEP`]th fragment it is known what those
//! before it come to, and a read looks at the fragments up to the first of these, and from the last one on.
//!
//! What cannot be taken from the sums of two such places is the request that is open at the first of them: it has more
//! bytes than that of the read, which may begin within it. So where it ends is known as well.

/// A checkpoint is at every so many fragments: they need little memory.
pub const STEP: usize = 64;

/// What the fragments of a read come to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes of data.
    pub bytes: u64,
    /// Device requests, without the last one, which the next fragment may continue.
    requests: u64,
    /// Bytes of that last one, which is as many requests as the device's limit makes of it.
    open: u64,
    /// Nanoseconds of the seeks between them.
    pub seek_ns: u64,
    /// How often one that has moved is beside one that has not.
    pub tears: u64,
}

/// A fragment of a read.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Bytes that the read has of it.
    pub bytes: u64,
    /// Whether it continues the request before it.
    pub joins: bool,
    /// Nanoseconds of the seek to it; 0 of the first.
    pub seek_ns: u64,
    /// Whether it has moved and the one before it has not, or the other way round; not of the first.
    pub torn: bool,
}

impl Tally {
    /// Adds the next fragment, on a device with requests of at most `limit` bytes.
    pub fn add(&mut self, step: Step, limit: u64) {
        if !step.joins {
            self.requests += self.open.div_ceil(limit);
            self.open = 0;
        }
        self.open += step.bytes;
        self.bytes += step.bytes;
        self.seek_ns = self.seek_ns.wrapping_add(step.seek_ns);
        self.tears += u64::from(step.torn);
    }

    /// Device requests of a read that has no more fragments.
    pub fn requests(&self, limit: u64) -> u64 {
        self.requests + self.open.div_ceil(limit)
    }

    /// Adds the fragments from one checkpoint to another.
    fn pass(&mut self, from: &Checkpoint, to: &Checkpoint, limit: u64) {
        let (a, b) = (&from.before, &to.before);
        if from.open_until < to.at {
            let closed = |open: u64| (open + from.open_bytes).div_ceil(limit);
            self.requests += closed(self.open) + (b.requests - a.requests - closed(a.open));
            self.open = b.open;
        } else {
            self.open += b.bytes - a.bytes;
        }
        self.bytes += b.bytes - a.bytes;
        // The sum from the beginning of the file may wrap.
        self.seek_ns = self.seek_ns.wrapping_add(b.seek_ns.wrapping_sub(a.seek_ns));
        self.tears += b.tears - a.tears;
    }
}

/// A place in the list of fragments.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    /// Index of the fragment.
    at: usize,
    /// What all fragments before it come to.
    before: Tally,
    /// Index of the first fragment from this one on that begins a request, and the bytes up to it.
    open_until: usize,
    open_bytes: u64,
}

/// The checkpoints of a list of fragments.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    limit: u64,
    all: Vec<Checkpoint>,
}

impl Checkpoints {
    /// Those of fragments that are as `steps` to a read of all of them, on a device with requests of at most `limit` bytes.
    pub fn of(steps: impl Iterator<Item = Step>, limit: u64) -> Self {
        let mut all: Vec<Checkpoint> = Vec::new();
        let mut before = Tally::default();
        // The first checkpoint of which it is not known where its open request ends.
        let mut open = 0;
        for (at, step) in steps.enumerate() {
            if at % STEP == 0 {
                all.push(Checkpoint { at, before, open_until: usize::MAX, open_bytes: 0 });
            }
            if !step.joins {
                for checkpoint in &mut all[open..] {
                    checkpoint.open_until = at;
                    checkpoint.open_bytes = before.bytes - checkpoint.before.bytes;
                }
                open = all.len();
            }
            before.add(step, limit);
        }
        Self { limit, all }
    }

    /// Adds to the tally of a read the fragments between checkpoints `from` and `to`, all of which it has as a whole; false,
    /// and nothing added, if the checkpoints are for another `limit`.
    pub fn pass(&self, tally: &mut Tally, from: usize, to: usize, limit: u64) -> bool {
        let known = limit == self.limit;
        if known {
            tally.pass(&self.all[from], &self.all[to], limit);
        }
        known
    }
}
