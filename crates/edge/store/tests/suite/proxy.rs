//! A TCP proxy that can fall silent without closing anything, as a network partition does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A proxy in front of one address; it runs until the test ends.
pub(crate) struct Proxy {
    pub(crate) address: String,
    shared: Arc<Shared>,
}

struct Shared {
    is_refusing: AtomicBool,
    /// Connections with a number below this are dead: nothing passes, nothing closes.
    silent_below: AtomicU64,
    next: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Starts a proxy in front of `target` (host and port).
    pub(crate) fn start(target: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            is_refusing: AtomicBool::new(false),
            silent_below: AtomicU64::new(0),
            next: AtomicU64::new(0),
            open: Mutex::default(),
        });
        let (target, accepting) = (target.to_string(), shared.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let number = accepting.next.fetch_add(1, Ordering::SeqCst);
                if accepting.is_refusing.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&target) else { continue };
                let mut open = accepting.open.lock().unwrap();
                for stream in [&client, &server] {
                    open.push(stream.try_clone().unwrap());
                }
                drop(open);
                forward(&client, &server, number, &accepting);
                forward(&server, &client, number, &accepting);
            }
        });
        Proxy { address, shared }
    }

    /// Kills the connections of now silently; later ones work.
    pub(crate) fn silence_present(&self) {
        let next = self.shared.next.load(Ordering::SeqCst);
        self.shared.silent_below.store(next, Ordering::SeqCst);
    }

    /// Kills all connections silently, those to come as well.
    pub(crate) fn silence_all(&self) {
        self.shared.silent_below.store(u64::MAX, Ordering::SeqCst);
    }

    /// Closes connections to come; those of now go on.
    pub(crate) fn refuse_new(&self) {
        self.shared.is_refusing.store(true, Ordering::SeqCst);
    }

    /// Closes all connections, those to come as well.
    pub(crate) fn refuse(&self) {
        self.refuse_new();
        self.close_all();
    }

    /// Lets new connections through, and closes the old ones.
    pub(crate) fn heal(&self) {
        self.shared.is_refusing.store(false, Ordering::SeqCst);
        self.silence_present();
        self.close_all();
    }

    fn close_all(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn forward(from: &TcpStream, to: &TcpStream, number: u64, shared: &Arc<Shared>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let shared = shared.clone();
    let is_silent = move || number < shared.silent_below.load(Ordering::SeqCst);
    std::thread::spawn(move || {
        let mut buffer = [0; 65536];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            // What a silent connection is sent is read and lost; its end is not passed on either.
            if !is_silent() && to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        if !is_silent() {
            let _ = to.shutdown(Shutdown::Both);
        }
    });
}
