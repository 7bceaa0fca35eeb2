//! `lab test`: who reaches whom.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::Test;
use crate::denials::Denials;
use crate::failure::Failure;
use crate::lab::Lab;
use crate::parallel;
use crate::place::Place;
use crate::probe::{self, Answer, Protocol, Question};
use crate::screen::{Screen, count, seconds};
use crate::state::Pod;
use crate::waiting::patiently;

/// How long a pod may take to answer: TCP asks a second time after one second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long a pod may take in the first of several rounds, and in the last.
const FIRST_PATIENCE: Duration = Duration::from_millis(40);
const LAST_PATIENCE: Duration = Duration::from_millis(640);

/// Agents hear of a few denied packets a second of each source: where some were denied, those that
/// nobody told of are asked for again.
const N_RECORDED_LATER: usize = 4;
const RECORDS_PAUSE: Duration = Duration::from_secs(1);
/// Pods that ask at the same time.
const N_WORKERS: usize = 16;
/// Failing pairs that are listed.
const LISTED_MAX: usize = 20;
/// The narrowest terminal that we write for when there is none.
const PIPED_WIDTH: usize = 100;

/// One question with its answer.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) from: String,
    pub(crate) question: Question,
    pub(crate) answer: Answer,
    /// What denied it, in words: what policy forbids is no failure.
    pub(crate) denied: Option<String>,
}

/// How many pairs of pods there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pairs {
    /// Those that answer both ways in every manner.
    pub(crate) fine: usize,
    /// Those that do but for what policy denies.
    pub(crate) denied: usize,
    pub(crate) all: usize,
}

impl Pairs {
    /// `3/15 pairs answer, 12 are denied by policy`.
    pub(crate) fn said(self) -> String {
        let Self { fine, denied, all } = self;
        match denied {
            0 => format!("{fine}/{all} pairs answer"),
            1 => format!("{fine}/{all} pairs answer, 1 is denied by policy"),
            _ => format!("{fine}/{all} pairs answer, {denied} are denied by policy"),
        }
    }

    /// How many neither answer nor are denied.
    pub(crate) fn failed(self) -> usize {
        self.all.saturating_sub(self.fine + self.denied)
    }

    pub(crate) fn json(self) -> Value {
        json!({"answering": self.fine, "denied": self.denied, "all": self.all})
    }
}

/// The answers to all questions of a test.
#[derive(Debug)]
pub(crate) struct Matrix {
    pods: Vec<Pod>,
    checks: Vec<Check>,
}

/// The command.
pub(crate) fn run(place: &Place, test: &Test) -> Result<Outcome, Failure> {
    let lab = Lab::open(place)?;
    let screen = Screen::detect(test.format);
    for name in [&test.from, &test.to].into_iter().flatten() {
        lab.state.wanted_pod("test", name)?;
    }
    if let (Some(from), Some(to)) = (&test.from, &test.to)
        && from == to
    {
        return Err(Failure::new(format!("test wants two pods, and {from} is one")));
    }
    let is_asked = |from: &Pod, to: &Pod| {
        let fits =
            |wanted: &Option<String>, pod: &Pod| wanted.as_ref().is_none_or(|it| *it == pod.name);
        fits(&test.from, from) && fits(&test.to, to)
    };
    let began = Instant::now();
    let matrix = Matrix::measure(&lab, PATIENCE, is_asked)?;
    screen.answer(&matrix.json(&lab))?;
    screen.say(&matrix.text(screen, began.elapsed()))?;
    Ok(matrix.outcome())
}

