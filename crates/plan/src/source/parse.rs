//! Reads JSON from an untrusted source, in little memory whatever it contains.
//!
//! Everything that is kept has a bound: lists are handed on element by element, or have a longest length; where
//! any value may be, only numbers and short texts are kept; and no string of the file is longer than
//! [`LONGEST_STRING`].

use crate::file::{Device, LeftAlone, PlanError, PlannedFile, PlannedRange, Summary};
use crate::input::Settings;
use fragmend_layout::{LONGEST_PATH, printable};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::marker::PhantomData;

/// The longest string, in bytes as they are written: longer than any path.
const LONGEST_STRING: usize = 16 << 20;
// A byte of a path is at most six of JSON.
const _: () = assert!(6 * LONGEST_PATH < LONGEST_STRING);
/// The most devices of a plan.
const MOST_DEVICES: usize = 65_536;
/// The most figures of the costs of all devices together.
const MOST_FIGURES: usize = 1 << 22;
/// The most ranges of one entry for a file; a file may have several entries.
pub const MOST_RANGES: usize = 1 << 21;

/// Reads a file from its beginning to its end as one JSON value.
pub(super) fn parse<T>(
    mut file: &File,
    name: &str,
    seed: impl for<'de> DeserializeSeed<'de, Value = T>,
) -> Result<T, PlanError> {
    let io_error = |source| PlanError::Io { path: name.to_owned(), source };
    file.seek(SeekFrom::Start(0)).map_err(io_error)?;
    let text = BufReader::with_capacity(1 << 20, ShortStrings::of(file));
    let mut json = serde_json::Deserializer::from_reader(text);
    let read = seed.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    read.map_err(|e| match e.io_error_kind() {
        Some(io::ErrorKind::InvalidData) => {
            PlanError::Foreign { path: name.to_owned(), why: "a string without end".into() }
        }
        Some(_) => io_error(e.into()),
        // The error message quotes what the file contains.
        None => {
            PlanError::Foreign { path: name.to_owned(), why: printable(&e.to_string()).to_string() }
        }
    })
}

/// Passes JSON on whose strings have been checked to be short.
struct ShortStrings<'a> {
    from: &'a File,
    /// Bytes of the current string.
    length: Option<usize>,
    escaped: bool,
}

impl<'a> ShortStrings<'a> {
    fn of(from: &'a File) -> Self {
        Self { from, length: None, escaped: false }
    }
}

impl Read for ShortStrings<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.from.read(buffer)?;
        for byte in &buffer[..bytes] {
            match (&mut self.length, byte) {
                (None, b'"') => self.length = Some(0),
                (None, _) => {}
                (Some(_), b'"') if !self.escaped => self.length = None,
                (Some(length), _) => {
                    *length += 1;
                    self.escaped = *byte == b'\\' && !self.escaped;
                    if *length > LONGEST_STRING {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                }
            }
        }
        Ok(bytes)
    }
}

/// A number or a short text, where any value may stand.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    Number(u64),
    Text(String),
    #[default]
    Other,
}

impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyMark)
    }
}

struct AnyMark;

impl<'de> Visitor<'de> for AnyMark {
    type Value = Mark;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Mark, E> {
        Ok(Mark::Number(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Mark, E> {
        Ok(if text.len() <= 64 { Mark::Text(text.to_owned()) } else { Mark::Other })
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Mark, E> {
        Ok(Mark::Other)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Mark, E> {
        Ok(Mark::Other)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Mark, E> {
        Ok(Mark::Other)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Mark, E> {
        Ok(Mark::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Mark, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Mark::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mark, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Mark::Other)
    }
}

/// What identifies a plan file, and what its files are checked against. A plan begins with these fields, and no
/// more of it is read than they need.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub format: Option<Mark>,
    pub schema_version: Option<Mark>,
    /// Read only if `with_devices`.
    pub devices: Option<Vec<Device>>,
    pub with_devices: bool,
}

impl Head {
    /// Reads the head of a file.
    pub fn read(mut self, file: &File, name: &str) -> Result<Self, PlanError> {
        match parse(file, name, HeadSeed(&mut self)) {
            // It was not read to its end: whether the rest is a plan shows later.
            Err(_) if self.is_whole() => Ok(self),
            read => read.map(|()| self),
        }
    }

    fn is_whole(&self) -> bool {
        let devices = !self.with_devices || self.devices.is_some();
        self.format.is_some() && self.schema_version.is_some() && devices
    }
}

struct HeadSeed<'a>(&'a mut Head);

impl<'de> DeserializeSeed<'de> for HeadSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeadSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a plan")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "format" => self.0.format = Some(map.next_value()?),
                "schema_version" => self.0.schema_version = Some(map.next_value()?),
                "devices" if self.0.with_devices => {
                    let (mut devices, mut figures) = (Vec::new(), 0);
                    map.next_value_seed(Each::new(|device: Device| {
                        let cost = &device.profile.cost;
                        figures += cost.reads().len() + cost.seeks().len();
                        devices.push(device);
                        devices.len() <= MOST_DEVICES && figures <= MOST_FIGURES
                    }))?;
                    self.0.devices = Some(devices);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            if self.0.is_whole() {
                return Err(A::Error::custom("enough"));
            }
        }
        Ok(())
    }
}

/// A plan of which nothing is kept; its function gets each file and returns whether to continue.
pub(super) struct Whole<F>(pub F);

impl<'de, F: FnMut(PlannedFile) -> bool> DeserializeSeed<'de> for Whole<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, F: FnMut(PlannedFile) -> bool> Visitor<'de> for Whole<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a plan")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        const NEEDED: [&str; 4] = ["settings", "devices", "summary", "files"];
        let mut there = [false; NEEDED.len()];
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "settings" => {
                    map.next_value::<Settings>()?;
                }
                "devices" => map.next_value_seed(Each::new(|_: Device| true))?,
                "summary" => {
                    map.next_value::<Summary>()?;
                }
                "files" => map.next_value_seed(Each::new(&mut self.0))?,
                "left_alone" => map.next_value_seed(Each::new(|_: LeftAlone| true))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            if let Some(at) = NEEDED.iter().position(|needed| *needed == key) {
                there[at] = true;
            }
        }
        match NEEDED.iter().zip(there).find(|(_, there)| !there) {
            Some((missing, _)) => Err(A::Error::missing_field(missing)),
            None => Ok(()),
        }
    }
}

/// The ranges of one entry: few enough to be held in memory.
pub(super) fn ranges<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PlannedRange>, D::Error> {
    at_most::<_, _, MOST_RANGES>(from)
}

/// A list of at most so many elements.
pub(crate) fn at_most<'de, D: Deserializer<'de>, T: DeserializeOwned, const MOST: usize>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    let mut list = Vec::new();
    let few = |element| {
        list.push(element);
        list.len() <= MOST
    };
    Each::new(few).deserialize(from)?;
    Ok(list)
}

/// A list whose elements are handed on one by one.
struct Each<F, T>(F, PhantomData<T>);

impl<T, F: FnMut(T) -> bool> Each<F, T> {
    fn new(visit: F) -> Self {
        Self(visit, PhantomData)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> bool> DeserializeSeed<'de> for Each<F, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T) -> bool> Visitor<'de> for Each<F, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            if !(self.0)(element) {
                return Err(A::Error::custom("a list without end, or one that makes no sense"));
            }
        }
        Ok(())
    }
}
