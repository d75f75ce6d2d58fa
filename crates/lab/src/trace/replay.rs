//! Plays a trace on a drive: its requests arrive at the times that were recorded, or as soon as the host's queue has a free slot. On a
//! drive that is smaller than the traced one, addresses are folded: what was at `a` is at `a` modulo the drive's size, moved back as
//! far as it would end behind the drive's end; how many requests that befell is counted.

use super::{Kind, Request, Requests};
use crate::described::BadFile;
use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::device::Device;
use fragmend_flash::host::HostPath;
use fragmend_layout::ByteRange;
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::BufRead;

/// When requests arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Speed {
    /// At the recorded times, or later if the queue is full.
    #[default]
    Recorded,
    /// As soon as the queue has a free slot.
    Fastest,
}

/// What was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Requests of the trace.
    pub requests: u64,
    /// Commands to the drive: a request that is longer than the host's largest one is several.
    pub commands: u64,
    /// Bytes that were read, of each request no more than the drive has.
    pub read_bytes: u64,
    /// Bytes that were written, of each request no more than the drive has.
    pub written_bytes: u64,
    /// Requests that end behind the drive's end, and were folded.
    pub folded: u64,
    /// The sum over all requests of the time until they are done: from when they were due, or at [`Speed::Fastest`] from when the queue
    /// had a slot for them.
    pub response_ns: u128,
    /// When the last one is done.
    pub end_ns: u64,
}

impl std::ops::Add for Replayed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            commands: self.commands + other.commands,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            folded: self.folded + other.folded,
            response_ns: self.response_ns + other.response_ns,
            end_ns: self.end_ns.max(other.end_ns),
        }
    }
}

/// Plays a trace on a drive, from `start` on.
///
/// # Errors
/// A line that is wrong, or whose request the drive refuses.
pub fn replay<R: BufRead, D: Device + ?Sized>(
    mut trace: Requests<R>,
    device: &mut D,
    start: u64,
    path: &HostPath,
    speed: Speed,
) -> Result<Replayed, BadFile> {
    let depth = path.queue_depth.max(1) as usize;
    let mut all = Replayed { end_ns: start, ..Replayed::default() };
    let (mut now, mut in_flight) = (start, BinaryHeap::new());
    while let Some(request) = trace.next().transpose()? {
        let due = match speed {
            Speed::Recorded => start.saturating_add(request.at_ns),
            Speed::Fastest => start,
        };
        now = now.max(due);
        let (commands, was_folded) = commands(&request, device, path);
        let (mut arrived, mut done) = (None, due);
        for command in commands {
            if in_flight.len() >= depth
                && let Some(Reverse(end)) = in_flight.pop()
            {
                now = now.max(end);
            }
            arrived.get_or_insert(if speed == Speed::Recorded { due } else { now });
            now += path.request_ns;
            let completion = device.submit(now, &command);
            let completion =
                completion.map_err(|refused| trace.bad(format!("the drive: {refused}")))?;
            in_flight.push(Reverse(completion.done_ns));
            done = done.max(completion.done_ns);
            all.commands += 1;
        }
        let response_ns = arrived.map_or(0, |arrived| done - arrived);
        all.response_ns += u128::from(response_ns);
        all.requests += 1;
        all.folded += u64::from(was_folded);
        match request.kind {
            Kind::Read => all.read_bytes += request.bytes.min(bytes_of(device)),
            Kind::Write => all.written_bytes += request.bytes.min(bytes_of(device)),
            Kind::Trim | Kind::Flush => {}
        }
        all.end_ns = all.end_ns.max(done);
    }
    Ok(all)
}

/// The size of a drive.
fn bytes_of<D: Device + ?Sized>(device: &D) -> u64 {
    u64::from(device.units()) * u64::from(device.unit_bytes())
}

/// The commands of a request, and whether it was folded. A request without bytes that is no flush has none.
fn commands<D: Device + ?Sized>(
    request: &Request,
    device: &D,
    path: &HostPath,
) -> (Vec<Command>, bool) {
    if request.kind == Kind::Flush {
        return (vec![Command::Flush], false);
    }
    let (unit, size) = (u64::from(device.unit_bytes()), bytes_of(device));
    let bytes = request.bytes.min(size);
    let start = (request.offset % size).min(size - bytes);
    let most = u64::from(path.request_bytes) / unit * unit;
    let parts = ByteRange::at(start, bytes).steps(most.max(unit));
    let all = parts.filter_map(|part| command(request.kind, part, device.unit_bytes())).collect();
    (all, request.end() > size)
}

/// The command for a range of bytes. A write of less than whole units is one to the drive as well; a trim leaves units that it covers in
/// part.
fn command(kind: Kind, part: ByteRange, unit_bytes: u32) -> Option<Command> {
    let unit = u64::from(unit_bytes);
    let is_whole = part.start.is_multiple_of(unit) && part.end.is_multiple_of(unit);
    let between = |start: u64, end: u64| {
        (start < end).then(|| Units::new(start as u32, (end - start) as u32))
    };
    let units = between(part.start / unit, part.end.div_ceil(unit))?;
    match kind {
        Kind::Read => Some(Command::Read(units)),
        Kind::Write if is_whole => Some(Command::Write { units, hint: Hint::None, fua: false }),
        Kind::Write => Some(Command::WritePart {
            units,
            bytes: part.len() as u32,
            offset: (part.start % unit) as u32,
            hint: Hint::None,
        }),
        Kind::Trim => between(part.start.div_ceil(unit), part.end / unit).map(Command::Trim),
        Kind::Flush => Some(Command::Flush),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    #[test]
    fn responses_that_last_for_long_are_summed_up() {
        let long = Replayed { response_ns: u64::MAX.into(), ..Replayed::default() };
        assert_eq!((long + long).response_ns, 2 * u128::from(u64::MAX));
    }

    #[test]
    fn a_folded_request_is_at_its_address_modulo_the_size() {
        let setup = presets::named("sd-kingston").expect("a preset");
        let device = setup.device();
        let size = bytes_of(&*device);
        let of = |offset: u64, bytes: u64| {
            let request = Request { at_ns: 0, kind: Kind::Write, offset, bytes };
            commands(&request, &*device, &setup.host)
        };
        let part = |start: u32, bytes: u32, offset: u32| Command::WritePart {
            units: Units::new(start, 1),
            bytes,
            offset,
            hint: Hint::None,
        };
        let whole = |start: u32| Command::Write {
            units: Units::new(start, 2),
            hint: Hint::None,
            fua: false,
        };
        assert_eq!(of(5 * size + 8192 + 512, 1024), (vec![part(2, 1024, 512)], true));
        assert_eq!(of(4096, 8192), (vec![whole(1)], false));
        // Moved back, as it would end behind the drive's end.
        assert_eq!(of(2 * size - 4096, 8192), (vec![whole(device.units() - 2)], true));
    }
}
