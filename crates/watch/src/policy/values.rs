//! Values of a policy in the notation in which people write them. Each is checked while the file is parsed, so that an
//! error names its line.

use fragmend_apply::Rate;
use fragmend_report::size;
use globset::{GlobBuilder, GlobMatcher};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The longest pattern, in bytes, as the longest path. The matcher of a much longer one is refused by globset, which panics then.
const LONGEST_PATTERN: usize = 4096;

/// The longest time of a policy.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// A length of time above zero, up to a year: "90s", "15m", "1h 30m".
#[derive(Clone, Copy, Debug)]
pub struct Length(pub Duration);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        let length = humantime::parse_duration(&text).map_err(|e| {
            D::Error::custom(format!("{e}; say for example \"90s\", \"15m\" or \"1h 30m\""))
        })?;
        if length.is_zero() || length > LONGEST {
            return Err(D::Error::custom("a time above zero, up to a year"));
        }
        Ok(Self(length))
    }
}

/// Bytes above zero: "500M", "1.5G"; suffixes are binary.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        match size::bytes(&text).map_err(D::Error::custom)? {
            0 => Err(D::Error::custom(
                "a size above zero; to move nothing, let no rule have mode = \"move\"",
            )),
            bytes => Ok(Self(bytes)),
        }
    }
}

/// A per cent above zero, up to 100.
#[derive(Clone, Copy, Debug)]
pub struct Percent(pub f64);

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(from)?;
        if number > 0.0 && number <= 100.0 {
            Ok(Self(number))
        } else {
            Err(D::Error::custom("per cent, above 0 and up to 100"))
        }
    }
}

/// Where metrics are served: "127.0.0.1:9796", "[::1]:9796"; "off" for nowhere.
#[derive(Clone, Copy, Debug)]
pub struct Address(pub Option<SocketAddr>);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        if text == "off" {
            return Ok(Self(None));
        }
        text.parse().map(|address| Self(Some(address))).map_err(|_| {
            D::Error::custom("an address and a port, for example \"127.0.0.1:9796\", or \"off\"")
        })
    }
}

/// Seconds for each GiB, not negative.
#[derive(Clone, Copy, Debug)]
pub struct Gain(pub f64);

impl<'de> Deserialize<'de> for Gain {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(from)?;
        if number >= 0.0 && number.is_finite() {
            Ok(Self(number))
        } else {
            Err(D::Error::custom("seconds that each GiB must save in one replay, 0 or more"))
        }
    }
}

/// How fast data moves: "auto", which yields to other programs, or bytes a second.
#[derive(Clone, Copy, Debug)]
pub struct Speed(pub Rate);

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        if text == "auto" {
            return Ok(Self(Rate::Yielding));
        }
        match size::bytes(&text).map_err(|e| D::Error::custom(format!("{e}, or \"auto\"")))? {
            0 => Err(D::Error::custom("nothing moves at rate 0; say \"auto\", or bytes a second")),
            bytes => Ok(Self(Rate::BytesPerSecond(bytes))),
        }
    }
}

/// An absolute path without `..`.
#[derive(Clone, Debug)]
pub struct Absolute(pub PathBuf);

impl<'de> Deserialize<'de> for Absolute {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let path = PathBuf::deserialize(from)?;
        let above = path.components().any(|c| c == std::path::Component::ParentDir);
        if !path.is_absolute() || above {
            return Err(D::Error::custom("an absolute path without .."));
        }
        Ok(Self(path))
    }
}

/// A glob: `*` and `?` match within one component, `**` matches any number of components.
#[derive(Clone, Debug)]
pub struct Pattern(pub GlobMatcher);

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        if text.len() > LONGEST_PATTERN {
            return Err(D::Error::custom(format!("a pattern of at most {LONGEST_PATTERN} bytes")));
        }
        let glob = GlobBuilder::new(&text).literal_separator(true).build();
        Ok(Self(glob.map_err(D::Error::custom)?.compile_matcher()))
    }
}
