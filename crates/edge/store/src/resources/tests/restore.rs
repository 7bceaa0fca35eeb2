//! Putting back, while others write.

use super::*;
use crate::resources::restore::{NotRestored, Restored};

fn tier(name: &str) -> Value {
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "Tier",
        "metadata": {"name": name}, "spec": {"order": 7}
    })
}

/// A policy in a tier of its own, deleted; and what would bring it back.
fn deleted_policy(client: &Resources) -> (Name, Restored) {
    give(client, Verb::Create, &tier("t")).unwrap();
    let mut policy = policy("t.web");
    policy["spec"]["tier"] = json!("t");
    let name = give(client, Verb::Create, &policy).unwrap().name;
    let before = client.store.get(&name.key()).unwrap().0.unwrap();
    client.delete(&name, None).unwrap();
    (name, Restored { key: before.key, now: None, value: Some(before.value) })
}

#[test]
fn a_tier_that_goes_after_the_rules_were_judged_is_noticed() {
    let fresh = fresh();
    let client = &fresh.client;
    let (name, restored) = deleted_policy(client);
    let judged = client.plan_restore(&[&restored]).unwrap();
    client.delete(&Name::cluster(Kind::Tier, "t"), None).unwrap();
    assert!(!client.commit_restore(&judged).unwrap());
    assert!(client.get(&name).unwrap_err().is_not_found());
    let refused = client.restore(&[restored]).unwrap_err();
    assert!(matches!(refused, NotRestored::Refused(why) if why.len() == 1));
}

#[test]
fn a_policy_that_comes_after_the_rules_were_judged_keeps_its_tier() {
    let fresh = fresh();
    let client = &fresh.client;
    let (name, policy) = deleted_policy(client);
    let tier = client.store.get(&Name::cluster(Kind::Tier, "t").key()).unwrap().0.unwrap();
    let now = Some((tier.value, tier.mod_revision));
    let gone = Restored { key: tier.key, now, value: None };
    let judged = client.plan_restore(&[&gone]).unwrap();
    client.restore(&[policy]).unwrap();
    assert!(!client.commit_restore(&judged).unwrap());
    let refused = client.restore(std::slice::from_ref(&gone)).unwrap_err();
    assert!(matches!(refused, NotRestored::Refused(_)));
    assert!(client.get(&name).is_ok());
}

#[test]
fn a_pool_that_comes_after_the_rules_were_judged_is_noticed() {
    let fresh = fresh();
    let client = &fresh.client;
    let pool = |name: &str, cidr: &str| {
        json!({
            "apiVersion": "projectcalico.org/v3", "kind": "IPPool",
            "metadata": {"name": name}, "spec": {"cidr": cidr}
        })
    };
    let name = give(client, Verb::Create, &pool("p", "10.1.0.0/24")).unwrap().name;
    let before = client.store.get(&name.key()).unwrap().0.unwrap();
    client.delete(&name, None).unwrap();
    let restored = Restored { key: before.key, now: None, value: Some(before.value) };
    let judged = client.plan_restore(&[&restored]).unwrap();
    give(client, Verb::Create, &pool("q", "10.1.0.0/16")).unwrap();
    assert!(!client.commit_restore(&judged).unwrap());
}

#[test]
fn what_somebody_wrote_meanwhile_stays() {
    let fresh = fresh();
    let client = &fresh.client;
    let (name, restored) = deleted_policy(client);
    put(client, &name.key(), "theirs");
    let refused = client.restore(&[restored]).unwrap_err();
    assert!(matches!(refused, NotRestored::Moved(keys) if keys == [name.key()]));
}

#[test]
fn more_than_a_transaction_takes_comes_back_with_its_tier() {
    let fresh = fresh();
    let client = &fresh.client;
    give(client, Verb::Create, &tier("t")).unwrap();
    let policies = (0..230).map(|n| {
        let mut policy = policy(&format!("t.p{n}"));
        policy["spec"]["tier"] = json!("t");
        decoded(&policy)
    });
    let policies: Vec<Value> = policies.collect();
    let written = client.write_all(Verb::Create, &policies, Together::AllOrNothing);
    assert!(written.iter().all(Result::is_ok));
    let names = written.into_iter().map(|written| written.unwrap().name);
    let restored = std::iter::once(Name::cluster(Kind::Tier, "t")).chain(names).map(|name| {
        let now = client.store.get(&name.key()).unwrap().0.unwrap();
        Restored { key: now.key, now: Some((now.value, now.mod_revision)), value: None }
    });
    let removal: Vec<Restored> = restored.collect();
    let before = client.store.list("/").unwrap().entries.len();
    client.restore(&removal).unwrap();
    assert_eq!(client.store.list("/").unwrap().entries.len(), before - 231);
    let back = removal.into_iter().map(|one| {
        let Restored { key, now, .. } = one;
        Restored { key, now: None, value: now.map(|(value, _)| value) }
    });
    client.restore(&back.collect::<Vec<_>>()).unwrap();
    assert_eq!(client.store.list("/").unwrap().entries.len(), before);
}
