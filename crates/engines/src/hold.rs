//! ext4: no other program has a file open between an exchange of its blocks and the commit of it.
//!
//! Why. To ext4 an exchange is no change of the file's data: `fdatasync`, `O_DSYNC` and `msync` of another
//! program, on a block that has just moved, write the block and commit nothing, and `fsync` commits nothing
//! either unless the inode itself was touched (fs/ext4/fsync.c, `i_datasync_tid` and `i_sync_tid`). Until the
//! exchange is committed, a power cut would bring the old mapping back, and with it the old bytes. So
//!
//! - a write lease is taken before the first exchange, and kept until it is committed: while the lease is held,
//!   no other program has the file open, and a program that opens it waits;
//! - a program that waits is let in within a step and a commit;
//! - a file that others have open already is left alone, unless that is forced; then each step is committed by
//!   itself, which shortens the time in which a cut could lose what they sync;
//! - the commit is requested through another inode (`Hold::commit`);
//! - signals that would stop this process (Ctrl-Z) are deferred from before the lease until its release, which
//!   is then within a step and a commit: the kernel breaks the lease of a process that is stopped for long;
//! - while it is held, this thread's I/O is not of the idle class: a program that waits for the file would wait
//!   for every other user of the disk.
//!
//! `SIGSTOP` and the freezer cannot be deferred. A program that has waited until the kernel broke the lease
//! (`lease-break-time`) has the file open beside exchanges that are not committed; so, once this process goes
//! on, it commits before anything else (`Hold::is_lost`), and the receipt says so.
//!
//! Not covered: what another program syncs, and loses to a power cut, while this process is stopped like that;
//! and a program that opens the file after this process was killed between an exchange and its commit, syncs
//! data only, and loses power before the journal's next commit (5 s, unless the mount says otherwise).

use super::donor::unnamed;
use super::errno::skip_of;
use super::mounted::OpenFile;
use fragmend_layout::{Skip, SkipReason};
use fragmend_sys::backoff::Backoff;
use fragmend_sys::lease::Lease;
use fragmend_sys::priority::Prompt;
use fragmend_sys::signals::Unstopped;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often a lease is requested while another program has the file open, which may just be closing it.
pub(super) const TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// Keeps other programs out of one file while exchanges are not committed.
#[derive(Default)]
pub(super) struct Hold {
    lease: Option<Lease<'static>>,
    /// How many leases have been taken.
    taken: u64,
    /// Whether files are moved that others have open.
    force: bool,
    /// Whether blocks have been exchanged since the last commit.
    pending: bool,
    /// An unnamed file that exists only to be synced.
    pulse: Option<OwnedFd>,
    /// Whether the mode of the file that was synced last was changed an odd number of times.
    odd: bool,
    /// Whether others may have been let in before a commit, which has not been reported yet.
    was_lost: bool,
    /// Kept as long as the lease, and dropped after it.
    unstopped: Option<Unstopped>,
    prompt: Option<Prompt>,
    /// The last time at which no program was kept out, while the lease is held.
    open: Cell<Option<Instant>>,
    /// The longest time from one such moment to the next since it was last read.
    longest: Cell<Duration>,
}

impl Hold {
    /// One that holds nothing yet.
    pub fn new(force: bool) -> Self {
        Self { force, ..Self::default() }
    }

    /// Whether files are moved that others have open.
    pub fn is_forced(&self) -> bool {
        self.force
    }

    /// Takes the lease, if it is not held. `donor` as in [`Hold::commit`].
    ///
    /// # Errors
    /// Others have the file open, or this process may not lease it, unless that is forced.
    pub fn take(&mut self, file: &OpenFile, donor: Option<&OwnedFd>) -> Result<(), Skip> {
        if self.is_held() {
            return Ok(());
        }
        // Before anything else: a program that the kernel has let in may be syncing what has moved.
        if self.is_lost() {
            self.commit(file, donor)?;
        }
        self.lease = None;
        let (prompt, unstopped) = (Prompt::begin(), Unstopped::begin());
        match alone(file, if self.force { 1 } else { TRIES }) {
            Ok(lease) => self.lease = Some(lease),
            Err(_) if self.force => {}
            Err(e) => return Err(refused(e)),
        }
        self.taken += 1;
        self.open.set(self.lease.as_ref().map(|_| Instant::now()));
        self.unstopped = Some(unstopped);
        self.prompt = Some(prompt);
        Ok(())
    }

    /// Whether no other program has the file open, nor can open it while the lease is held.
    pub fn is_held(&self) -> bool {
        self.lease.as_ref().is_some_and(Lease::is_held)
    }

    /// Which lease is held: another number means that others may have had the file open in between.
    pub fn number(&self) -> Option<u64> {
        self.is_held().then_some(self.taken)
    }

    /// The longest time for which a program can have been kept out, since the last call: from one check for
    /// waiting programs to the next, or to the end of a commit.
    pub fn kept_out(&self) -> Duration {
        self.longest.take()
    }

