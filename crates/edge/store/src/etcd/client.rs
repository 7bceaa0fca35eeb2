//! Unary calls: which endpoint, with which token, and when to try another.
//!
//! A read is repeated on the next endpoint whatever happened. A write is repeated only if it surely
//! was not carried out; else the caller gets [`Error::Uncertain`], because a repeated
//! compare-and-swap would find its own first attempt and call it a conflict.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use super::config::{Config, Waiting};
use super::connect::{connect, unary};
use super::failure::Failure;
use super::{srv, wire};
use crate::key_range::end_of_prefix;
use crate::{Error, Outage};

/// Between rounds, when the cluster is there but has no leader.
const ROUND_PAUSE: Duration = Duration::from_millis(100);

/// Whether a request changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
}

pub(super) struct Client {
    config: Config,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    members: Vec<Member>,
    /// The member that answered last.
    preferred: usize,
    channel: Option<(usize, Channel)>,
    token: Option<MetadataValue<Ascii>>,
}

struct Member {
    url: String,
    failing: Option<Failing>,
}

struct Failing {
    since: Instant,
    reason: String,
}

impl Client {
    pub(super) fn new(config: Config) -> Result<Client, Error> {
        let config = config.check()?;
        let members = config.endpoints.iter().map(|url| Member::new(url)).collect();
        Ok(Client { config, state: Mutex::new(State { members, ..State::default() }) })
    }

    pub(super) fn describe(&self) -> String {
        match &self.config.discovery_srv {
            Some(domain) if self.config.endpoints.is_empty() => format!("discovered in {domain}"),
            _ => self.config.endpoints.join(","),
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// Tells whoever wants to know that a call is under way.
    pub(super) fn say_waiting(&self, elapsed: Duration) {
        let Some(tell) = self.config.waiting else { return };
        let reason = {
            let state = self.state();
            let mut failing = state.members.iter().filter_map(|member| member.failing.as_ref());
            failing.next().map(|failing| failing.reason.clone())
        };
        let (endpoints, limit) = (self.describe(), self.config.timeout);
        tell(&Waiting { endpoints, reason, elapsed, limit });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to whichever endpoint serves it.
    pub(super) async fn call<Q, A>(
        &self,
        kind: Use,
        path: &'static str,
        request: Q,
    ) -> Result<A, Error>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        match self.try_call(kind, path, request).await {
            Ok(answer) => Ok(answer),
            Err(Failure::Answered(error)) => Err(error),
            Err(other) => Err(Error::Rejected(format!("etcd: {}", other.reason()))),
        }
    }

    async fn try_call<Q, A>(&self, kind: Use, path: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let deadline = Instant::now() + self.config.timeout;
        let n_members = self.discover().await.map_err(Failure::Answered)?;
        let first = self.state().preferred;
        loop {
            let mut is_worth_waiting = false;
            for attempt in 0..n_members {
                let index = (first + attempt) % n_members;
                let left = deadline.saturating_duration_since(Instant::now());
                let share = left / u32::try_from(n_members - attempt).unwrap_or(u32::MAX);
                let answering = if kind == Use::Read { share } else { left };
                let times = Times { connecting: share, answering };
                let failure = match self.call_member(index, path, &request, times).await {
                    Ok(answer) => return Ok(answer),
                    Err(failure @ (Failure::Answered(_) | Failure::TooLarge)) => {
                        return Err(failure);
                    }
                    Err(failure) => failure,
                };
                self.note_failure(index, &failure);
                if kind == Use::Write && matches!(failure, Failure::Lost(_)) {
                    return Err(Failure::Answered(Error::Uncertain(self.outage(index))));
                }
                is_worth_waiting |= matches!(failure, Failure::NotNow(_));
            }
            let is_over = Instant::now() + ROUND_PAUSE >= deadline;
            if is_over || !is_worth_waiting {
                let outages = (0..n_members).map(|index| self.outage(index)).collect();
                return Err(Failure::Answered(Error::Unreachable(outages)));
            }
            tokio::time::sleep(ROUND_PAUSE).await;
        }
    }

    async fn call_member<Q, A>(
        &self,
        index: usize,
        path: &'static str,
        request: &Q,
        times: Times,
    ) -> Result<A, Failure>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let channel = self.channel(index, times.connecting).await?;
        let answer = self.call_on(&channel, path, request, times.answering).await?;
        self.note_success(index);
        Ok(answer)
    }

    /// Sends a request over a given connection, logging in first if that is needed.
    pub(super) async fn call_on<Q, A>(
        &self,
        channel: &Channel,
        path: &'static str,
        request: &Q,
        timeout: Duration,
    ) -> Result<A, Failure>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let token = self.token(channel, timeout).await?;
        match unary(channel, path, request.clone(), token, timeout).await {
            Err(Failure::Token(_)) => {
                self.forget_token();
                let token = self.token(channel, timeout).await?;
                unary(channel, path, request.clone(), token, timeout).await
            }
            other => other,
        }
    }

