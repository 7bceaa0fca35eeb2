//! One watch on etcd: a background task, and the queue to its consumer.
//!
//! ```text
//!        ┌────────── connection lost: next endpoint ──────────┐
//!        ▼                                                    │
//!    connect ──► list, deliver differences ──► stream events ─┤
//!        │                    ▲                   ▲           │
//!        │                    └── compacted ──────┼───────────┘
//!        └──► resume after the last revision ─────┘
//! ```
//!
//! The queue is bounded by permits: while the consumer does not read, the task does not either, and
//! the server keeps what comes; when it has to compact that away, the task lists again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tonic::Streaming;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::{self, StreamExt};
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use super::client::{Client, key_range, revision};
use super::connect::{MESSAGE_BYTES_MAX, request};
use super::failure::Failure;
use super::wire::{self, EventType};
use super::{PAGE_LEN, Store};
use crate::Error;
use crate::watch::{Event, Known, Page, Source};

/// What may wait for the consumer, in units of [`cost`].
const QUEUE_COST_MAX: u32 = 1024;
const BYTES_PER_COST: usize = 4096;
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The consumer's end of a watch.
#[derive(Debug)]
pub(crate) struct Watch {
    events: mpsc::Receiver<(Event, u32)>,
    room: Arc<Semaphore>,
    task: Option<JoinHandle<()>>,
    /// Keeps the background thread alive.
    _store: Store,
}

impl Watch {
    pub(super) fn start(store: Store, known: Known, revision: Option<i64>) -> crate::Watch {
        let (sender, events) = mpsc::channel();
        let room = Arc::new(Semaphore::new(QUEUE_COST_MAX as usize));
        let sink = Sink { sender, room: room.clone() };
        let task = match store.background() {
            Ok(background) => {
                let client = store.0.client.clone();
                let follower = Follower {
                    client,
                    known,
                    revision,
                    cluster: None,
                    resumed: 0,
                    mark: None,
                    sink,
                };
                Some(background.spawn(follower.run()))
            }
            Err(error) => {
                sink.report(store.describe(), error.to_string(), Instant::now());
                None
            }
        };
        crate::Watch(Source::Etcd(Watch { events, room, task, _store: store }))
    }

