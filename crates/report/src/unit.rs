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
        Unit::Bytes => bytes(value),
        Unit::Seconds if value == 0.0 => "0.0 s".into(),
        Unit::Seconds if value < 1e-4 => format!("{:.1} us", value * 1e6),
        Unit::Seconds if value < 0.1 => format!("{:.1} ms", value * 1e3),
        Unit::Seconds if value < 60.0 => format!("{value:.1} s"),
        Unit::Seconds => format!("{}m {:02}s", value as u64 / 60, value as u64 % 60),
        Unit::Ratio => format!("{value:.2}"),
        Unit::Share => format!("{:.1} %", value * 100.0),
    }
}

fn bytes(value: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (value, 0);
    while value.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", UNITS[unit]) }
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
        assert_eq!(seconds, ["0.0 s", "2.5 us", "2.5 ms", "0.2 s"]);
        assert_eq!(human(-1000.0, Unit::Count), "-1 000");
    }
}
