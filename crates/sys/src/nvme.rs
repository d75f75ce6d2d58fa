//! NVMe: the log page SMART / Health Information (`NVME_IOCTL_ADMIN_CMD`, uapi/linux/nvme_ioctl.h). Needs
//! `CAP_SYS_ADMIN`. Nothing is written to the drive.

use crate::apart;
use std::io;
use std::os::fd::AsFd;

/// `struct nvme_admin_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<AdminCommand>() == 72);

/// A command, and where its answer goes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Asked {
    command: AdminCommand,
    log: [u8; HEALTH_LOG],
}

const NVME_IOCTL_ADMIN_CMD: libc::c_ulong = 0xC048_4E41;
/// Get Log Page (NVM Express Base Specification 2.0).
const GET_LOG_PAGE: u8 = 0x02;
/// SMART / Health Information.
const HEALTH: u32 = 0x02;
/// The log of the whole drive, not of a namespace.
const ALL_NAMESPACES: u32 = 0xFFFF_FFFF;

/// Bytes of the log page.
pub const HEALTH_LOG: usize = 512;

/// The log page SMART / Health Information of the drive whose block device `node` is open for reading.
///
/// The command has the kernel's time limit for such commands, a minute by default, and not a shorter one: a command that
/// exceeds its limit makes the kernel reset the controller, and with it everybody's requests. Whoever cannot wait that
/// long calls this in a thread, which does not keep the process from ending: the drive is asked [apart](crate::apart).
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_ADMIN`; `Unsupported` where the drive refuses the command or the device is none of
/// NVMe; else those of the kernel.
pub fn health_log(node: impl AsFd) -> io::Result<[u8; HEALTH_LOG]> {
    let fill = |asked: &mut Asked| {
        asked.command = AdminCommand {
            opcode: GET_LOG_PAGE,
            nsid: ALL_NAMESPACES,
            addr: asked.log.as_mut_ptr() as u64,
            data_len: HEALTH_LOG as u32,
            // The number of double words less one, and which log.
            cdw10: (HEALTH_LOG as u32 / 4 - 1) << 16 | HEALTH,
            ..AdminCommand::default()
        };
    };
    // SAFETY: all fields are integers. The ioctl reads and writes the command, with which the structure begins; the kernel
    // writes at most `data_len` bytes at `addr`, which are those of `log`, and is done with both when it returns.
    match unsafe { apart::ioctl(node, NVME_IOCTL_ADMIN_CMD, fill) } {
        Ok((0, asked)) => Ok(asked.log),
        Ok((status, _)) => {
            let why = format!("the drive refuses the command with status {status:#x}");
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => Err(io::ErrorKind::Unsupported.into()),
        Err(e) => Err(e),
    }
}
