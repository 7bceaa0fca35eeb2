//! Serves the plugins and the command line of this host over the agent's socket.
//!
//! A caller gets a thread once it has said its first word. Until then it waits at the door, where
//! it costs a descriptor, and not for long: nobody who says nothing holds up anybody who does.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::protocol::{self, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::node::Node;
use crate::supervisor::say;
use crate::{report, serve};

/// How long a plugin may take to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take to say its first word. One that is let go asks again.
const FIRST_WORD: Duration = Duration::from_secs(2);
/// So many may be silent at once; for another one the oldest is let go.
const SILENT_MAX: usize = 256;

/// So many callers are served at once.
const CALLS_MAX: usize = 512;
/// How long is waited when there is no room for another.
const PAUSE: Duration = Duration::from_millis(20);

/// Callers that have said nothing yet, those that wait the longest first.
#[derive(Default)]
struct Door {
    waiting: VecDeque<(UnixStream, Instant)>,
    /// How many were let go since that was said.
    n_let_go: usize,
}

/// Serves until the process ends.
pub(crate) fn serve(node: &Arc<Node>, listener: &UnixListener) -> ! {
    let calls = Arc::new(());
    let mut door = Door::default();
    let mut is_said = false;
    loop {
        let is_full = Arc::strong_count(&calls) > CALLS_MAX;
        if is_full && !std::mem::replace(&mut is_said, true) {
            say(&format!("{CALLS_MAX} calls are being served; whoever comes now waits"));
        }
        is_said &= is_full;
        if is_full {
            std::thread::sleep(PAUSE);
            continue;
        }
        let (has_caller, ready) = match door.watch(listener) {
            Ok(news) => news,
            Err(error) => {
                say(&format!("callers cannot be waited for: {error}"));
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        for stream in ready {
            start(node, &calls, stream);
        }
        door.let_go();
        if has_caller {
            match listener.accept() {
                Ok((stream, _)) => door.take(stream),
                // Too many files are open, or the caller has hung up: the next one may do better.
                Err(error) => {
                    say(&format!("a call was not taken: {error}"));
                    door.drop_oldest();
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}

impl Door {
    /// Waits until somebody comes, says something, or has been silent for too long. Whether
    /// somebody came, and who has said something.
    fn watch(&mut self, listener: &UnixListener) -> io::Result<(bool, Vec<UnixStream>)> {
        let mut polled = vec![PollFd::new(listener, PollFlags::IN)];
        polled.extend(self.waiting.iter().map(|(stream, _)| PollFd::new(stream, PollFlags::IN)));
        let oldest = self.waiting.front();
        let time = oldest.map(|(_, since)| FIRST_WORD.saturating_sub(since.elapsed()) + PAUSE);
        let time = time.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut polled, time.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok((false, Vec::new())),
            result => result?,
        };
        let mut news = polled.iter().map(|it| !it.revents().is_empty());
        let has_caller = news.next().unwrap_or(false);
        let news: Vec<bool> = news.collect();
        let mut ready = Vec::new();
        for (n, caller) in std::mem::take(&mut self.waiting).into_iter().enumerate() {
            match news.get(n) {
                Some(true) => ready.push(caller.0),
                _ => self.waiting.push_back(caller),
            }
        }
        Ok((has_caller, ready))
    }

    fn take(&mut self, stream: UnixStream) {
        if self.waiting.len() >= SILENT_MAX {
            self.drop_oldest();
        }
        self.waiting.push_back((stream, Instant::now()));
    }

    /// Lets those go that were silent for too long.
    fn let_go(&mut self) {
        while self.waiting.front().is_some_and(|(_, since)| since.elapsed() > FIRST_WORD) {
            self.drop_oldest();
        }
        if self.n_let_go > 0 && (self.waiting.is_empty() || self.n_let_go >= SILENT_MAX) {
            let n = std::mem::take(&mut self.n_let_go);
            say(&format!("{} said nothing and were let go", text::words::count(n, "caller")));
        }
    }

    fn drop_oldest(&mut self) {
        if self.waiting.pop_front().is_some() {
            self.n_let_go += 1;
        }
    }
}

fn start(node: &Arc<Node>, calls: &Arc<()>, stream: UnixStream) {
    let (node, call) = (Arc::clone(node), Arc::clone(calls));
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
