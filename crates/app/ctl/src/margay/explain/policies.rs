//! `margay explain policy NAME`: whom it selects, what it opens, which of its rules never match.

use std::fmt::Write as _;

use policy::explain::{Side, Words};
use policy::input::{Policy, PolicyId, PolicyKind};
use policy::review::{Contradiction, Never, Review, Reviewed, review};
use serde_json::{Value, json};
use store::resources::Name;
use text::words::count;

use super::super::failure::Failure;
use super::super::session::{DEFAULT_NAMESPACE, Session};
use super::super::structured;
use super::super::terminal::{Mark, Terminal};
use super::world::World;
use super::{ExplainArguments, printable_lines};

/// Endpoints that are named one by one.
const NAMED_MAX: usize = 10;

pub(super) fn run(
    terminal: Terminal,
    session: &Session,
    name: &str,
    arguments: &ExplainArguments,
) -> Result<bool, Failure> {
    let world = World::read(session)?;
    let ids = find(&world, name, arguments.traffic.namespace.as_deref());
    let mut texts = String::new();
    let mut values = Vec::new();
    let mut is_fine = true;
    for id in &ids {
        let (Some(policy), Some(review)) =
            (world.cluster.policies.get(id), review(&world.cluster, id))
        else {
            continue;
        };
        is_fine &= idle(&review) == 0 && wrong(&world, id).is_empty();
        texts += &screen(terminal, &world, (id, policy), &review);
        values.push(value(&world, (id, policy), &review));
    }
    if values.is_empty() {
        return Err(unknown(&world, name, arguments.traffic.namespace.as_deref()));
    }
    let text = match (arguments.format.output, values.len()) {
        (Some(format), 1) => structured(format, &values.remove(0)),
        (Some(format), _) => structured(format, &Value::Array(values)),
        (None, _) => texts,
    };
    terminal.page(&text)?;
    Ok(is_fine)
}

/// The policies of a name: `namespace/name`, or the name alone.
fn find(world: &World, name: &str, namespace: Option<&str>) -> Vec<PolicyId> {
    let all = || world.cluster.policies.keys();
    if let Some((namespace, name)) = name.split_once('/') {
        let is_it = |id: &&PolicyId| id.namespace == namespace && id.name == name;
        return all().filter(is_it).cloned().collect();
    }
    let here = namespace.unwrap_or(DEFAULT_NAMESPACE);
    let is_near = |id: &&PolicyId| id.name == name && [here, ""].contains(&id.namespace.as_str());
    let near: Vec<PolicyId> = all().filter(is_near).cloned().collect();
    match near.is_empty() && namespace.is_none() {
        true => all().filter(|id| id.name == name).cloned().collect(),
        false => near,
    }
}

fn unknown(world: &World, name: &str, namespace: Option<&str>) -> Failure {
    let (namespace, short) = match name.split_once('/') {
        Some((namespace, short)) => (Some(namespace), short),
        None => (namespace, name),
    };
    let is_meant = |it: &Name| {
        let is_policy = it.kind.name().ends_with("NetworkPolicy");
        let is_there = namespace.is_none_or(|namespace| it.namespace == namespace);
        is_policy && it.name == short && (is_there || it.namespace.is_empty())
    };
    if let Some(failure) = world.unusable(is_meant) {
        return failure;
    }
    let known: Vec<String> = world.cluster.policies.keys().map(ToString::to_string).collect();
    let nearest = text::distance::nearest(name, known.iter().map(String::as_str));
    let failure = Failure::new(format!("there is no policy {name}"));
    match nearest {
        Some(nearest) => failure.help(format!("did you mean {nearest}?")),
        None => failure.help("margay get np -A and margay get gnp list them"),
    }
}

/// What is wrong with a policy as it is stored.
fn wrong<'a>(world: &'a World, id: &PolicyId) -> &'a [String] {
    match id.kind.name().parse() {
        Ok(kind) => world.problems(&Name::namespaced(kind, &id.namespace, &id.name).key()),
        Err(_) => &[],
    }
}

/// What is wrong with a rule, by its list and its place there.
fn wrong_at<'a>(wrong: &'a [String], direction: &str, at: usize) -> Option<&'a str> {
    let path = format!("spec.{direction}[{at}]");
    wrong.iter().find_map(|it| it.starts_with(&path).then_some(it.as_str()))
}

fn idle(review: &Review) -> usize {
    review.ingress.iter().chain(&review.egress).filter(|it| it.never.is_some()).count()
}

fn endpoints(world: &World, review: &Review) -> Vec<String> {
    let pod = |key: &String| match world.pods.get(key) {
        Some((namespace, pod)) => format!("{namespace}/{pod}"),
        None => key.clone(),
    };
    let hosts = review.hosts.iter().map(|key| format!("host endpoint {key}"));
    review.workloads.iter().map(pod).chain(hosts).collect()
}

