//! What each address may hold after a power cut: its durable content, and all later ones.

/// What changed the content of an address; a flush of the drive makes data durable, one of the defrag log remaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Data,
    Remap,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    at: u64,
    cause: Cause,
    value: u32,
}

/// A remap that is not shared, of one unit, that is not committed.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    pub from: u32,
    pub to: u32,
    pub value: u32,
    at: u64,
    /// Whether the host has written or trimmed each of them since.
    from_touched: bool,
    to_touched: bool,
}

/// The model. Values are unique, and 0 is no data.
#[derive(Clone, Debug)]
pub struct Model {
    /// For each address the durable content, and what came later.
    events: Vec<Vec<Event>>,
    flushes: Vec<(u64, Cause, u64)>,
    /// Remaps that are not committed, in order.
    moves: Vec<Move>,
    clock: u64,
    next: u32,
}

impl Model {
    pub fn new(units: u32) -> Self {
        let empty = vec![Event { at: 0, cause: Cause::Data, value: 0 }];
        let events = vec![empty; units as usize];
        Self { events, flushes: Vec::new(), moves: Vec::new(), clock: 0, next: 1 }
    }

    /// A value that was never used.
    pub fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    pub fn now(&self, unit: u32) -> u32 {
        self.events[unit as usize].last().expect("a durable content").value
    }

    fn push(&mut self, unit: u32, cause: Cause, value: u32) {
        self.clock += 1;
        self.events[unit as usize].push(Event { at: self.clock, cause, value });
    }

    /// The host writes or, with 0, trims.
    pub fn write(&mut self, unit: u32, value: u32) {
        self.push(unit, Cause::Data, value);
        for moved in &mut self.moves {
            moved.from_touched |= moved.from == unit;
            moved.to_touched |= moved.to == unit;
        }
    }

    /// Whether a remap to this unit is not committed, and nothing was written there since.
    pub fn is_uncommitted(&self, unit: u32) -> bool {
        self.moves.iter().any(|moved| moved.to == unit && !moved.to_touched)
    }

    pub fn remap(&mut self, from: u32, to: u32, shared: bool) {
        let value = self.now(from);
        if self.now(to) != 0 || self.moves.iter().any(|moved| moved.from == to) {
            self.write(to, 0);
        }
        self.push(to, Cause::Remap, value);
        if !shared {
            self.push(from, Cause::Remap, 0);
            let at = self.clock;
            self.moves.push(Move { from, to, value, at, from_touched: false, to_touched: false });
        }
    }

    /// All events of a cause so far are durable, once it is `done`.
    pub fn flush(&mut self, done: u64, cause: Cause) {
        self.flushes.push((done, cause, self.clock));
    }

    /// All events of a cause up to `at` are durable.
    fn settle(&mut self, cause: Cause, at: u64) {
        for events in &mut self.events {
            let durable = |event: &Event| event.cause == cause && event.at <= at;
            if let Some(last) = events.iter().rposition(durable) {
                events.drain(..last);
            }
        }
    }

    /// What these units hold is durable: they were written so just now.
    pub fn settle_units(&mut self, units: std::ops::Range<u32>) {
        for unit in units {
            let events = &mut self.events[unit as usize];
            events.drain(..events.len() - 1);
        }
    }

    pub fn settle_all(&mut self, cause: Cause) {
        self.settle(cause, self.clock);
    }

    /// The power is cut: what was flushed by then is durable, and nothing else will be.
    pub fn power_cut(&mut self, at: u64) {
        for (_, cause, clock) in
            std::mem::take(&mut self.flushes).into_iter().filter(|(done, ..)| *done <= at)
        {
            self.settle(cause, clock);
        }
    }

    /// Whether an address may hold this after a power cut.
    pub fn may_hold(&self, unit: u32, value: u32) -> bool {
        self.events[unit as usize].iter().any(|event| event.value == value)
    }

    /// Remaps that are not committed, of which the host has touched neither address since, and which are the
    /// only ones of their addresses.
    pub fn untouched_moves(&self) -> Vec<Move> {
        let named = |unit: u32| {
            self.moves.iter().filter(|moved| moved.from == unit || moved.to == unit).count()
        };
        let untouched = |moved: &&Move| {
            let touched = moved.from_touched || moved.to_touched;
            !touched && named(moved.from) == 1 && named(moved.to) == 1
        };
        self.moves.iter().filter(untouched).copied().collect()
    }

    /// The addresses of remaps that are not committed, which the host has not written since, and what they hold.
    pub fn targets(&self) -> Vec<(u32, u32)> {
        let untouched = self.moves.iter().filter(|moved| !moved.to_touched);
        untouched.map(|moved| (moved.to, moved.value)).collect()
    }

    /// Whether an address may have held this, had the remap from it not happened.
    pub fn may_have_held(&self, moved: &Move, value: u32) -> bool {
        let before = self.events[moved.from as usize].iter().filter(|event| event.at < moved.at);
        before
            .chain([&Event { at: 0, cause: Cause::Data, value: moved.value }])
            .any(|event| event.value == value)
    }

    /// All remaps are committed.
    pub fn commit(&mut self) {
        self.moves.clear();
    }

    /// All remaps that are not committed are undone: their sources hold what they held, unless the host has
    /// touched them since, and their targets may hold anything that they held.
    pub fn discard(&mut self) {
        for moved in std::mem::take(&mut self.moves) {
            if !moved.from_touched {
                self.push(moved.from, Cause::Remap, moved.value);
                self.push(moved.from, Cause::Data, moved.value);
            }
            if !moved.to_touched {
                self.push(moved.to, Cause::Remap, 0);
            }
        }
    }

    /// What an address holds is known, and durable.
    pub fn set(&mut self, unit: u32, value: u32) {
        self.clock += 1;
        self.events[unit as usize] = vec![Event { at: self.clock, cause: Cause::Data, value }];
    }

    /// A discard has begun: it may have undone the remaps that are not committed, or not.
    pub fn may_discard(&mut self) {
        for moved in self.moves.clone() {
            // What the host has written there since may be lost.
            let [from, to] = [moved.from, moved.to]
                .map(|unit| self.events[unit as usize].iter().any(|event| event.at <= moved.at));
            if from {
                self.push(moved.from, Cause::Remap, moved.value);
            }
            if to {
                self.push(moved.to, Cause::Remap, 0);
            }
        }
    }

    /// What a unit may hold.
    pub fn describe(&self, unit: u32) -> String {
        format!("{:?} {:?}", self.events[unit as usize], self.flushes)
    }
}
