//! Addresses that must answer before an ADD goes on, as the configuration wishes.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use sandbox::failure::{Code, Failure};

/// How long the gates are waited for, and how often they are asked.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(5);
/// How long one may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Waits until every gate answers with success.
pub(crate) fn wait(gates: &[String]) -> Result<(), Failure> {
    let gates: Vec<Gate<'_>> =
        gates.iter().map(|url| Gate::parse(url)).collect::<Result<_, _>>()?;
    let started = Instant::now();
    for gate in gates {
        while let Err(why) = gate.ask() {
            if started.elapsed() + PAUSE > PATIENCE {
                let message = format!("readiness gate {} does not answer: {why}", gate.url);
                return Err(Failure::new(Code::TryAgainLater, message)
                    .with_details("readiness_gates of the network configuration names it"));
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// An address by HTTP.
#[derive(Debug, PartialEq, Eq)]
struct Gate<'u> {
    url: &'u str,
    authority: &'u str,
    path: &'u str,
}

impl<'u> Gate<'u> {
    fn parse(url: &'u str) -> Result<Self, Failure> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(Failure::plugin(format!(
                "invalid URL set for ReadinessGates:{url} \
                 Error:parse {url:?}: invalid URI for request"
            )));
        };
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let is_plain = !url.chars().any(|c| c.is_whitespace() || c.is_control());
        if scheme != "http" || authority.is_empty() || !is_plain {
            let message =
                format!("readiness gate {url:?} is not of the form http://HOST:PORT/PATH");
            return Err(Failure::plugin(message));
        }
        Ok(Self { url, authority, path: if path.is_empty() { "/" } else { path } })
    }

    fn ask(&self) -> io::Result<()> {
        let with_port = match self.authority.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => self.authority.to_owned(),
            _ => format!("{}:80", self.authority),
        };
        let address = with_port.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_WAIT)?;
        stream.set_read_timeout(Some(ANSWER_WAIT))?;
        let (path, host) = (self.path, self.authority);
        // One write: a server may answer and hang up as soon as it has seen the first line.
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut start = [0; 12];
        stream.read_exact(&mut start)?;
        match start.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2)) {
            Some(b'2') => Ok(()),
            _ => Err(io::Error::other(String::from_utf8_lossy(&start).into_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_gate_is_an_http_address() {
        let gate = Gate::parse("http://127.0.0.1:9099/readiness").unwrap();
        assert_eq!((gate.authority, gate.path), ("127.0.0.1:9099", "/readiness"));
        assert_eq!(Gate::parse("http://host").unwrap().path, "/");
        for bad in ["not a url", "https://host/", "http://", "http://a b/", "http:///path"] {
            assert!(Gate::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_gate_opens_on_success_only() {
        for (answer, opens) in [("HTTP/1.1 204 No", true), ("HTTP/1.1 503 No", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/ready", listener.local_addr().unwrap());
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                // Everything is read: closing with bytes unread would reset the connection.
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    asked.extend(byte);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                asked
            });
            let asked = Gate::parse(&url).unwrap().ask();
            assert_eq!(asked.is_ok(), opens, "{answer}: {asked:?}");
            assert!(server.join().unwrap().starts_with(b"GET /ready HTTP/1.1\r\n"));
        }
    }
}
