//! The traces of MSR Cambridge (Narayanan et al., "Write off-loading", FAST'08): lines of seven fields,
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. Times count 100 nanoseconds (Windows file time), offsets and sizes
//! bytes. A file is of one disk. Lines are almost in the order of time: what is earlier than the first line counts as at its time.

use super::{Kind, Line, Request, check_one, number, shown};

/// Fields of a line.
pub(super) const FIELDS: usize = 7;
/// Nanoseconds of a tick of Windows file time.
const TICK_NS: u64 = 100;

/// What is known after some lines.
#[derive(Default)]
pub(super) struct Parser {
    first: Option<u64>,
    disk: Option<String>,
    has_begun: bool,
}

impl Parser {
    pub(super) fn line(&mut self, line: &str) -> Result<Line, String> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [time, host, disk, kind, offset, size, response] = fields[..] else {
            return Err(format!(
                "{FIELDS} fields between commas were expected, not {}",
                fields.len()
            ));
        };
        // Some copies have the names of the fields above them.
        if !std::mem::replace(&mut self.has_begun, true) && time.eq_ignore_ascii_case("timestamp") {
            return Ok(Line::Other);
        }
        let time = number(time, "Timestamp")?;
        number(disk, "DiskNumber")?;
        let kind = match kind {
            _ if kind.eq_ignore_ascii_case("read") => Kind::Read,
            _ if kind.eq_ignore_ascii_case("write") => Kind::Write,
            _ => return Err(format!("Type: Read or Write was expected, not {}", shown(kind))),
        };
        let (offset, bytes) = (number(offset, "Offset")?, number(size, "Size")?);
        number(response, "ResponseTime")?;
        check_one(&mut self.disk, &format!("{host} {disk}"), "host and disk")?;
        let ticks = time.saturating_sub(*self.first.get_or_insert(time));
        Request::new(ticks.saturating_mul(TICK_NS), kind, offset, bytes).map(Line::Request)
    }
}
