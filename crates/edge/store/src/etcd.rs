//! The etcd v3 store.
//!
//! tonic carries a dozen messages derived by hand (`wire`); no code is generated. Calls run on a
//! private single-threaded runtime that starts with the first of them, and block until the
//! deadline.
//! `client` chooses the endpoint, logs in and says what went wrong; `watch` is the background task
//! of one watch. Each watch has a connection of its own: on a shared one, a consumer that does not
//! read would use up the flow control window of everybody else.

mod client;
mod config;
mod connect;
mod failure;
mod srv;
mod watch;
mod wire;

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::sync::oneshot;

pub use self::config::{Config, Pem, Waiting};
pub(crate) use self::watch::Watch;
use crate::foreign::ForeignKeys;
use crate::watch::Known;
use crate::{Committed, Compare, Error, KeyValue, Op, Txn};
use client::{Client, Use, key_range};

/// Entries asked for at once. Fewer are, where they are too large for one message.
const PAGE_LEN: i64 = 1000;
/// People wait this long without wondering.
const FIRST_NOTICE: Duration = Duration::from_secs(1);
/// How often they are told again.
const NEXT_NOTICE: Duration = Duration::from_secs(5);

/// An etcd cluster. Clones share the connection.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    client: Arc<Client>,
    foreign: ForeignKeys,
    background: OnceLock<Result<Background, String>>,
}

/// The thread that runs all network code; it ends when this is dropped.
struct Background {
    handle: runtime::Handle,
    _stop: oneshot::Sender<()>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd::Store({})", self.describe())
    }
}

impl Store {
    /// A store on the cluster that `config` names. Does not connect yet.
    pub fn new(config: Config) -> Result<Store, Error> {
        let client = Arc::new(Client::new(config)?);
        Ok(Store(Arc::new(Shared {
            client,
            foreign: ForeignKeys::default(),
            background: OnceLock::new(),
        })))
    }

    pub(crate) fn get(&self, key: &str) -> Result<(Option<KeyValue>, i64), Error> {
        let request = wire::RangeRequest { key: key.into(), ..Default::default() };
        let response: wire::RangeResponse = self.call(Use::Read, wire::RANGE, request)?;
        let revision = client::revision(response.header.as_ref());
        let entry = response.kvs.into_iter().next();
        Ok((entry.and_then(|entry| entry.into_entry().into_key_value()), revision))
    }

    pub(crate) fn list_each(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(KeyValue) -> ControlFlow<()>,
    ) -> Result<i64, Error> {
        let (mut from, end) = key_range(prefix);
        let mut revision = 0;
        let mut page_len = PAGE_LEN;
        loop {
            let client = self.0.client.clone();
            let (start, stop) = (from.clone(), end.clone());
            let (page, len) = self.block(async move {
                let page = client.page(None, (start, stop), revision, &mut page_len).await?;
                Ok((page, page_len))
            })?;
            page_len = len;
            revision = client::revision(page.header.as_ref()).max(revision);
            let is_last = !page.more || page.kvs.is_empty();
            for entry in page.kvs {
                from.clone_from(&entry.key);
                self.0.foreign.has(&entry.key);
                let Some(entry) = entry.into_entry().into_key_value() else { continue };
                if each(entry).is_break() {
                    return Ok(revision);
                }
            }
            if is_last {
                return Ok(revision);
            }
            from.push(0);
        }
    }

    pub(crate) fn foreign_keys(&self) -> Vec<String> {
        self.0.foreign.all()
    }

    pub(crate) fn commit(&self, txn: Txn) -> Result<Committed, Error> {
        let read = |key: &str| {
            let key = key.into();
            op(wire::Request::Range(wire::RangeRequest { key, ..Default::default() }))
        };
        let has_key: Vec<bool> = txn.compares.iter().map(|it| it.key().is_some()).collect();
        let request = wire::TxnRequest {
            failure: txn.compares.iter().filter_map(Compare::key).map(read).collect(),
            compare: txn.compares.into_iter().map(condition).collect(),
            success: txn.ops.into_iter().map(change).collect(),
        };
        // A transaction without changes may be repeated as a read may.
        let kind = if request.success.is_empty() { Use::Read } else { Use::Write };
        let response: wire::TxnResponse = self.call(kind, wire::TXN, request)?;
        let revision = client::revision(response.header.as_ref());
        if response.succeeded {
            return Ok(Committed::Applied { revision });
        }
        let mut read = response.responses.into_iter().map(first_entry);
        let next = |has_key: bool| if has_key { read.next().flatten() } else { None };
        let current = has_key.into_iter().map(next).collect();
        Ok(Committed::Conflict { revision, current })
    }