    /// Whether a program waits for the lease.
    fn is_wanted(&self) -> bool {
        let wanted = self.lease.as_ref().is_some_and(Lease::is_wanted);
        if !wanted && self.lease.is_some() {
            self.note_open();
            self.open.set(Some(Instant::now()));
        }
        wanted
    }

    fn note_open(&self) {
        if let Some(since) = self.open.take() {
            self.longest.set(self.longest.get().max(since.elapsed()));
        }
    }

    /// Notes that blocks are about to be exchanged.
    pub fn exchanging(&mut self) {
        self.pending = true;
    }

    /// Whether a program waits for the file, or this process is to stop.
    pub fn is_awaited(&self) -> bool {
        self.is_wanted() || self.unstopped.is_some() && Unstopped::is_wanted()
    }

    /// Whether what was exchanged is to be committed now: a program waits, or none is kept out, or this process
    /// is to be stopped.
    pub fn must_commit(&self) -> bool {
        self.pending && (self.lease.is_none() || self.is_wanted())
            || self.unstopped.is_some() && Unstopped::is_wanted()
    }

    /// Whether others may have the file open beside what is not committed: this process was stopped for so long
    /// that the kernel may have broken the lease.
    pub fn is_lost(&self) -> bool {
        self.pending && self.lease.as_ref().is_some_and(|lease| !lease.is_held())
    }

    /// Whether that was so before a commit since the last call.
    pub fn was_lost(&mut self) -> bool {
        std::mem::take(&mut self.was_lost)
    }

    /// Makes all exchanges durable, and lets others in. The moved data must be on the device, or in flight: the
    /// commit waits for it.
    ///
    /// `fsync` of the file itself might find nothing to commit; so an inode that did change, later than the
    /// exchange and so in its transaction or a later one, is synced instead. Transactions become durable in
    /// their order, behind a flush. Where no inode can be made for that, `donor`'s is used, which may have been
    /// the last free one; without a donor all of the file system is synced, however much others have written to
    /// it.
    ///
    /// # Errors
    /// A system error; nothing is known to be durable then.
    pub fn commit(&mut self, file: &OpenFile, donor: Option<&OwnedFd>) -> Result<(), Skip> {
        if self.pending {
            self.was_lost |= self.is_lost();
            self.beat(file, donor).map_err(|e| skip_of(e.into()))?;
            self.pending = false;
        }
        self.lease = None;
        self.note_open();
        self.unstopped = None;
        self.prompt = None;
        Ok(())
    }

    /// Commits the journal, which frees released space, and keeps no inode for that: only one may be free.
    ///
    /// # Errors
    /// A system error.
    pub fn free_space(&mut self, file: &OpenFile) -> Result<(), Skip> {
        let committed = self.beat(file, None).map_err(|e| skip_of(e.into()));
        self.pulse = None;
        committed
    }

    /// Whether a commit would need the donor's inode.
    pub fn needs_donor(&mut self, file: &OpenFile) -> bool {
        self.pending && !self.has_pulse(file)
    }

    fn has_pulse(&mut self, file: &OpenFile) -> bool {
        if self.pulse.is_none() {
            self.pulse = unnamed(file).ok();
        }
        self.pulse.is_some()
    }

    fn beat(&mut self, file: &OpenFile, donor: Option<&OwnedFd>) -> Result<(), Errno> {
        self.has_pulse(file);
        // No inode is free, or the file is beyond a quota.
        let Some(fd) = self.pulse.as_ref().or(donor) else { return rustix::fs::syncfs(&file.fd) };
        self.odd = !self.odd;
        rustix::fs::fchmod(fd, if self.odd { Mode::RUSR } else { Mode::RUSR | Mode::WUSR })?;
        rustix::fs::fsync(fd)
    }
}

/// A write lease on a file, so that no other program has it open; requested up to `tries` times.
///
/// # Errors
/// Those of [`Lease::take`].
pub(super) fn alone(file: &OpenFile, tries: u32) -> io::Result<Lease<'static>> {
    Backoff::new(FIRST_WAIT, tries).retry(is_open_elsewhere, || Lease::take_duplicate(&file.fd))
}

/// Whether the error means that the file is open elsewhere.
pub(super) fn is_open_elsewhere(error: &io::Error) -> bool {
    error.raw_os_error().map(Errno::from_raw_os_error) == Some(Errno::AGAIN)
}

fn refused(error: io::Error) -> Skip {
    if is_open_elsewhere(&error) {
        let why = "other programs have it open, and ext4 would not make what they sync durable until the move is committed; close it there, or --force accepts that for the moment of each step";
        return Skip::new(SkipReason::Busy, why);
    }
    let Skip { reason, detail } = skip_of(error);
    Skip::new(
        reason,
        format!("no lease can be taken, which keeps others out ({detail}); --force does without"),
    )
}
