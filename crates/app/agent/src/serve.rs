//! Serves one call of a plugin: understands it, has the node act, and says how it went.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipam::View;
use kernel::Netns;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use sandbox::answer::{self, Answer, Route};
use sandbox::call::{Call, Command};
use sandbox::claim::{self, CALICO_IPAM, Wish};
use sandbox::failure::{Code, Failure};
use sandbox::identity::Identity;
use sandbox::netconf::{MTU_FILE, NetConf};
use serde_json::Value;
use store::Store;
use store::ipam::Driver;
use store::settings::{Datastore, EtcdSettings};

use crate::addresses::unavailable;
use crate::disk::Unwritable;
use crate::filter::settings::Options;
use crate::node::{Node, Settings};
use crate::notes;
use crate::sandboxes::Addition;
use host::bounded;
use host::protocol::{Question, Reply};

/// How long a call waits for the one before it, where no agent serves.
const LOCK_WAIT: Duration = Duration::from_secs(60);
/// How often it looks.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// What the plugin prints when a call was refused.
pub(crate) fn refused(failure: &Failure) -> Reply {
    Reply { status: 1, ..printed(&failure.to_json()) }
}

/// What the plugin prints when there is something to say.
pub(crate) fn printed(value: &Value) -> Reply {
    Reply { output: text::json::to_string_indented(value), status: 0 }
}

/// A call that was understood.
struct Order<'q> {
    plugin: &'q str,
    call: Call,
    conf: NetConf,
    delegated: Option<&'q Value>,
}

/// Gives the caller what was added for it; whether it was still there to take it.
type Give<'g> = &'g mut dyn FnMut(&Answer) -> bool;

/// Serves a call with a node that runs, and tells the caller. What was added for a caller that
/// does not take the answer any more is taken back.
pub(crate) fn answer(
    node: &Node,
    question: &Question,
    netns: Option<OwnedFd>,
    mut tell: impl FnMut(&Reply) -> io::Result<()>,
) -> io::Result<()> {
    let mut told = None;
    let served = understand(question).and_then(|order| {
        let version = order.call.version;
        serve(node, &order, netns, &mut |answer| {
            told.insert(tell(&printed(&answer.to_json(version)))).is_ok()
        })
    });
    match (told, served) {
        (Some(told), _) => told,
        (None, Ok(())) => tell(&Reply::default()),
        (None, Err(failure)) => tell(&refused(&failure)),
    }
}

fn serve(
    node: &Node,
    order: &Order<'_>,
    netns: Option<OwnedFd>,
    give: Give<'_>,
) -> Result<(), Failure> {
    let named = order.conf.nodename.trim();
    if !named.is_empty() && named != node.name {
        let message = format!("the network configuration is for node {named:?}");
        return Err(Failure::new(Code::InvalidConfiguration, message)
            .with_details(format!("this is node {:?}; mend nodename", node.name)));
    }
    if order.call.command == Command::Add {
        settle_ticket(node, &Identity::of(&order.call));
    }
    if order.plugin == CALICO_IPAM {
        return manage_addresses(node, order, give);
    }
    notes::around(node, &order.call, || act(node, order, netns, give))
}

/// Carries out the deletions that were asked for while no agent served.
pub(crate) fn settle_tickets(node: &Node) {
    if let Some(tickets) = &node.tickets {
        let unreadable = tickets.settle_all(|question| carry_out(node, question));
        unreadable.iter().for_each(|ticket| notes::unreadable(node, "ticket", ticket));
    }
}

/// A deletion that waits must not meet what is added after it.
fn settle_ticket(node: &Node, identity: &Identity) {
    if let Some(tickets) = node.tickets.as_ref().filter(|tickets| tickets.has(identity)) {
        let unreadable = tickets.settle(identity, |question| carry_out(node, question));
        unreadable.iter().for_each(|ticket| notes::unreadable(node, "ticket", ticket));
    }
}

fn carry_out(node: &Node, ticket: &Question) {
    let Ok(order) = understand(ticket) else { return };
    // What a deletion could not do now is in the journal.
    if order.call.command == Command::Del {
        let _ = serve(node, &order, None, &mut |_| true);
    }
}

