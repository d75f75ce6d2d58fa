//! The loop device that makes a block device of a served drive.
//!
//! This process has the device open for moments only: see [`fragmend_sys::loop_device`].

use super::ServeError;
use fragmend_sys::{loop_device, mounts};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A loop device may need a moment to be detached.
const PATIENCE: Duration = Duration::from_secs(5);

/// What keeps a device from being detached, each in a few words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InTheWay(pub Vec<String>);

impl std::fmt::Display for InTheWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

/// A loop device on a served file.
#[derive(Debug)]
pub struct Device {
    node: PathBuf,
    file: PathBuf,
}

impl Device {
    /// Attaches a free one, with sectors of this size.
    ///
    /// # Errors
    /// When there is none, or it would not read the file directly.
    pub fn attach(file: &Path, sector_bytes: u32) -> Result<Self, ServeError> {
        let open = File::options().read(true).write(true).open(file).map_err(ServeError::Loop)?;
        let node = loop_device::attach(&open, sector_bytes).map_err(ServeError::Loop)?;
        let device = Self { node, file: file.to_owned() };
        if !loop_device::is_direct(&device.node) {
            let _ = device.detach();
            return Err(ServeError::NotDirect);
        }
        Ok(device)
    }

    /// Its node.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Sets a limit or a hint of its queue, by its name in sysfs.
    ///
    /// # Errors
    /// Why the kernel keeps the old value.
    pub fn set_queue(&self, name: &str, value: u64) -> std::io::Result<()> {
        let setting = loop_device::in_sysfs(&self.node).join("queue").join(name);
        fs::write(setting, value.to_string())
    }

    fn is_attached(&self) -> bool {
        loop_device::is_attached(&self.node, &self.file)
    }

    /// Detaches it; done if somebody else has.
    ///
    /// # Errors
    /// What uses it.
    pub fn detach(&self) -> Result<(), InTheWay> {
        // By then the node may belong to another process.
        if !self.is_attached() {
            return Ok(());
        }
        let in_use = self.users();
        if !in_use.is_empty() {
            return Err(InTheWay(in_use));
        }
        let alone = loop_device::alone(&self.node);
        let detached = alone.and_then(|device| loop_device::detach(&device));
        if let Err(e) = detached {
            let users = self.users();
            let unknown = || {
                vec![format!(
                    "{} cannot be detached ({e}); another mount namespace may have it mounted",
                    self.node.display()
                )]
            };
            return Err(InTheWay(if users.is_empty() { unknown() } else { users }));
        }
        let started = Instant::now();
        while self.is_attached() {
            if started.elapsed() > PATIENCE {
                return Err(InTheWay(vec![format!("{} is still open", self.node.display())]));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Who uses it: mounts that are visible here, swap, other devices, programs that have it open.
    fn users(&self) -> Vec<String> {
        let Ok(meta) = fs::metadata(&self.node) else { return Vec::new() };
        let mut users = Vec::new();
        for mount in mounts::all().unwrap_or_default() {
            if mount.dev == meta.rdev() || Path::new(&mount.source) == self.node {
                users.push(format!("mounted at {}", mount.point.display()));
            }
        }
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        if swaps.lines().any(|line| line.split_ascii_whitespace().next() == self.node.to_str()) {
            users.push("in use as swap".into());
        }
        let holders = fs::read_dir(loop_device::in_sysfs(&self.node).join("holders"));
        for holder in holders.into_iter().flatten().flatten() {
            users.push(format!("in use by the device {}", holder.file_name().display()));
        }
        users.extend(openers(meta.rdev()));
        users
    }
}

/// The programs that have the block device of this number open.
fn openers(device: u64) -> Vec<String> {
    let mut openers = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        let is_it = |path: PathBuf| {
            // Only what is a node is looked at: a look at a file on a dead server would hang.
            let is_node = fs::read_link(&path).is_ok_and(|to| to.starts_with("/dev"));
            is_node
                && fs::metadata(&path)
                    .is_ok_and(|m| m.file_type().is_block_device() && m.rdev() == device)
        };
        if descriptors.flatten().any(|descriptor| is_it(descriptor.path())) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            let id = process.file_name();
            openers.push(format!("open in process {} ({})", id.display(), name.trim_end()));
        }
    }
    openers
}
