//! The answer for people: the verdict, then the way to it.

use std::fmt::Write as _;

use model::resource::Action;
use policy::explain::{
    Ends, Layer, PolicyWalk, RuleWalk, Step, TierWalk, Walk, Words, action, protocol,
};
use policy::{End as TierEnd, Endpoint, Outcome, Packet, Place};
use text::words::count;

use super::super::terminal::{Mark, Terminal, printable};
use super::ends::End;
use super::hops::{Hop, denied, word};
use super::kernels::Kernel;
use super::{Answer, Verdict};

/// Near misses of one policy that are shown one by one.
const SHOWN_MAX: usize = 8;

/// One answer for all versions of IP that say the same, or one for each.
pub(super) fn of_all(terminal: Terminal, answers: &[Answer<'_>]) -> String {
    match answers {
        [] => String::new(),
        [only] => text(terminal, only, ""),
        [first, rest @ ..] if rest.iter().all(|it| is_alike(first, it)) => {
            text(terminal, first, " by IPv4 and by IPv6")
        }
        each => {
            let of = |it| text(terminal, it, &format!(" by {}", version(&it.packet)));
            each.iter().map(of).collect::<Vec<_>>().join("\n")
        }
    }
}

/// `IPv4`.
pub(super) fn version(packet: &Packet) -> &'static str {
    if packet.source.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Whether the same decides at the same place.
fn is_alike(one: &Answer<'_>, other: &Answer<'_>) -> bool {
    let decided = |answer: &Answer<'_>| {
        denied(&answer.hops).map(|hop| (word(hop.direction), hop.walk.decided_by.clone()))
    };
    one.verdict() == other.verdict() && decided(one) == decided(other)
}

fn text(terminal: Terminal, answer: &Answer<'_>, by: &str) -> String {
    let (mark, verdict) = headline(answer, by);
    let mut text = verdict + "\n";
    let mut labels = Vec::new();
    for hop in &answer.hops {
        labels.push(format!("{} of {} ({})", word(hop.direction), hop.short, hop.node));
    }
    let width = labels.iter().map(|it| it.chars().count()).max().unwrap_or(0);
    for (hop, label) in answer.hops.iter().zip(labels) {
        let _ = writeln!(text, "{label:<width$}  {}", way(&hop.walk));
        for line in details(answer, hop) {
            let _ = writeln!(text, "{:width$}    {line}", "");
        }
    }
    for unknown in &answer.unknown {
        let (direction, node) = (word(unknown.direction), &unknown.node);
        let _ = writeln!(text, "{direction} of {node} is not known: {unknown}");
    }
    for end in [&answer.source, &answer.destination].into_iter().filter(|it| is_open(answer, it)) {
        let is_of_pods = end.addresses.iter().any(|it| answer.world.is_of_pods(*it));
        let what = match end.is_host {
            true => "has no host endpoint on this way",
            false if is_of_pods => "is an address of pods that none has: nothing answers",
            false => "is outside",
        };
        let _ = writeln!(text, "{} {what}: no policies decide there", end.name);
    }
    if let Some((hop, why)) = answer.hops.iter().find_map(|hop| Some((hop, hop.untranslated?))) {
        let (to, node) = (answer.packet.destination, &hop.node);
        let _ = writeln!(text, "note: unless something translates {to}, {node} drops it: {why}");
    }
    let _ = writeln!(text, "path  {}", path(answer));
    let mark_of_lack = terminal.mark(Mark::Degraded);
    for line in answer.kernels.iter().flat_map(Kernel::told) {
        let _ = writeln!(text, "{mark_of_lack} {line}");
    }
    if answer.packet.ports.is_none() && matches!(answer.packet.protocol, 6 | 17 | 132) {
        let _ = writeln!(text, "note: without --port, rules that name ports do not match");
    }
    text += &unusable(answer);
    let is_guard = |hop: &&Hop| {
        let decided = hop.walk.decided_by.as_ref();
        decided.is_some_and(|it| matches!(it.place, Place::Guard { .. }))
    };
    if let Some(unknown) = answer.unknown.iter().find(|it| !it.is_told) {
        let node = &unknown.node;
        let _ = writeln!(text, "help: the agent of {node} tells: margay status, on {node}");
    }
    if let Some(hop) = denied(&answer.hops).filter(|hop| !is_guard(hop)) {
        let (name, typed) = (&hop.short, answer.typed());
        let _ = writeln!(
            text,
            "help: to allow it, a rule in a policy that selects {name}:   margay policy suggest {typed}"
        );
    }
    format!("{} {}", terminal.mark(mark), printable_lines(&text))
}

