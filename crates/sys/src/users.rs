//! User names, looked up in the system's name service (`getpwnam_r(3)`).

use std::ffi::CString;
use std::io;

/// The number of a user; `None` when there is no such name.
///
/// # Errors
/// When the name service fails, or the name contains a zero byte.
pub fn uid_of(name: &str) -> io::Result<Option<u32>> {
    let name = CString::new(name)?;
    let mut room = vec![0 as libc::c_char; 1024];
    loop {
        // SAFETY: an all-zero `passwd` is valid: integers and null pointers.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: every pointer is to live memory of the length given; the strings that `entry` then points
        // to are in `room` and are not read.
        let rc = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                &raw mut entry,
                room.as_mut_ptr(),
                room.len(),
                &raw mut found,
            )
        };
        match rc {
            0 if found.is_null() => return Ok(None),
            0 => return Ok(Some(entry.pw_uid)),
            libc::ERANGE if room.len() < 1 << 20 => room.resize(room.len() * 2, 0),
            // These mean "no such user" on some systems (getpwnam(3)).
            libc::ENOENT | libc::ESRCH => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_zero_and_nobody_has_an_impossible_name() {
        assert_eq!(uid_of("root").unwrap(), Some(0));
        assert_eq!(uid_of("no:such:user").unwrap(), None);
        assert!(uid_of("a\0b").is_err());
    }
}