    pub(crate) fn compact(&self, revision: i64) -> Result<(), Error> {
        let request = wire::CompactionRequest { revision };
        match self.call::<_, wire::CompactionResponse>(Use::Write, wire::COMPACT, request) {
            Err(Error::Compacted { .. }) => Err(Error::Compacted { revision }),
            other => other.map(|_| ()),
        }
    }

    pub(crate) fn reach(&self, within: Duration) -> Result<(), Error> {
        let client = self.0.client.clone();
        self.block(async move { client.reach(within).await })
    }

    pub(crate) fn watch(&self, prefix: &str) -> crate::Watch {
        Watch::start(self.clone(), Known::new(prefix), None)
    }

    pub(crate) fn watch_from(&self, known: Known, revision: i64) -> crate::Watch {
        Watch::start(self.clone(), known, Some(revision))
    }

    pub(crate) fn describe(&self) -> String {
        format!("etcd {}", self.0.client.describe())
    }

    fn call<Q, A>(&self, kind: Use, path: &'static str, request: Q) -> Result<A, Error>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let client = self.0.client.clone();
        self.block(async move { client.call(kind, path, request).await })
    }

    /// Runs `work` on the background thread. It has a deadline of its own.
    fn block<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.background()?.spawn(async move {
            let _ = answer.send(work.await);
        });
        let began = Instant::now();
        let mut patience = FIRST_NOTICE;
        loop {
            match answered.recv_timeout(patience) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) => self.0.client.say_waiting(began.elapsed()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Config("the etcd client's thread has ended".into()));
                }
            }
            patience = NEXT_NOTICE;
        }
    }

    fn background(&self) -> Result<&runtime::Handle, Error> {
        match self.0.background.get_or_init(Background::start) {
            Ok(background) => Ok(&background.handle),
            Err(error) => Err(Error::Config(format!("the etcd client cannot start: {error}"))),
        }
    }
}

impl Background {
    fn start() -> Result<Background, String> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| error.to_string())?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("etcd".into())
            .spawn(move || {
                let _ = runtime.block_on(stopped);
            })
            .map_err(|error| error.to_string())?;
        Ok(Background { handle, _stop: stop })
    }
}

fn op(request: wire::Request) -> wire::RequestOp {
    wire::RequestOp { request: Some(request) }
}

fn condition(compare: Compare) -> wire::Compare {
    use wire::{CompareResult, CompareTarget, CompareWith};
    let (key, result, target, with) = match compare {
        // etcd sees one key at revision 0 in an empty range.
        Compare::NothingNewer { prefix, revision } => {
            let (key, range_end) = key_range(&prefix);
            let with = CompareWith::ModRevision(revision.max(0).saturating_add(1));
            return wire::Compare {
                result: CompareResult::Less.into(),
                target: CompareTarget::Mod.into(),
                key,
                with: Some(with),
                range_end,
            };
        }
        Compare::Absent(key) => {
            (key, CompareResult::Equal, CompareTarget::Create, CompareWith::CreateRevision(0))
        }
        Compare::Exists(key) => {
            (key, CompareResult::Greater, CompareTarget::Create, CompareWith::CreateRevision(0))
        }
        Compare::ModRevision(key, revision) => {
            (key, CompareResult::Equal, CompareTarget::Mod, CompareWith::ModRevision(revision))
        }
    };
    wire::Compare {
        result: result.into(),
        target: target.into(),
        key: key.into(),
        with: Some(with),
        range_end: Vec::new(),
    }
}

fn change(change: Op) -> wire::RequestOp {
    op(match change {
        Op::Put { key, value } => wire::Request::Put(wire::PutRequest { key: key.into(), value }),
        Op::Delete { key } => {
            wire::Request::DeleteRange(wire::DeleteRangeRequest { key: key.into() })
        }
    })
}

fn first_entry(response: wire::ResponseOp) -> Option<KeyValue> {
    response.range?.kvs.into_iter().next()?.into_entry().into_key_value()
}