impl Matrix {
    /// Asks every pod for every other one, as far as wanted.
    pub(crate) fn measure(
        lab: &Lab,
        patience: Duration,
        is_asked: impl Fn(&Pod, &Pod) -> bool + Sync,
    ) -> Result<Self, Failure> {
        let mut matrix = Self::ask(lab, patience, is_asked)?;
        let is_denied = |check: &Check| check.denied.is_some();
        for _ in 0..N_RECORDED_LATER {
            if matrix.failed().next().is_none() || !matrix.checks.iter().any(is_denied) {
                break;
            }
            std::thread::sleep(RECORDS_PAUSE);
            matrix.ask_again(lab, patience)?;
        }
        Ok(matrix)
    }

    fn ask(
        lab: &Lab,
        patience: Duration,
        is_asked: impl Fn(&Pod, &Pod) -> bool + Sync,
    ) -> Result<Self, Failure> {
        let began = SystemTime::now();
        let pods = lab.state.pods.clone();
        let ask = |from: &Pod| -> Result<Vec<Check>, Failure> {
            let questions: Vec<Question> = pods
                .iter()
                .filter(|to| to.name != from.name && is_asked(from, to))
                .flat_map(questions)
                .collect();
            let answers = lab.netns(&from.name)?.enter(|| probe::ask(&questions, patience))?;
            let check = |(question, answer)| {
                let from = from.name.clone();
                Check { from, question, answer, denied: None }
            };
            Ok(questions.into_iter().zip(answers).map(check).collect())
        };
        let what = format!("waiting for the answers of {}", count(pods.len(), "pod"));
        let n_questions = pods.iter().flat_map(questions).count();
        let n_rounds = pods.len().div_ceil(N_WORKERS) * n_questions.div_ceil(probe::WINDOW);
        let limit = patience.saturating_mul(u32::try_from(n_rounds).unwrap_or(u32::MAX));
        let asked = patiently(&what, limit, || parallel::each(&pods, N_WORKERS, ask));
        let checks: Result<Vec<Vec<Check>>, Failure> = asked.into_iter().collect();
        let mut matrix = Self { pods, checks: checks?.into_iter().flatten().collect() };
        if matrix.failed().next().is_some() {
            matrix.blame_policy(&Denials::read(lab, began));
        }
        Ok(matrix)
    }

    /// The same until everything answers, or the time is up: what one node writes, others learn
    /// a moment later.
    pub(crate) fn settle(
        lab: &Lab,
        limit: Duration,
        progress: impl Fn(&Self),
    ) -> Result<Self, Failure> {
        let began = Instant::now();
        let mut patience = FIRST_PATIENCE;
        let mut matrix = Self::measure(lab, patience, |_, _| true)?;
        while matrix.outcome() != Outcome::Fine && began.elapsed() < limit {
            progress(&matrix);
            patience = (patience * 2).min(LAST_PATIENCE);
            matrix.ask_again(lab, patience)?;
        }
        Ok(matrix)
    }

    /// Asks those again that neither answered nor were denied.
    fn ask_again(&mut self, lab: &Lab, patience: Duration) -> Result<(), Failure> {
        let failed: BTreeSet<(String, String)> = self.failed().map(Check::ends).collect();
        let is_asked =
            |from: &Pod, to: &Pod| failed.contains(&(from.name.clone(), to.name.clone()));
        let again = Self::ask(lab, patience, is_asked)?;
        self.checks.retain(|check| !failed.contains(&check.ends()));
        self.checks.extend(again.checks);
        Ok(())
    }

