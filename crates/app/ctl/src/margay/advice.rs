//! What to type where no agent answers: how this host was set up says it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use host::report::{self, Finding, Sandbox, Sandboxes, Severity, Status};

use host::{file, journal, marks};
use kernel::nft::Nft;
use kernel::{Netlink, RouteFilter, RouteProtocol};
use sandbox::life::{Phase, Record};

use super::setup::item::Standing;
use super::setup::layout::{Layout, Root, wanted_by};

/// What brings back what only the host's end lacks.
const BACK: &str =
    "margay setup      # an agent puts it back at once; without one the next ADD or DEL does";
/// What brings back what cannot be mended.
const ANEW: &str = "delete the container; its runtime makes it anew";

/// The most that is read of a unit.
const UNIT_MAX: u64 = 1 << 20;

/// How the host was set up for the agent that should answer in this folder; none if it was not.
pub(crate) fn layout(run_dir: &Path) -> Option<Layout> {
    // A receipt that cannot be read says nothing; `margay setup` names what is wrong with it.
    let layout = Layout::read(&Root::at(Path::new("/"))).ok().flatten();
    layout.filter(|layout| layout.run_dir == run_dir)
}

/// The command that brings the agent of a host up.
pub(crate) fn start(layout: &Layout) -> String {
    let Some(unit) = layout.unit.as_deref().filter(|unit| unit.exists()) else {
        return "margay setup".to_owned();
    };
    let name = unit.file_name().unwrap_or_default().to_string_lossy();
    if !Path::new("/run/systemd/system").exists() {
        return by_hand(unit).unwrap_or_else(|| "margay setup".to_owned());
    }
    match wanted_by(unit).is_some_and(|link| link.exists()) {
        true => format!("systemctl restart {name}      # journalctl -u {name} says why it ended"),
        false => format!("systemctl daemon-reload && systemctl enable --now {name}"),
    }
}

/// The command of a unit, for a host whose service manager is another one.
fn by_hand(unit: &Path) -> Option<String> {
    let text = String::from_utf8(file::read_linked(unit, UNIT_MAX).ok()?).ok()?;
    let command = text.lines().find_map(|line| line.strip_prefix("ExecStart="))?;
    // `env` takes each as the unit has it, in quotes.
    let environment = text.lines().filter_map(|line| line.strip_prefix("Environment="));
    let words: Vec<&str> = std::iter::once("env").chain(environment).chain([command]).collect();
    Some(words.join(" "))
}

/// How a host is that was set up to do without an agent.
pub(crate) fn status(layout: &Layout) -> Status {
    let records = journal::read(&layout.state_dir.join("sandboxes"));
    let missing = layout
        .bare_items()
        .into_iter()
        .filter(|item| matches!(item.standing(&Root::at(Path::new("/"))), Ok(Standing::Missing)));
    let mut findings: Vec<Finding> = missing
        .map(|item| Finding {
            code: "MG-SETUP-001".to_owned(),
            severity: Severity::Broken,
            cause: "SETUP".to_owned(),
            problem: format!("{} is missing", item.path().display()),
            fix: "margay setup --no-agent".to_owned(),
        })
        .collect();
    findings.extend(missing_in_kernel(&records));
    Status {
        status: if findings.is_empty() { Severity::Fine } else { Severity::Broken },
        node: layout.node.clone(),
        sandboxes: report::by_phase(&records),
        findings,
        ..Status::default()
    }
}

/// What the kernel does not have of sandboxes that are up. Nobody watches over it here.
fn missing_in_kernel(records: &[Record]) -> Vec<Finding> {
    let up: Vec<&Record> = records.iter().filter(|it| it.phase == Phase::Ready).collect();
    let look = || -> kernel::Result<Vec<(&str, String, &str)>> {
        let mut netlink = Netlink::open()?;
        let aliases: BTreeSet<String> =
            netlink.links()?.into_iter().filter_map(|link| link.alias).collect();
        let protocol = Some(RouteProtocol(marks::ROUTE_PROTOCOL));
        let routes = netlink.routes(&RouteFilter { protocol, ..RouteFilter::default() })?;
        let routed: BTreeSet<IpAddr> = routes.iter().map(|it| it.destination.addr()).collect();
        let mut missing = Vec::new();
        for record in &up {
            let who = &record.identity;
            if !aliases.contains(&who.alias()) {
                let interface = &record.wiring.host_interface;
                let problem = format!("{who}: its interface {interface} is gone");
                missing.push(("MG-ROUTE-001", problem, ANEW));
            } else if let Some(lost) =
                record.wiring.addresses.iter().find(|it| !routed.contains(it))
            {
                missing.push(("MG-ROUTE-008", format!("{who}: no route leads to {lost}"), BACK));
            }
        }
        let tables = Nft::open()?.tables()?;
        if !tables.iter().any(|table| table.id.name == marks::TABLE) && !up.is_empty() {
            let problem = "the packet filter is gone: nothing protects the sandboxes".to_owned();
            missing.push(("MG-FILTER-001", problem, BACK));
        }
        Ok(missing)
    };
    let missing = if up.is_empty() { Vec::new() } else { look().unwrap_or_default() };
    let finding = |(code, problem, fix): (&str, String, &str)| Finding {
        code: code.to_owned(),
        severity: Severity::Broken,
        cause: "KERNEL".to_owned(),
        problem,
        fix: fix.to_owned(),
    };
    missing.into_iter().map(finding).collect()
}

/// The sandboxes of such a host.
pub(crate) fn sandboxes(layout: &Layout) -> Sandboxes {
    let records = journal::read(&layout.state_dir.join("sandboxes"));
    let sandboxes = records.into_iter().map(Sandbox::from).collect();
    Sandboxes { node: layout.node.clone(), sandboxes }
}
