//! Many nodes that want addresses of one etcd at the same time.
//!
//! Each node is a thread with a client and a view of its own, as an agent has them, and asks for
//! one address after the other. In a roomy pool every node has blocks of its own; in a tight one
//! there are fewer blocks than nodes, so that they share them.

use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context, ensure};
use ipam::{AutoAssign, View};
use serde_json::json;
use store::ipam::Driver;

use crate::Options;
use crate::home::{self, Etcd};
use crate::process::ms;
use crate::report::{Figure, median, percentile};

const EACH: usize = 20;
const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// A pool, and how many nodes draw from it.
const CASES: &[(usize, &str, &str)] = &[
    (1, "a roomy pool", "10.64.0.0/16"),
    (10, "a roomy pool", "10.64.0.0/16"),
    (150, "a roomy pool", "10.64.0.0/16"),
    (10, "4 blocks in all", "10.64.0.0/24"),
    (150, "64 blocks in all", "10.64.0.0/20"),
];

/// What became of the requests of a node.
#[derive(Debug, Default)]
struct Course {
    times_ms: Vec<f64>,
    /// Transactions beyond the one that each request needs.
    retries: u32,
    /// The most that one request needed.
    most: u32,
    refused: Vec<String>,
}

pub(crate) fn measure(options: &Options) -> anyhow::Result<Vec<Figure>> {
    let etcd = Etcd::start()?;
    let mut figures = Vec::new();
    for (nodes, pool, cidr) in CASES {
        let what = format!("{EACH} addresses for each of {nodes} nodes, {pool}");
        options.say(&what);
        figures.extend(one(&etcd, *nodes, cidr, &what)?);
    }
    Ok(figures)
}

fn one(etcd: &Etcd, nodes: usize, cidr: &str, what: &str) -> anyhow::Result<Vec<Figure>> {
    let store = home::open(&etcd.address())?;
    home::clear(&store, "/calico/")?;
    let object = |plural: &str, name: String, spec: serde_json::Value| {
        let value = json!({"metadata": {"name": name}, "spec": spec});
        (format!("{RESOURCES}/{plural}/{name}"), text::json::to_string(&value).into_bytes())
    };
    let pool = object("ippools", "pool".to_owned(), json!({"cidr": cidr, "blockSize": 26}));
    let all = (0..nodes).map(|node| object("nodes", format!("node-{node}"), json!({})));
    home::fill(&store, std::iter::once(pool).chain(all))?;
    let start = Barrier::new(nodes + 1);
    let (wall, courses) = std::thread::scope(|scope| -> anyhow::Result<_> {
        let running: Vec<_> = (0..nodes)
            .map(|node| {
                scope.spawn({
                    let start = &start;
                    move || run(etcd, node, start)
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        let ended = running.into_iter().map(|it| it.join().ok().context("a node panicked")?);
        let courses = ended.collect::<anyhow::Result<Vec<Course>>>()?;
        Ok((began.elapsed(), courses))
    })?;
    let refused: Vec<&String> = courses.iter().flat_map(|it| &it.refused).collect();
    ensure!(refused.len() < nodes * EACH, "{what}: {}", refused[0]);
    let times = || courses.iter().flat_map(|it| it.times_ms.iter().copied());
    let count = times().count() as f64;
    let retries: u32 = courses.iter().map(|it| it.retries).sum();
    let most = courses.iter().map(|it| it.most).max().unwrap_or(0);
    Ok(vec![
        Figure::more(what, "allocations a second", count / wall.as_secs_f64()),
        Figure::less(what, "conflicts an allocation", f64::from(retries) / count),
        Figure::less(what, "most tries of one", f64::from(most)),
        Figure::less(what, "p50 ms", median(times())),
        Figure::less(what, "p99 ms", percentile(times(), 99.0)),
        Figure::less(what, "refused", refused.len() as f64).aim(0.0),
    ])
}

/// The requests of one node.
fn run(etcd: &Etcd, node: usize, start: &Barrier) -> anyhow::Result<Course> {
    let driver = Driver::new(home::open(&etcd.address())?);
    let ready = driver.store().get("/");
    start.wait();
    ready?;
    let mut view = View::default();
    let mut course = Course::default();
    for number in 0..EACH {
        let wanted = AutoAssign {
            node: format!("node-{node}"),
            num4: 1,
            handle: Some(format!("bench.{node}-{number}")),
            purpose: "Workload".to_owned(),
            ..AutoAssign::default()
        };
        let began = Instant::now();
        match driver.run(&mut view, |planner| planner.auto_assign(&wanted)) {
            Ok(done) if done.answer.addresses().count() == 1 => {
                course.times_ms.push(ms(began.elapsed()));
                course.retries += done.commits.saturating_sub(1);
                course.most = course.most.max(done.commits);
            }
            Ok(done) => course.refused.push(format!("{:?}", done.answer)),
            Err(error) => course.refused.push(error.to_string()),
        }
    }
    Ok(course)
}
