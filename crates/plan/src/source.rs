//! A plan to be carried out, file by file: in memory, or in its file, of which no more than one
//! planned file is held at a time.
//!
//! A plan file is read through several times. [`PlanFile::open`] looks at all of it, so that a
//! damaged, foreign or badly edited plan is refused before anything is touched; each
//! [`PlanSource::each`] reads the same open file again, and again checks what it hands on.

use crate::check::{Checker, Totals};
use crate::file::{
    Device, FORMAT, LeftAlone, Plan, PlanError, PlannedFile, SCHEMA_VERSION, Summary,
};
use crate::input::Settings;
use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess};
use serde::de::{SeqAccess, Visitor};
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::marker::PhantomData;
use std::path::Path;

/// More than any real plan.
const LARGEST_FILE: u64 = 2 << 30;

/// A plan to be carried out.
pub trait PlanSource {
    /// The devices that are listed.
    fn devices(&self) -> &[Device];
    /// What it asks for.
    fn totals(&self) -> Totals;
    /// Shows every file in the order in which to mend them.
    ///
    /// # Errors
    /// When the plan is no longer what it was.
    fn each(&self, visit: &mut dyn FnMut(&PlannedFile)) -> Result<(), PlanError>;
}

impl PlanSource for Plan {
    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.files.iter().for_each(|f| totals.add(f));
        totals
    }

    fn each(&self, visit: &mut dyn FnMut(&PlannedFile)) -> Result<(), PlanError> {
        self.files.iter().for_each(visit);
        Ok(())
    }
}

/// A plan file that was looked at and makes sense.
#[derive(Debug)]
pub struct PlanFile {
    name: String,
    file: File,
    devices: Vec<Device>,
    totals: Totals,
}

impl PlanFile {
    /// Opens and checks a plan file.
    ///
    /// # Errors
    /// Every kind of [`PlanError`]; never a panic, whatever the file holds.
    pub fn open(path: &Path) -> Result<Self, PlanError> {
        let (file, marks) = Marks::of(path)?;
        let name = path.display().to_string();
        let foreign = |why: String| PlanError::Foreign { path: name.clone(), why };
        match marks.schema_version.and_then(|v| v.as_u64()) {
            Some(v) if v == u64::from(SCHEMA_VERSION) => {}
            Some(found) => return Err(PlanError::Version { path: name, found }),
            None => return Err(foreign("no schema_version".into())),
        }
        let devices = marks.devices.ok_or_else(|| foreign("no devices".into()))?;
        let devices = serde_json::from_value(devices).map_err(|e| foreign(e.to_string()))?;
        let mut plan = Self { name, file, devices, totals: Totals::default() };
        plan.totals = plan.read(&mut drop)?;
        Ok(plan)
    }

    /// Whether there is a plan at `path`, of whatever version.
    pub fn is_at(path: &Path) -> bool {
        Marks::of(path).is_ok()
    }

    /// Reads it through and checks it; `visit` gets each file that makes sense.
    fn read(&self, visit: &mut dyn FnMut(PlannedFile)) -> Result<Totals, PlanError> {
        let senseless = |what| PlanError::Senseless { path: self.name.clone(), what };
        let mut checker = Checker::new(&self.devices).map_err(senseless)?;
        let mut problem = None;
        let whole = Whole(|file: PlannedFile| match checker.file(&file) {
            Ok(()) => {
                visit(file);
                true
            }
            Err(what) => {
                problem = Some(what);
                false
            }
        });
        let read = parse(&self.file, &self.name, whole);
        match problem {
            Some(what) => Err(senseless(what)),
            None => read.map(|()| checker.totals()),
        }
    }
}

impl PlanSource for PlanFile {
    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn totals(&self) -> Totals {
        self.totals.clone()
    }

    fn each(&self, visit: &mut dyn FnMut(&PlannedFile)) -> Result<(), PlanError> {
        self.read(&mut |file| visit(&file)).map(drop)
    }
}

/// What tells a plan file from others, and what its files are checked against.
#[derive(Deserialize)]
struct Marks {
    format: Option<serde_json::Value>,
    schema_version: Option<serde_json::Value>,
    devices: Option<serde_json::Value>,
}

impl Marks {
    /// Those of a file that says that it is a plan.
    fn of(path: &Path) -> Result<(File, Self), PlanError> {
        let name = path.display().to_string();
        let io_error = |source| PlanError::Io { path: name.clone(), source };
        let foreign = |why: String| PlanError::Foreign { path: name.clone(), why };
        // Looked at before it is opened: a pipe would wait for a writer.
        let kind = std::fs::metadata(path).map_err(io_error)?;
        if !kind.is_file() {
            return Err(foreign("not a regular file".into()));
        }
        if kind.len() > LARGEST_FILE {
            return Err(foreign("too large".into()));
        }
        let file = File::open(path).map_err(io_error)?;
        let marks: Self = parse(&file, &name, PhantomData)?;
        if marks.format.as_ref().and_then(|f| f.as_str()) != Some(FORMAT) {
            return Err(foreign(format!("no \"format\": \"{FORMAT}\"")));
        }
        Ok((file, marks))
    }
}

/// Reads a file from its beginning to its end as one JSON value.
fn parse<T>(
    mut file: &File,
    name: &str,
    seed: impl for<'de> DeserializeSeed<'de, Value = T>,
) -> Result<T, PlanError> {
    let io_error = |source| PlanError::Io { path: name.to_owned(), source };
    file.seek(SeekFrom::Start(0)).map_err(io_error)?;
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 20, file));
    let read = seed.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    read.map_err(|e| match e.io_error_kind() {
        Some(kind) => io_error(kind.into()),
        None => PlanError::Foreign { path: name.to_owned(), why: e.to_string() },
    })
}

/// A plan of which nothing is kept; its function gets each file and says whether to go on.
struct Whole<F>(F);

impl<'de, F: FnMut(PlannedFile) -> bool> DeserializeSeed<'de> for Whole<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, F: FnMut(PlannedFile) -> bool> Visitor<'de> for Whole<F> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
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
                "devices" => {
                    map.next_value::<Vec<Device>>()?;
                }
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

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element()? {
            if !(self.0)(element) {
                return Err(A::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}
