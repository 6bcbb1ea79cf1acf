//! A real browser, spoken to over two pipes (the DevTools protocol, one JSON text and a NUL each).

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A browser on a busy machine may take this long for one thing.
const ANSWER_SECONDS_MAX: u64 = 120;
/// More events than these are not kept.
const EVENTS_MAX: usize = 10_000;

pub struct Browser {
    child: Child,
    say: ChildStdin,
    hear: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    /// All that it told unasked.
    pub events: Vec<Value>,
    _home: tempfile::TempDir,
}

impl Browser {
    /// Starts one. Without Chromium there is no test.
    pub fn start() -> Browser {
        let home = tempfile::tempdir().unwrap();
        // The protocol is spoken on descriptors 3 and 4.
        let script = "exec chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
            --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
            --disable-dev-shm-usage --remote-debugging-pipe --user-data-dir=\"$1\" about:blank 3<&0 4>&1 1>&2 2>/dev/null";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (say, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, hear) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut text = Vec::new();
            while out.read_until(0, &mut text).is_ok_and(|length| length > 0) {
                text.pop();
                if let Ok(value) = serde_json::from_slice(&text) {
                    let _ = tell.send(value);
                }
                text.clear();
            }
        });
        let mut browser =
            Browser { child, say, hear, session: None, calls: 0, events: Vec::new(), _home: home };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = target["targetId"].as_str().unwrap().to_string();
        let session =
            self.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        self.session = Some(session["sessionId"].as_str().unwrap().into());
        for domain in ["Page", "Network", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Asks for one thing and waits for the answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let sent = self.say.write_all(format!("{message}\0").as_bytes());
        assert!(sent.is_ok(), "{ABSENT}");
        loop {
            let answer = self.next(method);
            if answer["id"] == json!(id) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn next(&mut self, awaited: &str) -> Value {
        let value = self.hear.recv_timeout(Duration::from_secs(ANSWER_SECONDS_MAX));
        let Ok(value) = value else { panic!("nothing came in answer to {awaited}; {ABSENT}") };
        if value.get("method").is_some() && self.events.len() < EVENTS_MAX {
            self.events.push(value.clone());
        }
        value
    }

    /// A window so wide, light or dark, or on paper.
    pub fn look(&mut self, width: u32, scheme: &str) {
        let size =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let media = if scheme == "print" {
            json!({"media": "print"})
        } else {
            json!({"media": "", "features": features})
        };
        self.call("Emulation.setEmulatedMedia", media);
    }

    /// Opens a file and waits until it is there.
    pub fn open(&mut self, page: &Path) {
        self.events.clear();
        self.call("Page.navigate", json!({"url": format!("file://{}", page.display())}));
        let end = Instant::now() + Duration::from_secs(ANSWER_SECONDS_MAX);
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            assert!(Instant::now() < end, "the page never loaded");
            self.next("Page.loadEventFired");
        }
    }

    /// What an expression is worth there.
    pub fn value(&mut self, expression: &str) -> Value {
        let answer =
            self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(answer.get("exceptionDetails").is_none(), "{answer}");
        answer["result"]["value"].clone()
    }

    /// A picture of the whole page, cut into pieces of this height.
    pub fn pictures(&mut self, place: &Path, name: &str, piece: u64) {
        let size = self
            .value("[document.documentElement.clientWidth, document.documentElement.scrollHeight]");
        let (width, height) = (size[0].as_u64().unwrap(), size[1].as_u64().unwrap());
        for (index, top) in (0..height).step_by(piece as usize).enumerate() {
            let clip = json!({"x": 0, "y": top, "width": width, "height": piece.min(height - top), "scale": 1});
            let answer = self.call(
                "Page.captureScreenshot",
                json!({"clip": clip, "captureBeyondViewport": true}),
            );
            let bytes = base64::Engine::decode(
                &base64::engine::general_purpose::STANDARD,
                answer["data"].as_str().unwrap(),
            );
            std::fs::write(place.join(format!("{name}-{index:02}.png")), bytes.unwrap()).unwrap();
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends by itself once nobody listens; `kill` is for one that hangs.
        let _ = self.say.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const ABSENT: &str =
    "Chromium did not answer: this test needs Debian's package `chromium`, as ./check installs it";