    pub(crate) fn next(&mut self, timeout: Duration) -> Option<Event> {
        match self.events.recv_timeout(timeout) {
            Ok((event, cost)) => {
                self.room.add_permits(cost as usize);
                Some(event)
            }
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            // The task could not start. Its consumer must not spin.
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                std::thread::sleep(timeout);
                None
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The task's end of the queue.
struct Sink {
    sender: mpsc::Sender<(Event, u32)>,
    room: Arc<Semaphore>,
}

impl Sink {
    /// Waits for room. A consumer that is gone aborts the task, so its absence needs no care here.
    async fn send(&self, event: Event) {
        let cost = cost(&event);
        if let Ok(permits) = self.room.acquire_many(cost).await {
            permits.forget();
            let _ = self.sender.send((event, cost));
        }
    }

    /// Says what is wrong, unless the consumer has enough to read already.
    fn report(&self, endpoint: String, error: String, since: Instant) {
        if let Ok(permit) = self.room.try_acquire() {
            permit.forget();
            let _ = self.sender.send((Event::Disconnected { endpoint, error, since }, 1));
        }
    }
}

/// How much of the queue an event takes: a few large values fill it as many small ones do.
fn cost(event: &Event) -> u32 {
    match event {
        Event::Put(entry) => {
            let cost = 1 + entry.value.len() / BYTES_PER_COST;
            u32::try_from(cost).unwrap_or(QUEUE_COST_MAX).min(QUEUE_COST_MAX)
        }
        _ => 1,
    }
}

/// What must have been delivered before the consumer is in sync.
///
/// The server does not say where the past ends and the present begins. But at `revision` the newest
/// write of a living key was `newest`, and there were `n_keys`: once everything up to `newest` was
/// delivered, later changes up to `revision` can only add keys that are gone again or remove keys,
/// so an equal number of keys means the same keys.
struct Mark {
    revision: i64,
    newest: i64,
    n_keys: usize,
}

/// Why a stream ended.
enum Ended {
    /// The history that was asked for is gone: list again.
    Compacted,
    Lost(Failure),
}

impl<T: Into<Failure>> From<T> for Ended {
    fn from(failure: T) -> Ended {
        Ended::Lost(failure.into())
    }
}

struct Follower {
    client: Arc<Client>,
    known: Known,
    /// Everything up to here was delivered; none if there is nothing to go on from.
    revision: Option<i64>,
    cluster: Option<u64>,
    /// What was delivered before the present stream began.
    resumed: i64,
    mark: Option<Mark>,
    sink: Sink,
}

impl Follower {
    async fn run(mut self) {
        let mut turn = usize::from(random_word());
        let mut backoff = BACKOFF_MIN;
        let mut n_failed = 0;
        let mut failing_since = None;
        loop {
            let began = Instant::now();
            let attempt = self.client.connect_alone(turn).await;
            let failure = match attempt.channel {
                Ok(channel) => {
                    let (was_in_sync, failure) = self.follow(&channel).await;
                    if was_in_sync {
                        (backoff, n_failed, failing_since) = (BACKOFF_MIN, 0, Some(Instant::now()));
                    }
                    failure
                }
                Err(failure) => failure,
            };
            let since = *failing_since.get_or_insert(began);
            self.sink.report(attempt.endpoint, failure.reason(), since);
            (turn, n_failed) = (turn.wrapping_add(1), n_failed + 1);
            // The other members may well answer at once; only a full round earns a pause.
            if n_failed % attempt.n_members == 0 {
                tokio::time::sleep(jittered(backoff)).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }

    /// Follows the store over one connection until that fails. Says also whether the consumer was
    /// in sync at some time.
    async fn follow(&mut self, channel: &Channel) -> (bool, Failure) {
        let mut was_in_sync = false;
        loop {
            let ended = match self.prepare(channel).await {
                Ok(()) => self.stream(channel, &mut was_in_sync).await,
                Err(ended) => ended,
            };
            match ended {
                Ended::Compacted => self.revision = None,
                Ended::Lost(Failure::Answered(Error::Compacted { .. })) => self.revision = None,
                Ended::Lost(failure) => {
                    if matches!(failure, Failure::Token(_) | Failure::Answered(Error::Denied(_))) {
                        self.client.forget_token();
                    }
                    return (was_in_sync, failure);
                }
            }
        }
    }

    /// Finds out where to go on from, listing everything if there is no such place.
    async fn prepare(&mut self, channel: &Channel) -> Result<(), Ended> {
        let Some(delivered) = self.revision else { return self.list(channel).await };
        let (key, range_end) = key_range(self.known.prefix());
        let newest = wire::RangeRequest {
            key,
            range_end,
            limit: 1,
            sort_order: wire::SortOrder::Descend.into(),
            sort_target: wire::SortTarget::Mod.into(),
            keys_only: true,
            ..Default::default()
        };
        let timeout = self.client.timeout();
        let answer: wire::RangeResponse =
            self.client.call_on(channel, wire::RANGE, &newest, timeout).await?;
        self.check_cluster(answer.header.as_ref());
        let now = revision(answer.header.as_ref());
        if self.revision.is_none() || now < delivered {
            // A cluster restored from a backup: its revisions start again from some older one.
            self.known.distrust();
            return self.list(channel).await;
        }
        self.mark = Some(Mark {
            revision: now,
            newest: answer.kvs.first().map_or(0, |entry| entry.mod_revision),
            n_keys: usize::try_from(answer.count).unwrap_or_default(),
        });
        Ok(())
    }

    /// Delivers the differences between what was delivered and what is.
    async fn list(&mut self, channel: &Channel) -> Result<(), Ended> {
        let (mut from, end) = key_range(self.known.prefix());
        let mut after = None;
        let mut at = 0;
        let mut page_len = PAGE_LEN;
        loop {
            let range = (from, end.clone());
            let page = self.client.try_page(Some(channel), range, at, &mut page_len).await?;
            self.check_cluster(page.header.as_ref());
            if at == 0 {
                at = revision(page.header.as_ref());
            }
            let last = page.kvs.last().map(|entry| entry.key.clone());
            let is_last = !page.more || last.is_none();
            let entries = page.kvs.into_iter().map(wire::KeyValue::into_entry).collect();
            let page = Page { after, entries, is_last, revision: at };
            for event in self.known.merge_page(page) {
                self.sink.send(event).await;
            }
            match last {
                Some(last) if !is_last => {
                    from = [last.as_slice(), &[0]].concat();
                    after = Some(last);
                }
                _ => break,
            }
        }
        self.revision = Some(at);
        self.mark = Some(Mark { revision: at, newest: 0, n_keys: self.known.len() });
        Ok(())
    }

    /// Revisions of another cluster mean nothing here.
    fn check_cluster(&mut self, header: Option<&wire::ResponseHeader>) {
        let Some(cluster) = header.map(|header| header.cluster_id) else { return };
        if self.cluster.replace(cluster).is_some_and(|known| known != cluster) {
            self.known.distrust();
            self.revision = None;
        }
    }

    async fn stream(&mut self, channel: &Channel, was_in_sync: &mut bool) -> Ended {
        self.resumed = self.revision.unwrap_or_default();
        let mut responses = match self.open(channel).await {
            Ok(responses) => responses,
            Err(failure) => return Ended::Lost(failure),
        };
        loop {
            match responses.message().await {
                Ok(Some(response)) => {
                    if let Err(ended) = self.take(response).await {
                        return ended;
                    }
                    *was_in_sync |= self.mark.is_none();
                }
                Ok(None) => return Failure::Lost("it ended the watch".into()).into(),
                Err(status) => return Failure::from(status).into(),
            }
        }
    }

    async fn open(&self, channel: &Channel) -> Result<Streaming<wire::WatchResponse>, Failure> {
        let timeout = self.client.timeout();
        let token = self.client.token(channel, timeout).await?;
        let (key, range_end) = key_range(self.known.prefix());
        let create = wire::WatchCreateRequest {
            key,
            range_end,
            // From the revision delivered last, not the one after it: a server that has compacted
            // exactly that next one takes the watch and keeps silent about deletes made there.
            // Asked for the one before, it says that it was compacted.
            start_revision: self.resumed.max(1),
            progress_notify: true,
            fragment: true,
        };
        let message = wire::WatchRequest { create: Some(create) };
        // The server ends the watch when our side of the stream ends, so it must not.
        let messages = tokio_stream::once(message).chain(tokio_stream::pending());
        let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let opening = async {
            grpc.ready().await?;
            let codec = ProstCodec::<wire::WatchRequest, wire::WatchResponse>::default();
            let path = PathAndQuery::from_static(wire::WATCH);
            Ok(grpc.streaming(request(messages, token), path, codec).await?.into_inner())
        };
        match tokio::time::timeout(timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(Failure::no_answer(timeout)),
        }
    }

    /// Delivers what one message brings.
    async fn take(&mut self, response: wire::WatchResponse) -> Result<(), Ended> {
        if response.compact_revision > 0 {
            return Err(Ended::Compacted);
        }
        if response.canceled {
            let reason = format!("it refused the watch: {}", response.cancel_reason);
            return Err(Failure::Token(reason).into());
        }
        let mut newest = self.revision.unwrap_or_default();
        if response.events.is_empty() && !response.created {
            newest = newest.max(revision(response.header.as_ref()));
        }
        for event in response.events {
            let Some(entry) = event.kv else { continue };
            if entry.mod_revision <= self.resumed {
                continue;
            }
            newest = newest.max(entry.mod_revision);
            if self.mark.as_ref().is_some_and(|mark| entry.mod_revision > mark.revision) {
                self.reach_mark().await;
            }
            let event = if event.kind == i32::from(EventType::Delete) {
                self.known.delete(&entry.key, entry.mod_revision)
            } else {
                self.known.put(entry.into_entry())
            };
            if let Some(event) = event {
                self.sink.send(event).await;
            }
        }
        // Until its last fragment a revision may be incomplete, and must not be resumed after.
        if response.fragment {
            return Ok(());
        }
        self.revision = Some(newest);
        let is_reached = |mark: &Mark| {
            newest >= mark.revision || newest >= mark.newest && self.known.len() == mark.n_keys
        };
        if self.mark.as_ref().is_some_and(is_reached) {
            self.reach_mark().await;
        }
        Ok(())
    }

    async fn reach_mark(&mut self) {
        if let Some(mark) = self.mark.take() {
            self.sink.send(Event::InSync(mark.revision)).await;
        }
    }
}

/// Between half and all of `duration`, so that a thousand clients do not come back at once.
fn jittered(duration: Duration) -> Duration {
    let half = duration / 2;
    half + half * u32::from(random_word()) / u32::from(u16::MAX)
}

/// Random enough to spread clients and to number queries.
pub(super) fn random_word() -> u16 {
    let [low, high, ..] = RandomState::new().hash_one(0).to_le_bytes();
    u16::from_le_bytes([low, high])
}
