//! Who uses an address, and whose word is missing.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::keys::Key;
use api::names::WorkloadEndpointParts;
use net::Cidr;

use super::endpoint::{Endpoint, container_of, tail};
use super::inventory::{Inventory, RESERVE};
use super::live::Sandbox;
use super::stock::Slot;

/// Handles of tunnels: what sort, this, and the node.
const TUNNEL: &str = "-tunnel-addr-";

/// Somebody who uses an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum User<'i> {
    Endpoint(&'i Endpoint),
    /// A sandbox of this node's journal.
    Sandbox(&'i Sandbox),
    /// The tunnel of a node.
    Tunnel(&'i str),
    /// This node's kernel knows it; whose it is, is not known.
    Kernel,
}

impl User<'_> {
    /// What tells two users apart: an endpoint and a sandbox of one container are one.
    fn identity(&self) -> Option<&str> {
        match self {
            Self::Endpoint(it) if it.container.is_empty() => Some(&it.name),
            Self::Endpoint(it) => Some(&it.container),
            Self::Sandbox(it) => Some(&it.container),
            Self::Tunnel(node) => Some(node),
            Self::Kernel => None,
        }
    }

    /// Whether both are one.
    pub(crate) fn is_same(&self, other: User<'_>) -> bool {
        self.identity() == other.identity()
    }

    pub(crate) fn spoken(&self) -> String {
        match self {
            Self::Endpoint(it) => {
                let container: String = it.container.chars().take(12).collect();
                match container.is_empty() {
                    true => format!("{} on {}", it.spoken(), it.node),
                    false => format!("{} ({container}) on {}", it.spoken(), it.node),
                }
            }
            Self::Sandbox(it) => format!("{} (live here)", it.name),
            Self::Tunnel(node) => format!("the tunnel of {node}"),
            Self::Kernel => "a route or an interface of this node".to_owned(),
        }
    }

    pub(crate) fn node(&self) -> Option<&str> {
        match self {
            Self::Endpoint(it) => Some(&it.node),
            Self::Sandbox(it) => it.attributes.get("node").map(String::as_str),
            Self::Tunnel(node) => Some(node),
            Self::Kernel => None,
        }
    }
}

/// Who uses addresses, ready to be asked. What only faults ask for is put in order when the first
/// one does.
pub(crate) struct Witnesses<'i> {
    inventory: &'i Inventory,
    /// The addresses that somebody uses, in order, once for each user; the kernel's only where
    /// nobody else does.
    used: Vec<IpAddr>,
    /// Who uses each.
    users: Vec<User<'i>>,
    /// Endpoints by container.
    containers: OnceCell<Vec<&'i Endpoint>>,
    /// Handles by the container that they name.
    handles: OnceCell<Vec<&'i Arc<str>>>,
    /// Every address that is held: by which handle, in which block.
    held: Vec<(&'i str, Cidr)>,
    /// By block, the handles that count addresses in it, and how many.
    counts: OnceCell<BTreeMap<Cidr, Vec<(&'i str, i64)>>>,
    /// Nodes of which an endpoint cannot be read.
    blind: BTreeSet<String>,
    /// An endpoint cannot be read, and its key does not name a node.
    is_blind: bool,
    /// The network of most handles.
    network: OnceCell<Option<&'i str>>,
}

impl<'i> Witnesses<'i> {
    pub(crate) fn of(inventory: &'i Inventory) -> Self {
        let (used, users) = users(inventory);
        let (blind, is_blind) = blindness(inventory);
        Self {
            inventory,
            used,
            users,
            containers: OnceCell::new(),
            handles: OnceCell::new(),
            held: held(inventory),
            counts: OnceCell::new(),
            blind,
            is_blind,
            network: OnceCell::new(),
        }
    }

    /// Who uses an address; the kernel alone only where nobody else does.
    pub(crate) fn users(&self, address: IpAddr) -> &[User<'i>] {
        let start = self.used.partition_point(|it| *it < address);
        let rest = self.used.get(start..).unwrap_or_default();
        let count = rest.iter().take_while(|it| **it == address).count();
        self.users.get(start..start + count).unwrap_or_default()
    }

    /// Users that are not one and the same.
    pub(crate) fn distinct(users: &[User<'i>]) -> Vec<User<'i>> {
        let mut seen = BTreeSet::new();
        let is_new = |user: &&User<'i>| match user {
            // Two endpoints are two, whatever container they name.
            User::Endpoint(it) => seen.insert(&*it.name),
            User::Sandbox(it) => {
                let is_its = |other: &User<'i>| {
                    matches!(other, User::Endpoint(_)) && other.identity() == Some(&it.container)
                };
                !users.iter().any(is_its)
            }
            _ => true,
        };
        users.iter().filter(is_new).copied().collect()
    }

    /// All addresses that somebody uses, or those of a block.
    pub(crate) fn addresses(&self, within: Option<Cidr>) -> impl Iterator<Item = IpAddr> {
        let mut last = None;
        let start = within.map_or(0, |it| self.used.partition_point(|a| *a < it.network()));
        let addresses = self.used.get(start..).unwrap_or_default().iter().copied();
        let addresses = addresses.take_while(move |it| within.is_none_or(|w| w.contains(*it)));
        addresses.filter(move |address| last.replace(*address) != Some(*address))
    }

    /// Whether the owner of a handle lives somewhere, with whatever addresses.
    pub(crate) fn is_owner_alive(&self, handle: &str) -> Option<User<'i>> {
        let container = container_of(handle);
        let containers = self.containers.get_or_init(|| {
            let named = self.inventory.endpoints.iter().filter(|it| !it.container.is_empty());
            let mut named: Vec<&'i Endpoint> = named.collect();
            named.sort_by(|one, two| one.container.cmp(&two.container));
            named
        });
        let at = containers.partition_point(|it| *it.container < *container);
        let endpoint = containers.get(at).filter(|it| *it.container == *container);
        let sandboxes = self.inventory.live.iter().flat_map(|live| &live.sandboxes);
        let mut sandboxes =
            sandboxes.filter(|it| it.handle == handle || it.container == *container);
        let endpoint = endpoint.map(|endpoint| User::Endpoint(endpoint));
        endpoint.or_else(|| sandboxes.next().map(User::Sandbox))
    }

    /// The stored handle that names a container.
    pub(crate) fn handle_of(&self, container: &str) -> Option<&'i Arc<str>> {
        let handles = self.handles.get_or_init(|| {
            let mut handles: Vec<&'i Arc<str>> =
                self.inventory.handles.iter().map(|(id, _)| id).collect();
            handles.sort_by(|one, two| lower(tail(one)).cmp(lower(tail(two))));
            handles
        });
        let at = handles.partition_point(|it| lower(tail(it)).lt(lower(container)));
        handles.get(at).copied().filter(|it| tail(it).eq_ignore_ascii_case(container))
    }

    /// Every address that is held: by which handle, in which block; in order.
    pub(crate) fn all_held(&self) -> &[(&'i str, Cidr)] {
        &self.held
    }

    /// The blocks in which a handle holds addresses, one for each.
    pub(crate) fn held_by(&self, handle: &str) -> &[(&'i str, Cidr)] {
        let start = self.held.partition_point(|(id, _)| *id < handle);
        held_first(self.held.get(start..).unwrap_or_default(), handle)
    }

    /// How many addresses a handle holds in a block.
    pub(crate) fn held(&self, handle: &str, cidr: Cidr) -> i64 {
        let here = self.held_by(handle).iter().filter(|(_, block)| *block == cidr);
        i64::try_from(here.count()).unwrap_or(i64::MAX)
    }

    /// How many addresses a stored handle says it holds in a block.
    pub(crate) fn counted(&self, handle: &str, cidr: Cidr) -> i64 {
        let Some(facts) = self.inventory.handles.get(handle) else { return 0 };
        facts.blocks().iter().find(|(block, _)| *block == cidr).map_or(0, |(_, count)| *count)
    }

    /// The handles that count addresses in a block, and how many.
    pub(crate) fn counts(&self, cidr: Cidr) -> &[(&'i str, i64)] {
        let counts = self.counts.get_or_init(|| counts(self.inventory));
        counts.get(&cidr).map_or(&[], Vec::as_slice)
    }

    /// The stored handle of a tunnel of a node that counts addresses in a block.
    pub(crate) fn tunnel_handle(&self, node: &str, cidr: Cidr) -> Option<&'i str> {
        let mut counts = self.counts(cidr).iter().map(|(id, _)| *id);
        let is_its = |id: &&str| {
            id.split_once(TUNNEL).is_some_and(|(_, named)| named.eq_ignore_ascii_case(node))
        };
        counts.find(is_its)
    }

    /// The network of most handles.
    pub(crate) fn network(&self) -> Option<&'i str> {
        *self.network.get_or_init(|| most_common_network(self.inventory))
    }

    /// Whether an endpoint that cannot be read may use addresses of a node.
    pub(crate) fn is_blind(&self, node: Option<&str>) -> bool {
        let is_on = |node: &str| self.blind.contains(node);
        self.is_blind || node.map_or(!self.blind.is_empty(), is_on)
    }
}

fn blindness(inventory: &Inventory) -> (BTreeSet<String>, bool) {
    let mut nodes = BTreeSet::new();
    let mut is_blind = false;
    for key in inventory.unreadable_endpoints() {
        let parts = match Key::parse(key) {
            Some(Key::Resource(key)) => WorkloadEndpointParts::parse(&key.name).ok(),
            _ => None,
        };
        match parts.filter(|parts| inventory.nodes.contains_key(&parts.node)) {
            Some(parts) => drop(nodes.insert(parts.node)),
            None => is_blind = true,
        }
    }
    (nodes, is_blind)
}

/// The addresses that somebody uses, in order, and by whom.
fn users(inventory: &Inventory) -> (Vec<IpAddr>, Vec<User<'_>>) {
    let n_used = inventory.endpoints.iter().map(|it| it.addresses.len()).sum();
    let mut users: Vec<(IpAddr, User<'_>)> = Vec::with_capacity(n_used);
    for endpoint in &inventory.endpoints {
        users.extend(endpoint.addresses.iter().map(|it| (*it, User::Endpoint(endpoint))));
    }
    for (node, tunnels) in &inventory.nodes {
        // One address may serve several sorts of tunnels of its node.
        let tunnels: BTreeSet<&IpAddr> = tunnels.iter().collect();
        users.extend(tunnels.into_iter().map(|it| (*it, User::Tunnel(node))));
    }
    if let Some(live) = &inventory.live {
        for sandbox in &live.sandboxes {
            users.extend(sandbox.addresses.keys().map(|it| (*it, User::Sandbox(sandbox))));
        }
    }
    users.sort_by_key(|(address, _)| *address);
    if let Some(live) = &inventory.live {
        let is_used = |it: &IpAddr| users.binary_search_by_key(it, |(used, _)| *used).is_ok();
        let alone: Vec<_> = live.in_kernel.iter().filter(|it| !is_used(it)).copied().collect();
        users.extend(alone.into_iter().map(|it| (it, User::Kernel)));
        users.sort_by_key(|(address, _)| *address);
    }
    users.into_iter().unzip()
}

fn held(inventory: &Inventory) -> Vec<(&str, Cidr)> {
    let n_slots = inventory.blocks.values().map(|stock| stock.slots.len()).sum();
    let mut held = Vec::with_capacity(n_slots);
    for (cidr, stock) in &inventory.blocks {
        for (_, slot) in &stock.slots {
            let Slot::Held(holder) = slot else { continue };
            if let Some(handle) = holder.counted_handle() {
                held.push((handle, *cidr));
            }
        }
    }
    held.sort_unstable();
    held
}

/// The entries at the beginning that are of a handle.
pub(crate) fn held_first<'h, 'i>(
    held: &'h [(&'i str, Cidr)],
    handle: &str,
) -> &'h [(&'i str, Cidr)] {
    let count = held.iter().take_while(|(id, _)| *id == handle).count();
    held.get(..count).unwrap_or_default()
}

fn counts(inventory: &Inventory) -> BTreeMap<Cidr, Vec<(&str, i64)>> {
    let mut counts: BTreeMap<Cidr, Vec<_>> = BTreeMap::new();
    for (id, facts) in inventory.handles.iter() {
        for (cidr, count) in facts.blocks().iter().filter(|(_, count)| *count > 0) {
            counts.entry(*cidr).or_default().push((&**id, *count));
        }
    }
    counts
}

fn lower(text: &str) -> impl Iterator<Item = u8> {
    text.bytes().map(|byte| byte.to_ascii_lowercase())
}

fn most_common_network(inventory: &Inventory) -> Option<&str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (id, _) in inventory.handles.iter() {
        if let Some((network, _)) = id.rsplit_once('.').filter(|it| it.0 != RESERVE) {
            *counts.entry(network).or_default() += 1;
        }
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(network, _)| network)
}
