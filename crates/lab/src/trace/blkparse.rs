//! What blkparse prints by default (blkparse(1), "OUTPUT DESCRIPTION AND FORMATTING"):
//!
//! ```text
//! 8,0    3       11     0.009507758   697  D   W 223490 + 56 [kjournald]
//! ```
//!
//! device, processor, sequence number, seconds, process, action, RWBS, and for a request its first sector and its sectors of 512 bytes.
//! Of the actions, `D` is a request that is issued to the drive; all others are passed over. What follows the last event is a summary.

use super::{Kind, Line, Request, check_one, number, shown};

const SECTOR: u64 = 512;

/// What is known after some lines.
#[derive(Default)]
pub(super) struct Parser {
    first: Option<u64>,
    device: Option<String>,
}

impl Parser {
    pub(super) fn line(&mut self, line: &str) -> Result<Line, String> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let Some(device) = fields.first() else { return Ok(Line::Other) };
        if device.starts_with("CPU") || *device == "Total" {
            return Ok(Line::End);
        }
        let [_, processor, sequence, time, process, action, rest @ ..] = &fields[..] else {
            let what =
                "device, processor, sequence number, seconds, process and action were expected";
            return Err(format!("{what}, not {}", shown(line)));
        };
        if !device.split(',').all(|part| part.parse::<u32>().is_ok()) || !device.contains(',') {
            return Err(format!("device: major,minor was expected, not {}", shown(device)));
        }
        number(processor, "processor")?;
        number(sequence, "sequence number")?;
        let time = nanoseconds(time)?;
        number(process, "process")?;
        if *action != "D" {
            return Ok(Line::Other);
        }
        check_one(&mut self.device, device, "device")?;
        let at_ns = time.saturating_sub(*self.first.get_or_insert(time));
        let Some((rwbs, rest)) = rest.split_first() else {
            return Err("RWBS was expected after the action".into());
        };
        let kind = kind(rwbs)?;
        let (offset, bytes) = match (rest, kind) {
            ([sector, "+", sectors, ..], Some(_)) => {
                let bytes = |text, what| {
                    let sectors = number(text, what)?;
                    sectors.checked_mul(SECTOR).ok_or_else(|| format!("{what}: too large"))
                };
                (bytes(sector, "sector")?, bytes(sectors, "sectors")?)
            }
            (_, Some(Kind::Flush)) => (0, 0),
            // A command that neither reads nor writes sectors.
            _ => return Ok(Line::Other),
        };
        // A flush before a write that has no data of its own has no sectors.
        let kind = kind.filter(|_| bytes > 0).unwrap_or(Kind::Flush);
        Request::new(at_ns, kind, offset, bytes).map(Line::Request)
    }
}

/// What a request with these letters does: `D` discards, `W` writes, `R` reads, `F` alone flushes; `N` is none of these.
fn kind(rwbs: &str) -> Result<Option<Kind>, String> {
    let known = |c: char| "DWRFNSAMBE".contains(c);
    if rwbs.is_empty() || !rwbs.chars().all(known) {
        return Err(format!(
            "RWBS: letters such as R, WS or FWFS were expected, not {}",
            shown(rwbs)
        ));
    }
    let first = rwbs.chars().find(|c| "DWR".contains(*c));
    Ok(match first {
        Some('D') => Some(Kind::Trim),
        Some('W') => Some(Kind::Write),
        Some(_) => Some(Kind::Read),
        None if rwbs.contains('F') => Some(Kind::Flush),
        None => None,
    })
}

/// Seconds with nine digits behind the point, in nanoseconds.
fn nanoseconds(text: &str) -> Result<u64, String> {
    let parsed = text.split_once('.').and_then(|(seconds, parts)| {
        let (seconds, parts) =
            (seconds.parse::<u64>().ok()?, parts.parse::<u64>().ok().filter(|_| parts.len() == 9)?);
        seconds.checked_mul(1_000_000_000)?.checked_add(parts)
    });
    parsed.ok_or_else(|| {
        format!("seconds with nine digits after the point were expected, not {}", shown(text))
    })
}
