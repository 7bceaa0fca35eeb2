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
use super::ipam::grouped;
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
    /// Go on, and show every new one; with -o json as one line each, whose counts add up
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
    let mut wanted = Heard { counts: !arguments.follow, ..Heard::default() };
    let mut answer = arguments.agent.ask::<Drops>(&Inquiry::Drops(wanted.clone()))?;
    let mut names = Names::read(place, &answer.node);
    if !arguments.follow {
        print(terminal, arguments, &names, &answer)?;
        return Ok(true);
    }
    let mut said = Said::default();
    loop {
        names.catch_up(place, &answer);
        for it in answer.drops.drain(..) {
            wanted.after = wanted.after.max(it.number);
            if let Some(news) = said.hear(it) {
                follow(arguments, &names, &answer.node, &news)?;
            }
        }
        for news in said.over(now()) {
            follow(arguments, &names, &answer.node, &news)?;
        }
        terminal::rest(POLL)?;
        answer = arguments.agent.ask::<Drops>(&Inquiry::Drops(wanted.clone()))?;
    }
}

/// What somebody who follows was told: each packet is counted in one line.
#[derive(Default)]
struct Said(Vec<(Drop, u64)>);

/// Packets that somebody has not been told of.
struct News {
    /// The entry, with all its packets.
    drop: Drop,
    /// How many of them were told of before.
    already: u64,
}

impl News {
    fn count(&self) -> u64 {
        self.drop.count.saturating_sub(self.already)
    }
}

impl From<Drop> for News {
    fn from(drop: Drop) -> Self {
        Self { drop, already: 0 }
    }
}

impl Said {
    /// The first of its sort is said at once; how many more there are, when that is known.
    fn hear(&mut self, it: Drop) -> Option<News> {
        let is_same =
            |(known, _): &&mut (Drop, u64)| (known.first, &known.packet) == (it.first, &it.packet);
        if let Some((known, _)) = self.0.iter_mut().find(is_same) {
            *known = it;
            return None;
        }
        self.0.push((it.clone(), it.count));
        Some(News::from(it))
    }