/// Serves a call without an agent, under the lock of the node.
pub(crate) fn directly(question: &Question, netns: Option<OwnedFd>) -> Result<Reply, Failure> {
    let conf = understand(question)?.conf;
    let name = node_name(&conf, question.plugin == CALICO_IPAM)?;
    let state = state_folder(&conf);
    let broken = |error: &dyn std::fmt::Display| {
        Failure::plugin(error.to_string())
            .with_details(format!("the state of this node is in {}", state.display()))
    };
    let _lock = lock(&state).map_err(|error| broken(&error))?;
    let store = open_store(&conf)?;
    let settings = Settings {
        name,
        state: state.clone(),
        agent_socket: None,
        reserve: 0,
        filter: Options::default(),
    };
    let failed = |error: crate::node::Error| match error {
        crate::node::Error::Store(error) => unavailable(&error.into()),
        error => broken(&error),
    };
    let node = Node::open(&settings, store).map_err(failed)?;
    if question.plugin != CALICO_IPAM {
        node.load().map_err(failed)?;
    }
    let mut reply = Reply::default();
    let kept = answer(&node, question, netns, |given| {
        reply = given.clone();
        Ok(())
    });
    kept.map(|()| reply).map_err(|error| broken(&error))
}

/// Whether the datastore that a configuration names can be used (`-t`).
pub(crate) fn test_datastore(input: &[u8]) -> Result<(), Failure> {
    let unusable = |why: String| {
        Failure::new(Code::Datastore, "data store connection failed").with_details(why)
    };
    let value = text::json::parse(input).map_err(|error| {
        Failure::new(Code::Decoding, format!("error unmarshall network config: {error}"))
    })?;
    let store = open_store(&NetConf::read(&value)?).map_err(|failure| unusable(failure.message))?;
    let ready = Driver::new(store).run(&mut View::default(), claim::ready);
    let ready = ready.map_err(|error| unusable(error.to_string()))?;
    ready.answer.map_err(|failure| unusable(failure.message))
}

fn understand(question: &Question) -> Result<Order<'_>, Failure> {
    let call = Call::read(&question.environment, question.input.as_bytes())?;
    let conf = NetConf::read(&call.configuration)?;
    conf.unsupported()?;
    Ok(Order { plugin: &question.plugin, call, conf, delegated: question.delegated.as_ref() })
}

fn act(
    node: &Node,
    order: &Order<'_>,
    netns: Option<OwnedFd>,
    give: Give<'_>,
) -> Result<(), Failure> {
    let Order { call, conf, .. } = order;
    let netns = match netns.map(Netns::from_fd).transpose() {
        Ok(netns) => netns,
        Err(_) if call.command == Command::Del => None,
        Err(error) => {
            let message = format!("CNI_NETNS {:?}: {error}", call.netns);
            return Err(Failure::plugin(message));
        }
    };
    match (call.command, netns) {
        (Command::Add, Some(netns)) => {
            if netns.id() == node.here.id() {
                let message = format!("CNI_NETNS {:?} is the host's own namespace", call.netns);
                return Err(Failure::plugin(message)
                    .with_details("the container shares the host's network: it needs no ADD"));
            }
            let addition = addition(node, order)?;
            node.add(call, &netns, &addition, give)
        }
        (Command::Del, netns) => node.del(call, conf, netns.as_ref()),
        (Command::Check, Some(netns)) => node.check(call, &netns),
        (Command::Gc, _) => {
            let said = conf.valid_attachments.as_ref().or(conf.attachments.as_ref());
            let Some(said) = said else {
                let message = "cni.dev/valid-attachments is missing; nothing was removed";
                return Err(Failure::new(Code::InvalidConfiguration, message)
                    .with_details("name the attachments that are in use; [] for none of them"));
            };
            if said.iter().any(|it| it.container.is_empty() || it.interface.is_empty()) {
                let message = "cni.dev/valid-attachments has an entry without containerID or \
                               ifname; nothing was removed";
                return Err(Failure::new(Code::InvalidConfiguration, message)
                    .with_details("each entry names a container and the interface inside"));
            }
            let valid = said.iter().map(|attachment| Identity {
                container: attachment.container.clone(),
                interface: attachment.interface.clone(),
            });
            node.collect(&conf.name, &valid.collect())
        }
        (Command::Status, _) => status(node),
        (Command::Add | Command::Check, None) => {
            let message = "the network namespace was not handed over";
            Err(Failure::new(Code::InvalidEnvironment, message))
        }
        (Command::Version, _) => Ok(()),
    }
}

