//! Block traces in the formats that are published: what reached a drive, when, and for how long. A trace is read line by line, so its
//! length does not matter; an error names file and line, and what was expected there.
//!
//! | module | format |
//! |---|---|
//! | [`msr`] | MSR Cambridge: CSV, one line for each request |
//! | [`blkparse`] | what `blkparse` prints by default |
//! | [`fio`] | logs of fio, version 2 and 3 |
//! | [`replay`] | plays a trace on a drive |
//!
//! The first line decides which format it is.

pub mod blkparse;
pub mod fio;
pub mod msr;
pub mod replay;

use crate::described::BadFile;
use fragmend_layout::printable;
use std::io::BufRead;

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it was made, in nanoseconds since the first one, or since the beginning of the trace.
    pub at_ns: u64,
    /// What it does.
    pub kind: Kind,
    /// Where it begins on the drive, in bytes.
    pub offset: u64,
    /// How long it is, in bytes; [`Self::end`] does not overflow.
    pub bytes: u64,
}

impl Request {
    /// A request, unless it is made too late, or ends behind the last address.
    fn new(at_ns: u64, kind: Kind, offset: u64, bytes: u64) -> Result<Self, String> {
        if at_ns > LATEST_NS {
            return Err(format!("a time of at most {LATEST_NS} ns after the first was expected"));
        }
        match offset.checked_add(bytes) {
            Some(_) => Ok(Self { at_ns, kind, offset, bytes }),
            None => Err(format!("{offset} and {bytes} bytes: an end below 2^64 was expected")),
        }
    }

    /// The byte after its last one.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It says that data is not needed any more.
    Trim,
    /// It makes everything durable that was written before.
    Flush,
}

/// The latest time of a request, in nanoseconds: some 36 years, so that the virtual clock, of 64 bits, has space for what follows.
pub const LATEST_NS: u64 = 1 << 60;

/// The longest line, in bytes.
pub const LONGEST_LINE: usize = 4096;

/// What a line of a trace is.
enum Line {
    Request(Request),
    /// Nothing that reaches the drive.
    Other,
    /// What follows are no requests any more.
    End,
}

/// A parser of one of the formats.
enum Parser {
    Msr(msr::Parser),
    Blkparse(blkparse::Parser),
    Fio(fio::Parser),
}

impl Parser {
    /// The parser of the format whose first line this is.
    fn of(first: &str) -> Self {
        if first.starts_with(fio::FIRST_WORDS) {
            Self::Fio(fio::Parser::default())
        } else if first.matches(',').count() >= msr::FIELDS - 1 {
            Self::Msr(msr::Parser::default())
        } else {
            Self::Blkparse(blkparse::Parser::default())
        }
    }

    fn line(&mut self, line: &str) -> Result<Line, String> {
        match self {
            Self::Msr(parser) => parser.line(line),
            Self::Blkparse(parser) => parser.line(line),
            Self::Fio(parser) => parser.line(line),
        }
    }
}

/// The requests of a trace, in the order of its lines. After an error there is none.
pub struct Requests<R> {
    input: R,
    file: String,
    line: usize,
    parser: Option<Parser>,
    has_ended: bool,
    buffer: Vec<u8>,
}

impl<R: BufRead> Requests<R> {
    /// The requests of a trace; `file` is its name, for errors.
    pub fn new(input: R, file: impl Into<String>) -> Self {
        let file = file.into();
        Self { input, file, line: 0, parser: None, has_ended: false, buffer: Vec::new() }
    }

    /// An error in the line that was read last.
    pub fn bad(&self, why: impl Into<String>) -> BadFile {
        BadFile { file: self.file.clone(), line: self.line.max(1), why: why.into() }
    }

    /// Reads a line; returns whether there was one.
    fn read_line(&mut self) -> Result<bool, String> {
        self.buffer.clear();
        let mut limited = std::io::Read::take(&mut self.input, LONGEST_LINE as u64 + 1);
        let read = limited.read_until(b'\n', &mut self.buffer).map_err(|e| e.to_string())?;
        if read == 0 {
            return Ok(false);
        }
        self.line += 1;
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if read > LONGEST_LINE {
            return Err(format!("a line of at most {LONGEST_LINE} bytes was expected"));
        }
        Ok(true)
    }

    fn next_request(&mut self) -> Result<Option<Request>, String> {
        while !self.has_ended && self.read_line()? {
            let line = String::from_utf8_lossy(&self.buffer);
            let parser = self.parser.get_or_insert_with(|| Parser::of(&line));
            match parser.line(line.trim())? {
                Line::Request(request) => return Ok(Some(request)),
                Line::Other => {}
                Line::End => self.has_ended = true,
            }
        }
        self.has_ended = true;
        Ok(None)
    }
}

impl<R: BufRead> Iterator for Requests<R> {
    type Item = Result<Request, BadFile>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_request();
        self.has_ended |= next.is_err();
        next.map_err(|why| self.bad(why)).transpose()
    }
}

/// A number, or which one was expected.
fn number(text: &str, what: &str) -> Result<u64, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("{what}: a whole number was expected, not {}", shown(text)))
}

/// A part of a line as it is shown in an error: on one line, and not too long.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    format!("`{}`", printable(&short))
}

/// Checks that a trace is of one drive or file: `one` is what the first line was of.
fn check_one(one: &mut Option<String>, this: &str, what: &str) -> Result<(), String> {
    let first = one.get_or_insert_with(|| this.to_owned());
    if first == this {
        return Ok(());
    }
    Err(format!("{what} {} was expected in all lines, not {}", shown(first), shown(this)))
}

#[cfg(test)]
mod tests;
