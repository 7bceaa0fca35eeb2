//! How others talk to the agent: one question and one answer over a Unix socket, each a length
//! and JSON. The plugin hands a call over; the container's network namespace travels as a
//! descriptor beside it, because an agent in a pod cannot open the path that the runtime names.
//! The command line inquires.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::drops::Heard;
use crate::events::Wanted;

/// The largest message. Runtimes hand in a few KB.
const SIZE_MAX: usize = 4 << 20;

/// What a plugin was called with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The name it was called by: `calico` or `calico-ipam`.
    pub plugin: String,
    /// The variables of the protocol that are set.
    pub environment: BTreeMap<String, String>,
    /// Standard input.
    pub input: String,
    /// What another address manager answered to the plugin, which asks it first.
    pub delegated: Option<serde_json::Value>,
}

/// What somebody wants to know; the answer's output is JSON of the type named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub enum Inquiry {
    /// A [`Status`](crate::report::Status).
    Status,
    /// The [`Sandboxes`](crate::report::Sandboxes).
    Sandboxes,
    /// Some [`Events`](crate::report::Events).
    Events(Wanted),
    /// Some [`Drops`](crate::report::Drops).
    Drops(Heard),
    /// The [`Strangers`](crate::report::Strangers).
    Strangers,
    /// A [`Reconciliation`](crate::report::Reconciliation).
    Reconcile(Reconcile),
}

/// What is to be settled of what the witnesses do not agree about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconcile {
    /// The names of the matters to settle, as an earlier answer had them; none to look only.
    pub settle: Vec<String>,
}

/// What is said to an agent. A call has no tag: plugins of every version say it alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Request {
    /// Somebody wants to know something.
    Inquiry(Inquiry),
    /// A runtime has called a plugin.
    Call(Question),
}

/// What the plugin prints, and how it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// For standard output.
    pub output: String,
    /// The exit status.
    pub status: u8,
}

/// Sends a question, with a namespace if there is one.
pub fn ask(stream: &UnixStream, question: &Question, netns: Option<&OwnedFd>) -> io::Result<()> {
    let body = serde_json::to_vec(question).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_be_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors = netns.map(|netns| [netns.as_fd()]);
    if let Some(descriptors) = &descriptors {
        beside.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let sent = sendmsg(stream, &[IoSlice::new(&length)], &mut beside, SendFlags::NOSIGNAL)?;
    let mut stream = stream;
    stream.write_all(length.get(sent..).unwrap_or_default())?;
    stream.write_all(&body)
}

/// Receives a question; none from somebody who connects, says nothing and goes, as those do who
/// only want to know whether anybody listens. Descriptors beyond the first are closed.
pub fn hear(stream: &UnixStream) -> io::Result<Option<(Request, Option<OwnedFd>)>> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let got =
        recvmsg(stream, &mut [IoSliceMut::new(&mut length)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes == 0 {
        return Ok(None);
    }
    let mut netns = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            netns = descriptors.fold(netns, |first, next| first.or(Some(next)));
        }
    }
    let mut reader = stream;
    if got.bytes < length.len() {
        reader.read_exact(&mut length[got.bytes..])?;
    }
    Ok(Some((decode(&body(reader, length)?)?, netns)))
}

/// Sends an answer.
pub fn answer(mut stream: &UnixStream, reply: &Reply) -> io::Result<()> {
    let body = serde_json::to_vec(reply).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_be_bytes();
    stream.write_all(&[&length, body.as_slice()].concat())
}

/// Receives an answer.
pub fn receive(mut stream: &UnixStream) -> io::Result<Reply> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    decode(&body(stream, length)?)
}

/// Asks the agent at a socket, and waits that long for each step.
pub fn inquire<T>(socket: &Path, inquiry: &Inquiry, patience: Duration) -> io::Result<T>
where
    T: for<'de> Deserialize<'de>,
{
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(patience))?;
    stream.set_read_timeout(Some(patience))?;
    let body = serde_json::to_vec(inquiry).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_be_bytes();
    stream.write_all(&[&length, body.as_slice()].concat())?;
    let reply = receive(&stream)?;
    match reply.status {
        0 => decode(reply.output.as_bytes()),
        // It was heard, and refused.
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, reply.output)),
    }
}

fn body(mut stream: impl Read, length: [u8; 4]) -> io::Result<Vec<u8>> {
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > SIZE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too large"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn decode<T: for<'de> Deserialize<'de>>(body: &[u8]) -> io::Result<T> {
    serde_json::from_slice(body)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_wants_nothing() {
        let (caller, agent) = UnixStream::pair().unwrap();
        drop(caller);
        assert!(hear(&agent).unwrap().is_none());
        let (mut caller, agent) = UnixStream::pair().unwrap();
        caller.write_all(&[0, 0]).unwrap();
        drop(caller);
        assert!(hear(&agent).is_err(), "half a question is none");
    }

    #[test]
    fn calls_and_inquiries_are_told_apart() {
        let read = |text: &str| decode::<Request>(text.as_bytes());
        assert_eq!(read(r#"{"ask":"status"}"#).unwrap(), Request::Inquiry(Inquiry::Status));
        let wanted = Wanted { about: Some("web".to_owned()), ..Wanted::default() };
        let events = r#"{"ask":"events","about":"web"}"#;
        assert_eq!(read(events).unwrap(), Request::Inquiry(Inquiry::Events(wanted)));
        let call = r#"{"plugin":"calico","environment":{},"input":"","delegated":null}"#;
        assert!(
            matches!(read(call).unwrap(), Request::Call(question) if question.plugin == "calico")
        );
        assert!(read(r#"{"ask":"nonsense"}"#).is_err());
    }
}
