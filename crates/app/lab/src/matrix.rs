//! `lab test`: who reaches whom.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Outcome;
use crate::arguments::Test;
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
        let pods = lab.state.pods.clone();
        let ask = |from: &Pod| -> Result<Vec<Check>, Failure> {
            let questions: Vec<Question> = pods
                .iter()
                .filter(|to| to.name != from.name && is_asked(from, to))
                .flat_map(questions)
                .collect();
            let answers = lab.netns(&from.name)?.enter(|| probe::ask(&questions, patience))?;
            let check = |(question, answer)| Check { from: from.name.clone(), question, answer };
            Ok(questions.into_iter().zip(answers).map(check).collect())
        };
        let what = format!("waiting for the answers of {}", count(pods.len(), "pod"));
        let n_questions = pods.iter().flat_map(questions).count();
        let n_rounds = pods.len().div_ceil(N_WORKERS) * n_questions.div_ceil(probe::WINDOW);
        let limit = patience.saturating_mul(u32::try_from(n_rounds).unwrap_or(u32::MAX));
        let asked = patiently(&what, limit, || parallel::each(&pods, N_WORKERS, ask));
        let checks: Result<Vec<Vec<Check>>, Failure> = asked.into_iter().collect();
        Ok(Self { pods, checks: checks?.into_iter().flatten().collect() })
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
            let failed: BTreeSet<(String, String)> = matrix.failed().map(Check::ends).collect();
            let is_asked =
                |from: &Pod, to: &Pod| failed.contains(&(from.name.clone(), to.name.clone()));
            patience = (patience * 2).min(LAST_PATIENCE);
            let again = Self::measure(lab, patience, is_asked)?;
            matrix.checks.retain(|check| !failed.contains(&check.ends()));
            matrix.checks.extend(again.checks);
        }
        Ok(matrix)
    }

    fn failed(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.answer.is_err())
    }

    /// Pairs that answer both ways in every manner, and all pairs.
    pub(crate) fn pairs(&self) -> (usize, usize) {
        let pair = |check: &Check| {
            let (a, b) = check.ends();
            if a < b { (a, b) } else { (b, a) }
        };
        let all: BTreeSet<_> = self.checks.iter().map(pair).collect();
        let failed: BTreeSet<_> = self.failed().map(pair).collect();
        (all.len() - failed.len(), all.len())
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
        let (fine, all) = self.pairs();
        let mark = screen.mark(self.outcome());
        let manners = self.manners();
        let mut text = match all {
            0 => format!("{mark} nothing to test: there are fewer than two pods\n"),
            _ => format!("{mark} {fine}/{all} pairs answer ({manners}), {}\n", seconds(took)),
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
        let mut counts: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
        for check in &self.checks {
            let key = (group(&check.from), group(&check.question.pod));
            let (fine, all) = counts.entry(key).or_default();
            *all += 1;
            *fine += usize::from(check.answer.is_ok());
        }
        let mut headings = vec!["FROM \\ TO"];
        headings.extend(names.iter().map(String::as_str));
        let rows = names.iter().map(|from| {
            let cells = names.iter().map(|to| match counts.get(&(from.as_str(), to.as_str())) {
                None => "·".to_owned(),
                Some((fine, all)) if fine == all => "ok".to_owned(),
                Some((fine, all)) => format!("{fine}/{all}"),
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
            value
        });
        let (fine, all) = self.pairs();
        json!({
            "lab": lab.place.name,
            "pairs": {"answering": fine, "all": all},
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
