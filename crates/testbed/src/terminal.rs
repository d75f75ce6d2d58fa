//! A real terminal emulator with a shell in it: tmux, on a server of its own. A test types, and reads what is shown.

use crate::cleanup::{self, Ticket, Undo};
use crate::process::finish;
use crate::scratch;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long something is waited for on the screen.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(50);

/// A terminal; its programs end when it is dropped, or when a signal ends the process.
pub struct Terminal {
    dir: tempfile::TempDir,
    server: u32,
    _server: Ticket,
}

/// What of a terminal a program can change besides its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modes {
    /// Whether the alternate screen is shown, the cursor is shown, and lines are wrapped; and its title.
    pub shown: String,
    /// What `stty -a` prints, in the shell.
    pub settings: String,
}

impl Terminal {
    /// Opens one of this size, with a shell.
    ///
    /// # Panics
    /// When tmux is missing or fails.
    pub fn open(columns: u16, lines: u16) -> Self {
        let dir = scratch::directory("terminal");
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let size = ["-x", &columns, "-y", &lines];
        let shell = ["env", "PS1=$ ", "sh"];
        let start = ["-f", "/dev/null", "new-session", "-d"];
        let mut open = tmux(&dir.path().join("socket"));
        finish(open.args(start).args(size).args(shell)).expect(&[0]);
        let server = finish(tmux(&dir.path().join("socket")).args(["display", "-p", "#{pid}"]));
        let server = server.expect(&[0]).trim().parse().expect("the server's number");
        let ticket = cleanup::register(Undo::Process(server));
        let terminal = Self { dir, server, _server: ticket };
        terminal.wait_for("the prompt", |shown| shown.starts_with('$'));
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        finish(tmux(&self.socket()).args(args)).expect(&[0])
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Types a line of text.
    pub fn line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", "--", text]);
        self.press("Enter");
    }

    /// Presses a key, by tmux's name for it.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", "--", key]);
    }

    /// What is shown now, without spaces at the ends of lines.
    pub fn shown(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until what is shown is as wanted, and returns it.
    ///
    /// # Panics
    /// After a minute.
    pub fn wait_for(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let shown = self.shown();
            if is_it(&shown) {
                return shown;
            }
            assert!(begun.elapsed() < PATIENCE, "waited for {what}, and this is shown:\n{shown}");
            std::thread::sleep(LOOK);
        }
    }

    /// Its modes now, with the shell at its prompt.
    pub fn modes(&self) -> Modes {
        let flags = "#{alternate_on} #{cursor_flag} #{wrap_flag} #{pane_title}";
        let shown = self.tmux(&["display", "-p", flags]);
        let file = self.dir.path().join("settings");
        let _ = std::fs::remove_file(&file);
        let path = file.display();
        self.line(&format!("stty -a > {path}.new; mv {path}.new {path}"));
        let begun = Instant::now();
        while !file.exists() {
            assert!(begun.elapsed() < PATIENCE, "no prompt, but:\n{}", self.shown());
            std::thread::sleep(LOOK);
        }
        let settings = std::fs::read_to_string(&file).expect("what stty has printed");
        Modes { shown, settings }
    }

    /// Changes its size.
    pub fn resize(&self, columns: u16, lines: u16) {
        let (columns, lines) = (columns.to_string(), lines.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &lines]);
    }

    /// Closes it, as if the connection were lost: its programs stay, if they do.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        Undo::Process(self.server).run();
    }
}

fn tmux(socket: &std::path::Path) -> Command {
    let mut command = Command::new("tmux");
    // Not one that the test itself may run in.
    command.arg("-S").arg(socket).env_remove("TMUX");
    command
}