fn screen(
    terminal: Terminal,
    world: &World,
    (id, policy): (&PolicyId, &Policy),
    review: &Review,
) -> String {
    let names = endpoints(world, review);
    let n_idle = idle(review);
    let wrong = wrong(world, id);
    let mark = match (names.is_empty(), n_idle) {
        (false, 0) if wrong.is_empty() => Mark::Fine,
        _ => Mark::Degraded,
    };
    let staged = if id.kind.is_staged() { "staged, not in force; " } else { "" };
    let words = Words { sets: &review.scanned.sets, namespace: &id.namespace };
    let selects = match names.len() {
        0 => "selects nothing".to_owned(),
        n => format!("selects {}", count(n, "endpoint")),
    };
    let never = match n_idle {
        0 => String::new(),
        1 => ", 1 rule never matches".to_owned(),
        n => format!(", {n} rules never match"),
    };
    let mut text = format!("policy {id}: {staged}{selects}{never}\n");
    let order = policy.order.map_or("last".to_owned(), |order| format!("order {order}"));
    let _ = writeln!(text, "tier     {}, {order}", policy.tier);
    let _ = writeln!(text, "selects  {}", words.selector(&policy.selector));
    let shown = names.len().min(NAMED_MAX);
    if shown > 0 {
        let more = match names.len() - shown {
            0 => String::new(),
            more => format!(", … and {more} more"),
        };
        let _ = writeln!(text, "         {}{more}", names[..shown].join(", "));
    }
    for problem in wrong {
        let _ = writeln!(text, "wrong    {problem}");
    }
    let directions = [
        ("ingress", policy.is_for_ingress, &review.ingress),
        ("egress", policy.is_for_egress, &review.egress),
    ];
    for (direction, decides, rules) in directions {
        if decides && rules.is_empty() {
            let _ = writeln!(
                text,
                "{direction:<8} no rules: denies everything that no other policy allows"
            );
        }
        for (number, it) in (1..).zip(rules) {
            if wrong_at(wrong, direction, number - 1).is_some() && it.never.is_some() {
                let _ = writeln!(
                    text,
                    "{direction:<8} rule {number}  cannot be read: it matches nothing"
                );
                continue;
            }
            let rule = words.rule(&it.rule);
            let why = it.never.as_ref().map_or(String::new(), |never| {
                format!("      never matches: {}", said(words, never))
            });
            let _ = writeln!(text, "{direction:<8} rule {number}  {rule}{why}");
        }
    }
    format!("{} {}", terminal.mark(mark), printable_lines(&text))
}

fn said(words: Words<'_>, never: &Never) -> String {
    match never {
        Never::NotItsDirection => "spec.types does not name this direction".to_owned(),
        Never::After(rule) => format!("rule {} decides all that it would match", rule + 1),
        Never::Empty(side, set) => {
            let side = match side {
                Side::Source => "source",
                Side::Destination => "destination",
            };
            format!("no {side} is {}", words.set(set))
        }
        Never::Contradiction(why) => match why {
            Contradiction::UnknownProtocol(name) => format!("nobody knows the protocol {name}"),
            Contradiction::Protocol => "it asks for a protocol and rules it out".to_owned(),
            Contradiction::Icmp => "no packet is such an ICMP message".to_owned(),
            Contradiction::PortsWithoutProtocol => "the protocol has no ports".to_owned(),
            Contradiction::Ports => "it asks for ports and rules them out".to_owned(),
            Contradiction::Nets => "it asks for networks and rules them out".to_owned(),
            Contradiction::Versions => "it asks for IPv4 and IPv6 at once".to_owned(),
            Contradiction::Sets => "it asks for labels and rules them out".to_owned(),
        },
    }
}

fn value(world: &World, (id, policy): (&PolicyId, &Policy), review: &Review) -> Value {
    let words = Words { sets: &review.scanned.sets, namespace: &id.namespace };
    let wrong = wrong(world, id);
    let rules = |direction: &str, rules: &[Reviewed]| {
        let rule = |(number, it): (usize, &Reviewed)| {
            json!({
                "rule": number,
                "text": words.rule(&it.rule),
                "neverMatches": it.never.as_ref().map(|never| said(words, never)),
                "problem": wrong_at(wrong, direction, number - 1),
            })
        };
        (1..).zip(rules).map(rule).collect::<Vec<_>>()
    };
    let is_global =
        matches!(id.kind, PolicyKind::GlobalNetworkPolicy | PolicyKind::StagedGlobalNetworkPolicy);
    json!({
        "kind": id.kind.name(),
        "name": id.name,
        "namespace": (!is_global).then_some(&id.namespace),
        "tier": policy.tier,
        "order": policy.order,
        "selector": policy.selector.canonical(),
        "endpoints": endpoints(world, review),
        "problems": wrong,
        "ingress": rules("ingress", &review.ingress),
        "egress": rules("egress", &review.egress),
    })
}
