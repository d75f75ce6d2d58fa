//! Lists the experiments, and the drives of the lab.

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
}

/// An experiment or a drive.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Of an experiment: which figure or table of which paper it repeats.
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
    Catalog {
        schema_version: schema::DOCUMENT,
        experiments: experiments.collect(),
        drives: drives.collect(),
    }
}
