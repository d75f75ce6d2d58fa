//! Months of a phone: apps that update their databases and caches all day, photos and videos that come and go, and apps that are
//! updated every ten days (janusd, sections 2 and 5.1). Used by J-fig2-5, J-fig6, J-fig15-17, J-table4.
//!
//! | value | source |
//! |---|---|
//! | a partition of 25 GB | 2.5: that of the S6 |
//! | it is 83 % or 90 % full all the time: the user removes media to make space for others | 2.5, 5.1: so full were phones in use |
//! | six apps in turn, in sessions of 10 minutes for 220 minutes a day, for 180 days; updates every ten days | 5.1 |
//! | 46 MB of photos and videos a day | what takes a partition of 25 GB from 50 to 83 % (table 1) in six months |
//! | a cache keeps 400 objects | 2.2: the N5 had 2,704 files, of all kinds |
//! | an object in a cache has 22 KB | a page of the web had 2.3 MB in 105 requests (HTTP Archive, 2016) |
//! | each transaction writes and syncs a journal, then the database, and truncates the journal | `journal_mode=TRUNCATE`, the default of Android's framework until version 9 (`db_default_journal_mode`) |
//!
//! What an app writes in a session is not in the paper. What is assumed here is in [`Habits`], as round numbers. Two of them, `databases` and
//! `synced`, were changed after results had been seen; so J-fig2-5 has its figures with other numbers beside its own, and they depend on them.
//! Few and large calls stand for many: a session has a few transactions, each of which changes several pages, as if the transactions of some
//! minutes were one. For comparison: a phone evaluates about 180,000 statements of SQL a day (Pocket Data, 2015, of 11 phones), 178 for each
//! of the 1,012 transactions here. In traces of five apps (DICL's mobile-traces) Google Play services alone evaluated between 0.07 and 17
//! statements in the background for each of the app's; here apps in the background commit 1.9 transactions for each of the user's.
//!
//! Which media the user removes, and which objects a cache evicts, does not depend on when they were written: so holes of all lengths come to
//! be between what stays.
//!
//! An app has its databases open until Android ends its process, which is that of the app that was idle for longest when there are more
//! than [`PROCESSES`]: what the file system has reserved for a database to grow is free then.

use super::distribution::gamma;
use super::{Done, Load, Scale, write, write_whole};
use crate::random::Random;
use fragmend_layout::{ByteRange, FileId};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// The partition, in bytes.
pub const PARTITION: u64 = 25_000_000_000;
/// Days of six months.
pub const DAYS: u32 = 180;
/// Days between two updates of an app.
const UPDATE_DAYS: u32 = 10;
/// Sessions of a day, and how long each is, and a day, in nanoseconds: the file system's own clocks, as for writeback and commits, run on.
const SESSIONS: u64 = 22;
const SESSION_NS: u64 = 600_000_000_000;
const DAY_NS: u64 = 86_400_000_000_000;
/// Processes that Android keeps (`MAX_CACHED_APPS` in its `ProcessList`).
const PROCESSES: u64 = 32;
/// Apps that are used in sessions; the others are only updated.
const USED: u64 = 6;

/// What is assumed of apps. Lengths are bytes; those of files are means of a gamma distribution of shape 1.5, as in Filebench.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Apps on the phone, with the six that are used.
    pub apps: u64,
    /// The package of an app, and again what it is compiled to.
    pub package: u64,
    /// Databases of an app.
    pub databases: usize,
    /// Transactions of each of them in a session with the app.
    pub transactions: u32,
    /// Transactions of other apps, which synchronize in the background, in a session.
    pub synced: u32,
    /// Pages by which a database grows with each, at most, and pages that change.
    pub grows: u32,
    /// See `grows`.
    pub changes: u32,
    /// Files that are added to an app's cache in a session; some of more than `kept` are removed.
    pub cached: u32,
    /// A file in the cache.
    pub cache_file: u64,
    /// See `cached`.
    pub kept: u64,
    /// A photo, or a video.
    pub photo: u64,
    /// Bytes of photos and videos of a day.
    pub daily: u64,
    /// How full the partition is, in per cent.
    pub full: u64,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            apps: 60,
            package: 32 << 20,
            databases: 8,
            transactions: 2,
            synced: 30,
            grows: 4,
            changes: 2,
            cached: 60,
            cache_file: 22_000,
            kept: 400,
            photo: 4 << 20,
            daily: 46_000_000,
            full: 83,
        }
    }
}

