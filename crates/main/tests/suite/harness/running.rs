//! A run that goes on while the test does something to it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// More than any wait takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something is so; ends the test when it never is.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "still waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process whose lines are read while it runs. Dropping it kills it.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: Arc<Mutex<Vec<String>>>,
    err: Arc<Mutex<Vec<String>>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = collect(child.stdout.take().unwrap());
        let err = collect(child.stderr.take().unwrap());
        Running { child, out, err }
    }

    /// The lines of the answer so far.
    pub(crate) fn out(&self) -> Vec<String> {
        self.out.lock().unwrap().clone()
    }

    /// The lines of the complaint so far.
    pub(crate) fn err(&self) -> Vec<String> {
        self.err.lock().unwrap().clone()
    }

    /// Waits until the answer holds a line that says this.
    #[track_caller]
    pub(crate) fn until_says(&self, text: &str) {
        let says = || self.out().iter().any(|line| line.contains(text));
        until(&format!("{text:?}, in {:#?} {:#?}", self.out(), self.err()), says);
    }

    /// Waits until the complaint holds a line that says this.
    #[track_caller]
    pub(crate) fn until_complains(&self, text: &str) {
        let says = || self.err().iter().any(|line| line.contains(text));
        until(&format!("{text:?} as a complaint"), says);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(stream: impl std::io::Read + Send + 'static) -> Arc<Mutex<Vec<String>>> {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            kept.lock().unwrap().push(line);
        }
    });
    lines
}
