//! A machine: one simulated drive, the host's path to it, and the programs that use it, each with its own processor and clock.
//! The power can be cut at any instant.

use crate::file_system::{Access, Token};
pub use crate::wired::Recorded;
use crate::wired::{Wired, WithContents};
use fragmend_apply::{Environment, OwnIo};
use fragmend_flash::command::{Command, Completion, Hint, Refused, Units};
use fragmend_flash::counters::Counters;
use fragmend_flash::device::{Bytes, Contents, Device, Recovery};
use fragmend_flash::host::{Host, HostPath, TimeSpent};
use fragmend_layout::DeviceProfile;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A machine. All clones are the same one.
#[derive(Clone)]
pub struct Machine(Rc<RefCell<State>>);

/// A program, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program(usize);

impl Program {
    /// Its number; the first one has 0.
    pub fn number(self) -> u32 {
        self.0 as u32
    }
}

/// When the power fails: before the drive's command with this number (the first one has the number 1), and so long after the one
/// before it, at the latest when this one arrives. A flush, or another command that a program waits for, fails if it is the one before
/// and is not done by then: the program has not seen it end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// The number of the command that does not arrive any more.
    pub before: u64,
    /// Nanoseconds since the command before it arrived.
    pub after_ns: u64,
}

/// What a machine does whenever a run looks at the clock: lets other programs catch up with it. It is passed the time.
type Others = Box<dyn FnMut(&Machine, u64)>;

struct State {
    drive: Wired,
    keeps_content: bool,
    profile: Option<DeviceProfile>,
    path: HostPath,
    programs: Vec<OfProgram>,
    present: usize,
    others: Option<Others>,
    next_token: Token,
}

/// The state of a program.
#[derive(Clone, Copy, Debug, Default)]
struct OfProgram {
    now: u64,
    spent: TimeSpent,
    requests: u64,
    stale_hints: u64,
    io: OwnIo,
    use_page_ns: u64,
}

impl Machine {
    /// A machine with one program, at time zero, and an idle drive, which keeps content or not.
    pub fn new(device: Box<dyn Device>, keeps_content: bool, path: HostPath) -> Self {
        let drive = Wired::new(device, path.queue_depth);
        let programs = vec![OfProgram::default()];
        let (profile, others) = (None, None);
        let (present, next_token) = (0, 1);
        let state =
            State { drive, keeps_content, profile, path, programs, present, others, next_token };
        Self(Rc::new(RefCell::new(state)))
    }

    /// Whether the drive keeps content.
    pub fn keeps_content(&self) -> bool {
        self.0.borrow().keeps_content
    }

    /// Bytes of a block, which is a unit of the drive.
    pub fn block_bytes(&self) -> u64 {
        self.0.borrow().drive.device.unit_bytes().into()
    }

    /// Blocks of the drive.
    pub fn blocks(&self) -> u32 {
        self.0.borrow().drive.device.units()
    }

    /// The host's path to the drive.
    pub fn path(&self) -> HostPath {
        self.0.borrow().path.clone()
    }

    /// What planning knows of the drive, once it was told.
    pub fn profile(&self) -> Option<DeviceProfile> {
        self.0.borrow().profile.clone()
    }

    /// Tells what planning knows of the drive, which volumes on it report.
    pub fn set_profile(&self, profile: DeviceProfile) {
        self.0.borrow_mut().profile = Some(profile);
    }

    /// Looks at the drive.
    pub fn drive<T>(&self, look: impl FnOnce(&dyn Device) -> T) -> T {
        look(&*self.0.borrow().drive.device)
    }

    /// The counts of the drive.
    pub fn counters(&self) -> Counters {
        self.0.borrow().drive.device.counters()
    }

    /// A further program, which begins now. The [present one](Self::present) stays.
    pub fn add_program(&self) -> Program {
        let mut state = self.0.borrow_mut();
        let now = state.program().now;
        state.programs.push(OfProgram { now, ..OfProgram::default() });
        Program(state.programs.len() - 1)
    }

    /// The program that makes the next calls.
    pub fn present(&self) -> Program {
        Program(self.0.borrow().present)
    }

