//! A document's figures as OpenMetrics text (OpenMetrics 1.0), by the library of the Prometheus project.

use fragmend_report::{Figure, Kind, Unit, figures};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{self, Registry};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// What every name begins with.
const PREFIX: &str = "fragmend";

/// What the metric of the version says.
const VERSION: &str = "The version of the program.";

/// The media type of the text.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The figures of a document, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// OpenMetrics 1.0, as it is served.
    pub open: String,
    /// The text format of Prometheus 0.0.4, which the node exporter's collector reads: types and helps are those of the
    /// samples' own names, and there is no unit.
    pub plain: String,
}

impl Text {
    /// The figures of `document`, and one that says which version of the program has written them.
    pub fn of<T: JsonSchema + Serialize>(document: &T) -> Self {
        let figures = figures(document);
        let plain = plain(&figures);
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(Figures(figures)));
        let mut open = String::new();
        // Only a writer fails, and a string does not.
        let _ = encode(&mut open, &registry);
        Self { open, plain }
    }
}

fn plain(figures: &[Figure]) -> String {
    let mut text = String::new();
    for Figure { name, kind, help, value, .. } in figures {
        let help = one_line(help);
        let (total, kind) = match kind {
            Kind::Counter => ("_total", "counter"),
            Kind::Gauge => ("", "gauge"),
        };
        let name = format!("{PREFIX}_{name}{total}");
        text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }
    let name = format!("{PREFIX}_build_info");
    text += &format!("# HELP {name} {VERSION}\n# TYPE {name} gauge\n");
    text += &format!("{name}{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"));
    text
}

/// Figures that are written as they are.
#[derive(Debug)]
struct Figures(Vec<Figure>);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for figure in &self.0 {
            let unit = unit(figure.unit);
            let name =
                unit.as_ref().map_or(figure.name.as_str(), |unit| base(figure, unit.as_str()));
            let help = one_line(&figure.help);
            let value: Box<dyn EncodeMetric> = match figure.kind {
                Kind::Counter => Box::new(ConstCounter::new(figure.value)),
                Kind::Gauge => Box::new(ConstGauge::new(figure.value)),
            };
            let kind = value.metric_type();
            value.encode(encoder.encode_descriptor(name, &help, unit.as_ref(), kind)?)?;
        }
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        encoder.encode_descriptor("build", VERSION, None, MetricType::Info)?.encode_info(&version)
    }
}

/// Help as the formats have it: without line ends, and with backslashes doubled.
fn one_line(help: &str) -> String {
    help.replace('\\', "\\\\").replace('\n', " ")
}

/// The base unit of the text; a share is a ratio.
fn unit(unit: Unit) -> Option<registry::Unit> {
    match unit {
        Unit::Count => None,
        Unit::Bytes => Some(registry::Unit::Bytes),
        Unit::Seconds => Some(registry::Unit::Seconds),
        Unit::Ratio | Unit::Share => Some(registry::Unit::Ratios),
    }
}

/// The name without its unit, which the text appends.
fn base<'a>(figure: &'a Figure, unit: &str) -> &'a str {
    let name = figure.name.as_str();
    name.strip_suffix(unit).and_then(|name| name.strip_suffix('_')).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, JsonSchema)]
    struct Sample {
        /// Bytes that were written.
        #[schemars(extend("x-unit" = "bytes", "x-kind" = "counter"))]
        written_bytes: u64,
        /// Seconds that are left.
        #[schemars(extend("x-unit" = "seconds"))]
        left_seconds: f64,
        /// A queue's length \, on
        /// two lines.
        queued: u64,
        /// No figure.
        path: String,
    }

    #[test]
    fn names_units_help_and_kinds_come_from_the_schema() {
        let sample =
            Sample { written_bytes: 1 << 53, left_seconds: 0.25, queued: 3, path: "/a".into() };
        let Text { open: text, plain } = Text::of(&sample);
        let expected = [
            "# HELP fragmend_written_bytes Bytes that were written.",
            "# TYPE fragmend_written_bytes counter",
            "# UNIT fragmend_written_bytes bytes",
            "fragmend_written_bytes_total 9007199254740992.0",
            "# HELP fragmend_left_seconds Seconds that are left.",
            "# TYPE fragmend_left_seconds gauge",
            "# UNIT fragmend_left_seconds seconds",
            "fragmend_left_seconds 0.25",
            "# HELP fragmend_queued A queue's length \\\\, on two lines.",
            "# TYPE fragmend_queued gauge",
            "fragmend_queued 3.0",
        ];
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..expected.len()], expected, "{text}");
        assert_eq!(lines.last(), Some(&"# EOF"));
        assert!(!text.contains("/a") && !plain.contains("/a"));
        let expected = [
            "# HELP fragmend_written_bytes_total Bytes that were written.",
            "# TYPE fragmend_written_bytes_total counter",
            "fragmend_written_bytes_total 9007199254740992",
        ];
        assert_eq!(plain.lines().take(3).collect::<Vec<_>>(), expected);
    }
}
