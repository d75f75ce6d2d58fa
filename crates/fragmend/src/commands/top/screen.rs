//! The terminal: raw mode, the alternate screen, keys and frames. However the verb ends, by a key, an error, a panic, a signal
//! or the loss of the terminal, it is left as it was found; only what ends a process at once (SIGKILL, a fault of its own like
//! SIGSEGV) leaves it as it is.
//!
//! Bytes are written only as far as the terminal accepts them: one that is stopped, or whose network is slow, delays frames
//! and nothing else.

use crate::interrupt;
use crate::outlet::Outlet;
use fragmend_top::{Key, Keys, State, Theme, draw};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

/// The alternate screen; no cursor; no line goes on in the next one, whatever the terminal takes a character's width for.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[2J\x1b[?25l\x1b[?7l";
/// The same undone, in reverse.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// How long a terminal is waited for that does not accept the last bytes.
const PATIENCE: Duration = Duration::from_millis(300);
/// A sequence of a key is complete within this time.
const KEY: Duration = Duration::from_millis(50);

/// The settings of the terminal as it was found, until it is left.
static FOUND: Mutex<Option<Termios>> = Mutex::new(None);

/// Leaves the terminal as it was found, if it is not yet. Returns whether this call has.
fn restore() -> bool {
    let found = FOUND.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(found) = found else { return false };
    let mut out = Outlet::output();
    out.put(LEAVE);
    let _ = out.flush(Some(PATIENCE), &AtomicBool::new(false));
    let _ = tcsetattr(stdin(), OptionalActions::Now, &found);
    true
}

/// What came in.
pub enum Input {
    /// Nothing, for as long as was waited.
    Nothing,
    /// Keys.
    Keys(Vec<Key>),
}

/// Where frames are written to.
#[derive(Clone)]
struct Out(Rc<RefCell<Outlet>>);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The terminal while it is drawn on.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Out>>,
    out: Out,
    theme: Theme,
    keys: Keys,
    size: Rect,
    /// The terminal is gone.
    lost: bool,
}

impl Screen {
    /// Whether there is a terminal.
    pub fn is_possible() -> bool {
        isatty(stdin()) && isatty(stdout())
    }

    /// Takes the terminal.
    ///
    /// # Errors
    /// It does not let itself be set up.
    pub fn enter(theme: Theme) -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                usual(info);
            }));
            interrupt::before_end(|| {
                restore();
            });
        });
        let found = tcgetattr(stdin())?;
        *FOUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
        let set_up = || {
            make_raw(found)?;
            let out = Out(Rc::new(RefCell::new(Outlet::output())));
            out.0.borrow_mut().put(ENTER);
            let size = size().unwrap_or(Rect::new(0, 0, 80, 24));
            let options = TerminalOptions { viewport: Viewport::Fixed(size) };
            let terminal = Terminal::with_options(CrosstermBackend::new(out.clone()), options)?;
            Ok(Self { terminal, out, theme, keys: Keys::default(), size, lost: false })
        };
        set_up().inspect_err(|_| {
            restore();
        })
    }

    /// Takes the terminal again, if the process was stopped meanwhile, and a shell has had it. Returns whether it has, and so is
    /// to be drawn.
    ///
    /// # Errors
    /// Those of the library; none of the terminal's.
    pub fn take_again(&mut self) -> io::Result<bool> {
        let found = FOUND.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(found) = found.filter(|_| interrupt::was_continued()) else { return Ok(false) };
        // Best effort: a terminal that is gone shows at the next read.
        let _ = make_raw(found);
        self.out.0.borrow_mut().put(ENTER);
        self.terminal.clear()?;
        Ok(true)
    }

    /// Leaves the terminal as it was found. Returns whether it was not left already, by a panic.
    pub fn leave(self) -> bool {
        restore()
    }

    /// Whether there is a terminal to draw on: it is not lost, and no panic has left it.
    pub fn is_there(&self) -> bool {
        !self.lost && FOUND.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Draws the state, unless the terminal has not accepted the last frame yet.
    ///
    /// # Errors
    /// Those of the library; none of the terminal's.
    pub fn draw(&mut self, state: &State) -> io::Result<()> {
        if !self.is_there() || !self.write() {
            return Ok(());
        }
        if let Some(size) = size().filter(|size| *size != self.size) {
            self.size = size;
            self.terminal.resize(size)?;
        }
        let theme = self.theme;
        self.terminal.draw(|frame| draw(state, theme, frame))?;
        self.write();
        Ok(())
    }

    /// Writes what the terminal accepts at once. Returns whether nothing is left.
    fn write(&mut self) -> bool {
        let written = self.out.0.borrow_mut().flush(Some(Duration::ZERO), &AtomicBool::new(false));
        self.lost |= written.is_err();
        written.unwrap_or(false)
    }

    /// Waits for keys, for so long at most.
    ///
    /// # Errors
    /// The kernel cannot wait.
    pub fn wait(&mut self, within: Duration) -> io::Result<Input> {
        if !self.is_there() {
            std::thread::sleep(within.max(KEY));
            return Ok(Input::Nothing);
        }
        let within = if self.keys.is_cut() { within.min(KEY) } else { within };
        let time = Timespec::try_from(within).unwrap_or_default();
        let input = stdin();
        let mut polled = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut polled, Some(&time)) {
            Ok(0) => {
                return Ok(self.keys.idle().map_or(Input::Nothing, |key| Input::Keys(vec![key])));
            }
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Input::Nothing),
            Err(e) => return Err(e.into()),
        }
        let mut bytes = [0; 256];
        match rustix::io::read(stdin(), &mut bytes) {
            Ok(read) if read > 0 => Ok(Input::Keys(self.keys.read(&bytes[..read]))),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Input::Nothing),
            // The end of the input: nobody is there any more.
            Ok(_) | Err(_) => {
                self.lost = true;
                Ok(Input::Nothing)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Has keys come at once, and unseen.
fn make_raw(mut found: Termios) -> io::Result<()> {
    found.make_raw();
    Ok(tcsetattr(stdin(), OptionalActions::Now, &found)?)
}

/// The size of the terminal, where it reports one.
fn size() -> Option<Rect> {
    let size = tcgetwinsize(stdout()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then(|| Rect::new(0, 0, size.ws_col, size.ws_row))
}