    /// From now on this program makes the calls; returns the one that did.
    pub fn switch_to(&self, program: Program) -> Program {
        Program(std::mem::replace(&mut self.0.borrow_mut().present, program.0))
    }

    /// The time of the present program, in nanoseconds since the machine was made.
    pub fn now_ns(&self) -> u64 {
        self.0.borrow().program().now
    }

    /// The time of a program.
    pub fn now_of(&self, program: Program) -> u64 {
        self.0.borrow().programs[program.0].now
    }

    /// The present program computes, or sleeps, for so long.
    pub fn spend(&self, ns: u64) {
        self.0.borrow_mut().program_mut().now += ns;
    }

    /// The present program sleeps until this time, unless that has passed.
    pub fn wait_until(&self, at: u64) {
        let mut state = self.0.borrow_mut();
        let program = state.program_mut();
        program.now = program.now.max(at);
    }

    /// The present program sleeps until the drive is idle.
    pub fn wait_until_idle(&self) {
        let idle = self.0.borrow().drive.device.idle_at();
        self.wait_until(idle);
    }

    /// For how long the present program uses each page of 4 KiB that it reads through the page cache, in nanoseconds.
    pub fn set_use_page_ns(&self, ns: u64) {
        self.0.borrow_mut().program_mut().use_page_ns = ns;
    }

    /// Where the present program's time went, and how many requests it has made.
    pub fn spent(&self) -> (TimeSpent, u64) {
        let state = self.0.borrow();
        (state.program().spent, state.program().requests)
    }

    /// Hints of writes that the layers between file system and drive have made wrong ([`Host::stale_hints`]), of all programs.
    pub fn stale_hints(&self) -> u64 {
        self.0.borrow().programs.iter().map(|program| program.stale_hints).sum()
    }

    /// Passes the drive, for measurements that need more of it than programs do. What is sent to it costs no program time, and no power
    /// cut is due by it.
    pub fn with_drive<T>(&self, measure: impl FnOnce(&mut dyn Device) -> T) -> T {
        measure(&mut *self.0.borrow_mut().drive.device)
    }

    /// Lets `others` run whenever a run of the mover looks at the clock: it is passed the time, up to which the programs that are
    /// behind make their calls. They are not called while they run.
    pub fn set_others(&self, others: impl FnMut(&Machine, u64) + 'static) {
        self.0.borrow_mut().others = Some(Box::new(others));
    }

    /// Reads extents with one call, and waits for them. Through the page cache: with the host's readahead, whose next window is in
    /// flight while the program uses the last one.
    ///
    /// # Errors
    /// The drive refuses, or the power is cut.
    pub fn read(&self, extents: &[Units], access: Access) -> Result<(), Refused> {
        let bytes = self.bytes_of(extents);
        self.with_host(&mut |_| None, |host| match access {
            Access::Buffered => host.read_buffered(extents),
            Access::Direct => host.read(extents),
        })?;
        self.0.borrow_mut().program_mut().io.read_bytes += bytes;
        Ok(())
    }

    /// Asks for extents without a call and without waiting, as readahead does; returns when they will have arrived.
    ///
    /// # Errors
    /// The drive refuses, or the power is cut.
    pub fn begin_read(&self, extents: &[Units]) -> Result<u64, Refused> {
        let bytes = self.bytes_of(extents);
        let ready = self.with_host(&mut |_| None, |host| {
            let ends = host.begin(extents)?;
            Ok(ends.into_iter().map(|(end, _)| end).fold(host.now, u64::max))
        })?;
        self.0.borrow_mut().program_mut().io.read_bytes += bytes;
        Ok(ready)
    }

    /// Waits for what ends at this time, which [`Self::begin_read`] or [`Self::begin_command`] has returned.
    pub fn end_read(&self, ready: u64) {
        let mut state = self.0.borrow_mut();
        let (end_ns, wake_ns) = (state.path.end_ns, state.path.wake_ns);
        let program = state.program_mut();
        let waiting = ready.saturating_sub(program.now);
        let wake_ns = if waiting > 0 { wake_ns } else { 0 };
        program.spent.waiting += waiting;
        program.spent.wake += wake_ns;
        program.spent.completion += end_ns;
        program.now += waiting + wake_ns + end_ns;
    }

