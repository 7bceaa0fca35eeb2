//! Tells the other nodes' operators how far this node's kernel has come with policy.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Kind;
use intent::Inputs;
use policy::render::Refused;
use sandbox::claim::resource_key;
use store::realised::Realised;

use crate::filter::tiers_of;
use crate::finding::kept;
use crate::node::Node;

/// How long the datastore is left alone after it could not be told.
const PAUSE: Duration = Duration::from_secs(5);

/// How far the kernel has come, and what was told of it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The newest revision of an object of policy that was absorbed.
    seen: i64,
    reached: Realised,
    told: Option<Realised>,
}

impl Progress {
    /// An object was absorbed as of a revision.
    pub(crate) fn seen(&self, key: &str, revision: i64) {
        if store::realised::counts(key) {
            let mut state = self.lock();
            state.seen = state.seen.max(revision);
        }
    }

    /// The newest revision of an object of policy so far.
    pub(crate) fn newest(&self) -> i64 {
        self.lock().seen
    }

    /// The kernel has come this far.
    pub(crate) fn reached(&self, reached: Realised) {
        let mut state = self.lock();
        if state.reached != reached {
            state.reached = reached;
            self.bell.notify_all();
        }
    }

    /// How far the kernel has come.
    pub(crate) fn realised(&self) -> Realised {
        self.lock().reached.clone()
    }

    /// Waits until there is something to tell.
    fn news(&self) -> Realised {
        let mut state = self.lock();
        while state.told.as_ref() == Some(&state.reached) || state.reached.revision == 0 {
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.reached.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is not in force, or not as it was written, by key. Where an endpoint stands as before, its
/// policies are not realised.
pub(crate) fn refusals(
    refused: &BTreeMap<Refused, String>,
    inputs: &Inputs,
) -> BTreeMap<String, String> {
    let intent = inputs.policy();
    let aside = inputs.quarantined().iter().filter(|(key, _)| store::realised::counts(key));
    let aside = aside.map(|(key, problems)| {
        let stays = inputs.kept(key).map(|revision| format!("it {}", kept(key, revision)));
        let told: Vec<&str> = problems.iter().chain(&stays).map(String::as_str).collect();
        (key.clone(), told.join("; "))
    });
    let mut all: BTreeMap<String, String> = aside.collect();
    for (object, why) in refused {
        let tiers = tiers_of(object, intent);
        let policies = tiers.flat_map(|tier| tier.ingress.iter().chain(&tier.egress));
        for policy in policies {
            let key = key_of(&Refused::Policy(policy.clone()));
            all.entry(key).or_insert_with(|| format!("{object} stands as before: {why}"));
        }
    }
    all.extend(refused.iter().map(|(object, why)| (key_of(object), why.clone())));
    all
}

/// The key of an object that the kernel refused; IP sets have none, and go by their name.
pub(crate) fn key_of(object: &Refused) -> String {
    match object {
        Refused::Workload(place) => key_at(Kind::WorkloadEndpoint, place),
        Refused::Host(place) => key_at(Kind::HostEndpoint, place),
        Refused::Policy(id) => {
            let kind = Kind::all().find(|kind| kind.name() == id.kind.name());
            let key = kind.map(|kind| resource_key(kind, &id.namespace, &id.name));
            key.unwrap_or_else(|| object.to_string())
        }
        Refused::Profile(name) => resource_key(Kind::Profile, "", name),
        Refused::Set(_) | Refused::Surroundings => object.to_string(),
    }
}

/// The key of what policy calls `namespace/name`, or by its name alone.
pub(crate) fn key_at(kind: Kind, place: &str) -> String {
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    resource_key(kind, namespace, name)
}

/// Starts to tell.
pub(crate) fn start(node: &Arc<Node>) -> io::Result<()> {
    let node = Arc::clone(node);
    std::thread::Builder::new().name("progress".into()).spawn(move || {
        loop {
            let news = node.progress.news();
            let told = node.outage().is_none() && news.publish(node.store(), &node.name).is_ok();
            match told {
                true => node.progress.lock().told = Some(news),
                false => std::thread::sleep(PAUSE),
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use policy::input::{PolicyId, PolicyKind};

    use super::*;

    #[test]
    fn what_is_refused_is_told_by_its_key() {
        let id = PolicyId {
            kind: PolicyKind::NetworkPolicy,
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        let root = "/calico/resources/v3/projectcalico.org";
        let told = [
            (Refused::Policy(id), "networkpolicies/shop/web"),
            (
                Refused::Workload("shop/n1-k8s-a-eth0".into()),
                "workloadendpoints/shop/n1-k8s-a-eth0",
            ),
            (Refused::Host("eth0".into()), "hostendpoints/eth0"),
            (Refused::Profile("kns.shop".into()), "profiles/kns.shop"),
        ];
        for (object, key) in told {
            assert_eq!(key_of(&object), format!("{root}/{key}"));
        }
    }
}
