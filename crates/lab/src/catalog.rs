//! Lists the experiments, the drives of the lab, and the loads and remedies that it compares.

use crate::compare::loads::Load;
use crate::compare::remedies::Remedy;
use crate::{experiments, presets};
use fragmend_layout::schema;
use schemars::JsonSchema;
use serde::Serialize;

/// The document of `fragmend lab list --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Catalog {
    /// Version of this document's format.
    pub schema_version: u32,
    /// The experiments that `fragmend lab run` accepts.
    pub experiments: Vec<Entry>,
    /// The drives that a load's file may name.
    pub drives: Vec<Entry>,
    /// The loads that `fragmend lab compare` ages its images with.
    pub loads: Vec<Entry>,
    /// The remedies that it compares.
    pub remedies: Vec<Entry>,
}

/// An experiment, a drive, a load or a remedy.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Of an experiment: which figure or table of which paper it repeats; of a remedy: where it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What it is or shows, in a line.
    pub about: String,
}

/// The catalog.
///
/// # Panics
/// If a drive of the lab is inconsistent, which the tests find first.
pub fn catalog() -> Catalog {
    let experiments = experiments::ALL.iter().map(|experiment| Entry {
        name: experiment.name.into(),
        source: Some(experiment.source.into()),
        about: experiment.about.into(),
    });
    let drives = presets::names().map(|name| Entry {
        name: name.into(),
        source: None,
        about: presets::named(name).expect("a consistent drive").about,
    });
    let loads = Load::ALL.into_iter().map(|load| Entry {
        name: load.name().into(),
        source: None,
        about: load.about().into(),
    });
    let remedies = Remedy::ALL.into_iter().map(|remedy| Entry {
        name: remedy.name().into(),
        source: Some(remedy.source().to_owned()).filter(|source| !source.is_empty()),
        about: remedy.about().into(),
    });
    Catalog {
        schema_version: schema::DOCUMENT,
        experiments: experiments.collect(),
        drives: drives.collect(),
        loads: loads.collect(),
        remedies: remedies.collect(),
    }
}
