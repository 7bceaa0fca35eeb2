//! What commands cost, from the start of the process to its end.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::Options;
use crate::home::{self, Etcd};
use crate::process::{Cost, Program, megabytes};
use crate::report::{Figure, median};
use crate::samples;

/// A measured part: its unit, what the real program took, and how to read it off a cost.
type Part = (&'static str, Option<f64>, fn(&Cost) -> f64);

const READS: usize = 7;
const WRITES: usize = 3;

/// A tenth of what calicoctl takes for the same, measured once on a machine such as this.
struct Aim {
    wall_ms: Option<f64>,
    cpu_ms: Option<f64>,
    peak_mib: Option<f64>,
}

const NO_AIM: Aim = Aim { wall_ms: None, cpu_ms: None, peak_mib: None };
const START: Aim = Aim { wall_ms: Some(6.3), cpu_ms: None, peak_mib: Some(4.3) };
const TABLE: Aim = Aim { wall_ms: None, cpu_ms: Some(62.0), peak_mib: Some(11.5) };
const YAML: Aim = Aim { wall_ms: None, cpu_ms: Some(290.0), peak_mib: Some(70.1) };
const CREATE: Aim = Aim { wall_ms: Some(720.0), cpu_ms: None, peak_mib: None };
const BINARY_MB: f64 = 9.7;

struct Read {
    name: &'static str,
    words: &'static [&'static str],
    aim: Aim,
}

const READ: &[Read] = &[
    Read { name: "get one policy", words: &["get", "gnp", "policy-00042"], aim: NO_AIM },
    Read { name: "table of 10,000 policies", words: &["get", "gnp"], aim: TABLE },
    Read { name: "-o yaml of 10,000 policies", words: &["get", "gnp", "-o", "yaml"], aim: YAML },
    Read { name: "-o json of 10,000 policies", words: &["get", "gnp", "-o", "json"], aim: NO_AIM },
];

/// The programs and files of a run.
struct Bench<'o> {
    options: &'o Options,
    margay: PathBuf,
    folder: PathBuf,
    figures: Vec<Figure>,
}

/// A datastore with the programs that work on it.
struct Place {
    label: &'static str,
    address: String,
    margay: Program,
    calicoctl: Option<Program>,
}

pub(crate) fn measure(options: &Options) -> anyhow::Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    for (name, count) in [("1000.yaml", 1_000), ("10000.yaml", 10_000)] {
        std::fs::write(folder.path().join(name), samples::policies(count))?;
    }
    let mut bench =
        Bench { options, margay: build()?, folder: folder.path().to_owned(), figures: Vec::new() };
    bench.program()?;
    bench.place(&bench.on_sqlite())?;
    let etcd = Etcd::start()?;
    bench.place(&bench.on_etcd(&etcd, &[]))?;
    let as_calicoctl = bench.on_etcd(&etcd, &["calicoctl"]);
    bench.place(&Place { label: "etcd, as calicoctl", ..as_calicoctl })?;
    Ok(bench.figures)
}

/// Builds the program as it is shipped.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("bench has a parent")?;
    let status = std::process::Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "-p", "main"])
        .current_dir(root)
        .status()?;
    anyhow::ensure!(status.success(), "the release build: {status}");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    Ok(target.join("release/margay"))
}