    /// What no packet comes to any more.
    fn over(&mut self, now: u64) -> Vec<News> {
        let over = self.0.extract_if(.., |(it, _)| now > it.first + SPAN);
        let news = over.map(|(drop, already)| News { drop, already });
        news.filter(|news| news.count() > 0).collect()
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

    /// The direction, and what decided in words, of packets of then.
    fn rule(&self, it: &Drop) -> (&'static str, String) {
        let (direction, now) = self.spoken(&it.packet.rule);
        (direction, it.told.decided.clone().unwrap_or(now))
    }

    /// The direction of a rule, and the rule in words.
    fn spoken(&self, rule: &str) -> (&'static str, String) {
        let name = RuleName::read(rule, &self.intent);
        let direction = match name.as_ref().map(|it| it.direction) {
            Some(Direction::Ingress) => "ingress",
            Some(Direction::Egress) => "egress",
            None => "",
        };
        (direction, name.map_or_else(|| rule.to_owned(), |name| name.to_string()))
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
    let lines: Vec<(News, String)> = answer
        .drops
        .iter()
        .map(|it| News::from(it.clone()))
        .map(|it| (line(names, &answer.node, &it), it))
        .filter(|(line, it)| is_meant(arguments, &it.drop, line))
        .map(|(line, it)| (it, line))
        .collect();
    let rules: BTreeSet<&String> = lines.iter().map(|(it, _)| &it.drop.packet.rule).collect();
    let unrecorded: Vec<(&String, u64)> =
        rules.into_iter().filter_map(|it| Some((it, *answer.unrecorded.get(it)?))).collect();
    if let Some(format) = arguments.format.output {
        let drops: Vec<Value> =
            lines.iter().map(|(it, _)| value(names, &answer.node, it)).collect();
        let unrecorded = unrecorded.iter().map(|(rule, n)| {
            let (direction, rule) = names.spoken(rule);
            json!({ "direction": direction, "rule": rule, "count": n })
        });
        let answer = json!({
            "node": answer.node,
            "drops": drops,
            "unrecorded": unrecorded.collect::<Vec<_>>(),
            "lost": answer.lost,
        });
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
    let mut text: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
    for (rule, n) in &unrecorded {
        text += &more(names, &answer.node, rule, *n);
    }
    Ok(terminal.page(&text)?)
}

fn is_meant(arguments: &DropsArguments, it: &Drop, line: &str) -> bool {
    let addresses = [it.packet.source, it.packet.destination];
    arguments.object.as_ref().is_none_or(|object| {
        let is_its = |address: &IpAddr| net::parse_ip(object) == Some(*address);
        line.contains(object.as_str()) || addresses.iter().any(is_its)
    })
}

/// A line about what a rule denied without telling of it.
fn more(names: &Names, node: &str, rule: &str, n: u64) -> String {
    let (direction, rule) = names.spoken(rule);
    let line = format!(
        "and {} more  {node} {direction}  {rule}      (not recorded, since the rule stands: of a \
         source a rule tells of {DENIALS_AT_ONCE} at once, then of 5 a second)",
        grouped(usize::try_from(n).unwrap_or(usize::MAX))
    );
    printable_line(&line).into_owned() + "\n"
}

fn follow(arguments: &DropsArguments, names: &Names, node: &str, it: &News) -> Result<(), Failure> {
    let line = line(names, node, it);
    if !is_meant(arguments, &it.drop, &line) {
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
fn line(names: &Names, node: &str, news: &News) -> String {
    let it = &news.drop;
    let time = api::schema::utc(i64::try_from(it.last).unwrap_or(i64::MAX));
    let time = time.get(11..19).unwrap_or(&time);
    let port = it.packet.port.map_or(String::new(), |port| format!(":{port}"));
    let [from, to] = names.ends(it);
    let from = from.unwrap_or_else(|| it.packet.source.to_string());
    let to = to.unwrap_or_else(|| it.packet.destination.to_string());
    let who = format!("{from} → {to}{port} {}", spoken_protocol(it));
    let (direction, rule) = names.rule(it);
    let more = if is_sample(it) { "+" } else { "" };
    let seconds = (it.last - it.first).max(1);
    let count = match (news.count(), news.already) {
        (1, 0) => String::new(),
        (n, 0) => format!("   ×{n}{more} in {seconds} s"),
        (n, _) => format!("   ×{n}{more} more in {seconds} s"),
    };
    let at = format!("{node} {direction}");
    printable_line(&format!("{time}  {who:<40}  {at:<12}  {rule}{count}")).into_owned()
}

/// Whether there may have been more: of each rule and source only so many are told at once.
fn is_sample(it: &Drop) -> bool {
    it.count >= u64::from(DENIALS_AT_ONCE)
}

fn value(names: &Names, node: &str, news: &News) -> Value {
    let it = &news.drop;
    let time = |seconds: u64| api::schema::utc(i64::try_from(seconds).unwrap_or(i64::MAX));
    let end = |name: Option<String>, address: IpAddr| json!({ "name": name, "address": address });
    let [from, to] = names.ends(it);
    let (direction, rule) = names.rule(it);
    json!({
        "first": time(it.first),
        "last": time(it.last),
        "count": news.count(),
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
        let it = Drop { number: 1, first: 50_592, last: 50_602, count: 14, packet, told };
        let mut news = News::from(it);
        let said = line(&names, "n2", &news);
        assert!(said.starts_with("14:03:22  10.0.0.1 → 10.0.0.2:5432 tcp "), "{said}");
        assert!(
            said.ends_with("n2 ingress    policy shop/db, ingress rule 2   ×14 in 10 s"),
            "{said}"
        );
        news.drop.packet.rule = "e:end:default".to_owned();
        news.drop.count = 20;
        assert!(line(&names, "n2", &news).ends_with("end of tier default   ×20+ in 10 s"));
        news.drop.count = 1;
        assert!(line(&names, "n2", &news).ends_with("n2 egress     end of tier default"));
        news.drop.told.decided = Some("end of tier default (policies a, b)".to_owned());
        news.drop.told.endpoint = Some("shop/n2-k8s-web-eth0".to_owned());
        let said = line(&names, "n2", &news);
        assert!(said.contains("  shop/n2-k8s-web-eth0 → 10.0.0.2:5432 tcp "), "{said}");
        assert!(said.ends_with("n2 egress     end of tier default (policies a, b)"), "{said}");
        news.drop.told = Told::default();
        news.drop.packet.rule = "\u{1b}[31m".to_owned();
        assert!(!line(&names, "n2", &news).contains('\u{1b}'));
    }
    #[test]
    fn whoever_follows_is_told_of_each_packet_once() {
        let packet = Denied {
            rule: "i:end:default".to_owned(),
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol: 17,
            port: Some(53),
            icmp: None,
        };
        let told = Told::default();
        let entry = |count, last| Drop {
            number: count,
            first: 100,
            last,
            count,
            packet: packet.clone(),
            told: told.clone(),
        };
        let mut said = Said::default();
        let counts = |news: &[News]| news.iter().map(News::count).collect::<Vec<_>>();
        let first: Vec<News> = said.hear(entry(1, 100)).into_iter().collect();
        assert_eq!(counts(&first), [1]);
        assert!(said.hear(entry(4, 103)).is_none());
        assert!(said.over(104).is_empty(), "more may come");
        assert!(said.hear(entry(7, 109)).is_none());
        assert_eq!(counts(&said.over(111)), [6]);
        assert!(said.over(112).is_empty(), "it was said");
        // What was all told at once is not told again.
        said.hear(entry(5, 108));
        assert!(said.over(111).is_empty());
    }
}
