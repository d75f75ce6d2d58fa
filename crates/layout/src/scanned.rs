//! The layout of a file as `fragmend scan --layouts` writes it and the lab reads it.

use crate::{Extent, Layout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the data of a file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScannedLayout {
    /// Number of the file system (`st_dev`): addresses of different ones are not comparable.
    pub device: u64,
    /// Its extents in the order of the file, with the holes left out.
    pub extents: Vec<Extent>,
}

impl From<&Layout> for ScannedLayout {
    fn from(layout: &Layout) -> Self {
        Self { device: layout.file.device, extents: layout.extents().to_vec() }
    }
}
