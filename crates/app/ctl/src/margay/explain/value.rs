//! The answer for programs; field names are stable.

use policy::explain::{
    Ends, Layer, ProfileWalk, RuleWalk, Step, TierWalk, Walk, Words, action, protocol,
};
use policy::{End as TierEnd, Member, Outcome};
use serde_json::{Value, json};

use super::ends::End;
use super::hops::{Hop, denied, word};
use super::screen::version;
use super::{Answer, Verdict};

/// What is said of the first, which is denied if any is, and the verdict for each version of IP.
pub(super) fn of_all(answers: &[Answer<'_>]) -> Value {
    let Some(first) = answers.first() else { return Value::Null };
    let mut all = value(first);
    let verdicts = answers.iter().map(|answer| {
        let by = denied(&answer.hops).and_then(|hop| hop.walk.decided_by.as_ref());
        json!({
            "version": version(&answer.packet),
            "verdict": verdict(answer),
            "deniedBy": by.map(ToString::to_string),
        })
    });
    all["versions"] = verdicts.collect();
    all
}

fn verdict(answer: &Answer<'_>) -> &'static str {
    match answer.verdict() {
        Verdict::Allowed => "allow",
        Verdict::Denied => "deny",
        Verdict::Unknown => "unknown",
    }
}

fn value(answer: &Answer<'_>) -> Value {
    let packet = &answer.packet;
    let by = denied(&answer.hops).and_then(|hop| hop.walk.decided_by.as_ref());
    let hops = answer.hops.iter().map(|hop| of_hop(answer, hop));
    json!({
        "verdict": verdict(answer),
        "deniedBy": by.map(ToString::to_string),
        "source": of_end(&answer.source, packet.source),
        "destination": of_end(&answer.destination, packet.destination),
        "protocol": protocol(&net::Protocol::Number(packet.protocol)),
        "port": packet.ports.map(|it| it.1),
        "revision": answer.world.revision,
        "kernels": answer.kernels.iter().map(|it| json!({
            "node": it.node,
            "revision": it.revision,
            "lacks": it.lack(),
            "refused": it.refused.iter().map(|it| {
                json!({ "object": it.object, "why": it.why })
            }).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "hops": hops.collect::<Vec<_>>(),
        "unknown": answer.unknown.iter().map(|it| json!({
            "direction": word(it.direction),
            "node": it.node,
            "endpoints": it.possible.iter().flatten().collect::<Vec<_>>(),
            "why": it.to_string(),
        })).collect::<Vec<_>>(),
        "unusable": answer.world.spoken_aside(),
    })
}

fn of_end(end: &End, address: std::net::IpAddr) -> Value {
    json!({
        "name": end.name, "address": address, "node": end.node, "interface": end.interface,
    })
}

fn outcome(walk: &Walk) -> Option<&'static str> {
    walk.outcome.map(|it| match it {
        Outcome::Allow => "allow",
        Outcome::Deny => "deny",
    })
}

fn of_hop(answer: &Answer<'_>, hop: &Hop) -> Value {
    let walk = &hop.walk;
    json!({
        "direction": word(hop.direction),
        "endpoint": hop.name,
        "node": hop.node,
        "verdict": outcome(walk),
        "untranslated": hop.untranslated,
        "decidedBy": walk.decided_by.as_ref().map(ToString::to_string),
        "tiers": walk.tiers.iter().map(|it| of_tier(answer, it)).collect::<Vec<_>>(),
        "profiles": walk.profiles.iter().map(|it| of_profile(answer, it)).collect::<Vec<_>>(),
    })
}

fn of_tier(answer: &Answer<'_>, tier: &TierWalk) -> Value {
    let step = match tier.step {
        Step::Rule { action: done, .. } => action(done),
        Step::End(TierEnd::Deny) => "deny",
        Step::End(TierEnd::Pass) => "pass",
    };
    let layer = match tier.layer {
        Layer::Normal => "normal",
        Layer::Forward => "forward",
        Layer::PreDnat => "preDNAT",
        Layer::Untracked => "untracked",
    };
    let policies = tier.policies.iter().map(|policy| {
        let words = Words { sets: &answer.world.sets, namespace: &policy.id.namespace };
        json!({
            "kind": policy.id.kind.name(),
            "name": policy.id.to_string(),
            "rules": of_rules(answer, words, &policy.rules),
        })
    });
    let staged = tier.staged.iter().map(|it| {
        let would = it.would.map(|(rule, would)| (rule + 1, action(would)));
        json!({
            "kind": it.id.kind.name(),
            "name": it.id.to_string(),
            "rule": would.map(|it| it.0),
            "would": would.map(|it| it.1),
        })
    });
    json!({
        "name": tier.name,
        "layer": layer,
        "step": step,
        "isEnd": matches!(tier.step, Step::End(_)),
        "policies": policies.collect::<Vec<_>>(),
        "unreached": tier.n_unreached,
        "staged": staged.collect::<Vec<_>>(),
    })
}

fn of_profile(answer: &Answer<'_>, profile: &ProfileWalk) -> Value {
    let words = Words { sets: &answer.world.sets, namespace: "" };
    json!({ "name": profile.name, "rules": of_rules(answer, words, &profile.rules) })
}

fn of_rules(answer: &Answer<'_>, words: Words<'_>, rules: &[RuleWalk]) -> Vec<Value> {
    let ends = Ends {
        source: answer.source.party(answer.world),
        destination: answer.destination.party(answer.world),
    };
    let of_rule = |(number, it): (usize, &RuleWalk)| {
        let lacks = it.lacks.iter().map(|lack| words.lack(lack, &answer.packet, &ends));
        let members = it
            .met
            .iter()
            .map(|met| json!({ "set": words.set(&met.set), "member": member(&met.member) }));
        json!({
            "rule": number,
            "action": action(it.rule.action),
            "text": words.rule(&it.rule),
            "matches": it.is_match,
            "lacks": lacks.collect::<Vec<_>>(),
            "members": members.collect::<Vec<_>>(),
        })
    };
    (1..).zip(rules).map(of_rule).collect()
}

/// A member of a set: `10.0.0.0/24`, or `10.0.0.1 tcp 80`.
pub(super) fn member(member: &Member) -> String {
    match member {
        Member::Net(net) => net.to_string(),
        Member::Port { address, protocol: number, port } => {
            format!("{address} {} {port}", protocol(&net::Protocol::Number(*number)))
        }
    }
}
