//! Where profiles are kept: a file for each disk, in one directory, complete or absent.

use super::{Identity, NoIdentity, Profile};
use fragmend_layout::{printable, schema};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::output::{Audience, Output};
use fragmend_sys::{directory, input};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Names another directory than [`DIRECTORY`].
pub const ENVIRONMENT: &str = "FRAGMEND_PROFILES";
const DIRECTORY: &str = "/var/lib/fragmend/profiles";
/// No profile is longer: 1024 figures of each kind.
const LONGEST: u64 = 1 << 20;

/// Why a profile that is there is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error("the profile {0} cannot be read: {1}; probe the device again")]
    Unreadable(PathBuf, io::Error),
    /// It is no profile, or was changed by hand.
    #[error("{0} is no profile: {1}; probe the device again")]
    Senseless(PathBuf, String),
    /// It is of a version that this program does not read.
    #[error("the profile {0} has version {1}, this program reads {known}; probe the device again", known = schema::PROFILE_FILE)]
    Version(PathBuf, u64),
    /// It is of another disk.
    #[error("the profile {0} is of another device ({1}); probe this one")]
    OtherDevice(PathBuf, String),
    /// It is of another firmware.
    #[error(
        "the profile {path} was measured with firmware {then}, the device has {now}; probe it again"
    )]
    OtherFirmware {
        /// Its file.
        path: PathBuf,
        /// The firmware then.
        then: String,
        /// The firmware now.
        now: String,
    },
}

/// The directory of profiles: the given one, that of the environment, or the system's.
pub fn directory(given: Option<&Path>) -> PathBuf {
    let named = || std::env::var_os(ENVIRONMENT).filter(|name| !name.is_empty()).map(PathBuf::from);
    given.map(Path::to_owned).or_else(named).unwrap_or_else(|| DIRECTORY.into())
}

/// The profile of a device's disk in this directory; `None` if it was never probed, or has no identity.
///
/// # Errors
/// Why the one that is there is not used: to whoever plans it is absent.
pub fn stored(device: &BlockDevice, dir: &Path) -> Result<Option<Profile>, Unusable> {
    match Identity::of(device) {
        Ok(identity) => of_identity(&identity, dir),
        Err(NoIdentity) => Ok(None),
    }
}

/// The same for the device under a file or directory, whose `st_dev` is `dev`; `None` also where there is no device.
///
/// # Errors
/// As [`stored`].
pub fn stored_under(path: &Path, dev: u64, dir: &Path) -> Result<Option<Profile>, Unusable> {
    match BlockDevice::under(path, dev) {
        Ok(device) => stored(&device, dir),
        Err(_) => Ok(None),
    }
}

/// The profile of the disk of this identity.
fn of_identity(identity: &Identity, dir: &Path) -> Result<Option<Profile>, Unusable> {
    let path = dir.join(identity.file_name());
    let text = match input::read_text(&path, LONGEST) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Unusable::Unreadable(path, e)),
    };
    let profile = parse(&text, &path)?;
    let other = |found: &str| Unusable::OtherDevice(path.clone(), printable(found).to_string());
    let Some(found) = &profile.device.identity else { return Err(other("without an identity")) };
    if found.id != identity.id {
        return Err(other(&found.id));
    }
    if found.bytes != identity.bytes {
        return Err(other(&format!("one of {} bytes", found.bytes)));
    }
    if found.firmware != identity.firmware {
        let named = |firmware: &Option<String>| {
            printable(firmware.as_deref().unwrap_or("none")).to_string()
        };
        let (then, now) = (named(&found.firmware), named(&identity.firmware));
        return Err(Unusable::OtherFirmware { path, then, now });
    }
    Ok(Some(profile))
}

/// Parses a profile; `path` is its name, for errors.
///
/// # Errors
/// It is of another version, or makes no sense.
pub fn parse(text: &str, path: &Path) -> Result<Profile, Unusable> {
    /// What all versions have.
    #[derive(serde::Deserialize)]
    struct Any {
        profile_version: u64,
    }
    let wrong = |why: &str| {
        let why: String = why.chars().take(300).collect();
        Unusable::Senseless(path.to_owned(), printable(&why).to_string())
    };
    let any: Any = serde_json::from_str(text).map_err(|e| wrong(&e.to_string()))?;
    if any.profile_version != u64::from(schema::PROFILE_FILE) {
        return Err(Unusable::Version(path.to_owned(), any.profile_version));
    }
    let profile: Profile = serde_json::from_str(text).map_err(|e| wrong(&e.to_string()))?;
    match profile.senseless() {
        Some(why) => Err(wrong(why)),
        None => Ok(profile),
    }
}

/// Writes the profile of a device to this directory, in place of an older one, readable by all; returns its path.
///
/// # Errors
/// Those of writing; `InvalidInput` for a device without an identity.
pub fn keep(profile: &Profile, dir: &Path) -> io::Result<PathBuf> {
    let identity = profile.device.identity.as_ref();
    let identity =
        identity.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, NoIdentity))?;
    directory::create(dir, false)?;
    let path = dir.join(identity.file_name());
    let mut text = serde_json::to_vec_pretty(profile)?;
    text.push(b'\n');
    let mut output = Output::create(&path, Audience::Anybody)?;
    rustix::fs::fchmod(output.file(), rustix::fs::Mode::from_raw_mode(0o644))?;
    output.write_all(&text)?;
    output.commit()?;
    Ok(path)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