    /// The present program uses this many bytes that it has read through the page cache.
    pub fn use_bytes(&self, bytes: u64) {
        let mut state = self.0.borrow_mut();
        let program = state.program_mut();
        let ns = bytes.div_ceil(4096) * program.use_page_ns;
        program.spent.program += ns;
        program.now += ns;
    }

    /// Writes extents with one call, and waits until the drive has acknowledged them. `contents` returns the content of a unit of
    /// the drive; it is not called for a drive that keeps none.
    ///
    /// # Errors
    /// The drive refuses, or the power is cut: some of them may have been written.
    pub fn write(
        &self,
        extents: &[Units],
        hint: Hint,
        contents: Contents<'_>,
    ) -> Result<(), Refused> {
        self.with_writer(self.bytes_of(extents), contents, |host| host.write(extents, hint))
    }

    /// The same with a hint for each extent.
    ///
    /// # Errors
    /// As of [`Self::write`].
    pub fn write_each(
        &self,
        extents: &[(Units, Hint)],
        contents: Contents<'_>,
    ) -> Result<(), Refused> {
        let units: u64 = extents.iter().map(|(units, _)| u64::from(units.count)).sum();
        self.with_writer(units * self.block_bytes(), contents, |host| host.write_each(extents))
    }

    /// Writes blocks with one call, each to its place; their content is passed where the drive keeps it.
    ///
    /// # Errors
    /// The drive refuses, or the power is cut: some of them may have been written.
    pub fn write_blocks(&self, blocks: &BTreeMap<u32, Bytes>) -> Result<(), Refused> {
        let mut units: Vec<Units> = Vec::new();
        for place in blocks.keys() {
            match units.last_mut().filter(|last| last.end() == *place) {
                Some(last) => last.count += 1,
                None => units.push(Units::new(*place, 1)),
            }
        }
        if !units.is_empty() {
            self.write(&units, Hint::None, &mut |unit| blocks.get(&unit).cloned().flatten())?;
        }
        Ok(())
    }

    /// Sends a command, and waits for its completion.
    ///
    /// # Errors
    /// The drive refuses, or the power is cut.
    pub fn command(&self, command: &Command) -> Result<Completion, Refused> {
        self.with_host(&mut |_| None, |host| host.command(command))
    }

    /// Sends a command without waiting for its completion, which is returned; [`Self::end_read`] waits for it.
    ///
    /// # Errors
    /// The drive refuses, or the power is cut.
    pub fn begin_command(&self, command: &Command) -> Result<Completion, Refused> {
        self.with_host(&mut |_| None, |host| host.begin_command(command))
    }

    /// Makes durable what the drive has acknowledged.
    ///
    /// # Errors
    /// The drive refuses, or the power is cut.
    pub fn flush(&self) -> Result<(), Refused> {
        self.command(&Command::Flush).map(drop)
    }

    /// Tokens for the content of so many blocks, which no block has had: the first one, which the others follow. Restarts do not
    /// repeat them.
    pub fn fresh_tokens(&self, count: u64) -> Token {
        let mut state = self.0.borrow_mut();
        let first = state.next_token;
        state.next_token += count;
        first
    }

    /// The next one of [`Self::fresh_tokens`].
    pub fn next_token(&self) -> Token {
        self.0.borrow().next_token
    }

    /// The content of units of the drive, without a clock.
    pub fn bytes(&self, units: Units) -> Vec<u8> {
        self.0.borrow().drive.device.bytes(units)
    }

    /// How many commands have arrived at the drive.
    pub fn commands(&self) -> u64 {
        self.0.borrow().drive.commands
    }

    /// From now on the commands that arrive are recorded.
    pub fn record_commands(&self) {
        self.0.borrow_mut().drive.records = Some(Vec::new());
    }

    /// The commands that were recorded, whose recording ends.
    pub fn recorded_commands(&self) -> Vec<Recorded> {
        self.0.borrow_mut().drive.records.take().unwrap_or_default()
    }

    /// When the last command arrived.
    pub fn last_arrival(&self) -> u64 {
        self.0.borrow().drive.arrived
    }

