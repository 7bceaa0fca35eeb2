//! One question on its way.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

use super::{Protocol, Question, RESEND};
use crate::server::PORT;

const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
const TOKEN: &[u8] = b"margay";
/// An echo request without its checksum, which the kernel fills in: type, code, checksum, number,
/// sequence.
const ECHO_V4: [u8; 8] = [8, 0, 0, 0, 0, 0, 0, 1];
const ECHO_V6: [u8; 8] = [128, 0, 0, 0, 0, 0, 0, 1];
const ECHO_REPLY_V4: u8 = 0;
const ECHO_REPLY_V6: u8 = 129;

/// A question that was asked and not answered yet.
pub(super) struct Flight {
    pub(super) began: Instant,
    pub(super) resend_at: Instant,
    pod: String,
    wire: Wire,
}

enum Wire {
    Echo(UdpSocket, IpAddr),
    Datagram(UdpSocket),
    Connecting(TcpStream),
    Connected(TcpStream, Vec<u8>),
}

/// What became of a question.
pub(super) enum Progress {
    Waiting,
    Answered,
    /// Somebody else answered.
    Stranger(String),
}

impl Flight {
    /// Opens a socket and asks.
    pub(super) fn start(question: &Question) -> io::Result<Self> {
        let began = Instant::now();
        let address = question.address;
        let wire = match question.protocol {
            Protocol::Icmp => {
                let protocol = if address.is_ipv4() { ipproto::ICMP } else { ipproto::ICMPV6 };
                let socket = socket(address, SocketType::DGRAM, Some(protocol))?;
                connect(&socket, address, 0)?;
                Wire::Echo(UdpSocket::from(socket), address)
            }
            Protocol::Udp => {
                let socket = socket(address, SocketType::DGRAM, None)?;
                connect(&socket, address, PORT)?;
                Wire::Datagram(UdpSocket::from(socket))
            }
            Protocol::Tcp => {
                let socket = socket(address, SocketType::STREAM, None)?;
                connect(&socket, address, PORT)?;
                Wire::Connecting(TcpStream::from(socket))
            }
        };
        let pod = question.pod.clone();
        let mut flight = Self { began, resend_at: began + RESEND, pod, wire };
        flight.send()?;
        Ok(flight)
    }

    /// What to wait for.
    pub(super) fn poll(&self) -> PollFd<'_> {
        match &self.wire {
            Wire::Echo(socket, _) | Wire::Datagram(socket) => {
                PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)
            }
            Wire::Connecting(stream) => PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::OUT),
            Wire::Connected(stream, _) => PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN),
        }
    }

    /// Asks, or asks again.
    pub(super) fn send(&mut self) -> io::Result<()> {
        let sent = match &self.wire {
            Wire::Echo(socket, address) => {
                let head = if address.is_ipv4() { ECHO_V4 } else { ECHO_V6 };
                socket.send(&[&head[..], TOKEN].concat())
            }
            Wire::Datagram(socket) => socket.send(TOKEN),
            Wire::Connecting(_) | Wire::Connected(..) => return Ok(()),
        };
        match sent {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Looks at what came in.
    pub(super) fn advance(&mut self) -> io::Result<Progress> {
        let mut message = [0; 2048];
        match &mut self.wire {
            Wire::Echo(socket, _) => Ok(match received(socket.recv(&mut message))? {
                Some(_) if [ECHO_REPLY_V4, ECHO_REPLY_V6].contains(&message[0]) => {
                    Progress::Answered
                }
                _ => Progress::Waiting,
            }),
            Wire::Datagram(socket) => Ok(match received(socket.recv(&mut message))? {
                Some(len) => self.judged(message.get(..len).unwrap_or_default()),
                None => Progress::Waiting,
            }),
            Wire::Connecting(stream) => {
                if let Some(error) = stream.take_error()? {
                    return Err(error);
                }
                match stream.write(REQUEST) {
                    Ok(_) => {
                        self.wire = Wire::Connected(stream.try_clone()?, Vec::new());
                        Ok(Progress::Waiting)
                    }
                    Err(error) if is_early(&error) => Ok(Progress::Waiting),
                    Err(error) => Err(error),
                }
            }
            Wire::Connected(stream, got) => {
                while let Some(len) = received(stream.read(&mut message))? {
                    got.extend_from_slice(message.get(..len).unwrap_or_default());
                    if len == 0 {
                        let body = got.windows(4).position(|four| four == b"\r\n\r\n");
                        let body = body.and_then(|at| got.get(at + 4..)).unwrap_or_default();
                        let body = body.to_vec();
                        return Ok(self.judged(&body));
                    }
                }
                Ok(Progress::Waiting)
            }
        }
    }

    /// The first word of an answer is the name of the pod that gives it.
    fn judged(&self, answer: &[u8]) -> Progress {
        let text = String::from_utf8_lossy(answer);
        match text.split_whitespace().next() {
            Some(name) if name == self.pod => Progress::Answered,
            Some(name) => Progress::Stranger(name.chars().take(40).collect()),
            None => Progress::Stranger("nobody".to_owned()),
        }
    }
}

fn socket(
    address: IpAddr,
    kind: SocketType,
    protocol: Option<rustix::net::Protocol>,
) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, kind, flags, protocol)?)
}

fn connect(socket: &OwnedFd, address: IpAddr, port: u16) -> io::Result<()> {
    match rustix::net::connect(socket, &SocketAddr::new(address, port)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Nothing yet is not an error.
fn received(got: io::Result<usize>) -> io::Result<Option<usize>> {
    match got {
        Ok(len) => Ok(Some(len)),
        Err(error) if is_early(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_early(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, NotConnected, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | NotConnected)
}