impl Bench<'_> {
    fn on_sqlite(&self) -> Place {
        let address = home::address(&self.folder.join("store.db"));
        let environment = [("DATASTORE_TYPE", "embedded"), ("MARGAY_STORE", &address)];
        let margay = self.margay(&[], &environment);
        Place { label: "SQLite", address, margay, calicoctl: None }
    }

    fn on_etcd(&self, etcd: &Etcd, persona: &[&str]) -> Place {
        let environment = [("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", &etcd.url)];
        let calicoctl = self.options.calicoctl.as_ref().map(|path| Program {
            words: vec![path.display().to_string(), "--allow-version-mismatch".to_owned()],
            environment: owned(&environment),
        });
        let margay = self.margay(persona, &environment);
        Place { label: "etcd", address: etcd.address(), margay, calicoctl }
    }

    fn margay(&self, persona: &[&str], environment: &[(&str, &str)]) -> Program {
        let mut environment = owned(environment);
        let state = self.folder.join("state").display().to_string();
        environment.push(("MARGAY_STATE_DIR".to_owned(), state));
        let program = self.margay.display().to_string();
        let persona = persona.iter().map(ToString::to_string);
        Program { words: std::iter::once(program).chain(persona).collect(), environment }
    }

    fn program(&mut self) -> anyhow::Result<()> {
        let theirs = self.options.calicoctl.as_deref().map(megabytes).transpose()?;
        let size = Figure::less("binary, stripped", "MB", megabytes(&self.margay)?);
        self.figures.push(size.aim(BINARY_MB).beside(theirs));
        let words: &[&str] = &["version", "--client"];
        let ours = self.margay(&[], &[]);
        let theirs = self.options.calicoctl.as_ref().map(|path| Program {
            words: vec![path.display().to_string()],
            environment: Vec::new(),
        });
        self.compare(
            "bare start (version --client)",
            &START,
            3 * READS,
            |program| program.run(words),
            (&ours, theirs.as_ref()),
        )?;
        self.instructions("bare start (version --client)", &ours, words)
    }

    fn place(&mut self, place: &Place) -> anyhow::Result<()> {
        let store = home::open(&place.address)?;
        self.options.say(&format!("command line on {}", place.label));
        let programs = (&place.margay, place.calicoctl.as_ref());
        let file = |name: &str| self.folder.join(name).display().to_string();
        let (few, many) = (file("1000.yaml"), file("10000.yaml"));
        let afresh = |file: &str, program: &Program| {
            home::clear(&store, samples::POLICIES)?;
            program.run(&["create", "-f", file])
        };
        let label = |name: &str| format!("{name}, {}", place.label);
        let run = |program: &Program| afresh(&few, program);
        self.compare(&label("create 1,000 policies"), &CREATE, WRITES, run, programs)?;
        let ours = (&place.margay, None);
        let run = |program: &Program| afresh(&many, program);
        self.compare(&label("create 10,000 policies"), &NO_AIM, WRITES, run, ours)?;
        let run = |program: &Program| program.run(&["apply", "-f", &many]);
        self.compare(&label("apply 10,000 policies again"), &NO_AIM, WRITES, run, ours)?;
        for read in READ {
            let run = |program: &Program| program.run(read.words);
            self.compare(&label(read.name), &read.aim, READS, run, programs)?;
            self.instructions(&label(read.name), &place.margay, read.words)?;
        }
        home::clear(&store, samples::POLICIES)
    }

    /// Runs ours, and theirs if it is there, in turn, so that both meet the same machine.
    fn compare(
        &mut self,
        what: &str,
        aim: &Aim,
        repeat: usize,
        run: impl Fn(&Program) -> anyhow::Result<Cost>,
        (ours, theirs): (&Program, Option<&Program>),
    ) -> anyhow::Result<()> {
        self.options.say(what);
        let (mut our_costs, mut their_costs) = (Vec::new(), Vec::new());
        // Theirs first: what is there afterwards was then written by ours.
        for _ in 0..repeat {
            if let Some(theirs) = theirs {
                their_costs.push(run(theirs)?);
            }
            our_costs.push(run(ours)?);
        }
        let parts: [Part; 3] = [
            ("wall ms", aim.wall_ms, |cost| cost.wall_ms),
            ("CPU ms", aim.cpu_ms, |cost| cost.cpu_ms),
            ("peak MiB", aim.peak_mib, |cost| cost.peak_mib),
        ];
        for (unit, aim, part) in parts {
            let figure = Figure::less(what, unit, median(our_costs.iter().map(part)));
            let beside = theirs.map(|_| median(their_costs.iter().map(part)));
            self.figures.push(figure.aim(aim).beside(beside));
        }
        Ok(())
    }

    fn instructions(&mut self, what: &str, ours: &Program, words: &[&str]) -> anyhow::Result<()> {
        if self.options.instructions {
            let count = ours.instructions(words)? / 1e6;
            self.figures.push(Figure::less(what, "million instructions", count));
        }
        Ok(())
    }
}

fn owned(environment: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    pairs.collect()
}