    /// Lets the power fail.
    pub fn cut_power(&self, cut: PowerCut) {
        self.0.borrow_mut().drive.cut = Some(cut);
    }

    /// Whether the power is on.
    pub fn is_on(&self) -> bool {
        self.0.borrow().drive.is_on
    }

    /// Cuts the power now, unless it is cut, or so long after the last command if that is later, and returns when the drive has recovered. All
    /// programs are gone, and one begins.
    pub fn restart(&self, after_ns: u64) -> Recovery {
        let mut state = self.0.borrow_mut();
        let programs = state.programs.iter().map(|program| program.now);
        let now = programs.fold(state.drive.arrived, u64::max);
        let cut = if state.drive.is_on {
            let at = state.drive.arrived.saturating_add(after_ns).max(now);
            state.drive.device.power_cut(at)
        } else {
            Recovery::default()
        };
        (state.drive.is_on, state.drive.cut) = (true, None);
        state.drive.slots.clear();
        (state.programs, state.present, state.others) = (vec![OfProgram::default()], 0, None);
        state.program_mut().now = now + cut.elapsed_ns;
        cut
    }

    fn bytes_of(&self, extents: &[Units]) -> u64 {
        extents.iter().map(|units| u64::from(units.count)).sum::<u64>() * self.block_bytes()
    }

    /// Makes a call of the present program that writes so many bytes.
    fn with_writer(
        &self,
        bytes: u64,
        contents: Contents<'_>,
        write: impl FnOnce(&mut Host<'_, WithContents<'_, '_>>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        self.0.borrow_mut().program_mut().io.written_bytes += bytes;
        if self.keeps_content() {
            self.with_host(contents, write)
        } else {
            self.with_host(&mut |_| None, write)
        }
    }

    /// Makes a call of the present program.
    fn with_host<T>(
        &self,
        contents: Contents<'_>,
        call: impl FnOnce(&mut Host<'_, WithContents<'_, '_>>) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let state = &mut *self.0.borrow_mut();
        let mut drive = WithContents { drive: &mut state.drive, contents };
        let program = &mut state.programs[state.present];
        let mut host = Host::new(&state.path, &mut drive, program.now);
        (host.spent, host.requests, host.use_page_ns) =
            (program.spent, program.requests, program.use_page_ns);
        let done = call(&mut host);
        (program.now, program.spent, program.requests) = (host.now, host.spent, host.requests);
        program.stale_hints += host.stale_hints;
        done
    }

    /// Lets the other programs catch up with the present one.
    fn let_others_catch_up(&self) {
        let Some(mut others) = self.0.borrow_mut().others.take() else { return };
        let (present, now) = (self.present(), self.now_ns());
        others(self, now);
        self.switch_to(present);
        self.0.borrow_mut().others.get_or_insert(others);
    }
}

impl State {
    fn program(&self) -> &OfProgram {
        &self.programs[self.present]
    }

    fn program_mut(&mut self) -> &mut OfProgram {
        &mut self.programs[self.present]
    }
}

impl Environment for Machine {
    fn now(&self) -> Duration {
        self.let_others_catch_up();
        Duration::from_nanos(self.now_ns())
    }

    fn wait(&self, time: Duration) {
        self.spend(time.as_nanos() as u64);
        self.let_others_catch_up();
    }

    /// A machine has one drive.
    fn read_from(&self, _: u64) -> Option<u64> {
        let state = self.0.borrow();
        let device = &state.drive.device;
        Some(device.counters().host_read * u64::from(device.unit_bytes()))
    }

    fn own_io(&self) -> OwnIo {
        self.0.borrow().program().io
    }

    /// The drive knows no priorities.
    fn give_way(&self) {}
}

/// The content of a block that holds a token: the number, little-endian, then zeroes.
pub fn block_of_token(token: u64, block_bytes: u64) -> Bytes {
    let mut bytes = vec![0; block_bytes as usize];
    bytes[..8].copy_from_slice(&token.to_le_bytes());
    Some(bytes.into())
}

/// The token in a block.
pub fn token_of_block(bytes: &[u8]) -> u64 {
    let first = bytes.first_chunk::<8>().copied().unwrap_or_default();
    u64::from_le_bytes(first)
}
