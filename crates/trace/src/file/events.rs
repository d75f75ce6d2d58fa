//! Reads a trace row by row, with the process of each access: who reads and writes which file. Planning needs no process,
//! and its reader ([`reader`](super::reader)) decodes none.

use super::bounds;
use super::reader::{Reason, corrupt, guarded, look, values, verify};
use super::schema::column;
use super::text::unescape;
use crate::event::is_possible;
use crate::{Event, Op, TraceError};
use fragmend_layout::FileId;
use parquet::data_type::{BoolType, ByteArrayType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader, RowGroupReader};
use std::fs::File;
use std::path::Path;

/// The columns that are read; the last one is not in a trace of format 1.
const COLUMNS: [usize; 15] = [
    column::TIME,
    column::DEVICE,
    column::INODE,
    column::GENERATION,
    column::OP,
    column::DIRECT,
    column::WINDOWED,
    column::OFFSET,
    column::LENGTH,
    column::COUNT,
    column::PID,
    column::THREAD,
    column::UID,
    column::COMM,
    column::BYTES,
];

/// Shows every access of an open trace to `visit`, in the order of the file; `called` is its name in messages. One row group
/// is in memory at a time. Impossible rows, and operations of a later version, are left out.
///
/// # Errors
/// As [`read`](super::reader::read). What was shown before is true.
pub fn each_event(
    file: &File,
    called: &Path,
    visit: &mut dyn FnMut(&Event),
) -> Result<(), TraceError> {
    let file = file.try_clone().map_err(TraceError::io(called, "cannot read the trace"))?;
    let (reader, source, meta) = look(called, file)?;
    verify(called, &source, &meta)?;
    let columns = if meta.schema_version == 1 { &COLUMNS[..14] } else { &COLUMNS[..] };
    for n in 0..reader.num_row_groups() {
        let events = guarded(|| {
            bounds::pages(&source, reader.metadata().row_group(n), columns)?;
            events(reader.get_row_group(n)?.as_ref(), columns.contains(&column::BYTES))
        });
        events.map_err(|e| corrupt(called, e))?.iter().for_each(&mut *visit);
    }
    Ok(())
}

fn events(group: &dyn RowGroupReader, has_bytes: bool) -> Result<Vec<Event>, Reason> {
    let rows = usize::try_from(group.metadata().num_rows())?;
    let long = |index| values::<Int64Type>(group, index, rows);
    let short = |index| values::<Int32Type>(group, index, rows);
    let flag = |index| values::<BoolType>(group, index, rows);
    let text = |index| values::<ByteArrayType>(group, index, rows);
    let (time, device, inode) = (long(column::TIME)?, long(column::DEVICE)?, long(column::INODE)?);
    let (generation, op) = (short(column::GENERATION)?, text(column::OP)?);
    let (direct, windowed) = (flag(column::DIRECT)?, flag(column::WINDOWED)?);
    let (offset, length) = (long(column::OFFSET)?, short(column::LENGTH)?);
    let (count, pid) = (short(column::COUNT)?, short(column::PID)?);
    let (thread, uid, comm) = (short(column::THREAD)?, short(column::UID)?, text(column::COMM)?);
    let bytes = if has_bytes { long(column::BYTES)? } else { Vec::new() };
    let event = |n: usize| {
        let (length, count) = (length[n] as u32, count[n] as u32);
        let event = Event {
            time_ns: time[n] as u64,
            file: FileId {
                device: device[n] as u64,
                inode: inode[n] as u64,
                generation: generation[n] as u32,
            },
            offset: offset[n] as u64,
            length,
            bytes: bytes.get(n).map_or(u64::from(length) * u64::from(count), |b| *b as u64),
            count,
            pid: pid[n] as u32,
            thread: thread[n] as u32,
            uid: uid[n] as u32,
            comm: name(comm[n].data()),
            op: Op::from_name(op[n].data())?,
            direct: direct[n],
            windowed: windowed[n],
        };
        (is_possible(event.offset, event.length) && event.count > 0).then_some(event)
    };
    Ok((0..rows).filter_map(event).collect())
}

/// A command name, padded with zero bytes; a forged one is cut.
fn name(text: &[u8]) -> [u8; 16] {
    let mut name = [0; 16];
    let bytes = unescape(&text[..text.len().min(4 * name.len())]);
    name.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    name
}