/// Bytes of a call that writes a package, with the calls of other apps between.
const DOWNLOAD: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// The shape of the distribution of lengths.
const SHAPE: f64 = 1.5;

/// A phone. An operation is a day.
pub struct Phone {
    habits: Habits,
    scale: Scale,
    apps: Vec<App>,
    photos: u64,
    media: Vec<PathBuf>,
    /// Apps with a process, the one that was idle for longest first.
    processes: VecDeque<usize>,
    day: u32,
    random: Random,
}

/// A database and its journal.
struct Database {
    file: FileId,
    journal: FileId,
}

/// An app.
struct App {
    number: usize,
    databases: Vec<Database>,
    cache: Vec<PathBuf>,
    cached: u64,
}

impl Phone {
    /// Installs the apps, and fills the partition with photos and videos. The partition is `scale` of [`PARTITION`]; as many parts of
    /// the apps, of those that are used, and of the sessions there are, so that each app does what it does on the whole one.
    ///
    /// # Errors
    /// The file system has too little space, or refuses a call.
    pub fn new(
        files: &dyn FileSystem,
        habits: Habits,
        scale: Scale,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut phone = Self {
            habits,
            scale,
            apps: Vec::new(),
            photos: 0,
            media: Vec::new(),
            processes: VecDeque::new(),
            day: 0,
            random: Random::new(seed, "phone"),
        };
        for number in 0..scale.of(habits.apps) as usize {
            let mut app = App { number, databases: Vec::new(), cache: Vec::new(), cached: 0 };
            for part in [Package::Code, Package::Compiled] {
                let bytes = phone.length(habits.package);
                let file = files.create(&app.package(part))?;
                write_whole(files, file, bytes, DOWNLOAD, Access::Buffered)?;
                settle(files, file)?;
            }
            for database in 0..habits.databases {
                let file = files.create(&app.path(&format!("{database}.db")))?;
                let journal = files.create(&app.path(&format!("{database}.db-journal")))?;
                app.databases.push(Database { file, journal });
            }
            phone.apps.push(app);
        }
        let most = files.total_bytes() * habits.full / 100;
        phone.take_photos(files, most.saturating_sub(used(files)?))?;
        files.sync()?;
        Ok(phone)
    }

    /// Days so far.
    pub fn day(&self) -> u32 {
        self.day
    }

    /// How many apps are used.
    pub fn used(&self) -> usize {
        self.scale.of(USED) as usize
    }

    /// The path of each file of an app begins so. The first apps are those that are used.
    pub fn prefix(app: usize) -> String {
        format!("app-{app:02}/")
    }

    fn length(&mut self, mean: u64) -> u64 {
        (gamma(&mut self.random, SHAPE, mean as f64) as u64).max(1)
    }

    /// Takes photos and videos of so many bytes.
    fn take_photos(&mut self, files: &dyn FileSystem, bytes: u64) -> Result<Done, Error> {
        let (mut all, mut left) = (Done::default(), bytes);
        while left > 0 {
            let bytes = self.length(self.habits.photo).min(left.max(PAGE));
            let path = PathBuf::from(format!("photos/{:06}", self.photos));
            let file = files.create(&path)?;
            self.photos += 1;
            self.media.push(path);
            all = all + write_whole(files, file, bytes, bytes, Access::Buffered)?;
            settle(files, file)?;
            left = left.saturating_sub(bytes.next_multiple_of(PAGE));
        }
        Ok(all)
    }

    /// Removes photos and videos, each as likely as all others, until the partition is no fuller than it should be.
    fn make_space(&mut self, files: &dyn FileSystem) -> Result<(), Error> {
        let most = files.total_bytes() * self.habits.full / 100;
        while used(files)? > most && !self.media.is_empty() {
            let any = self.random.below(self.media.len() as u32) as usize;
            files.remove(&self.media.swap_remove(any))?;
        }
        Ok(())
    }

    /// Lives for so many days, whichever day it is.
    ///
    /// # Errors
    /// The file system has refused a call.
    pub fn live_for(&mut self, files: &dyn FileSystem, days: u32) -> Result<Done, Error> {
        (0..days).try_fold(Done::default(), |all, _| Ok(all + self.live(files)?))
    }