    /// Reads a page of a listing, over `channel` or whichever endpoint answers. Asks for fewer
    /// entries when they are too large for a message, and remembers that in `page_len`.
    pub(super) async fn page(
        &self,
        channel: Option<&Channel>,
        (key, range_end): (Vec<u8>, Vec<u8>),
        revision: i64,
        page_len: &mut i64,
    ) -> Result<wire::RangeResponse, Error> {
        self.try_page(channel, (key, range_end), revision, page_len).await.map_err(|failure| {
            match failure {
                Failure::Answered(Error::Compacted { .. }) => Error::Compacted { revision },
                Failure::Answered(error) => error,
                other => Error::Rejected(format!("etcd: {}", other.reason())),
            }
        })
    }

    pub(super) async fn try_page(
        &self,
        channel: Option<&Channel>,
        (key, range_end): (Vec<u8>, Vec<u8>),
        revision: i64,
        page_len: &mut i64,
    ) -> Result<wire::RangeResponse, Failure> {
        loop {
            let request = wire::RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: *page_len,
                revision,
                ..Default::default()
            };
            let answer = match channel {
                Some(channel) => {
                    self.call_on(channel, wire::RANGE, &request, self.config.timeout).await
                }
                None => self.try_call(Use::Read, wire::RANGE, request).await,
            };
            match answer {
                Err(Failure::TooLarge) if *page_len > 1 => *page_len = (*page_len / 8).max(1),
                other => return other,
            }
        }
    }

    /// Fills in the members from DNS where that is asked for, again when none of them answers: they
    /// may have moved. Returns how many there are.
    async fn discover(&self) -> Result<usize, Error> {
        let (n_members, is_any_well) = {
            let members = &self.state().members;
            (members.len(), members.iter().any(|member| member.failing.is_none()))
        };
        let Some(domain) = &self.config.discovery_srv else { return Ok(n_members) };
        if is_any_well {
            return Ok(n_members);
        }
        let urls = match srv::discover(domain, self.config.timeout).await {
            Err(error) if n_members == 0 => return Err(error),
            Err(_) => return Ok(n_members),
            Ok(urls) => urls,
        };
        let mut state = self.state();
        let mut old = std::mem::take(&mut state.members);
        state.channel = None;
        state.preferred = 0;
        state.members = urls
            .into_iter()
            .map(|url| match old.iter().position(|member| member.url == url) {
                Some(known) => old.swap_remove(known),
                None => Member::new(&url),
            })
            .collect();
        Ok(state.members.len())
    }

    /// The shared connection, made anew if the last one led elsewhere.
    async fn channel(&self, index: usize, timeout: Duration) -> Result<Channel, Failure> {
        let (open, url) = {
            let state = self.state();
            let open = state.channel.as_ref().filter(|(open, _)| *open == index);
            (open.map(|(_, channel)| channel.clone()), state.url(index))
        };
        if let Some(channel) = open {
            return Ok(channel);
        }
        let channel = self.connect(&url, timeout).await?;
        self.state().channel = Some((index, channel.clone()));
        Ok(channel)
    }

    /// In TLS 1.3 a server judges our certificate when we believe to be connected already, and then
    /// just hangs up. So a harmless question comes first: a write that meets such an end is not
    /// lost.
    async fn connect(&self, url: &str, timeout: Duration) -> Result<Channel, Failure> {
        let channel = connect(&self.config, url, timeout).await?;
        if !url.starts_with("https://") {
            return Ok(channel);
        }
        match ask(&channel, timeout).await {
            Err(Failure::Lost(reason)) => Err(Failure::NotServed(format!(
                "it gave up the TLS connection ({reason}): it may want another client certificate"
            ))),
            Err(failure) => Err(failure),
            Ok(()) => Ok(channel),
        }
    }

    /// Connects anew to whichever member answers within the time, and lets go of the connection.
    pub(super) async fn reach(&self, within: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + within;
        let n_members = self.discover().await?;
        let mut outages = Vec::new();
        for index in 0..n_members {
            let endpoint = self.state().url(index);
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(n_members - index).unwrap_or(u32::MAX);
            let began = Instant::now();
            let asked = async {
                let channel = connect(&self.config, &endpoint, share).await?;
                ask(&channel, share.saturating_sub(began.elapsed())).await
            };
            match asked.await {
                Ok(()) => return Ok(()),
                Err(failure) => {
                    let (reason, lasting) = (failure.reason(), began.elapsed());
                    outages.push(Outage { endpoint, reason, lasting });
                }
            }
        }
        Err(Error::Unreachable(outages))
    }

    /// A connection of the caller's own, to the endpoint at `turn` in the round.
    pub(super) async fn connect_alone(&self, turn: usize) -> Attempt {
        let n_members = match self.discover().await {
            Ok(n_members) => n_members.max(1),
            Err(error) => {
                let channel = Err(Failure::Answered(error));
                return Attempt { endpoint: self.describe(), n_members: 1, channel };
            }
        };
        let endpoint = self.state().url(turn % n_members);
        let channel = self.connect(&endpoint, self.config.timeout / 2).await;
        Attempt { endpoint, n_members, channel }
    }

    /// The token to send: none if no user is configured or the cluster wants none.
    pub(super) async fn token(
        &self,
        channel: &Channel,
        timeout: Duration,
    ) -> Result<Option<MetadataValue<Ascii>>, Failure> {
        let (Some(name), Some(password)) = (&self.config.user, &self.config.password) else {
            return Ok(None);
        };
        if let Some(token) = self.state().token.clone() {
            return Ok(Some(token));
        }
        let request = wire::AuthenticateRequest { name: name.clone(), password: password.clone() };
        let answer: wire::AuthenticateResponse =
            match unary(channel, wire::AUTHENTICATE, request, None, timeout).await {
                Ok(answer) => answer,
                Err(Failure::Answered(Error::Rejected(reason)))
                    if reason.contains("authentication is not enabled") =>
                {
                    return Ok(None);
                }
                // Nothing was changed by a login that got no answer.
                Err(Failure::Lost(reason)) => return Err(Failure::NotServed(reason)),
                Err(failure) => return Err(failure),
            };
        let token = MetadataValue::try_from(answer.token)
            .map_err(|_| Failure::NotServed("its token is not printable".into()))?;
        self.state().token = Some(token.clone());
        Ok(Some(token))
    }

    pub(super) fn forget_token(&self) {
        self.state().token = None;
    }

    fn note_success(&self, index: usize) {
        let mut state = self.state();
        state.preferred = index;
        if let Some(member) = state.members.get_mut(index) {
            member.failing = None;
        }
    }

    fn note_failure(&self, index: usize, failure: &Failure) {
        let mut state = self.state();
        if !matches!(failure, Failure::NotNow(_))
            && state.channel.as_ref().is_some_and(|(open, _)| *open == index)
        {
            state.channel = None;
        }
        let Some(member) = state.members.get_mut(index) else { return };
        let since = member.failing.as_ref().map_or_else(Instant::now, |failing| failing.since);
        member.failing = Some(Failing { since, reason: failure.reason() });
    }

    fn outage(&self, index: usize) -> Outage {
        let state = self.state();
        let failing = state.members.get(index).and_then(|member| member.failing.as_ref());
        Outage {
            endpoint: state.url(index),
            reason: failing.map(|failing| failing.reason.clone()).unwrap_or_default(),
            lasting: failing.map(|failing| failing.since.elapsed()).unwrap_or_default(),
        }
    }
}

