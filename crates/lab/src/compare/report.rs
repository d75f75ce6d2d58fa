//! The comparison as a document: what was measured of each remedy, and what follows from that.

use super::image::Kind;
use super::safety::Safety;
use schemars::JsonSchema;
use serde::Serialize;

/// The document of `fragmend lab compare --json`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// Version of this document's format.
    pub schema_version: u32,
    /// The seed of every random number.
    pub seed: u64,
    /// The loads are one part in so many of their usual sizes.
    pub scale: u64,
    /// One table for each load and drive.
    pub tables: Vec<Table>,
}

/// All remedies for one load on one drive.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Table {
    /// The load.
    pub load: String,
    /// What it is, and which reads are measured.
    pub about: String,
    /// The drive.
    pub drive: String,
    /// Bytes that the drive has here.
    #[schemars(extend("x-unit" = "bytes"))]
    pub drive_bytes: u64,
    /// The remedies.
    pub rows: Vec<Row>,
    /// What to choose when, as it follows from the rows.
    pub advice: Vec<String>,
}

/// One remedy.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// Its name.
    pub remedy: String,
    /// The file system that it was tried on; rows are compared with those on the same one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<Kind>,
    /// What was measured.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// Why nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_applicable: Option<String>,
}

/// What was measured of a remedy.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Measured {
    /// Throughput of the load's reads without the remedy, in MB/s.
    #[schemars(extend("x-unit" = "MB/s"))]
    pub read_before: f64,
    /// The same with it.
    #[schemars(extend("x-unit" = "MB/s"))]
    pub read_after: f64,
    /// By how many per cent it is higher.
    #[schemars(extend("x-unit" = "%"))]
    pub gain_percent: f64,
    /// By how many per cent the planner foresaw that it would be, of what it plans from reads.
    #[schemars(extend("x-unit" = "%"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreseen_percent: Option<f64>,
    /// Bytes of files that it moved.
    #[schemars(extend("x-unit" = "bytes"))]
    pub moved_bytes: u64,
    /// Bytes that the host wrote for it, metadata included; of a remedy that prevents, what it wrote more, or less, in all of the ageing.
    #[schemars(extend("x-unit" = "bytes"))]
    pub host_written_bytes: i64,
    /// Bytes that the flash programmed for it, with the drive's own logs; on a drive without flash, what the host wrote.
    #[schemars(extend("x-unit" = "bytes"))]
    pub programmed_bytes: i64,
    /// Erases of a block for it, on average over all blocks; absent without flash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erases_per_block: Option<f64>,
    /// Virtual seconds until what it did was durable, on an idle machine.
    #[schemars(extend("x-unit" = "seconds"))]
    pub seconds: f64,
    /// By how many per cent fewer operations the load made beside it than alone; below zero if it made more. Absent where the load alone
    /// makes too few in that time.
    #[schemars(extend("x-unit" = "%"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowdown_percent: Option<f64>,
    /// What power cuts did to it; absent for the row without a remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_cuts: Option<Safety>,
    /// Whether no other one on this file system gains as much for as few programmed bytes; not so for what is just as good as none.
    pub on_front: bool,
    /// Of a row that is not on the front: the remedy with the highest gain that programs no more, and why it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beaten: Option<Beaten>,
}

/// A remedy that gains no less and programs no more.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Beaten {
    /// Its name.
    pub by: String,
    /// Why, by what was measured.
    pub why: String,
}

impl Table {
    /// Rows that were measured, on one file system.
    pub fn measured_on(&self, kind: Kind) -> impl Iterator<Item = (&Row, &Measured)> {
        let of = move |row: &&Row| row.file_system == Some(kind);
        self.rows.iter().filter(of).filter_map(|row| Some((row, row.measured.as_ref()?)))
    }

    /// The file systems, in the order of the rows.
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for kind in self.rows.iter().filter_map(|row| row.file_system) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }
}

impl Comparison {
    /// Whether no power cut lost anything.
    pub fn is_safe(&self) -> bool {
        self.measured().all(|(_, measured)| measured.power_cuts.is_none_or(|cuts| cuts.lost == 0))
    }

    /// Whether the planner's own policy is on every front where it was measured.
    pub fn gain_is_on_every_front(&self) -> bool {
        let name = super::remedies::Remedy::Gain.name();
        self.measured().filter(|(row, _)| row.remedy == name).all(|(_, gain)| gain.on_front)
    }

    fn measured(&self) -> impl Iterator<Item = (&Row, &Measured)> {
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        rows.filter_map(|row| Some((row, row.measured.as_ref()?)))
    }
}
