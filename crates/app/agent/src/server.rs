//! Serves the plugins and the command line of this host over the agent's socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use host::protocol::{self, Request};

use crate::node::Node;
use crate::supervisor::say;
use crate::{report, serve};

/// How long a plugin may take to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// So many callers are served at once.
const CALLS_MAX: usize = 512;
/// How long is waited when there is no room for another.
const PAUSE: Duration = Duration::from_millis(20);

/// Serves until the process ends.
pub(crate) fn serve(node: &Arc<Node>, listener: &UnixListener) -> ! {
    let calls = Arc::new(());
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // Too many files are open, or the caller has hung up: the next one may do better.
            Err(error) => {
                say(&format!("a call was not taken: {error}"));
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        let node = Arc::clone(node);
        let call = Arc::clone(&calls);
        // Idle callers are let go after a while; whoever comes meanwhile waits in the socket.
        while Arc::strong_count(&calls) > CALLS_MAX {
            std::thread::sleep(PAUSE);
        }
        let served = std::thread::Builder::new().name("call".into()).spawn(move || {
            let _call = call;
            if let Err(error) = one(&node, &stream) {
                say(&format!("a call was not served: {error}"));
            }
        });
        if let Err(error) = served {
            say(&format!("a call was not served: {error}"));
        }
    }
}

/// The listening socket, which the supervisor hands over as standard input.
pub(crate) fn inherited() -> io::Result<UnixListener> {
    let socket: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(UnixListener::from(socket))
}

fn one(node: &Node, stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let caller = rustix::net::sockopt::socket_peercred(stream)?;
    if !caller.uid.is_root() && caller.uid != rustix::process::geteuid() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("uid {} may not call the agent", caller.uid.as_raw()),
        ));
    }
    let Some((request, netns)) = protocol::hear(stream)? else { return Ok(()) };
    let question = match request {
        Request::Call(question) => question,
        Request::Inquiry(inquiry) => {
            return protocol::answer(stream, &report::answer(node, &inquiry));
        }
    };
    serve::answer(node, &question, netns, |reply| protocol::answer(stream, reply))
}
