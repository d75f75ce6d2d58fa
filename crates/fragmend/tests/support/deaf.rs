//! A file system in user space whose program never answers: what any user may mount on a directory of their own.

use super::holder;
use fragmend_testbed::process::{Running, finish};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in user space that every user may enter, and that answers nothing after its start. Not
/// even SIGKILL ends a process that waits for it: that comes with its own end, after half a minute.
const DEAF: &str = "
import ctypes, os, signal, struct, sys
signal.alarm(30)
fuse = os.open('/dev/fuse', os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
how = 'fd=%d,rootmode=40000,user_id=65534,group_id=65534,allow_other' % fuse
if libc.mount(b'deaf', os.fsencode(sys.argv[1]), b'fuse', 6, how.encode()):
    sys.exit(os.strerror(ctypes.get_errno()))
os.write(1, b'x')
while True:
    asked = os.read(fuse, 1 << 20)
    length, what, number = struct.unpack_from('<IIQ', asked)
    if what == 26:
        begun = struct.pack('<IIIIHHIIHHI', 7, 31, 65536, 0, 12, 9, 65536, 1, 1, 0, 0).ljust(64, b'\\0')
        os.write(fuse, struct.pack('<IiQ', 16 + len(begun), 0, number) + begun)
";

/// It, mounted at a directory until it is dropped.
pub struct Deaf(PathBuf, Option<Running>);

impl Deaf {
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned(), Some(holder(path, DEAF)))
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        // What waits for it is let go with its program.
        drop(self.1.take());
        let _ = finish(Command::new("umount").arg("-l").arg(&self.0));
    }
}