    /// A day: sessions, with the updates of the day between them, then photos, and space is made for the next one.
    fn live(&mut self, files: &dyn FileSystem) -> Result<Done, Error> {
        let mut all = Done::default();
        let due = self.day % UPDATE_DAYS;
        let each = UPDATE_DAYS as usize;
        let mut updates: VecDeque<usize> = (due as usize..self.apps.len()).step_by(each).collect();
        let sessions = self.scale.of(SESSIONS);
        let began = files.machine().now_ns();
        for session in 0..sessions {
            let user = (u64::from(self.day) * sessions + session) as usize % self.used();
            let count = updates.len().div_ceil((sessions - session) as usize);
            let now: Vec<usize> = updates.drain(..count).collect();
            all = all + self.session(files, user, &now)?;
        }
        files.machine().wait_until(began + DAY_NS);
        self.day += 1;
        all = all + self.take_photos(files, self.scale.of(self.habits.daily))?;
        self.make_space(files)?;
        Ok(all)
    }

    /// Ten minutes with an app, while others are updated: a new package is downloaded a part at a time, between what the app
    /// writes, and takes the place of the old one once it is durable.
    fn session(
        &mut self,
        files: &dyn FileSystem,
        user: usize,
        updates: &[usize],
    ) -> Result<Done, Error> {
        let Habits { cached, synced, .. } = self.habits;
        let mut all = Done::default();
        let mut downloads = VecDeque::new();
        for number in updates {
            for part in [Package::Code, Package::Compiled] {
                let path = self.apps[*number].package(part);
                let bytes = self.length(self.habits.package);
                let file = files.create(&downloaded(&path))?;
                downloads.push_back((path, file, ByteRange::at(0, bytes)));
            }
        }
        for turn in 0..cached.max(1) {
            all = all + self.use_app(files, user, turn)?;
            let due = |turns: u32| synced * turns / cached.max(1);
            all = all + self.synchronize(files, due(turn + 1) - due(turn))?;
            files.machine().spend(SESSION_NS / u64::from(cached.max(1)));
            let turns = u64::from(cached.max(1) - turn);
            let left: u64 = downloads.iter().map(|(_, _, left)| left.len()).sum();
            let mut now = left.div_ceil(turns);
            while let Some((path, file, left)) = downloads.front_mut().filter(|_| now > 0) {
                let Some(part) = left.steps(DOWNLOAD).next() else { break };
                all = all + write(files, *file, part, Access::Buffered)?;
                now = now.saturating_sub(part.len());
                left.start = part.end;
                if left.is_empty() {
                    settle(files, *file)?;
                    files.rename(&downloaded(path), path)?;
                    downloads.pop_front();
                }
            }
        }
        self.wake(files, user)?;
        Ok(all)
    }

    /// An app has done something, in its process; that of another one may end.
    fn wake(&mut self, files: &dyn FileSystem, number: usize) -> Result<(), Error> {
        self.processes.retain(|other| *other != number);
        self.processes.push_back(number);
        if self.processes.len() as u64 <= self.scale.of(PROCESSES) {
            return Ok(());
        }
        let Some(ended) = self.processes.pop_front() else { return Ok(()) };
        self.apps[ended].databases.iter().try_for_each(|database| files.close(database.file))
    }

    /// Some apps, each as likely as all others, commit so many transactions in the background.
    fn synchronize(&mut self, files: &dyn FileSystem, count: u32) -> Result<Done, Error> {
        let mut all = Done::default();
        for _ in 0..count {
            let number = self.random.below(self.apps.len() as u32) as usize;
            self.wake(files, number)?;
            let Self { apps, random, habits: Habits { grows, changes, .. }, .. } = self;
            let app = &apps[number];
            let Some(last) = (app.databases.len() as u32).checked_sub(1) else { continue };
            let database = &app.databases[random.within(0, last) as usize];
            let pages = u64::from(1 + random.below((*grows).max(1)));
            all = all + transaction(files, database, pages, *changes, random)?;
        }
        Ok(all)
    }

    /// The app adds a file to its cache, and commits its share of the session's transactions.
    fn use_app(&mut self, files: &dyn FileSystem, user: usize, turn: u32) -> Result<Done, Error> {
        let Habits { cached, cache_file, kept, transactions, grows, changes, .. } = self.habits;
        let mut all = Done::default();
        let bytes = self.length(cache_file);
        let Self { apps, random, .. } = self;
        let app = &mut apps[user];
        let path = app.path(&format!("cache/{}", app.cached));
        app.cached += 1;
        let file = files.create(&path)?;
        all = all + write_whole(files, file, bytes, bytes, Access::Buffered)?;
        app.cache.push(path);
        if app.cache.len() as u64 > kept {
            let any = random.below(app.cache.len() as u32) as usize;
            files.remove(&app.cache.swap_remove(any))?;
        }
        let each = cached.max(1).div_ceil(transactions.max(1));
        if transactions > 0 && turn.is_multiple_of(each) {
            for database in &app.databases {
                let pages = u64::from(1 + random.below(grows.max(1)));
                all = all + transaction(files, database, pages, changes, random)?;
            }
        }
        Ok(all)
    }
}

