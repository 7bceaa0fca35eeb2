//! `margay drops`: the packets that this node's policies denied, with who and why.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use clap::Args;
use host::drops::{Drop, Heard, SPAN};
use host::marks::DENIALS_AT_ONCE;
use host::protocol::Inquiry;
use host::report::Drops;
use model::resource::Direction;
use policy::explain::protocol;
use policy::intent::Intent;
use policy::{Endpoint, RuleName};
use serde_json::{Value, json};

use super::agent::{Agent, now};
use super::arguments::{Format, Place, Structured};
use super::explain::world::World;
use super::failure::Failure;
use super::session::Session;
use super::terminal::{self, Terminal, printable_line};
use super::{get, structured};

/// How often the agent is asked for more.
const POLL: Duration = Duration::from_millis(500);
/// How old names may be when somebody appears whom nobody knows.
const NAMES_AGE_MAX: Duration = Duration::from_secs(10);

#[derive(Args, Debug)]
pub(crate) struct DropsArguments {
    /// Only those that name this: a pod, an address, a policy or a tier
    pub(crate) object: Option<String>,
    /// Go on, and show every new one; with -o json as one line each
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) agent: Agent,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// The command.
pub(crate) fn run(
    terminal: Terminal,
    place: &Place,
    arguments: &DropsArguments,
) -> Result<bool, Failure> {
    let mut wanted = Heard::default();
    let mut answer = arguments.agent.ask::<Drops>(&Inquiry::Drops(wanted.clone()))?;
    let mut names = Names::read(place, &answer.node);
    if !arguments.follow {
        print(terminal, arguments, &names, &answer)?;
        return Ok(true);
    }
    let mut shown = BTreeSet::new();
    let mut counted: Vec<Drop> = Vec::new();
    loop {
        names.catch_up(place, &answer);
        for it in answer.drops.drain(..) {
            wanted.after = wanted.after.max(it.number);
            counted.retain(|other| (other.first, &other.packet) != (it.first, &it.packet));
            // The first of its sort is said at once; how many there were, when that is known.
            if shown.insert((it.first, format!("{:?}", it.packet))) {
                follow(arguments, &names, &answer.node, &it)?;
            } else {
                counted.push(it);
            }
        }
        let over: Vec<Drop> = counted.extract_if(.., |it| now() >= it.first + SPAN).collect();
        for it in over {
            follow(arguments, &names, &answer.node, &it)?;
        }
        shown.retain(|(first, _)| now() < first + 2 * SPAN);
        terminal::rest(POLL)?;
        answer = arguments.agent.ask::<Drops>(&Inquiry::Drops(wanted.clone()))?;
    }
}

/// What people call addresses, and what rules are made of.
struct Names {
    world: Option<World>,
    intent: Intent,
    node: String,
    as_of: Instant,
}

impl Names {
    /// Without a datastore there are addresses only.
    fn read(place: &Place, node: &str) -> Self {
        let world = Session::open(place).and_then(|session| World::read(&session)).ok();
        let intent = world.as_ref().map(|world| world.intent(node)).unwrap_or_default();
        Self { world, intent, node: node.to_owned(), as_of: Instant::now() }
    }

    /// Reads again if there is an address that nobody knew, and that may be a new pod's.
    fn catch_up(&mut self, place: &Place, answer: &Drops) {
        let is_known = |it: &Drop| {
            self.owner(it.packet.source).is_some() && self.owner(it.packet.destination).is_some()
        };
        if self.as_of.elapsed() > NAMES_AGE_MAX && !answer.drops.iter().all(is_known) {
            *self = Self::read(place, &self.node);
        }
    }

    fn owner(&self, address: IpAddr) -> Option<Endpoint> {
        self.world.as_ref()?.cluster.endpoints_at(address).into_iter().next()
    }

