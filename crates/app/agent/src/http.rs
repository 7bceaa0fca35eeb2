//! `/liveness`, `/readiness` and `/metrics` over HTTP.
//!
//! Three fixed answers to GET need no HTTP library: whatever is asked beyond them is refused. A
//! request has a deadline and a bound, and only so many are served at once.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::metrics;
use crate::node::Node;
use crate::supervisor::say;

/// How long a request may take to arrive, and its answer to be taken.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long the kernel's side may be busy before it counts as stuck.
const STUCK: Duration = Duration::from_secs(30);
/// The longest head of a request.
const HEAD_MAX: usize = 8 << 10;
/// How many are served at once.
const SERVED_MAX: usize = 16;
/// How often an address that is taken is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// What is sent back.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: &'static str,
    body: String,
}

/// Serves on a thread of its own. An address that is taken is said, and tried again.
pub(crate) fn start(node: &Arc<Node>, address: SocketAddr) -> io::Result<()> {
    let node = Arc::clone(node);
    std::thread::Builder::new().name("http".into()).spawn(move || {
        loop {
            match TcpListener::bind(address) {
                Ok(listener) => {
                    node.health.http(&node.events, None);
                    serve(&node, &listener);
                }
                Err(error) => {
                    let problem = format!("health and metrics are not served: {address}: {error}");
                    if node.health.vitals().http_problem.is_none() {
                        say(&problem);
                    }
                    node.health.http(&node.events, Some(problem));
                }
            }
            std::thread::sleep(RETRY);
        }
    })?;
    Ok(())
}

fn serve(node: &Arc<Node>, listener: &TcpListener) {
    let n_served = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, most likely: others must be able to end theirs.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if n_served.fetch_add(1, Ordering::Relaxed) >= SERVED_MAX {
            n_served.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (node, served) = (Arc::clone(node), Arc::clone(&n_served));
        let thread = std::thread::Builder::new().name("http-call".into()).spawn(move || {
            let _ = one(&node, &stream);
            served.fetch_sub(1, Ordering::Relaxed);
        });
        if thread.is_err() {
            n_served.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn one(node: &Node, stream: &TcpStream) -> io::Result<()> {
    stream.set_write_timeout(Some(DEADLINE))?;
    let head = head(stream)?;
    let (is_head, answer) = match target(&head) {
        Ok((is_head, path)) => (is_head, answer(node, path)),
        Err(answer) => (false, answer),
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = answer.body.len();
    let mut text = format!(
        "HTTP/1.1 {}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n",
        answer.status
    );
    if !is_head {
        text.push_str(&answer.body);
    }
    let mut stream = stream;
    stream.write_all(text.as_bytes())
}

/// Reads up to the empty line; the deadline is for all of it.
fn head(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let began = Instant::now();
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let left = DEADLINE.saturating_sub(began.elapsed());
        if left.is_zero() || head.len() > HEAD_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let n = stream.read(&mut piece)?;
        head.extend_from_slice(piece.get(..n).unwrap_or_default());
        let is_whole = [b"\r\n\r\n".as_slice(), b"\n\n"]
            .iter()
            .any(|end| head.windows(end.len()).any(|window| window == *end));
        if is_whole || n == 0 {
            return Ok(head);
        }
    }
}

/// Whether only the head of the answer is wanted, and which path.
fn target(head: &[u8]) -> Result<(bool, &str), Answer> {
    let refused = |status| Answer { status, body: String::new() };
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| refused("400 Bad Request"))?;
    let mut words = line.split_ascii_whitespace();
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(refused("400 Bad Request"));
    };
    if !version.starts_with("HTTP/1.") {
        return Err(refused("505 HTTP Version Not Supported"));
    }
    let path = target.split('?').next().unwrap_or_default();
    match method {
        "GET" => Ok((false, path)),
        "HEAD" => Ok((true, path)),
        _ => Err(refused("405 Method Not Allowed")),
    }
}

fn answer(node: &Node, path: &str) -> Answer {
    match path {
        "/liveness" => verdict(&[("dataplane", node.is_moving(STUCK))]),
        "/readiness" => {
            let vitals = node.health.vitals();
            // A datastore that is lost later does not make a node useless: what runs goes on.
            verdict(&[
                ("datastore", vitals.n_syncs > 0),
                ("kernel", vitals.n_flushes > 0 && vitals.kernel_problem.is_none()),
                ("socket", vitals.is_serving),
            ])
        }
        "/metrics" => Answer { status: "200 OK", body: metrics::text(node) },
        _ => Answer {
            status: "404 Not Found",
            body: "there are /liveness, /readiness and /metrics\n".to_owned(),
        },
    }
}

fn verdict(parts: &[(&str, bool)]) -> Answer {
    let line = |(name, is_fine): &(&str, bool)| {
        format!("{name}: {}\n", if *is_fine { "ok" } else { "not ready" })
    };
    let status = match parts.iter().all(|(_, is_fine)| *is_fine) {
        true => "200 OK",
        false => "503 Service Unavailable",
    };
    Answer { status, body: parts.iter().map(line).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_reads_are_understood() {
        let path = |text: &'static str| target(text.as_bytes()).map_err(|answer| answer.status);
        assert_eq!(path("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"), Ok((false, "/metrics")));
        assert_eq!(path("HEAD /liveness HTTP/1.0\r\n\r\n"), Ok((true, "/liveness")));
        assert_eq!(path("POST /metrics HTTP/1.1\r\n\r\n"), Err("405 Method Not Allowed"));
        assert_eq!(path("GET /metrics"), Err("400 Bad Request"));
        assert_eq!(path(""), Err("400 Bad Request"));
        assert_eq!(path("GET / HTTP/2\r\n\r\n"), Err("505 HTTP Version Not Supported"));
        assert!(target(b"\xff\xfe GET\r\n\r\n").is_err());
    }

    #[test]
    fn one_part_that_is_not_ready_is_named() {
        let answer = verdict(&[("a", true), ("b", false)]);
        assert_eq!(answer.status, "503 Service Unavailable");
        assert_eq!(answer.body, "a: ok\nb: not ready\n");
    }
}
