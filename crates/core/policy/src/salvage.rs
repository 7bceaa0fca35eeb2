//! What is left of a stored object that cannot be read as a whole.
//!
//! Such an object is named to its owner; until it is mended, what it protects stays protected. An
//! unreadable rule that allows, passes or logs stays in its place and matches nothing, so that the
//! others keep their numbers; one that denies goes on denying, without the conditions that cannot
//! be read, and so does one whose action cannot be read: it may have denied. Nothing is left where
//! it cannot be known whom an object is for.

use api::Kind;
use model::resource::Resource;
use model::validate::lists_judged_singly;
use net::{Cidr, parse_ip};
use serde_json::{Map, Value, json};

use crate::convert::has_meaning;

/// How many fields may be taken out of an object, one after the other.
const FIELDS_MAX: usize = 64;

/// What is left of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Salvaged {
    /// The rest.
    pub resource: Resource,
    /// Whether nothing but conditions of rules is missing, so that it denies whatever the whole
    /// object would deny. Where more is missing, an earlier version may protect better.
    pub is_strict: bool,
}

/// What is left of an object of this kind that [`Resource::read`] refuses.
pub fn salvage(kind: Kind, stored: &Value) -> Option<Salvaged> {
    let mut object = stored.clone();
    let spec = object.get_mut("spec")?.as_object_mut()?;
    let mut has_rules = true;
    match kind {
        Kind::HostEndpoint => {
            has_rules = false;
            keep_texts(spec.get_mut("expectedIPs"), |text| parse_ip(text).is_some());
            // Without an interface the addresses say whom it is for.
            let has_interface = |name: &Value| name.as_str().is_some_and(|name| !name.is_empty());
            let has_address = |all: &Value| all.as_array().is_some_and(|all| !all.is_empty());
            let is_known = spec.get("interfaceName").is_some_and(has_interface)
                || spec.get("expectedIPs").is_some_and(has_address);
            is_known.then_some(())?;
        }
        Kind::NetworkSet | Kind::GlobalNetworkSet => {
            has_rules = false;
            keep_texts(spec.get_mut("nets"), |text| text.parse::<Cidr>().is_ok());
        }
        Kind::Tier => has_rules = false,
        Kind::Profile => keep_rules(kind, spec, &["ingress", "egress"]),
        _ if lists_judged_singly(kind).is_empty() => return None,
        _ => keep_rules(kind, spec, lists_judged_singly(kind)),
    }
    let (resource, is_all) = without_unreadable(kind, object)?;
    Some(Salvaged { resource, is_strict: has_rules && is_all })
}

fn keep_texts(list: Option<&mut Value>, is_readable: impl Fn(&str) -> bool) {
    if let Some(items) = list.and_then(Value::as_array_mut) {
        items.retain(|item| item.as_str().is_some_and(&is_readable));
    }
}

/// The object without the fields that have no value of their type, as if they were not given, and
/// whether there was no such field; none if one of them says whom it is for.
fn without_unreadable(kind: Kind, mut object: Value) -> Option<(Resource, bool)> {
    for n_taken_out in 0..FIELDS_MAX {
        let problems = match Resource::typed(kind, &object) {
            Ok(resource) => return Some((resource, n_taken_out == 0)),
            Err(problems) => problems,
        };
        let field = problems.first()?.path.strip_prefix("spec.")?;
        let field = field.split(['.', '[']).next()?.to_owned();
        if field.to_lowercase().ends_with("selector") {
            return None;
        }
        object.get_mut("spec")?.as_object_mut()?.remove(&field)?;
    }
    None
}

fn keep_rules(kind: Kind, spec: &mut Map<String, Value>, lists: &[&str]) {
    for list in lists {
        let Some(rules) = spec.get_mut(*list) else { continue };
        // What is no list is an unreadable field, and taken out as such.
        let Some(rules) = rules.as_array_mut() else { continue };
        for rule in rules {
            *rule = keep_rule(kind, rule.take());
        }
    }
}

/// The rule itself if it has a meaning; what it denies if it denies, or may; else one that matches
/// nothing.
fn keep_rule(kind: Kind, mut rule: Value) -> Value {
    for _ in 0..FIELDS_MAX {
        let path = match problem_of(kind, &rule) {
            None => return rule,
            Some(_) if is_harmless(&rule["action"]) => {
                return json!({ "action": rule["action"], "protocol": "TCP", "notProtocol": "TCP" });
            }
            Some(path) => path,
        };
        if rule["action"] != "Deny" {
            let Some(fields) = rule.as_object_mut() else { break };
            fields.insert("action".to_owned(), json!("Deny"));
            continue;
        }
        if take_out(&mut rule, &path).is_none() {
            break;
        }
    }
    json!({ "action": "Deny" })
}