    fn name(&self, address: IpAddr) -> Option<String> {
        let world = self.world.as_ref()?;
        match self.owner(address) {
            Some(Endpoint::Workload(key)) => self.pod(&key),
            Some(Endpoint::Host(key)) => Some(key),
            None => {
                let is_its =
                    |(_, addresses): &(&String, &Vec<IpAddr>)| addresses.contains(&address);
                world.nodes.iter().find(is_its).map(|(name, _)| name.clone())
            }
        }
    }

    /// The direction, and what decided in words.
    fn rule(&self, it: &Drop) -> (&'static str, String) {
        let name = RuleName::read(&it.packet.rule, &self.intent);
        let direction = match name.as_ref().map(|it| it.direction) {
            Some(Direction::Ingress) => "ingress",
            Some(Direction::Egress) => "egress",
            None => "",
        };
        let decided = it.told.decided.clone().or_else(|| name.map(|name| name.to_string()));
        (direction, decided.unwrap_or_else(|| it.packet.rule.clone()))
    }

    /// What people call both ends: the one whose policies decided is known by its endpoint of then.
    fn ends(&self, it: &Drop) -> [Option<String>; 2] {
        let direction = RuleName::read(&it.packet.rule, &self.intent).map(|it| it.direction);
        let own = it.told.endpoint.as_ref().map(|key| self.pod(key).unwrap_or_else(|| key.clone()));
        let named = [it.packet.source, it.packet.destination].map(|it| self.name(it));
        match (named, direction, own) {
            ([_, to], Some(Direction::Egress), Some(own)) => [Some(own), to],
            ([from, _], Some(Direction::Ingress), Some(own)) => [from, Some(own)],
            (named, ..) => named,
        }
    }

    fn pod(&self, key: &str) -> Option<String> {
        let pod = self.world.as_ref()?.pods.get(key);
        pod.map(|(namespace, pod)| format!("{namespace}/{pod}"))
    }
}

fn print(
    terminal: Terminal,
    arguments: &DropsArguments,
    names: &Names,
    answer: &Drops,
) -> Result<(), Failure> {
    let lines: Vec<(&Drop, String)> = answer
        .drops
        .iter()
        .map(|it| (it, line(names, &answer.node, it)))
        .filter(|(it, line)| is_meant(arguments, it, line))
        .collect();
    if let Some(format) = arguments.format.output {
        let drops: Vec<Value> =
            lines.iter().map(|(it, _)| value(names, &answer.node, it)).collect();
        let answer = json!({ "node": answer.node, "drops": drops, "lost": answer.lost });
        terminal.page(&structured(format, &answer))?;
        return Ok(());
    }
    if lines.is_empty() {
        let named =
            arguments.object.as_ref().map_or(String::new(), |it| format!(" that name {it}"));
        let what = format!("no denied packets{named} on {}", answer.node);
        get::complain(&printable_line(&what))?;
    }
    if answer.lost > 0 {
        get::complain("more packets came than could be noted; these are some of them")?;
    }
    let text: String = lines.into_iter().map(|(_, line)| line + "\n").collect();
    Ok(terminal.page(&text)?)
}

fn is_meant(arguments: &DropsArguments, it: &Drop, line: &str) -> bool {
    let addresses = [it.packet.source, it.packet.destination];
    arguments.object.as_ref().is_none_or(|object| {
        let is_its = |address: &IpAddr| net::parse_ip(object) == Some(*address);
        line.contains(object.as_str()) || addresses.iter().any(is_its)
    })
}

