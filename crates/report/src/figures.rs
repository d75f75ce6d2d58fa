//! The figures of a structure: name, unit and help come from its JSON schema, the value from its serialized
//! form, so that no renderer repeats a definition.

use comfy_table::{CellAlignment, Table, presets};
use fragmend_layout::{Unit, human};
use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde_json::Value;

/// One named number.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name in JSON, for example `bytes_to_move`.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// Whether it only grows.
    pub kind: Kind,
    /// The help: one sentence.
    pub help: String,
    /// Its value.
    pub value: f64,
}

/// How a figure changes while a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down, or does not change.
    Gauge,
}

/// What a structure says of one of its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name in JSON, for example `bytes_to_move`.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// Whether it only grows.
    pub kind: Kind,
    /// The help: one sentence.
    pub help: String,
}

/// The numeric fields of `T` in the order of their definition, of which some may be absent in a value. A field names its
/// unit with `#[schemars(extend("x-unit" = "bytes"))]`; without one it is a count. One that only grows has
/// `"x-kind" = "counter"`.
pub fn columns<T: JsonSchema>() -> Vec<Column> {
    let schema = schema_for!(T);
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let is_number = |property: &Value| match property.get("type") {
        Some(Value::String(one)) => is_numeric(one),
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).any(is_numeric),
        _ => false,
    };
    properties
        .iter()
        .filter(|(name, _)| *name != "schema_version") // for programs
        .filter(|(_, property)| is_number(property))
        .map(|(name, property)| {
            let text = |key: &str| property.get(key).and_then(Value::as_str).unwrap_or_default();
            Column {
                name: name.clone(),
                unit: Unit::from_name(text("x-unit")),
                kind: if text("x-kind") == "counter" { Kind::Counter } else { Kind::Gauge },
                help: text("description").to_owned(),
            }
        })
        .collect()
}

fn is_numeric(kind: &str) -> bool {
    kind == "integer" || kind == "number"
}

/// The numbers of `source` that are there, in the order of their definition.
pub fn figures<T: JsonSchema + Serialize>(source: &T) -> Vec<Figure> {
    let values = serde_json::to_value(source).unwrap_or(Value::Null);
    let figure = |Column { name, unit, kind, help }| {
        let value = values.get(&name)?.as_f64()?;
        Some(Figure { name, unit, kind, help, value })
    };
    columns::<T>().into_iter().filter_map(figure).collect()
}

/// A table of two columns, name and value, for a terminal.
pub fn table(figures: &[Figure]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for f in figures {
        table.add_row([f.name.replace('_', " "), human(f.value, f.unit)]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure with a figure of every kind that renders differently.
    #[derive(Serialize, JsonSchema)]
    struct Sample {
        /// Bytes that would move.
        #[schemars(extend("x-unit" = "bytes"))]
        bytes_to_move: u64,
        /// Requests before.
        requests: u64,
        /// Of a part of all samples.
        #[schemars(extend("x-unit" = "share"))]
        part: Option<f64>,
        /// Not a number.
        label: String,
    }

    #[test]
    fn a_field_is_defined_once() {
        let s = Sample { bytes_to_move: 3 << 20, requests: 7, part: None, label: "x".into() };
        let f = figures(&s);
        assert_eq!(f.len(), 2);
        assert_eq!((f[0].name.as_str(), f[0].unit), ("bytes_to_move", Unit::Bytes));
        assert_eq!(f[0].help, "Bytes that would move.");
        assert!(table(&f).contains("3.0 MiB"), "{}", table(&f));
        let columns: Vec<_> = columns::<Sample>().into_iter().map(|c| (c.name, c.unit)).collect();
        let expected =
            [("bytes_to_move", Unit::Bytes), ("requests", Unit::Count), ("part", Unit::Share)];
        assert_eq!(columns, expected.map(|(name, unit)| (name.to_owned(), unit)));
    }
}