fn addition(node: &Node, order: &Order<'_>) -> Result<Addition, Failure> {
    let Order { call, conf, delegated, .. } = order;
    if conf.feature_control.ip_addrs_no_ipam {
        let message = "requested feature is not supported for this runtime: ip_addrs_no_ipam";
        return Err(Failure::plugin(message));
    }
    conf.needs_kubernetes()?;
    let delegated = match delegated {
        Some(value) => Some(answer::read(value).ok_or_else(|| {
            Failure::new(Code::Decoding, format!("{} gave no readable answer", conf.ipam.plugin))
        })?),
        None => None,
    };
    Ok(Addition { conf: conf.clone(), wish: wish(node, call, conf)?, delegated, mtu: mtu(conf)? })
}

fn wish(node: &Node, call: &Call, conf: &NetConf) -> Result<Wish, Failure> {
    let address = match call.arguments.get("IP") {
        Some(text) => Some(text.parse::<IpAddr>().map_err(|_| {
            let message = format!("CNI_ARGS: IP={text} is not an IP address");
            Failure::new(Code::InvalidEnvironment, message)
        })?),
        None => None,
    };
    let mut avoid = node.addresses_in_use();
    // What another address manager gave out here is in use, until it was moved into our records.
    avoid.extend(host::host_local::addresses(&host::host_local::place()));
    if address.is_some() {
        avoid.extend(node.addresses_of_strangers());
    }
    Ok(Wish {
        ipv4: conf.assigns_ipv4(),
        ipv6: conf.assigns_ipv6(),
        pools4: conf.ipam.ipv4_pools.clone(),
        pools6: conf.ipam.ipv6_pools.clone(),
        address,
        avoid,
    })
}

/// The address manager alone, under another plugin.
fn manage_addresses(node: &Node, order: &Order<'_>, give: Give<'_>) -> Result<(), Failure> {
    let Order { call, conf, .. } = order;
    match call.command {
        Command::Add => {
            let held = node.assign_alone(call, conf, &wish(node, call, conf)?)?;
            let networks: Vec<_> = held.iter().map(|held| held.network).collect();
            let routes = networks.iter().map(|it| Route { destination: *it, gateway: None });
            let answer = Answer { interfaces: None, routes: routes.collect(), addresses: networks };
            match give(&answer) {
                true => Ok(()),
                false => node.release_alone(call, conf),
            }
        }
        Command::Del => node.release_alone(call, conf),
        Command::Check => node.check_alone(call, conf),
        Command::Status => status(node),
        Command::Gc | Command::Version => Ok(()),
    }
}

/// Whether an ADD could be served now.
fn status(node: &Node) -> Result<(), Failure> {
    let unwritable = node.health.vitals().unwritable;
    if let Some(unwritable) = unwritable.filter(Unwritable::refuses_adds) {
        return Err(Failure::new(Code::NotAvailable, unwritable.spoken())
            .with_details("margay status      # what is wrong on this node?"));
    }
    if let Some(problem) = node.health.vitals().kernel_problem {
        let message = format!("the kernel is not up to date: {problem}");
        return Err(Failure::new(Code::LimitedConnectivity, message)
            .with_details("margay status      # what is wrong on this node?"));
    }
    match node.transact(claim::ready) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => Err(Failure { code: Code::NotAvailable, ..failure }),
        Err(error) => Err(Failure { code: Code::NotAvailable, ..unavailable(&error) }),
    }
}

