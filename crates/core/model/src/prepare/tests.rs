use serde_json::json;

use super::*;

fn context() -> Context {
    Context {
        uid: "u".to_owned(),
        now: "2026-01-01T00:00:00Z".to_owned(),
        default_namespace: "default".to_owned(),
    }
}

fn pool(name: &str, cidr: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "cidr": cidr } })
}

#[test]
fn a_pool_may_not_overlap_another() {
    let neighbours = Neighbours { ip_pools: vec![pool("a", "10.0.1.0/24")], ..Default::default() };
    let refusal = prepare_create(Kind::IpPool, pool("b", "10.0.0.0/16"), &context(), &neighbours);
    let Err(Refusal::Invalid(problems)) = refusal else { panic!("{refusal:?}") };
    assert_eq!(problems[0].message, "10.0.0.0/16 overlaps 10.0.1.0/24 of the pool a");
}

#[test]
fn an_update_keeps_who_and_when() {
    let mut old = pool("a", "10.0.0.0/16");
    old["metadata"]["uid"] = json!("first");
    old["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    old["spec"]["blockSize"] = json!(26);
    let new = pool("a", "10.0.0.0/16");
    let stored =
        prepare_update(Kind::IpPool, &old, new, &context(), &Neighbours::default()).unwrap();
    assert_eq!(stored["metadata"]["uid"], "first");
    assert_eq!(stored["metadata"]["creationTimestamp"], "2020-01-01T00:00:00Z");
}

#[test]
fn a_policy_needs_its_tier() {
    let policy = json!({ "metadata": { "name": "p" }, "spec": { "tier": "t" } });
    assert_eq!(needs(Kind::NetworkPolicy, &policy), [Need::Tier("t".to_owned())]);
    let refusal = prepare_create(Kind::NetworkPolicy, policy, &context(), &Neighbours::default());
    assert_eq!(refusal, Err(Refusal::Missing { kind: Kind::Tier, name: "t".to_owned() }));
}

#[test]
fn a_tier_with_policies_stays() {
    let policies = [json!({ "spec": { "tier": "t" } })];
    assert!(check_delete(Kind::Tier, "t", &policies).is_err());
    assert!(check_delete(Kind::Tier, "u", &policies).is_ok());
    assert!(check_delete(Kind::Tier, "default", &[]).is_err());
}
