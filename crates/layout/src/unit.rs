//! Formats a value for people.

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// A ratio without unit.
    Ratio,
    /// A share of one, shown as per cent.
    Share,
}

impl Unit {
    /// The unit of this name in a schema's `x-unit`; any other name is a count.
    pub fn from_name(name: &str) -> Self {
        match name {
            "bytes" => Self::Bytes,
            "seconds" => Self::Seconds,
            "ratio" => Self::Ratio,
            "share" => Self::Share,
            _ => Self::Count,
        }
    }
}

/// A value with its unit, short enough for a table.
pub fn human(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => grouped(value.round() as i64),
        Unit::Bytes => in_unit(value, &BYTES, scale(value, &BYTES)),
        Unit::Seconds if value == 0.0 => "0.0 s".into(),
        Unit::Seconds if value < 60.0 => in_unit(value, &SECONDS, scale(value, &SECONDS)),
        Unit::Seconds => format!("{}m {:02}s", value as u64 / 60, value as u64 % 60),
        Unit::Ratio => format!("{value:.2}"),
        Unit::Share => format!("{:.1} %", value * 100.0),
    }
}

/// A value in the unit in which `most` is shown, so that values beside each other have one unit.
pub fn human_beside(value: f64, most: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => in_unit(value, &BYTES, scale(most, &BYTES)),
        Unit::Seconds if most < 60.0 => in_unit(value, &SECONDS, scale(most, &SECONDS)),
        _ => human(value, unit),
    }
}

/// Names of units, each with its size.
type Scale = [(&'static str, f64)];
const BYTES: [(&str, f64); 6] = {
    const K: f64 = 1024.0;
    let (m, g) = (K * K, K * K * K);
    [("B", 1.0), ("KiB", K), ("MiB", m), ("GiB", g), ("TiB", g * K), ("PiB", g * m)]
};
const SECONDS: [(&str, f64); 3] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];

/// The number of the unit in which a value is shown: the largest one that is not larger than the value.
fn scale(value: f64, scale: &Scale) -> usize {
    scale.iter().rposition(|(_, size)| *size <= value.abs()).unwrap_or(0)
}

fn in_unit(value: f64, scale: &Scale, number: usize) -> String {
    let (name, size) = scale[number];
    // There is no part of a byte.
    if name == "B" { format!("{value:.0} B") } else { format!("{:.1} {name}", value / size) }
}

/// Groups thousands with a space, so that long counts can be read.
fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = String::from(if value < 0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short() {
        assert_eq!(human(1234567.0, Unit::Count), "1 234 567");
        assert_eq!(human(1536.0, Unit::Bytes), "1.5 KiB");
        assert_eq!(human(0.5, Unit::Share), "50.0 %");
        assert_eq!(human(75.0, Unit::Seconds), "1m 15s");
        let seconds = [0.0, 2.5e-6, 2.5e-3, 0.25].map(|s| human(s, Unit::Seconds));
        assert_eq!(seconds, ["0.0 s", "2.5 us", "2.5 ms", "250.0 ms"]);
        let beside = [0.0, 0.25, 1.5].map(|s| human_beside(s, 1.5, Unit::Seconds));
        assert_eq!(beside, ["0.0 s", "0.2 s", "1.5 s"]);
        assert_eq!(human_beside(512.0, 2048.0, Unit::Bytes), "0.5 KiB");
        assert_eq!(human_beside(0.0, 4096.0, Unit::Count), "0");
        assert_eq!(human(-1000.0, Unit::Count), "-1 000");
    }
}
