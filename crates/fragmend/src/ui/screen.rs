//! The terminal that progress is drawn on. Ctrl-S, or an emulator that does not read, stops a terminal: what
//! it does not accept at once is not drawn, and the caller does not wait.

use crate::outlet::Outlet;
use indicatif::TermLike;
use rustix::termios::tcgetwinsize;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Standard error, as a terminal for indicatif.
#[derive(Debug)]
pub(super) struct Screen(Mutex<Outlet>);

impl Screen {
    /// One on which nothing is drawn yet.
    pub fn new() -> Self {
        Self(Mutex::new(Outlet::error()))
    }

    fn with<T>(&self, what: impl FnOnce(&mut Outlet) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn draw(&self, text: &str) -> io::Result<()> {
        self.with(|out| out.put(text.as_bytes()));
        Ok(())
    }

    /// Rows and columns, where they are known.
    fn size(&self) -> Option<(u16, u16)> {
        let size = self.with(|out| tcgetwinsize(out.fd())).ok()?;
        (size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
    }

    fn move_by(&self, n: usize, to: char) -> io::Result<()> {
        if n > 0 { self.draw(&format!("\x1b[{n}{to}")) } else { Ok(()) }
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        self.size().map_or(80, |(_, columns)| columns)
    }

    fn height(&self) -> u16 {
        self.size().map_or(24, |(rows, _)| rows)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.move_by(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.move_by(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.move_by(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.move_by(n, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.draw(text)?;
        self.draw("\n")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.draw(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.draw("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        self.with(Outlet::flush_or_forget);
        Ok(())
    }
}