impl State {
    fn url(&self, index: usize) -> String {
        self.members.get(index).map(|member| member.url.clone()).unwrap_or_default()
    }
}

impl Member {
    fn new(url: &str) -> Member {
        Member { url: url.to_string(), failing: None }
    }
}

/// Asks a harmless question. Any answer will do, even that we may not ask.
async fn ask(channel: &Channel, timeout: Duration) -> Result<(), Failure> {
    let question = wire::RangeRequest {
        key: vec![0],
        limit: 1,
        serializable: true,
        keys_only: true,
        ..Default::default()
    };
    match unary::<_, wire::RangeResponse>(channel, wire::RANGE, question, None, timeout).await {
        Err(failure @ (Failure::Lost(_) | Failure::NotServed(_))) => Err(failure),
        _ => Ok(()),
    }
}

/// An attempt to connect to one of the members.
pub(super) struct Attempt {
    pub(super) endpoint: String,
    pub(super) n_members: usize,
    pub(super) channel: Result<Channel, Failure>,
}

/// How long to wait for the two parts of a call.
#[derive(Clone, Copy)]
struct Times {
    connecting: Duration,
    answering: Duration,
}

/// The first key and the end of the range of a prefix, in etcd's notation: a NUL is the first key,
/// or, as an end, no end.
pub(super) fn key_range(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let from = if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() };
    (from, end_of_prefix(prefix).map_or_else(|| vec![0], String::into_bytes))
}

pub(super) fn revision(header: Option<&wire::ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}