/// Bytes that are not free.
fn used(files: &dyn FileSystem) -> Result<u64, Error> {
    let free = files.free_bytes().map_err(|skip| Error::Damaged(skip.to_string()))?;
    Ok(files.total_bytes() - free)
}

/// What was written to a file that grows no further is made durable, and the file is closed.
fn settle(files: &dyn FileSystem, file: FileId) -> Result<(), Error> {
    files.sync_file(file)?;
    files.close(file)
}

/// A transaction by which a database grows, and some of its pages change.
fn transaction(
    files: &dyn FileSystem,
    Database { file, journal }: &Database,
    grows: u64,
    changes: u32,
    random: &mut Random,
) -> Result<Done, Error> {
    let size = files.size(*file)?;
    let old = ByteRange::at(0, u64::from(changes + 1) * PAGE);
    let mut done = write(files, *journal, old, Access::Buffered)?;
    files.sync_file(*journal)?;
    for _ in 0..u64::from(changes).min(size / PAGE) {
        let page = random.below_u64(size / PAGE);
        done = done + write(files, *file, ByteRange::at(page * PAGE, PAGE), Access::Buffered)?;
    }
    done = done + write(files, *file, ByteRange::at(size, grows * PAGE), Access::Buffered)?;
    files.sync_file(*file)?;
    files.truncate(*journal, 0)?;
    Ok(done)
}

/// Where the new package of this path is until it takes the old one's place.
fn downloaded(package: &Path) -> PathBuf {
    let mut path = package.as_os_str().to_owned();
    path.push(".new");
    path.into()
}

/// The parts of an app that an update replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Package {
    Code,
    Compiled,
}

impl App {
    fn path(&self, name: &str) -> PathBuf {
        (Phone::prefix(self.number) + name).into()
    }

    fn package(&self, part: Package) -> PathBuf {
        self.path(if part == Package::Code { "base.apk" } else { "base.odex" })
    }
}

impl Load for Phone {
    fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error> {
        if self.day >= DAYS {
            return Ok(None);
        }
        self.live(files).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::double::Double;

    const SCALE: Scale = Scale::one_in(50);

    fn phone(habits: Habits) -> (Double, Phone) {
        let files = Double::new((SCALE.of(PARTITION) / PAGE) as u32);
        let phone = Phone::new(&files, habits, SCALE, 3).unwrap();
        (files, phone)
    }

    fn percent(files: &Double) -> u64 {
        use fragmend_layout::Volume;
        (files.total_bytes() - files.free_bytes().unwrap()) * 100 / files.total_bytes()
    }

    /// Packages are short, so that one that takes the place of a longer one leaves little space.
    const SHORT: u64 = 4 << 20;

    #[test]
    fn six_months_keep_the_partition_as_full_as_it_was_and_replace_packages() {
        let (files, mut phone) = phone(Habits { package: SHORT, kept: 20, ..Habits::default() });
        assert_eq!(percent(&files), 83);
        let package =
            |number: usize| files.find(Path::new(&format!("app-{number:02}/base.apk"))).unwrap();
        let before: Vec<FileId> = (0..phone.apps.len()).map(package).collect();
        for _ in 0..UPDATE_DAYS {
            phone.next(&files).unwrap();
        }
        assert!(
            (0..phone.apps.len()).all(|number| package(number) != before[number]),
            "all are updated in ten days"
        );
        let done = phone.finish(&files).unwrap();
        assert_eq!(phone.day(), DAYS);
        // A shorter package leaves space, which the photos of some days fill.
        assert!((75..=83).contains(&percent(&files)), "{}", percent(&files));
        assert!(done.written_bytes > SCALE.of(PARTITION) && done.read_bytes == 0);
        assert_eq!(phone.next(&files), Ok(None));
        assert!(phone.apps[0].databases.iter().all(|one| files.size(one.journal) == Ok(0)));
        assert_eq!(phone.apps[0].cache.len(), 20);
    }
}
