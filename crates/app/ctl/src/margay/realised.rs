//! How far the nodes have come with carrying out policies, as their agents tell in the datastore.
//!
//! Nodes without a word are those of other programs: nobody waits for them, and they are named.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use api::Kind;
use serde_json::Value;
use store::realised::{Following, Realised};
use store::resources::Name;

use super::failure::Failure;
use super::session::Session;

/// How long a command that wrote waits for the nodes.
const SOON: Duration = Duration::from_secs(1);
/// How many nodes are named.
const NAMED_MAX: usize = 3;

/// How far each node of the datastore has come; none for those that never told.
pub(crate) struct Reached(BTreeMap<String, Option<Realised>>);

impl Reached {
    /// As of now.
    pub(crate) fn now(session: &Session) -> Result<Self, Failure> {
        Ok(Self::of(&nodes(session)?, &Realised::all(&session.store)?))
    }

    fn of(nodes: &BTreeSet<String>, told: &BTreeMap<String, Realised>) -> Self {
        Self(nodes.iter().map(|node| (node.clone(), told.get(node).cloned())).collect())
    }

    /// Whether any node tells.
    pub(crate) fn is_told(&self) -> bool {
        self.told().next().is_some()
    }

    /// The newest revision of policy that a node has told of. It may be that of a removal, which
    /// no object has.
    pub(crate) fn newest(&self) -> Option<i64> {
        self.told().map(|(_, it)| it.revision).max()
    }

    /// How many of the nodes that tell have an object, for a table.
    pub(crate) fn cell(&self, kind: Kind, object: &Value) -> String {
        let revision = object["metadata"]["resourceVersion"].as_str();
        let Some(revision) = revision.and_then(|text| text.parse().ok()) else {
            return "-".to_owned();
        };
        let wanted = BTreeMap::from([(Name::of(kind, object).key(), revision)]);
        self.count(&wanted)
    }

    /// `2/3`: how many of the nodes that tell have all of these objects.
    pub(crate) fn count(&self, wanted: &BTreeMap<String, i64>) -> String {
        let n_told = self.told().count();
        format!("{}/{n_told}", self.told().filter(|(_, it)| lack(it, wanted).is_none()).count())
    }

    /// Whether all that tell, and at least one does, have all of these objects.
    pub(crate) fn has(&self, wanted: &BTreeMap<String, i64>) -> bool {
        self.is_told() && self.told().all(|(_, it)| lack(it, wanted).is_none())
    }

    /// Every node with how far it has come and what it lacks.
    pub(crate) fn each<'a>(
        &'a self,
        wanted: &'a BTreeMap<String, i64>,
    ) -> impl Iterator<Item = (&'a str, Option<i64>, Option<String>)> {
        self.0.iter().map(|(node, told)| match told {
            Some(it) => (node.as_str(), Some(it.revision), lack(it, wanted)),
            None => (node.as_str(), None, Some("never told; no agent of margay runs there".into())),
        })
    }

    fn told(&self) -> impl Iterator<Item = (&String, &Realised)> {
        self.0.iter().filter_map(|(node, told)| Some((node, told.as_ref()?)))
    }
}

/// Why a node does not have all of these objects; none if it does.
fn lack(told: &Realised, wanted: &BTreeMap<String, i64>) -> Option<String> {
    // What has no key is a set of addresses, and nobody knows which policies need it.
    let is_meant = |key: &str| wanted.contains_key(key) || !key.starts_with('/');
    let newest = *wanted.values().max()?;
    if let Some((key, why)) = told.refused.iter().find(|(key, _)| is_meant(key)) {
        let name = Name::at_key(key).map_or_else(|| key.clone(), |name| name.spoken());
        return Some(format!("refused {name}: {why}"));
    }
    (told.revision < newest).then(|| format!("behind at revision {}", told.revision))
}

/// The names of all nodes.
fn nodes(session: &Session) -> Result<BTreeSet<String>, Failure> {
    let mut nodes = BTreeSet::new();
    let listed = session.resources.each(Kind::Node, None, |one| {
        let name = one.map_or_else(|bad| bad.name, |stored| Some(stored.name));
        nodes.extend(name.map(|name| name.name));
        ControlFlow::Continue(())
    });
    listed.map_err(Failure::from)?;
    Ok(nodes)
}

/// Nodes that come nearer to having some objects.
pub(crate) struct Approach<'s> {
    session: &'s Session,
    following: Following,
    nodes: BTreeSet<String>,
    /// Those who told and are no nodes: their Node may come, or was removed.
    strangers: BTreeSet<String>,
}

impl<'s> Approach<'s> {
    /// Begins to follow.
    pub(crate) fn start(session: &'s Session) -> Result<Self, Failure> {
        let nodes = nodes(session)?;
        let following = Following::start(&session.store);
        Ok(Self { session, following, nodes, strangers: BTreeSet::new() })
    }

    /// Waits until all that tell have the objects, or for the time; where they are then. None as
    /// long as the datastore has not said.
    pub(crate) fn wait(
        &mut self,
        wanted: &BTreeMap<String, i64>,
        until: Instant,
    ) -> Result<Option<Reached>, Failure> {
        loop {
            let reached = self.reached()?;
            if reached.as_ref().is_some_and(|reached| reached.has(wanted)) {
                return Ok(reached);
            }
            // What has arrived already is taken in, however late it is.
            let left = until.saturating_duration_since(Instant::now());
            if !self.following.next(left) && Instant::now() >= until {
                return Ok(reached);
            }
        }
    }

    /// Why nothing is heard of the nodes.
    pub(crate) fn outage(&self) -> Option<&str> {
        self.following.outage()
    }

    fn reached(&mut self) -> Result<Option<Reached>, Failure> {
        let Some(told) = self.following.nodes() else { return Ok(None) };
        let is_new =
            |node: &&String| !self.nodes.contains(*node) && !self.strangers.contains(*node);
        if told.keys().any(|node| is_new(&node)) {
            self.nodes = nodes(self.session)?;
            let others = told.keys().filter(|node| !self.nodes.contains(*node));
            self.strangers = others.cloned().collect();
        }
        Ok(Some(Reached::of(&self.nodes, told)))
    }
}

/// Waits a moment for the nodes after a write: `realised on 3/3 nodes in 41 ms`. None where no
/// node tells; the write is made, so nothing of this is an error.
pub(crate) fn soon(
    session: &Session,
    wanted: &BTreeMap<String, i64>,
    began: Instant,
) -> Option<String> {
    if wanted.is_empty() || !Reached::now(session).ok()?.is_told() {
        return None;
    }
    let reached = Approach::start(session).ok()?.wait(wanted, began + SOON).ok()??;
    let (count, time) = (reached.count(wanted), spent(began.elapsed()));
    Some(match reached.has(wanted) {
        true => format!("realised on {count} nodes in {time}"),
        false => {
            let lacking = reached.told().filter(|(_, it)| lack(it, wanted).is_some());
            let lacking: Vec<&str> = lacking.map(|(node, _)| node.as_str()).collect();
            let more = if lacking.len() > NAMED_MAX { ", …" } else { "" };
            let named: Vec<&str> = lacking.iter().take(NAMED_MAX).copied().collect();
            let named = named.join(", ");
            format!("realised on {count} nodes after {time}, not on {named}{more}: margay wait")
        }
    })
}

/// A time for people.
pub(crate) fn spent(time: Duration) -> String {
    match time.as_millis() {
        short if short < 1000 => format!("{short} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
