//! ATA: a page of a log (`SG_IO` of scsi/sg.h with the command ATA PASS-THROUGH (16) of SAT-4, in it READ LOG EXT of ACS-4).
//! Needs `CAP_SYS_RAWIO`. Nothing is written to the drive.

use crate::apart;
use std::io;
use std::os::fd::AsFd;

/// `struct sg_io_hdr` (scsi/sg.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct SgIo {
    interface_id: libc::c_int,
    dxfer_direction: libc::c_int,
    cmd_len: u8,
    mx_sb_len: u8,
    iovec_count: u16,
    dxfer_len: u32,
    dxferp: *mut libc::c_void,
    cmdp: *const u8,
    sbp: *mut u8,
    timeout: u32,
    flags: u32,
    pack_id: libc::c_int,
    usr_ptr: *mut libc::c_void,
    status: u8,
    masked_status: u8,
    msg_status: u8,
    sb_len_wr: u8,
    host_status: u16,
    driver_status: u16,
    resid: libc::c_int,
    duration: u32,
    info: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<SgIo>() == 88);

/// A command, and where its answer goes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Asked {
    io: SgIo,
    command: [u8; 16],
    data: [u8; PAGE],
    sense: [u8; SENSE],
}

const SG_IO: libc::c_ulong = 0x2285;
const SG_DXFER_FROM_DEV: libc::c_int = -3;
/// Milliseconds. A shorter limit would make the kernel reset the link of a busy drive, and with it everybody's requests.
const LIMIT_MS: u32 = 60_000;
/// The longest sense data.
const SENSE: usize = 64;

/// Bytes of a page of a log.
pub const PAGE: usize = 512;

/// Reads page number `page` of the log `log` (General Purpose Logging) of the drive whose block device `node` is open for
/// reading. It may last up to a minute on a drive that does not answer; whoever cannot wait that long calls this in a
/// thread, which does not keep the process from ending: the drive is asked [apart](crate::apart).
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_RAWIO`; `Unsupported` where the drive refuses the command or takes none of ATA;
/// else those of the kernel, and of the path to the drive.
pub fn read_log(node: impl AsFd, log: u8, page: u16) -> io::Result<[u8; PAGE]> {
    let fill = |asked: &mut Asked| {
        asked.command = command(log, page);
        asked.io.interface_id = libc::c_int::from(b'S');
        asked.io.dxfer_direction = SG_DXFER_FROM_DEV;
        asked.io.cmd_len = asked.command.len() as u8;
        asked.io.mx_sb_len = SENSE as u8;
        asked.io.dxfer_len = PAGE as u32;
        asked.io.dxferp = asked.data.as_mut_ptr().cast();
        asked.io.cmdp = asked.command.as_ptr();
        asked.io.sbp = asked.sense.as_mut_ptr();
        asked.io.timeout = LIMIT_MS;
    };
    // SAFETY: all fields are integers and raw pointers. The ioctl reads and writes the header, with which the structure begins.
    // It reads `cmd_len` bytes at `cmdp`, and writes at most `dxfer_len` bytes at `dxferp` and `mx_sb_len` at `sbp`: those of
    // the arrays beside it, with which the kernel is done when it returns.
    let asked = unsafe { apart::ioctl(node, SG_IO, fill) };
    let (_, Asked { io, data, .. }) = asked.map_err(|e| match e.raw_os_error() {
        Some(libc::ENOTTY) => io::ErrorKind::Unsupported.into(),
        _ => e,
    })?;
    if io.host_status != 0 {
        let why =
            format!("the command did not reach the drive (host status {:#x})", io.host_status);
        return Err(io::Error::other(why));
    }
    if io.status != 0 || io.driver_status != 0 || io.resid != 0 {
        let why = format!("the drive refuses the command with status {:#x}", io.status);
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(data)
}

/// READ LOG EXT in an ATA PASS-THROUGH (16).
fn command(log: u8, page: u16) -> [u8; 16] {
    const ATA_PASS_THROUGH_16: u8 = 0x85;
    const READ_LOG_EXT: u8 = 0x2F;
    // Protocol 4, PIO data-in, with the fields of a 48-bit command.
    const PIO_IN_EXTEND: u8 = 4 << 1 | 1;
    // From the device (t_dir), the length in blocks (byt_blok) in the field of the sector count (t_length 2).
    const FROM_DEVICE: u8 = 1 << 3 | 1 << 2 | 2;
    let [page_low, page_high] = page.to_le_bytes();
    let mut bytes = [0; 16];
    (bytes[0], bytes[1], bytes[2]) = (ATA_PASS_THROUGH_16, PIO_IN_EXTEND, FROM_DEVICE);
    // One page.
    bytes[6] = 1;
    // LBA bits 7:0, 15:8 and 39:32.
    (bytes[8], bytes[10], bytes[9]) = (log, page_low, page_high);
    bytes[14] = READ_LOG_EXT;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Page 7 of log 4, Device Statistics.
    #[test]
    fn the_command_is_a_read_in_its_documented_form() {
        let expected = [0x85, 0x09, 0x0e, 0, 0, 0, 1, 0, 4, 0, 7, 0, 0, 0, 0x2f, 0];
        assert_eq!(command(4, 7), expected);
        assert_eq!(command(0x12, 0x3456)[8..11], [0x12, 0x34, 0x56]);
    }

    #[test]
    fn what_takes_no_commands_is_unsupported() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let refused = |e: io::Error| e.kind();
        assert_eq!(read_log(&file, 0, 0).map_err(refused), Err(io::ErrorKind::Unsupported));
        let nvme = crate::nvme::health_log(&file).map_err(refused);
        assert_eq!(nvme, Err(io::ErrorKind::Unsupported));
    }
}
