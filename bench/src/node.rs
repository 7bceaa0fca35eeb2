//! What a node costs: CNI calls beside Debian's reference plugins, the start of the plugin, what is
//! asked of etcd, the agent's memory, a whole lab, and an agent that has nothing to do.

mod calls;
mod idle;
pub(crate) mod place;
mod start;
pub(crate) mod weight;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;

use crate::Options;
use crate::process::ms;
use crate::report::{self, Figure, Sheet, median};

pub(crate) fn measure(options: &Options) -> anyhow::Result<Vec<Sheet>> {
    let Some((margay, folder)) = prepare(options)? else { return Ok(Vec::new()) };
    let mut sheets = calls::measure(options, &margay, folder.path())?;
    options.say("the start of the plugin");
    let mut figures = start::measure(options, &margay, folder.path())?;
    figures.extend(weight::measure(options, &margay, folder.path())?);
    figures.extend(labs(options, &margay, folder.path())?);
    sheets.push(Sheet { title: "Node", table: report::table(&figures), figures });
    Ok(sheets)
}

/// What an agent costs while nothing changes.
pub(crate) fn measure_idle(options: &Options) -> anyhow::Result<Vec<Figure>> {
    match prepare(options)? {
        Some((margay, folder)) => idle::measure(options, &margay, folder.path()),
        None => Ok(Vec::new()),
    }
}

/// The program and a folder for what it makes; none for who may not measure this.
pub(crate) fn prepare(options: &Options) -> anyhow::Result<Option<(PathBuf, TempDir)>> {
    if !nix::unistd::geteuid().is_root() {
        ensure!(options.what.is_empty(), "node: needs root for network namespaces");
        options.say("nothing of a node, for which root is needed");
        return Ok(None);
    }
    // A container is a descriptor here, and an agent or a plugin has some of its own.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let margay = match &options.margay {
        Some(margay) => std::path::absolute(margay)?,
        None => crate::command_line::build()?,
    };
    Ok(Some((margay, tempfile::Builder::new().prefix("margay-bench").tempdir()?)))
}

/// `lab up`, from the command to the end of its matrix.
fn labs(options: &Options, margay: &Path, folder: &Path) -> anyhow::Result<Vec<Figure>> {
    let sizes: &[(usize, usize)] =
        if options.quick { &[(3, 1)] } else { &[(3, 5), (10, 3), (50, 1)] };
    let mut figures = Vec::new();
    for (nodes, runs) in sizes {
        let mut times = Vec::new();
        for _ in 0..*runs {
            options.say(&format!("a lab of {nodes} nodes"));
            let lab = |words: &[&str]| -> anyhow::Result<f64> {
                let began = Instant::now();
                let done = Command::new(margay)
                    .arg("lab")
                    .args(words)
                    .args(["--name", &format!("bench{}", std::process::id())])
                    .env("MARGAY_LAB_DIR", folder.join("labs"))
                    .stdin(Stdio::null())
                    .output()
                    .context("margay lab")?;
                let said = String::from_utf8_lossy(&done.stderr);
                ensure!(done.status.success(), "lab {words:?}: {said}");
                Ok(ms(began.elapsed()))
            };
            let up = lab(&["up", "--nodes", &nodes.to_string()]);
            let down = lab(&["down"]);
            times.push(up?);
            down?;
        }
        let what = format!("lab up, {nodes} nodes, {} pods", nodes * 2);
        figures.push(Figure::less(what, "wall ms", median(times)));
    }
    Ok(figures)
}
