//! User names, looked up in the system's name service by its own program, `getent(1)`: `getpwnam_r(3)` of a
//! statically linked binary would load the modules of another C library into it.

use std::io;
use std::process::{Command, Stdio};

/// What `getent` exits with if there is no such name.
const NOT_FOUND: i32 = 2;

/// The number of a user; `None` when there is no such name.
///
/// # Errors
/// When `getent` cannot be started or fails, or the name contains a zero byte.
pub fn uid_of(name: &str) -> io::Result<Option<u32>> {
    let mut getent = Command::new("getent");
    let output = getent.args(["passwd", "--", name]).stderr(Stdio::inherit()).output()?;
    match output.status.code() {
        Some(0) => Ok(uid_in(name, &String::from_utf8_lossy(&output.stdout))),
        Some(NOT_FOUND) => Ok(None),
        _ => Err(io::Error::other(format!("getent passwd: {}", output.status))),
    }
}

/// The number in a line of passwd(5), if it is of this user: `getent` takes a number for a user's number.
fn uid_in(name: &str, line: &str) -> Option<u32> {
    let mut fields = line.split(':');
    (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_zero_and_nobody_has_an_impossible_name() {
        assert_eq!(uid_of("root").unwrap(), Some(0));
        assert_eq!(uid_of("no:such:user").unwrap(), None);
        assert_eq!(uid_of("0").unwrap(), None, "a number is no name");
        assert_eq!(uid_of("--help").unwrap(), None, "a name is no option");
        assert!(uid_of("a\0b").is_err());
    }
}