fn follow(arguments: &DropsArguments, names: &Names, node: &str, it: &Drop) -> Result<(), Failure> {
    let line = line(names, node, it);
    if !is_meant(arguments, it, &line) {
        return Ok(());
    }
    let text = match arguments.format.output {
        Some(Structured::Json) => text::json::to_string(&value(names, node, it)) + "\n",
        Some(Structured::Yaml) => {
            format!("---\n{}", text::yaml::to_string(&value(names, node, it)))
        }
        None => line + "\n",
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// `tcp`, or `icmp type 8 code 0`.
fn spoken_protocol(it: &Drop) -> String {
    let name = protocol(&net::Protocol::Number(it.packet.protocol));
    match it.packet.icmp {
        Some((kind, code)) => format!("{name} type {kind} code {code}"),
        None => name,
    }
}

/// One line; times are in UTC.
fn line(names: &Names, node: &str, it: &Drop) -> String {
    let time = api::schema::utc(i64::try_from(it.last).unwrap_or(i64::MAX));
    let time = time.get(11..19).unwrap_or(&time);
    let port = it.packet.port.map_or(String::new(), |port| format!(":{port}"));
    let [from, to] = names.ends(it);
    let from = from.unwrap_or_else(|| it.packet.source.to_string());
    let to = to.unwrap_or_else(|| it.packet.destination.to_string());
    let who = format!("{from} → {to}{port} {}", spoken_protocol(it));
    let (direction, rule) = names.rule(it);
    let more = if is_sample(it) { "+" } else { "" };
    let count = match it.count {
        1 => String::new(),
        n => format!("   ×{n}{more} in {} s", (it.last - it.first).max(1)),
    };
    let at = format!("{node} {direction}");
    printable_line(&format!("{time}  {who:<40}  {at:<12}  {rule}{count}")).into_owned()
}

/// Whether there may have been more: only so many of each rule are told at once.
fn is_sample(it: &Drop) -> bool {
    it.count >= u64::from(DENIALS_AT_ONCE)
}

fn value(names: &Names, node: &str, it: &Drop) -> Value {
    let time = |seconds: u64| api::schema::utc(i64::try_from(seconds).unwrap_or(i64::MAX));
    let end = |name: Option<String>, address: IpAddr| json!({ "name": name, "address": address });
    let [from, to] = names.ends(it);
    let (direction, rule) = names.rule(it);
    json!({
        "first": time(it.first),
        "last": time(it.last),
        "count": it.count,
        "isAtLeast": is_sample(it),
        "source": end(from, it.packet.source),
        "destination": end(to, it.packet.destination),
        "protocol": protocol(&net::Protocol::Number(it.packet.protocol)),
        "port": it.packet.port,
        "icmp": it.packet.icmp,
        "node": node,
        "direction": direction,
        "rule": rule,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::drops::{Denied, Told};

    #[test]
    fn a_line_says_who_spoke_to_whom_and_what_denied_it() {
        let names = Names {
            world: None,
            intent: Intent::default(),
            node: "n2".to_owned(),
            as_of: Instant::now(),
        };
        let packet = Denied {
            rule: "i:np:1:shop/db".to_owned(),
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol: 6,
            port: Some(5432),
            icmp: None,
        };
        let told = Told::default();
        let mut it = Drop { number: 1, first: 50_592, last: 50_602, count: 14, packet, told };
        let said = line(&names, "n2", &it);
        assert!(said.starts_with("14:03:22  10.0.0.1 → 10.0.0.2:5432 tcp "), "{said}");
        assert!(
            said.ends_with("n2 ingress    policy shop/db, ingress rule 2   ×14 in 10 s"),
            "{said}"
        );
        it.packet.rule = "e:end:default".to_owned();
        it.count = 20;
        assert!(line(&names, "n2", &it).ends_with("end of tier default   ×20+ in 10 s"));
        it.count = 1;
        assert!(line(&names, "n2", &it).ends_with("n2 egress     end of tier default"));
        it.told.decided = Some("end of tier default (policies a, b)".to_owned());
        it.told.endpoint = Some("shop/n2-k8s-web-eth0".to_owned());
        let said = line(&names, "n2", &it);
        assert!(said.contains("  shop/n2-k8s-web-eth0 → 10.0.0.2:5432 tcp "), "{said}");
        assert!(said.ends_with("n2 egress     end of tier default (policies a, b)"), "{said}");
        it.told = Told::default();
        it.packet.rule = "\u{1b}[31m".to_owned();
        assert!(!line(&names, "n2", &it).contains('\u{1b}'));
    }
}
