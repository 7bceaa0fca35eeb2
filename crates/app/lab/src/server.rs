//! What runs in a pod: it answers on port 80 with the pod's name, over TCP (as HTTP) and UDP.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;

/// The hidden command of a pod.
pub(crate) const COMMAND: &str = "lab-pod";
/// Where a pod listens.
pub(crate) const PORT: u16 = 80;
/// How long a client may take for its request.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves until it is killed.
pub(crate) fn run(words: &[OsString]) -> Result<(), Failure> {
    let Some(name) = words.first().and_then(|word| word.to_str()) else {
        return Err(Failure::new("which pod?"));
    };
    let failed = |error: io::Error| Failure::new(format!("port {PORT} of {name}")).why(error);
    let datagrams = on_any(UdpSocket::bind).map_err(failed)?;
    let listener = on_any(TcpListener::bind).map_err(failed)?;
    let own_name = name.to_owned();
    thread::spawn(move || serve_datagrams(&datagrams, &own_name));
    for stream in listener.incoming().flatten() {
        let name = name.to_owned();
        thread::spawn(move || answer(stream, &name));
    }
    Ok(())
}

/// Both families on one socket; IPv4 alone where the kernel has no IPv6.
fn on_any<T>(bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let v6 = bind((Ipv6Addr::UNSPECIFIED, PORT).into());
    v6.or_else(|_| bind((Ipv4Addr::UNSPECIFIED, PORT).into()))
}

fn serve_datagrams(socket: &UdpSocket, name: &str) {
    let mut message = [0; 2048];
    loop {
        let Ok((len, from)) = socket.recv_from(&mut message) else { continue };
        let echo = message.get(..len).unwrap_or_default();
        let _ = socket.send_to(&[name.as_bytes(), b" ", echo].concat(), from);
    }
}

fn answer(mut stream: TcpStream, name: &str) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut request = Vec::new();
    let mut part = [0; 1024];
    // Read to the end of the request: closing before that would take the answer back.
    while let Ok(len @ 1..) = stream.read(&mut part) {
        request.extend_from_slice(part.get(..len).unwrap_or_default());
        if request.ends_with(b"\n\r\n") || request.ends_with(b"\n\n") || request.len() > 65_536 {
            break;
        }
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n";
    let text = format!("{head}Content-Length: {}\r\n\r\n{name}\n", name.len() + 1);
    let _ = stream.write_all(text.as_bytes());
}
