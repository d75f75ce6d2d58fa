//! Logs of fio (`write_iolog`; "Trace file format v2" and "v3" in fio's HOWTO). The first line is `fio version 2 iolog` or
//! `fio version 3 iolog`. The others are `filename action` or `filename action offset length`, in version 3 with a time before them, in
//! microseconds since the beginning. Actions are `add`, `open`, `close`; `read`, `write`, `trim`, `sync`, `datasync`; in version 2 also
//! `wait`, whose offset is microseconds since the last one. The requests of a log are of one file, whose offsets are the drive's.

use super::{Kind, Line, Request, check_one, number, shown};

/// How the first line begins.
pub(super) const FIRST_WORDS: &str = "fio version ";
const MICROSECOND_NS: u64 = 1000;

/// What is known after some lines.
#[derive(Default)]
pub(super) struct Parser {
    version: Option<Version>,
    now_ns: u64,
    file: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

impl Parser {
    pub(super) fn line(&mut self, line: &str) -> Result<Line, String> {
        let Some(version) = self.version else {
            self.version = Some(match line {
                "fio version 2 iolog" => Version::Two,
                "fio version 3 iolog" => Version::Three,
                _ => return Err(format!("version 2 or 3 was expected, not {}", shown(line))),
            });
            return Ok(Line::Other);
        };
        let mut fields: Vec<&str> = line.split_whitespace().collect();
        if fields.is_empty() {
            return Ok(Line::Other);
        }
        if version == Version::Three {
            self.now_ns = nanoseconds(fields.remove(0), "time")?;
        }
        let (file, action, numbers) = match fields[..] {
            [file, action] => (file, action, None),
            [file, action, offset, length] => {
                (file, action, Some((number(offset, "offset")?, number(length, "length")?)))
            }
            _ => return Err(format!("{}, not {}", expected(version), shown(line))),
        };
        let kind = match action {
            "add" | "open" | "close" => return Ok(Line::Other),
            "wait" if version == Version::Two => {
                let (time, _) = numbers.ok_or_else(|| format!("{} for wait", expected(version)))?;
                let later =
                    time.checked_mul(MICROSECOND_NS).and_then(|ns| self.now_ns.checked_add(ns));
                self.now_ns = later.ok_or("offset: too long to wait")?;
                return Ok(Line::Other);
            }
            "read" => Kind::Read,
            "write" => Kind::Write,
            "trim" => Kind::Trim,
            "sync" | "datasync" => Kind::Flush,
            _ => {
                let known = "add, open, close, read, write, trim, sync, datasync";
                let wait = if version == Version::Two { " or wait" } else { "" };
                return Err(format!("action: {known}{wait} was expected, not {}", shown(action)));
            }
        };
        check_one(&mut self.file, file, "file")?;
        let (offset, bytes) = match (kind, numbers) {
            (Kind::Flush, _) => (0, 0),
            (_, Some(numbers)) => numbers,
            (_, None) => return Err(format!("{} for {action}", expected(version))),
        };
        Request::new(self.now_ns, kind, offset, bytes).map(Line::Request)
    }
}

fn expected(version: Version) -> &'static str {
    match version {
        Version::Two => "file and action, or file, action, offset and length, were expected",
        Version::Three => "time, file and action, or those with offset and length, were expected",
    }
}

fn nanoseconds(text: &str, what: &str) -> Result<u64, String> {
    let ns = number(text, what)?.checked_mul(MICROSECOND_NS);
    ns.ok_or_else(|| format!("{what}: too large"))
}
