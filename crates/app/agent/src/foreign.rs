//! Other programs' tables of the packet filter that drop what ours lets through.
//!
//! A packet passes every table that has a chain at its way: a drop in any of them is final. So the
//! packets of pods are followed through the chains of others, and those that lose some are named;
//! they are never touched. A rule that asks what cannot be told from here is taken to drop nothing:
//! a healthy node has no findings.

mod ask;
mod changes;
mod packets;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use host::marks::TABLES;
use kernel::nft::{Base, Chain, Element, Hook, ListedRule, Nft, TableFamily, TableId};
use kernel::{LinkIndex, Netlink, Result, RouteFilter};
use net::Cidr;
use policy::render::Surroundings;

use crate::finding::{Finding, Severity};
use ask::Members;
pub(crate) use changes::Changes;
pub(crate) use packets::{Link, World};
use walk::Walk;

/// What other tables drop, by table and chain.
pub(crate) type Drops = BTreeMap<(String, String), Loss>;

/// What is known of other programs' tables.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    pub(crate) drops: Drops,
    /// For which packets they were looked at.
    pub(crate) world: World,
}

/// How a chain drops, and how to let sandboxes through there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    what: String,
    fix: String,
}

/// Where the kernel names the tables of iptables' old kind that it has.
const LEGACY: [(&str, &str); 2] =
    [("/proc/net/ip_tables_names", "iptables"), ("/proc/net/ip6_tables_names", "ip6tables")];

/// What of this node the packets of pods pass. The way out is by the node's own address, and by
/// default.
pub(crate) fn world(
    netlink: &mut Netlink,
    prefixes: &[String],
    around: &Surroundings,
    addresses: &BTreeSet<Cidr>,
) -> Result<World> {
    let links = netlink.links()?;
    let is_pods = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()));
    let mut out: BTreeSet<LinkIndex> = netlink
        .addresses(None)?
        .iter()
        .filter(|it| around.host_addresses.contains(&it.address.addr()))
        .map(|it| it.link)
        .collect();
    let main = RouteFilter { table: Some(kernel::Table::MAIN), ..RouteFilter::default() };
    let routes = netlink.routes(&main)?;
    let default = routes.iter().filter(|it| it.destination.prefix_len() == 0);
    out.extend(default.flat_map(|it| &it.next_hops).filter_map(|hop| hop.link));
    let own = |is_meant: &dyn Fn(&kernel::Link) -> bool| -> Vec<Link> {
        let meant = links.iter().filter(|link| is_meant(link));
        meant.map(|link| Link::new(link.name.as_str(), link.index.0)).collect()
    };
    let mut pods = own(&|link| is_pods(link.name.as_str()));
    pods.extend(prefixes.iter().map(|prefix| Link::to_come(prefix)));
    let is_in_pool = |it: &&Cidr| around.pools.iter().any(|pool| pool.contains(it.address()));
    let others = addresses.iter().filter(|it| !is_in_pool(it));
    Ok(World {
        prefixes: prefixes.to_vec(),
        pods,
        uplinks: own(&|link| out.contains(&link.index) && !is_pods(link.name.as_str())),
        networks: around.pools.iter().chain(others).map(|it| it.masked()).collect(),
    })
}

/// Looks at one table, or at all.
pub(crate) fn look(
    nft: &mut Nft,
    world: &World,
    only: Option<&BTreeSet<TableId>>,
    drops: &mut Drops,
) -> Result<()> {
    let tables = nft.tables()?;
    drops.retain(|(name, _), _| tables.iter().any(|table| spoken(&table.id) == *name));
    for table in &tables {
        let (is_dormant, table) = (table.is_dormant, &table.id);
        let is_meant = only.is_none_or(|only| only.contains(table));
        let has_pods = matches!(
            table.family,
            TableFamily::Inet | TableFamily::Ip | TableFamily::Ip6 | TableFamily::Netdev
        );
        if !is_meant || !has_pods || TABLES.contains(&table.name.as_str()) {
            continue;
        }
        let chains: Vec<Chain> =
            nft.chains(Some(table))?.into_iter().map(|(_, chain)| chain).collect();
        let rules = match !is_dormant && chains.iter().any(|chain| chain.base.is_some()) {
            true => nft.rules(Some(table))?,
            false => Vec::new(),
        };
        drops.retain(|(of, _), _| *of != spoken(table));
        if !is_dormant {
            let mut sets = Sets { nft: &mut *nft, table, known: BTreeMap::new() };
            let mut members = |name: &str| sets.members(name);
            drops.extend(Seen { table, chains: &chains, rules: &rules, world }.drops(&mut members));
        }
    }
    Ok(())
}

/// The sets of a table, read as rules that matter ask for them.
struct Sets<'a> {
    nft: &'a mut Nft,
    table: &'a TableId,
    known: BTreeMap<String, Option<Vec<Element>>>,
}

impl Sets<'_> {
    fn members(&mut self, name: &str) -> Option<Vec<Element>> {
        if !self.known.contains_key(name) {
            let read = self.read(name);
            self.known.insert(name.to_owned(), read);
        }
        self.known.get(name).cloned().flatten()
    }

    fn read(&mut self, name: &str) -> Option<Vec<Element>> {
        let sets = self.nft.all_sets(self.table).ok()?;
        let set = sets.iter().find(|set| set.name == name)?;
        self.nft.elements(self.table, set).ok()
    }
}

