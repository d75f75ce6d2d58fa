//! Readiness, state and sign of life for systemd, by the protocol of sd_notify(3): datagrams to the socket that
//! `NOTIFY_SOCKET` names. Without it, as outside systemd, nothing is sent.

use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The least time between two signs of life.
const ALIVE_EVERY: Duration = Duration::from_secs(5);
/// The longest state in words, in bytes.
const LONGEST: usize = 256;

/// The way to systemd, if there is one.
#[derive(Debug, Default)]
pub struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    alive: Mutex<Option<Instant>>,
}

impl Notify {
    /// The one that the environment names.
    pub fn from_environment() -> Self {
        std::env::var_os("NOTIFY_SOCKET").map_or_else(Self::default, |name| Self::to(&name))
    }

    /// To the socket with this name: a path, or an abstract name after an `@`.
    pub fn to(name: &OsStr) -> Self {
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
            _ => SocketAddr::from_pathname(name),
        };
        let socket = address.ok().and_then(|address| {
            let socket = UnixDatagram::unbound().ok()?;
            // A full socket must not keep the daemon waiting.
            socket.set_nonblocking(true).ok()?;
            Some((socket, address))
        });
        Self { socket, alive: Mutex::default() }
    }

    /// Start-up has ended, or reading the policy again.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// The policy is being read again.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// The daemon ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// The state in words, on one line.
    pub fn status(&self, words: &str) {
        let end = (0..=LONGEST.min(words.len())).rev().find(|end| words.is_char_boundary(*end));
        self.send(&format!("STATUS={}", &words[..end.unwrap_or(0)]));
    }

    /// A sign of life; those that follow within seconds are left out.
    pub fn alive(&self) {
        let mut last = self.alive.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.is_none_or(|at| at.elapsed() >= ALIVE_EVERY) {
            *last = Some(Instant::now());
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // Whether systemd listens is no concern of the daemon's work.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_reads_what_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("fragmend-watch-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let ends = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}").into()),
        ];
        for (end, name) in ends {
            let notify = Notify::to(&name);
            notify.ready();
            notify.alive();
            notify.alive();
            notify.reloading();
            notify.status(&"ä".repeat(LONGEST));
            notify.stopping();
            end.set_nonblocking(true).unwrap();
            let mut read = Vec::new();
            let mut buffer = [0; 1024];
            while let Ok(n) = end.recv(&mut buffer) {
                read.push(String::from_utf8(buffer[..n].to_vec()).unwrap());
            }
            assert_eq!(read.len(), 5, "{read:?}");
            assert_eq!((read[0].as_str(), read[1].as_str()), ("READY=1", "WATCHDOG=1"));
            assert!(read[2].starts_with("RELOADING=1\nMONOTONIC_USEC="), "{}", read[2]);
            assert_eq!(read[3], format!("STATUS={}", "ä".repeat(LONGEST / 2)));
            assert_eq!(read[4], "STOPPING=1");
        }
        Notify::default().ready();
        Notify::to(OsStr::new("")).ready();
    }
}