/// What is stored and cannot be used.
fn unusable(answer: &Answer<'_>) -> String {
    let mut text = String::new();
    if !answer.world.aside.is_empty() {
        let n = count(answer.world.aside.len(), "object");
        let spoken = answer.world.spoken_aside();
        let first = spoken.first().map_or("", String::as_str);
        let _ = writeln!(
            text,
            "note: {n} cannot be used and is not in force as it is, such as {first}"
        );
    }
    if let Some(first) = answer.world.spoken_lacking().first() {
        let _ = writeln!(
            text,
            "note: a node that has read an earlier revision of {first} keeps that in force, \
             which is not known here"
        );
    }
    text
}

/// Whether no policies decide at an end.
fn is_open(answer: &Answer<'_>, end: &End) -> bool {
    let is_judged = |node: &String| end.node.as_ref() == Some(node);
    let is_of_host = |hop: &Hop| matches!(hop.endpoint, Endpoint::Host(_)) && is_judged(&hop.node);
    let mut unknown = answer.unknown.iter();
    let is_judged_host =
        answer.hops.iter().any(is_of_host) || unknown.any(|it| is_judged(&it.node));
    end.endpoint.is_none() && !(end.is_host && is_judged_host)
}

/// Names come from the datastore: nothing in them reaches the terminal but what can be read.
pub(crate) fn printable_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", printable(line))).collect()
}

/// `tcp 5432`.
pub(super) fn what(packet: &Packet) -> String {
    let protocol = protocol(&net::Protocol::Number(packet.protocol));
    match packet.ports {
        Some((_, port)) => format!("{protocol} {port}"),
        None => protocol,
    }
}

fn headline(answer: &Answer<'_>, by: &str) -> (Mark, String) {
    let kernels: String = answer.kernels.iter().map(|it| format!(", {it}")).collect();
    let about = format!("(policy revision {}{kernels})", answer.world.revision);
    let Some(hop) = denied(&answer.hops) else {
        let (from, to) = (&answer.source.name, &answer.destination.name);
        let is_known = answer.verdict() == Verdict::Allowed;
        let word = if is_known { "allowed" } else { "not known" };
        let verdict = format!("{word}{by}: {} from {from} to {to}", what(&answer.packet));
        let is_in_force = is_known && answer.kernels.iter().all(Kernel::has_all);
        let mark = if is_in_force { Mark::Fine } else { Mark::Degraded };
        return (mark, format!("{verdict}      {about}"));
    };
    let at = format!("denied{by} at {} of {}", word(hop.direction), hop.name);
    let verdict = match &hop.walk.decided_by {
        Some(name) => match &name.place {
            Place::EndOfTier { tier } => format!("{at} by tier {tier}: no policy allows it"),
            Place::NoProfile | Place::Guard { .. } => format!("{at}: {name}"),
            Place::Profile { profile, .. } if !answer.world.has_profile(profile) => {
                format!("{at}: profile {profile} is not there")
            }
            _ => format!("{at} by {name}"),
        },
        None => at,
    };
    (Mark::Broken, format!("{verdict}      {about}"))
}

/// `tier security: pass (policy baseline, rule 1) → tier default: allow (…)`.
fn way(walk: &Walk) -> String {
    let mut steps: Vec<String> = walk.tiers.iter().map(tier).collect();
    if let Some(last) = walk.profiles.last() {
        let decided = last.rules.last().filter(|it| it.is_match);
        steps.push(match (decided, walk.outcome) {
            (Some(rule), _) => {
                let (name, n) = (&last.name, last.rules.len());
                format!("profile {name}: {} (rule {n})", action(rule.rule.action))
            }
            (None, _) => "no profile allows it".to_owned(),
        });
    } else if let Some(name) = &walk.decided_by
        && matches!(name.place, Place::NoProfile | Place::Guard { .. })
    {
        steps.push(name.to_string());
    }
    if steps.is_empty() {
        steps.push("no policies".to_owned());
    }
    steps.join(" → ")
}

fn layer(layer: Layer) -> &'static str {
    match layer {
        Layer::Normal => "",
        Layer::Forward => " (forwarded)",
        Layer::PreDnat => " (before DNAT)",
        Layer::Untracked => " (untracked)",
    }
}