/// Whether a rule with this action denies nothing.
fn is_harmless(action: &Value) -> bool {
    ["Allow", "Pass", "Log"].iter().any(|it| action == it)
}

/// Where a rule cannot be read, as a path in it; empty if that cannot be said.
fn problem_of(kind: Kind, rule: &Value) -> Option<String> {
    // Both lists have the same types.
    let probe = json!({ "metadata": { "name": "probe" }, "spec": { "ingress": [rule] } });
    match Resource::typed(kind, &probe) {
        Ok(resource) => has_meaning(&resource).err().map(|it| it.field.to_owned()),
        Err(problems) => {
            let path = &problems.first()?.path;
            Some(path.strip_prefix("spec.ingress[0].").unwrap_or_default().to_owned())
        }
    }
}

/// Takes out the condition in which a path lies: a field of one end of the traffic, or of the rule.
fn take_out(rule: &mut Value, path: &str) -> Option<Value> {
    let mut parts = path.split(['.', '[']);
    let (first, second) = (parts.next()?, parts.next());
    let fields = rule.as_object_mut()?;
    match (first, second) {
        ("source" | "destination", Some(field)) => {
            fields.get_mut(first)?.as_object_mut()?.remove(field)
        }
        ("action", _) => None,
        _ => fields.remove(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::convert;
    use crate::input::Change;
    use api::keys::{ResourceKey, ResourceKind};
    use model::resource::Action;

    fn salvaged(kind: Kind, spec: Value) -> Option<Change> {
        let object = json!({ "metadata": { "name": "it" }, "spec": spec });
        assert!(Resource::read(kind, &object).is_err(), "{object} can be read");
        let resource = salvage(kind, &object)?.resource;
        let (namespace, name) = (String::new(), "it".to_owned());
        let key = ResourceKey { kind: ResourceKind::Api(kind), namespace, name };
        convert(&key, Some(&resource)).expect("what is left has a meaning")
    }

    fn policy(spec: Value) -> crate::input::Policy {
        match salvaged(Kind::GlobalNetworkPolicy, spec) {
            Some(Change::Policy(_, Some(policy))) => (*policy).clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_allows_and_cannot_be_read_matches_nothing() {
        let bad = json!({ "nets": ["10.0.0.0/33", "10.0.0.0/8"] });
        let rules = json!([
            { "action": "Allow", "source": bad },
            { "action": "Pass", "notProtocol": "nonsense" },
            { "action": "Allow", "ipVersion": 5 },
            { "action": "Allow", "source": { "nets": ["10.0.0.9/8"] } },
        ]);
        let policy = policy(json!({ "selector": "a == 'b'", "ingress": rules, "order": 5 }));
        assert_eq!(policy.selector.canonical(), r#"a == "b""#);
        assert_eq!(policy.order, Some(5.0));
        let [rest @ .., last] = policy.ingress.as_slice() else { panic!("{policy:?}") };
        assert_eq!(last.source.nets, ["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(rest.len(), 3, "the others keep their numbers");
        let scanned = crate::scan::scan_policy(&policy);
        for rule in &scanned.directions.of(model::resource::Direction::Ingress)[..3] {
            let never = crate::review::contradiction(rule);
            assert_eq!(never, Some(crate::review::Contradiction::Protocol), "{rule:?}");
        }
    }

    #[test]
    fn only_what_lost_nothing_but_conditions_of_rules_is_as_strict_as_it_was() {
        let is_strict = |kind, spec: Value| {
            let object = json!({ "metadata": { "name": "it" }, "spec": spec });
            salvage(kind, &object).unwrap().is_strict
        };
        let rules = json!([{ "action": "Deny", "protocol": "nonsense" }]);
        assert!(is_strict(Kind::GlobalNetworkPolicy, json!({ "ingress": rules })));
        assert!(is_strict(Kind::Profile, json!({ "ingress": rules })));
        for bad in [json!({ "order": "x" }), json!({ "tier": 7 }), json!({ "ingress": "all" })] {
            assert!(!is_strict(Kind::GlobalNetworkPolicy, bad.clone()), "{bad}");
        }
        assert!(!is_strict(Kind::Tier, json!({ "order": "x" })));
        assert!(!is_strict(Kind::GlobalNetworkSet, json!({ "nets": ["x"] })));
        let host = json!({ "node": "n", "interfaceName": "eth0", "expectedIPs": ["x"] });
        assert!(!is_strict(Kind::HostEndpoint, host));
    }

    #[test]
    fn what_denies_goes_on_denying() {
        let rules = json!([
            {
                "action": "Deny", "protocol": "TCP",
                "source": { "nets": ["10.0.0.0/33"], "selector": "a == 'b'" },
                "destination": { "ports": [80] },
            },
            { "action": "Deny", "protocol": "nonsense", "destination": { "ports": [80] } },
        ]);
        let policy = policy(json!({ "egress": rules, "types": ["Sideways"] }));
        assert!(policy.is_for_ingress && policy.is_for_egress);
        let [first, second] = policy.egress.as_slice() else { panic!("{policy:?}") };
        assert_eq!((first.action, second.action), (Action::Deny, Action::Deny));
        assert!(first.source.nets.is_empty() && first.source.selector.is_some());
        assert_eq!(first.destination.ports.len(), 1);
        assert!(second.protocol.is_none() && second.destination.ports.is_empty());
    }

    #[test]
    fn what_may_have_denied_denies() {
        let rules = json!([
            { "action": "Jump", "protocol": "TCP", "destination": { "ports": [80] } },
            { "action": 7, "source": { "nets": ["10.0.0.0/33"], "selector": "a == 'b'" } },
            { "action": null },
            {},
            "rule",
            { "action": "Allow" },
        ]);
        let policy = policy(json!({ "ingress": rules }));
        let actions: Vec<Action> = policy.ingress.iter().map(|rule| rule.action).collect();
        assert_eq!(actions[..5], [Action::Deny; 5]);
        assert_eq!(actions[5..], [Action::Allow]);
        assert_eq!(policy.ingress[0].destination.ports.len(), 1);
        assert!(policy.ingress[1].source.nets.is_empty());
        assert!(policy.ingress[1].source.selector.is_some());
    }

    #[test]
    fn nothing_is_left_of_what_is_for_nobody_known() {
        let rules = json!([{ "action": "Deny" }]);
        let spec = json!({ "selector": "a == ", "ingress": rules });
        assert_eq!(salvaged(Kind::GlobalNetworkPolicy, spec), None);
        let spec = json!({ "node": "n", "expectedIPs": ["", ""] });
        assert_eq!(salvaged(Kind::HostEndpoint, spec), None);
        assert_eq!(salvage(Kind::GlobalNetworkPolicy, &json!("text")), None);
        assert_eq!(salvage(Kind::Node, &json!({ "spec": {} })), None);
    }

    #[test]
    fn a_host_stays_protected_and_a_set_keeps_its_readable_networks() {
        let ips = json!(["", "10.0.0.1", "x"]);
        for interface in [json!("eth0"), json!(""), json!(null), json!(7)] {
            let spec = json!({ "node": "n", "interfaceName": interface, "expectedIPs": ips });
            let Some(Change::Host(_, Some(host))) = salvaged(Kind::HostEndpoint, spec) else {
                panic!("no host is left of one with interface {interface}")
            };
            assert_eq!(host.addresses, ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
            assert_eq!(host.interface, interface.as_str().unwrap_or_default());
        }
        let spec = json!({ "nets": ["1.2.3.4/40", "5.6.7.8/32", 7] });
        let Some(Change::NetworkSet(_, Some(set))) = salvaged(Kind::GlobalNetworkSet, spec) else {
            panic!("no set is left")
        };
        assert_eq!(set.nets, ["5.6.7.8/32".parse().unwrap()]);
    }

    #[test]
    fn a_tier_keeps_its_place_and_a_profile_its_labels() {
        let change = salvaged(Kind::Tier, json!({ "order": 7, "defaultAction": "Bogus" }));
        let Some(Change::Tier(_, Some(tier))) = change else { panic!("{change:?}") };
        assert_eq!((tier.order, tier.end), (Some(7.0), crate::End::Deny));
        let rules = json!([{ "action": "Allow", "source": { "selector": "((" } }]);
        let spec = json!({ "labelsToApply": { "a": "b" }, "ingress": rules });
        let change = salvaged(Kind::Profile, spec);
        let Some(Change::Profile(_, Some(profile))) = change else { panic!("{change:?}") };
        assert_eq!(profile.ingress[0].protocol, profile.ingress[0].not_protocol);
        assert_eq!(profile.labels.len(), 1);
    }
}
