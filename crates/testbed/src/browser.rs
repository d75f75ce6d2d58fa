//! A headless Chromium that is driven as its developer tools do: commands and events of the DevTools protocol, JSON with a
//! zero byte at its end, through a pair of pipes (`--remote-debugging-pipe`: it reads from descriptor 3, and writes to 4).
//!
//! So there is no port, no socket and no library: those that exist bring bindings for all of the protocol, which take longer to
//! build than all pages to test, and this needs a dozen calls. Chromium ends when its pipe does, and is killed by its id
//! besides.

use crate::process::Running;
use crate::scratch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long an answer or an event may need on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it may need to end before it is killed.
const TO_END: Duration = Duration::from_secs(5);

/// No network, no questions, the same pixels everywhere. Root has no right to a sandbox of its own in a container.
const FLAGS: [&str; 13] = [
    "--headless=new",
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en",
];

/// A browser with one tab.
pub struct Browser {
    to: ChildStdin,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    /// What happened, in the order in which it did.
    events: Vec<Value>,
    _running: Running,
    _profile: TempDir,
}

impl Browser {
    /// Starts it, with an empty tab.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start() -> Self {
        let profile = scratch::directory("browser");
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh"]);
        shell.args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display()));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = Running::start(&mut shell);
        let to = running.child().stdin.take().expect("a pipe");
        let mut from = BufReader::new(running.child().stdout.take().expect("a pipe"));
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while from.read_until(0, &mut message).is_ok_and(|bytes| bytes > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                message.clear();
                if tell.send(value).is_err() {
                    break;
                }
            }
        });
        let (next, session, events) = (1, None, Vec::new());
        let (_running, _profile) = (running, profile);
        let mut browser = Self { to, from: told, next, session, events, _running, _profile };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attached = browser.call(
            "Target.attachToTarget",
            &json!({ "targetId": target["targetId"], "flatten": true }),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method of the protocol.
    ///
    /// # Panics
    /// When it fails, or there is no answer.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.next;
        self.next += 1;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut text = message.to_string().into_bytes();
        text.push(0);
        self.to.write_all(&text).unwrap_or_else(|e| panic!("chromium does not listen: {e}"));
        loop {
            let mut answer = self.receive(method);
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    fn receive(&self, what: &str) -> Value {
        self.from.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("chromium and {what}: {e}"))
    }

    /// Opens a file, and returns how long that lasted: until it is loaded, and its script has run.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub fn open(&mut self, file: &Path) -> Duration {
        self.events.clear();
        let begun = Instant::now();
        let went =
            self.call("Page.navigate", &json!({ "url": format!("file://{}", file.display()) }));
        assert!(went.get("errorText").is_none(), "{}: {went}", file.display());
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.receive("the end of loading");
            self.events.push(event);
        }
        // An answer comes once the page has been painted.
        self.eval("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))");
        begun.elapsed()
    }

    /// The value of an expression in the page; of a promise, what it comes to.
    ///
    /// # Panics
    /// When it throws.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", &params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    /// The same as text.
    ///
    /// # Panics
    /// When it is none.
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.eval(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}")).to_owned()
    }

    /// What the page has complained of since it was opened: errors and warnings of the console, exceptions, what its policy
    /// has blocked.
    pub fn complaints(&mut self) -> Vec<Value> {
        // Events come before the answer to a later call.
        self.eval("0");
        let is_complaint = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Log.entryAdded") => true,
            Some("Runtime.consoleAPICalled") => {
                matches!(event["params"]["type"].as_str(), Some("error" | "warning" | "assert"))
            }
            _ => false,
        };
        self.events.iter().filter(is_complaint).cloned().collect()
    }

    /// The addresses that were requested since the page was opened, itself included.
    pub fn requested(&mut self) -> Vec<String> {
        self.eval("0");
        let is_request = |event: &&Value| event["method"] == "Network.requestWillBeSent";
        let url = |event: &Value| event["params"]["request"]["url"].as_str().map(str::to_owned);
        self.events.iter().filter(is_request).filter_map(url).collect()
    }

    /// Presses a key that types nothing, for example `ArrowRight`.
    pub fn press(&mut self, key: &str) {
        for kind in ["rawKeyDown", "keyUp"] {
            let code = match key {
                "Tab" => 9,
                "Enter" => 13,
                _ => 0,
            };
            let params =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", &params);
        }
    }

    /// Types text into what has the focus.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Moves the pointer to a place in the window, and presses its button if `click`.
    pub fn point(&mut self, (x, y): (f64, f64), click: bool) {
        let kinds = ["mouseMoved", "mousePressed", "mouseReleased"];
        for kind in &kinds[..if click { 3 } else { 1 }] {
            let button = if *kind == "mouseMoved" { "none" } else { "left" };
            let params = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", &params);
        }
    }

    /// Sets the size of the window in CSS pixels, and whether the system's colours are dark.
    pub fn look(&mut self, (width, height): (u32, u32), dark: bool) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let colours = if dark { "dark" } else { "light" };
        let features =
            json!({ "features": [{ "name": "prefers-color-scheme", "value": colours }] });
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// The window as PNG.
    ///
    /// # Panics
    /// When it cannot be taken.
    pub fn picture(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        bytes(&shot["data"])
    }

    /// The page printed as PDF.
    ///
    /// # Panics
    /// When it cannot be printed.
    pub fn pdf(&mut self) -> Vec<u8> {
        let printed = self.call("Page.printToPDF", &json!({ "printBackground": true }));
        bytes(&printed["data"])
    }
}

impl Drop for Browser {
    /// Its processes write to the directory of their profile until they have ended, which closes the pipe: only then can
    /// that be removed.
    fn drop(&mut self) {
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        while self.from.recv_timeout(TO_END).is_ok() {}
    }
}

fn bytes(base64: &Value) -> Vec<u8> {
    STANDARD.decode(base64.as_str().expect("text")).expect("base64")
}