fn tier(tier: &TierWalk) -> String {
    let name = format!("tier {}{}", tier.name, layer(tier.layer));
    match tier.step {
        Step::Rule { policy, rule, action: done } => {
            let id = tier.policies.get(policy).map(|it| it.id.to_string()).unwrap_or_default();
            format!("{name}: {} (policy {id}, rule {})", action(done), rule + 1)
        }
        Step::End(end) => {
            let n = tier.policies.len();
            let applies = if n == 1 { "policy applies" } else { "policies apply" };
            let end = match end {
                TierEnd::Deny => "denied",
                TierEnd::Pass => "passed on",
            };
            format!("{name}: {n} {applies}, none matches: {end}")
        }
    }
}

/// The rules that nearly did, where no rule decided; the members that matched, where one did.
fn details(answer: &Answer<'_>, hop: &Hop) -> Vec<String> {
    let ends = Ends {
        source: answer.source.party(answer.world),
        destination: answer.destination.party(answer.world),
    };
    let mut lines = Vec::new();
    for tier in &hop.walk.tiers {
        if matches!(tier.step, Step::End(_)) && hop.walk.outcome == Some(Outcome::Deny) {
            lines.extend(near_misses(answer, tier, &ends));
        }
        for staged in &tier.staged {
            if let Some((rule, would)) = staged.would {
                let (id, would) = (&staged.id, action(would));
                lines.push(format!("staged policy {id} would {would} it (rule {})", rule + 1));
            }
        }
    }
    let deciding = hop.walk.tiers.last().and_then(|tier| match tier.step {
        // What it passed on was decided elsewhere.
        Step::Rule { action: Action::Pass, .. } => None,
        Step::Rule { policy, rule, .. } => {
            let policy = tier.policies.get(policy)?;
            Some((policy, policy.rules.get(rule)?))
        }
        Step::End(_) => None,
    });
    lines.extend(deciding.map(|(policy, rule)| decision(answer, policy, rule)));
    lines
}

fn decision(answer: &Answer<'_>, policy: &PolicyWalk, rule: &RuleWalk) -> String {
    let words = Words { sets: &answer.world.sets, namespace: &policy.id.namespace };
    let said = words.rule(&rule.rule);
    let members: Vec<String> = rule.met.iter().map(|it| super::value::member(&it.member)).collect();
    match members.is_empty() {
        true => said,
        false => format!("{said}      in its sets: {}", members.join(", ")),
    }
}

fn near_misses(answer: &Answer<'_>, tier: &TierWalk, ends: &Ends) -> Vec<String> {
    let mut rows = Vec::new();
    for policy in &tier.policies {
        let words = Words { sets: &answer.world.sets, namespace: &policy.id.namespace };
        for (number, rule) in (1..).zip(&policy.rules).take(SHOWN_MAX) {
            let lack = |it| words.lack(it, &answer.packet, ends);
            let lacks: Vec<String> = rule.lacks.iter().map(lack).collect();
            let name = format!("policy {}", policy.id);
            let rule = words.rule(&rule.rule);
            rows.push((name, format!("rule {number}"), rule, lacks.join("; ")));
        }
        if policy.rules.is_empty() {
            let name = format!("policy {}", policy.id);
            rows.push((name, "no rules".to_owned(), String::new(), String::new()));
        } else if policy.rules.len() > SHOWN_MAX {
            let more = policy.rules.len() - SHOWN_MAX;
            let name = format!("policy {}", policy.id);
            rows.push((name, format!("… {more} more rules"), String::new(), String::new()));
        }
    }
    let width = |of: fn(&(String, String, String, String)) -> &String| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0)
    };
    let (first, second, third) = (width(|it| &it.0), width(|it| &it.1), width(|it| &it.2));
    let line = |(policy, rule, said, lacks): &(String, String, String, String)| {
        let line = format!("{policy:<first$} {rule:<second$}  {said:<third$}      {lacks}");
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// `web-1 → caliab12 (n1) → cali9f00 (n2) → db-0`.
fn path(answer: &Answer<'_>) -> String {
    let (source, destination) = (&answer.source, &answer.destination);
    let through = |end: &End| match (&end.interface, &end.node) {
        (Some(interface), Some(node)) if !interface.is_empty() => format!("{interface} ({node})"),
        (_, Some(node)) if !end.is_host => format!("({node})"),
        _ => String::new(),
    };
    let steps =
        [source.short.clone(), through(source), through(destination), destination.short.clone()];
    let steps: Vec<String> = steps.into_iter().filter(|it| !it.is_empty()).collect();
    steps.join(" → ")
}