    fn failed(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.answer.is_err() && check.denied.is_none())
    }

    /// Notes what was denied by policy.
    fn blame_policy(&mut self, denials: &Denials) {
        let addresses_of = |name: &str| {
            let pod = self.pods.iter().find(|pod| pod.name == name);
            pod.map_or_else(Vec::new, |pod| pod.addresses.clone())
        };
        for check in self.checks.iter_mut().filter(|check| check.answer.is_err()) {
            check.denied = denials.of(&addresses_of(&check.from), &check.question);
        }
    }

    /// How many pairs answer.
    pub(crate) fn pairs(&self) -> Pairs {
        let pair = |check: &Check| {
            let (a, b) = check.ends();
            if a < b { (a, b) } else { (b, a) }
        };
        let all: BTreeSet<_> = self.checks.iter().map(pair).collect();
        let failed: BTreeSet<_> = self.failed().map(pair).collect();
        let is_denied = |check: &&Check| check.denied.is_some();
        let denied: BTreeSet<_> = self.checks.iter().filter(is_denied).map(pair).collect();
        let denied = denied.difference(&failed).count();
        Pairs { fine: all.len() - failed.len() - denied, denied, all: all.len() }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match self.failed().next() {
            Some(_) => Outcome::Broken,
            None => Outcome::Fine,
        }
    }

    /// `ICMP, TCP, UDP; v4, v6`: what was asked.
    pub(crate) fn manners(&self) -> String {
        let v6 = self.checks.iter().any(|check| check.question.address.is_ipv6());
        let v4 = self.checks.iter().any(|check| check.question.address.is_ipv4());
        let families: Vec<&str> = [(v4, "v4"), (v6, "v6")]
            .into_iter()
            .filter_map(|(is_there, name)| is_there.then_some(name))
            .collect();
        format!("ICMP, TCP, UDP; {}", families.join(", "))
    }

    /// The whole answer for people.
    fn text(&self, screen: Screen, took: Duration) -> String {
        let pairs = self.pairs();
        let mark = screen.mark(self.outcome());
        let manners = self.manners();
        let mut text = match pairs.all {
            0 => format!("{mark} nothing to test: there are fewer than two pods\n"),
            _ => format!("{mark} {} ({manners}), {}\n", pairs.said(), seconds(took)),
        };
        text += &self.grid(screen);
        text += &self.problems(screen);
        text
    }

    /// Who reaches whom, pod by pod or node by node, whichever fits; nothing for a part of it.
    pub(crate) fn grid(&self, screen: Screen) -> String {
        let n_ways = self.checks.iter().map(Check::ends).collect::<BTreeSet<_>>().len();
        if n_ways < self.pods.len() * self.pods.len().saturating_sub(1) {
            return String::new();
        }
        let width = screen.width.unwrap_or(PIPED_WIDTH);
        let pod_names: Vec<String> = self.pods.iter().map(|pod| pod.name.clone()).collect();
        let node_of: BTreeMap<&str, &str> =
            self.pods.iter().map(|pod| (pod.name.as_str(), pod.node.as_str())).collect();
        let mut nodes: Vec<String> = self.pods.iter().map(|pod| pod.node.clone()).collect();
        nodes.dedup();
        let fits = |names: &[String]| {
            let columns: usize = names.iter().map(|name| name.len() + 2).sum();
            let widest = names.iter().map(String::len).max().unwrap_or(0);
            widest + columns <= width && names.len() > 1
        };
        if fits(&pod_names) {
            return self.grid_of(screen, &pod_names, |name| name);
        }
        if fits(&nodes) {
            return self.grid_of(screen, &nodes, |name| node_of.get(name).copied().unwrap_or(""));
        }
        String::new()
    }

    fn grid_of<'a>(
        &'a self,
        screen: Screen,
        names: &'a [String],
        group: impl Fn(&'a str) -> &'a str,
    ) -> String {
        let mut counts: BTreeMap<(&str, &str), (usize, usize, usize)> = BTreeMap::new();
        for check in &self.checks {
            let key = (group(&check.from), group(&check.question.pod));
            let (fine, denied, all) = counts.entry(key).or_default();
            *all += 1;
            *denied += usize::from(check.denied.is_some());
            *fine += usize::from(check.answer.is_ok());
        }
        let mut headings = vec!["FROM \\ TO"];
        headings.extend(names.iter().map(String::as_str));
        let rows = names.iter().map(|from| {
            let cells = names.iter().map(|to| match counts.get(&(from.as_str(), to.as_str())) {
                None => "·".to_owned(),
                Some((fine, _, all)) if fine == all => "ok".to_owned(),
                Some((_, denied, all)) if denied == all => "denied".to_owned(),
                Some((fine, _, all)) => format!("{fine}/{all}"),
            });
            std::iter::once(from.clone()).chain(cells).collect()
        });
        screen.table(&headings, &rows.collect::<Vec<_>>())
    }

    /// What does not answer, one way a line.
    pub(crate) fn problems(&self, screen: Screen) -> String {
        let mut by_way: BTreeMap<(String, String), BTreeMap<String, Vec<String>>> = BTreeMap::new();
        for check in self.failed() {
            let Err(why) = &check.answer else { continue };
            let family = if check.question.address.is_ipv4() { "v4" } else { "v6" };
            let manner = format!("{} {family}", check.question.protocol.name());
            by_way.entry(check.ends()).or_default().entry(why.clone()).or_default().push(manner);
        }
        let mut text = String::new();
        for ((from, to), reasons) in by_way.iter().take(LISTED_MAX) {
            let n_asked = self.checks.iter().filter(|check| check.is_way(from, to)).count();
            let reasons: Vec<String> = reasons
                .iter()
                .map(|(why, manners)| match manners.len() == n_asked {
                    true => why.clone(),
                    false => format!("{why} ({})", manners.join(", ")),
                })
                .collect();
            let mark = screen.mark(Outcome::Broken);
            let _ = writeln!(text, "{mark} {from} → {to}: {}", reasons.join("; "));
        }
        if by_way.len() > LISTED_MAX {
            let _ = writeln!(text, "… and {} more (-o json has all)", by_way.len() - LISTED_MAX);
        }
        text + &self.denials()
    }

    /// What policy denies, a line for each that does.
    fn denials(&self) -> String {
        let mut by_policy: BTreeMap<&str, BTreeMap<(String, String), Vec<&Check>>> =
            BTreeMap::new();
        for check in &self.checks {
            if let Some(policy) = &check.denied {
                by_policy.entry(policy).or_default().entry(check.ends()).or_default().push(check);
            }
        }
        let mut text = String::new();
        for (policy, ways) in by_policy {
            let Some(((from, to), checks)) = ways.first_key_value() else { continue };
            let mut manners: Vec<&str> =
                checks.iter().map(|check| check.question.protocol.name()).collect();
            manners.dedup();
            let _ = writeln!(
                text,
                "  denied by {policy}: {}, such as {from} → {to} ({})",
                count(ways.len(), "way"),
                manners.join(", ")
            );
        }
        text
    }

    /// The whole answer for programs.
    pub(crate) fn json(&self, lab: &Lab) -> Value {
        let checks = self.checks.iter().map(|check| {
            let mut value = json!({
                "from": check.from,
                "to": check.question.pod,
                "address": check.question.address,
                "protocol": check.question.protocol,
                "answers": check.answer.is_ok(),
            });
            match &check.answer {
                Ok(time) => value["microseconds"] = json!(u64::try_from(time.as_micros()).ok()),
                Err(why) => value["problem"] = json!(why),
            }
            if let Some(policy) = &check.denied {
                value["deniedBy"] = json!(policy);
            }
            value
        });
        json!({
            "lab": lab.place.name,
            "pairs": self.pairs().json(),
            "checks": checks.collect::<Vec<_>>(),
        })
    }
}

impl Check {
    fn is_way(&self, from: &str, to: &str) -> bool {
        self.from == from && self.question.pod == to
    }

    fn ends(&self) -> (String, String) {
        (self.from.clone(), self.question.pod.clone())
    }
}

/// Every manner of asking for a pod.
fn questions(pod: &Pod) -> impl Iterator<Item = Question> {
    let each = |address| {
        Protocol::ALL.map(|protocol| Question { pod: pod.name.clone(), address, protocol })
    };
    pod.addresses.iter().copied().flat_map(each)
}