/// A table as `nft` is told which one is meant.
fn spoken(table: &TableId) -> String {
    format!("{} {}", table.family, table.name)
}

/// One table of another program.
struct Seen<'a> {
    table: &'a TableId,
    chains: &'a [Chain],
    rules: &'a [ListedRule],
    world: &'a World,
}

impl Seen<'_> {
    /// What its chains drop of pods' packets.
    fn drops(&self, members: &mut Members<'_>) -> Drops {
        let mut drops = Drops::new();
        for chain in self.chains {
            let Some(base) = &chain.base else { continue };
            let mut walk = Walk::new(self.rules, members);
            let mut is_closed = false;
            for packets in packets::at(self.world, self.table.family, base.hook, &base.devices) {
                is_closed |=
                    !walk.through(&chain.name, packets).is_empty() && base.drops_by_default;
            }
            let what = match walk.lost.first() {
                _ if is_closed => "drops what none of its rules accepts".to_owned(),
                None => continue,
                Some((of, handle)) => {
                    let place = match *of == chain.name {
                        true => format!("handle {handle}"),
                        false => format!("handle {handle} in chain {of}"),
                    };
                    match walk.lost.len() {
                        1 => format!("has a rule that drops ({place})"),
                        n => format!("has {n} rules that drop (the first: {place})"),
                    }
                }
            };
            let fix = self.fix(&chain.name, base);
            drops.insert((spoken(self.table), chain.name.clone()), Loss { what, fix });
        }
        drops
    }

    /// What to type so that sandboxes are let through: in the way of the program whose table it
    /// is.
    fn fix(&self, chain: &str, base: &Base) -> String {
        let prefixes = || self.world.prefixes.iter();
        let both = |command: &str| {
            let of =
                |it: &String| format!("{command} -i {it}+ -j ACCEPT; {command} -o {it}+ -j ACCEPT");
            prefixes().map(of).collect::<Vec<_>>().join("; ")
        };
        let has_docker = self.chains.iter().any(|chain| chain.name == "DOCKER-USER");
        let table = spoken(self.table);
        match (table.as_str(), chain) {
            ("ip filter", "FORWARD") if has_docker => both("iptables -I DOCKER-USER"),
            ("ip6 filter", "FORWARD") if has_docker => both("ip6tables -I DOCKER-USER"),
            ("ip filter", "FORWARD") => both("iptables -I FORWARD"),
            ("ip6 filter", "FORWARD") => both("ip6tables -I FORWARD"),
            ("inet firewalld", "filter_FORWARD") => {
                let add = prefixes().map(|it| format!(" --add-interface={it}+"));
                let add: String = add.collect();
                format!("firewall-cmd --permanent --zone=trusted{add}; firewall-cmd --reload")
            }
            _ => {
                let insert =
                    |what: String| format!("nft insert rule {table} {chain} {what} accept");
                self.passes(base).into_iter().map(insert).collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// What tells pods' packets from others at a chain: by addresses, where one of the interfaces
    /// is not known.
    fn passes(&self, base: &Base) -> Vec<String> {
        if matches!(base.hook, Hook::Forward | Hook::Postrouting) {
            let of = |it: &String| [format!("iifname '{it}*'"), format!("oifname '{it}*'")];
            return self.world.prefixes.iter().flat_map(of).collect();
        }
        let is_seen = |it: &&Cidr| match self.table.family {
            TableFamily::Ip => it.is_ipv4(),
            TableFamily::Ip6 => !it.is_ipv4(),
            _ => true,
        };
        let networks = self.world.networks.iter().filter(is_seen);
        let both = networks.flat_map(|network| {
            let ip = if network.is_ipv4() { "ip" } else { "ip6" };
            ["saddr", "daddr"].map(|side| format!("{ip} {side} {network}"))
        });
        both.collect()
    }
}

/// What is to be known of tables that cannot be looked into: no finding, because nothing is known
/// to be wrong.
pub(crate) fn notes() -> Vec<String> {
    let filters = |(path, program): (&str, &str)| {
        let names = std::fs::read_to_string(path).unwrap_or_default();
        // Tables that translate addresses drop nothing.
        let mut names: Vec<&str> = names.lines().filter(|name| *name != "nat").collect();
        names.sort_unstable();
        (!names.is_empty()).then(|| {
            format!(
                "{program}-legacy has tables here ({}), which cannot be looked into: what they drop \
                 is lost whatever policy says      ({program}-legacy-save shows them)",
                names.join(", ")
            )
        })
    };
    LEGACY.into_iter().filter_map(filters).collect()
}

/// A table of somebody else may drop what ours lets through.
pub(crate) fn finding(((table, chain), loss): (&(String, String), &Loss)) -> Finding {
    let Loss { what, fix } = loss;
    let problem = format!(
        "chain {chain} of table {table}, which another program made, {what}: packets of pods that \
         policy allows may be lost there"
    );
    Finding::new("MG-FILTER-002", Severity::Degraded, "FILTER", problem, fix.clone())
}