/// The MTU that the configuration or the file says; none leaves it to the kernel.
fn mtu(conf: &NetConf) -> Result<Option<u32>, Failure> {
    if conf.mtu > 0 {
        let mtu = u32::try_from(conf.mtu);
        return mtu
            .map(Some)
            .map_err(|_| Failure::plugin(format!("mtu {} is too large", conf.mtu)));
    }
    match read_text(Path::new(MTU_FILE)) {
        Ok(text) => {
            text.trim().parse().map(Some).map_err(|_| {
                Failure::plugin(format!("{MTU_FILE}: {:?} is not a number", text.trim()))
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !conf.require_mtu_file => Ok(None),
        Err(error) => Err(Failure::plugin(format!(
            "failed to read MTU file: open {MTU_FILE}: {}",
            text::plain_reason(&error)
        ))),
    }
}

/// A small text that others write.
fn read_text(path: &Path) -> io::Result<String> {
    let bytes = host::file::read_linked(path, bounded::SETTINGS_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Calico's rules: the configuration, the file, the older field, the host's name.
fn node_name(conf: &NetConf, is_ipam: bool) -> Result<String, Failure> {
    let path = conf.node_name_file();
    let file = read_text(Path::new(path));
    let is_optional = conf.nodename_file_optional || is_ipam;
    if let Err(error) = &file
        && !is_optional
    {
        let reason = text::plain_reason(error);
        return Err(Failure::plugin(format!(
            "stat {path}: {reason}: check that the calico/node container is running and has \
             mounted /var/lib/calico/"
        ))
        .with_details("name the node (nodename) and set nodename_file_optional"));
    }
    let from_file = file.unwrap_or_default().trim().to_owned();
    let host = rustix::system::uname().nodename().to_string_lossy().trim().to_lowercase();
    let names = [conf.nodename.clone(), from_file, conf.hostname.clone(), host];
    Ok(names.into_iter().find(|name| !name.is_empty()).unwrap_or_default())
}

fn state_folder(conf: &NetConf) -> PathBuf {
    let named = Some(OsString::from(&conf.state_dir));
    let variable = std::env::var_os("MARGAY_STATE_DIR");
    let mut chosen = [named, variable].into_iter().flatten().filter(|folder| !folder.is_empty());
    chosen.next().map_or_else(|| PathBuf::from("/var/lib/margay"), PathBuf::from)
}

fn lock(state: &Path) -> io::Result<File> {
    let named = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    host::file::make_folder(state, 0o755).map_err(|error| named(state, error))?;
    let path = state.join("lock");
    let file = host::file::lock(&path).map_err(|error| named(&path, error))?;
    let started = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if started.elapsed() < LOCK_WAIT => {
                std::thread::sleep(LOCK_PAUSE)
            }
            Err(Errno::WOULDBLOCK) => {
                let waited = LOCK_WAIT.as_secs();
                let told = format!("another call has held {} for {waited} s", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, told));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The datastore that a network configuration names.
fn open_store(conf: &NetConf) -> Result<Store, Failure> {
    if conf.datastore_type == "kubernetes" {
        return Err(Failure::new(Code::UnsupportedField, "datastore_type: kubernetes")
            .with_details("the Kubernetes datastore is not served yet; use etcdv3"));
    }
    let datastore = match conf.names_etcd() {
        true => Datastore::Etcd(Box::new(etcd_settings(conf)?)),
        false if conf.store.is_empty() => Datastore::Embedded(state_folder(conf).join("store.db")),
        false => Datastore::Embedded(PathBuf::from(&conf.store)),
    };
    datastore.open().map_err(|error| unusable(&error))
}

fn unusable(why: &dyn std::fmt::Display) -> Failure {
    Failure::plugin(format!("error creating calico client: {why}"))
        .with_details("mend the fields about the datastore in the network configuration")
}

fn etcd_settings(conf: &NetConf) -> Result<EtcdSettings, Failure> {
    let mut endpoints = conf.etcd_endpoints.clone();
    if endpoints.is_empty() && !conf.etcd_authority.is_empty() {
        let scheme = if conf.etcd_scheme.is_empty() { "http" } else { &conf.etcd_scheme };
        endpoints = format!("{scheme}://{}", conf.etcd_authority);
    }
    // Named files must be there, even where the endpoints have no use for them.
    let named = [&conf.etcd_cert_file, &conf.etcd_key_file, &conf.etcd_ca_cert_file];
    for file in named.into_iter().filter(|file| !file.is_empty()) {
        host::file::open_linked(Path::new(file)).map_err(|error| {
            let why = text::plain_reason(&error);
            unusable(&format!("could not initialize etcdv3 client: open {file}: {why}"))
        })?;
    }
    Ok(EtcdSettings {
        endpoints,
        discovery_srv: conf.etcd_discovery_srv.clone(),
        cert_file: conf.etcd_cert_file.clone(),
        key_file: conf.etcd_key_file.clone(),
        ca_cert_file: conf.etcd_ca_cert_file.clone(),
        ..EtcdSettings::default()
    })
}
