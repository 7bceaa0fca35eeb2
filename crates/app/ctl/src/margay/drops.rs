//! `margay drops`: the packets that this node's policies denied, with who and why.

mod line;

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

use super::agent::{Agent, Silence, now};
use super::arguments::{Format, Place, Structured};
use super::explain::world::World;
use super::failure::Failure;
use super::ipam::grouped;
use super::session::Session;
use super::terminal::{self, Terminal, printable_line};
use super::{get, structured};
use line::{Line, Widths};

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
    let wanted = Heard { counts: !arguments.follow, ..Heard::default() };
    let answer = arguments.agent.ask::<Drops>(&Inquiry::Drops(wanted))?;
    if answer.is_off {
        let what = format!("the agent of {} records no denied packets", answer.node);
        get::complain(&printable_line(&format!("{what}: it was started with --no-drops")))?;
    }
    let names = Names::read(place, &answer.node);
    match arguments.follow {
        true => Following::new(terminal, place, arguments, names).run(answer),
        false => {
            print(terminal, arguments, &names, &answer)?;
            Ok(true)
        }
    }
}

/// What somebody who follows sees.
struct Following<'a> {
    terminal: Terminal,
    place: &'a Place,
    arguments: &'a DropsArguments,
    names: Names,
    said: Said,
    widths: Widths,
    count: Count,
}

/// How far the entries of an agent were heard.
#[derive(Default)]
struct Count {
    /// Whose they are.
    epoch: u64,
    after: u64,
}

impl Count {
    /// Whether another agent answers than before: it counts from 1 again.
    fn is_anew(&mut self, epoch: u64) -> bool {
        let before = std::mem::replace(&mut self.epoch, epoch);
        let is_anew = before != 0 && before != epoch;
        if is_anew {
            self.after = 0;
        }
        is_anew
    }
}

impl<'a> Following<'a> {
    fn new(
        terminal: Terminal,
        place: &'a Place,
        arguments: &'a DropsArguments,
        names: Names,
    ) -> Self {
        let (said, widths) = (Said::default(), Widths::of(terminal));
        Self { terminal, place, arguments, names, said, widths, count: Count::default() }
    }

    /// Until nobody reads any more.
    fn run(mut self, first: Drops) -> Result<bool, Failure> {
        let mut next: Result<Drops, Silence> = Ok(first);
        let mut is_silent = false;
        loop {
            match next {
                Ok(answer) => {
                    if std::mem::take(&mut is_silent) {
                        get::complain("the agent answers again")?;
                    }
                    self.take(answer)?;
                }
                // It is started again, or somebody will: what it denies then is shown.
                Err(silence) if !is_silent => {
                    get::complain(&format!("waiting: {}", silence.what))?;
                    is_silent = true;
                }
                Err(_) => {}
            }
            terminal::rest(POLL)?;
            let wanted = Heard { after: self.count.after, ..Heard::default() };
            next = self.arguments.agent.ask::<Drops>(&Inquiry::Drops(wanted));
        }
    }

    fn take(&mut self, mut answer: Drops) -> Result<(), Failure> {
        if self.count.is_anew(answer.epoch) {
            for news in self.said.over(u64::MAX) {
                self.show(&answer.node, &news)?;
            }
            // What the new agent has noted so far was not asked for.
            answer = match self.arguments.agent.ask::<Drops>(&Inquiry::Drops(Heard::default())) {
                Ok(answer) => answer,
                Err(_) => return Ok(()),
            };
        }
        self.names.catch_up(self.place, &answer);
        for it in std::mem::take(&mut answer.drops) {
            self.count.after = self.count.after.max(it.number);
            if let Some(news) = self.said.hear(it) {
                self.show(&answer.node, &news)?;
            }
        }
        for news in self.said.over(now()) {
            self.show(&answer.node, &news)?;
        }
        Ok(())
    }

    fn show(&mut self, node: &str, it: &News) -> Result<(), Failure> {
        let line = Line::of(&self.names, node, it);
        if !is_meant(self.arguments, &it.drop, &line) {
            return Ok(());
        }
        let text = match self.arguments.format.output {
            Some(Structured::Json) => text::json::to_string(&value(&self.names, node, it)) + "\n",
            Some(Structured::Yaml) => {
                format!("---\n{}", text::yaml::to_string(&value(&self.names, node, it)))
            }
            None => {
                self.widths.fit(&line);
                self.terminal.spelled(&line.text(&self.widths)).into_owned() + "\n"
            }
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(())
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
    let lines: Vec<(News, Line)> = answer
        .drops
        .iter()
        .map(|it| News::from(it.clone()))
        .map(|it| (Line::of(names, &answer.node, &it), it))
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
    if lines.is_empty() && !answer.is_off {
        let named =
            arguments.object.as_ref().map_or(String::new(), |it| format!(" that name {it}"));
        let what = format!("no denied packets{named} on {}", answer.node);
        get::complain(&printable_line(&what))?;
    }
    if answer.lost > 0 {
        get::complain("more packets came than could be noted; these are some of them")?;
    }
    let mut widths = Widths::of(terminal);
    lines.iter().for_each(|(_, line)| widths.fit(line));
    let mut text: String = lines.iter().map(|(_, line)| line.text(&widths) + "\n").collect();
    for (rule, n) in &unrecorded {
        text += &more(names, &answer.node, rule, *n);
    }
    Ok(terminal.page(&terminal.spelled(&text))?)
}

fn is_meant(arguments: &DropsArguments, it: &Drop, line: &Line) -> bool {
    let addresses = [it.packet.source, it.packet.destination];
    arguments.object.as_ref().is_none_or(|object| {
        let is_its = |address: &IpAddr| net::parse_ip(object) == Some(*address);
        line.names(object) || addresses.iter().any(is_its)
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

/// `tcp`, or `icmp type 8 code 0`.
fn spoken_protocol(it: &Drop) -> String {
    let name = protocol(&net::Protocol::Number(it.packet.protocol));
    match it.packet.icmp {
        Some((kind, code)) => format!("{name} type {kind} code {code}"),
        None => name,
    }
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
        "isMasked": it.told.is_masked,
        "destination": end(to, it.packet.destination),
        "protocol": protocol(&net::Protocol::Number(it.packet.protocol)),
        "port": it.packet.port,
        "icmp": it.packet.icmp,
        "input": it.packet.input,
        "output": it.packet.output,
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
    fn an_agent_that_starts_again_is_heard_from_its_first_packet_on() {
        let mut count = Count::default();
        assert!(!count.is_anew(5));
        count.after = 17;
        assert!(!count.is_anew(5));
        assert_eq!(count.after, 17);
        assert!(count.is_anew(6));
        assert_eq!((count.after, count.is_anew(6)), (0, false));
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
            input: None,
            output: None,
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
