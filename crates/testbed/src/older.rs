//! Tests on a kernel that lacks a system call. Each runs twice: first it starts this very program for that
//! one test, behind a filter that answers the call with `ENOSYS`, and there it does its work.

use crate::guest::test::command;
use crate::process::finish;
use std::process::Command;

/// Set in the environment behind the filter.
const BEHIND: &str = "FRAGMEND_WITHOUT_CACHESTAT";

/// Filters system call 451, and becomes the program that its arguments name.
const FILTER: &str = "
import ctypes, errno, os, struct, sys
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7fff0000, 0x00050000
steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, 451), (RETURN, 0, 0, ERRNO | errno.ENOSYS), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('steps', ctypes.c_void_p)]
program = Program(len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
NO_NEW_PRIVILEGES, SECCOMP, BY_FILTER = 38, 22, 2
assert libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
assert libc.prctl(SECCOMP, BY_FILTER, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
";

/// Runs `body`, as the test of this name, on a kernel without `cachestat(2)`: one from before Linux 6.5.
pub fn without_cachestat(name: &str, body: impl FnOnce()) {
    if std::env::var_os(BEHIND).is_some() {
        return body();
    }
    let test = command(name);
    let mut filtered = Command::new("python3");
    filtered.args(["-c", FILTER]).arg(test.get_program()).args(test.get_args()).env(BEHIND, "1");
    let finished = finish(&mut filtered);
    print!("{}", finished.stdout);
    assert!(finished.expect(&[0]).contains("1 passed"));
}
