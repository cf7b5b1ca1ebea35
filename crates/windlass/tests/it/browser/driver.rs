//! Real browser, controlled over WebDriver: the part of the protocol that these tests need.

use crate::server::{PATIENCE, eventually};
use base64::Engine as _;
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// Mutex that allows one browser at a time: each has several processes, and a small machine is slow with two.
static TURN: Mutex<()> = Mutex::new(());

pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: TempDir,
    _turn: MutexGuard<'static, ()>,
}

#[derive(Clone, Copy)]
pub struct Look {
    pub width: u32,
    pub height: u32,
    pub dark: bool,
}

pub const DESK: Look = Look { width: 1280, height: 860, dark: false };
pub const PHONE: Look = Look { width: 390, height: 844, dark: false };

impl Browser {
    pub fn open() -> Browser {
        Browser::looking(DESK)
    }

    pub fn looking(look: Look) -> Browser {
        let turn = TURN.lock();
        let (driver, address) = start_driver();
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Browser { driver, address, session: String::new(), _profile: profile, _turn: turn };
        let args: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("--user-data-dir={}", browser._profile.path().display())])
        .collect();
        let options = json!({"alwaysMatch": {"goog:chromeOptions": {"args": args}}});
        let answer = browser.ask("POST", "/session", &json!({"capabilities": options}));
        browser.session = answer["sessionId"].as_str().unwrap().to_owned();
        browser.look(look);
        browser
    }

    pub fn look(&self, look: Look) {
        let size =
            json!({"width": look.width, "height": look.height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size);
        let scheme = if look.dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", features);
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "GET" || method == "DELETE" { String::new() } else { body.to_string() };
        let (status, text) = request(self.address, method, path, &body).unwrap();
        let mut answer: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(status, 200, "{method} {path}: {text}");
        answer["value"].take()
    }

    fn tell(&self, method: &str, path: &str, body: &Value) -> Value {
        self.ask(method, &format!("/session/{}{path}", self.session), body)
    }

    fn devtools(&self, command: &str, params: Value) -> Value {
        self.tell("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": params}))
    }

    pub fn go(&self, url: &str) {
        self.tell("POST", "/url", &json!({"url": url}));
    }

    pub fn reload(&self) {
        self.tell("POST", "/refresh", &json!({}));
    }

    /// Value of an expression.
    pub fn js(&self, expression: &str) -> Value {
        self.tell("POST", "/execute/sync", &json!({"script": format!("return ({expression})"), "args": []}))
    }

    /// Waits until the expression is true.
    #[track_caller]
    pub fn until(&self, expression: &str) {
        let began = Instant::now();
        while self.js(&format!("!!({expression})")) != true {
            if began.elapsed() > PATIENCE {
                self.picture("gave-up");
                panic!("waited in vain until {expression}; the page says:\n{}", self.text("body"));
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Waits until the element exists and contains this text.
    #[track_caller]
    pub fn until_shows(&self, selector: &str, text: &str) {
        self.until(&format!("document.querySelector({selector:?})?.textContent.includes({text:?})"));
    }

    pub fn text(&self, selector: &str) -> String {
        let text = self.js(&format!("document.querySelector({selector:?})?.innerText ?? ''"));
        text.as_str().unwrap_or_default().to_owned()
    }

    pub fn count(&self, selector: &str) -> u64 {
        self.js(&format!("document.querySelectorAll({selector:?}).length")).as_u64().unwrap()
    }

    /// Clicks an element that is present and enabled, as a person would.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        self.until(&format!(
            "document.querySelector({selector:?}) && !document.querySelector({selector:?}).disabled"
        ));
        self.js(&format!("document.querySelector({selector:?}).click()"));
    }

    /// Clicks the button with this text.
    #[track_caller]
    pub fn press(&self, label: &str) {
        let find =
            format!("[...document.querySelectorAll('button, a')].find((b) => b.textContent === {label:?})");
        self.until(&find);
        self.js(&format!("{find}.click()"));
    }

    #[track_caller]
    pub fn fill(&self, selector: &str, text: &str) {
        self.until(&format!("document.querySelector({selector:?})"));
        self.js(&format!(
            "(() => {{ const box = document.querySelector({selector:?}); box.focus(); box.value = {text:?}; \
             box.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
        ));
    }

    /// Sends real key strokes to the focused element.
    pub fn keys(&self, keys: &str) {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()})))
            .collect();
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]});
        self.tell("POST", "/actions", &actions);
    }

    /// Handle of the current tab.
    pub fn tab(&self) -> String {
        self.tell("GET", "/window", &Value::Null).as_str().unwrap().to_owned()
    }

    /// Opens a new tab in front of the others.
    pub fn new_tab(&self) -> String {
        let tab = self.tell("POST", "/window/new", &json!({"type": "tab"}));
        let handle = tab["handle"].as_str().unwrap().to_owned();
        self.switch_to(&handle);
        handle
    }

    pub fn switch_to(&self, handle: &str) {
        self.tell("POST", "/window", &json!({"handle": handle}));
    }

    /// Brings the tab to the front.
    pub fn bring_to_front(&self) {
        self.devtools("Page.bringToFront", json!({}));
    }

    /// Minimizes the window.
    pub fn minimize(&self) {
        self.tell("POST", "/window/minimize", &json!({}));
    }

    /// Restores the window.
    pub fn restore(&self) {
        self.tell("POST", "/window/rect", &json!({"width": DESK.width, "height": DESK.height}));
    }

    /// Takes a screenshot, stored beside the build for inspection.
    pub fn picture(&self, name: &str) -> PathBuf {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        let png = self.tell("GET", "/screenshot", &Value::Null);
        let bytes = base64::engine::general_purpose::STANDARD.decode(png.as_str().unwrap()).unwrap();
        let path = folder.join(format!("{name}.png"));
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Browser {
    /// Kills a browser that outlived its driver, because its session never began or did not end. Found by its
    /// profile folder, which is unique.
    fn end_leftovers(&self) {
        let profile = self._profile.path().as_os_str().as_encoded_bytes();
        let is_ours = |process: &PathBuf| {
            let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
            line.windows(profile.len()).any(|part| part == profile)
        };
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let processes =
                std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
            let ours: Vec<PathBuf> = processes.filter(is_ours).collect();
            if ours.is_empty() {
                return;
            }
            for process in ours {
                let id = process.file_name().and_then(|name| name.to_str()?.parse().ok());
                if let Some(process) = id.and_then(Pid::from_raw) {
                    let _ = kill_process(process, Signal::KILL);
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Also ends the browser's processes.
            let _ = request(self.address, "DELETE", &format!("/session/{}", self.session), "");
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        self.end_leftovers();
    }
}

/// Sends a request. The driver never closes the connection, so the length determines the end of the response.
fn request(to: SocketAddr, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {to}\r\nContent-Length: {length}\r\n\r\n{body}")?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut text = vec![0; length];
    reader.read_exact(&mut text)?;
    Ok((status, String::from_utf8_lossy(&text).into_owned()))
}

fn start_driver() -> (Child, SocketAddr) {
    let started = Command::new("chromedriver")
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut driver = started.unwrap_or_else(|error| {
        panic!("chromedriver: {error}; install chromium and its driver (Debian: chromium, chromium-driver) or run ./test")
    });
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = eventually("the driver says where it listens", || {
        let line = lines.next().expect("chromedriver ended by itself").unwrap();
        line.rsplit_once("successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok()
    });
    // Drains further output, so that the driver does not block.
    std::thread::spawn(move || lines.for_each(drop));
    (driver, SocketAddr::from(([127, 0, 0, 1], port)))
}
