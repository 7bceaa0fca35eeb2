//! What should become of every address of every block, and what is wrong as it is.
//!
//! A record is believed where another one agrees: the block, the handle and the endpoint are three
//! witnesses of who holds an address. An address is let go only where all that could know of it
//! were heard and none of them uses it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use net::Cidr;

use super::problem::{Class, Findings, Problem};
use super::stock::{Holder, Purpose, Slot, Stock};
use super::witness::{User, Witnesses};
use super::{ClaimVerdict, Claims, HandleVerdict, Inventory};
use crate::record::block_key;
use crate::{Moment, Pool};

/// An allocation this young may have an endpoint that is still on its way, in seconds.
const GRACE: i64 = 15 * 60;
const DEFAULT_NETWORK: &str = "k8s-pod-network";

/// How far the word of witnesses goes who were not all heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Whether endpoints alone speak for nodes that cannot be asked.
    pub all_nodes: bool,
    /// The present time.
    pub now: Moment,
}

/// Who is to hold an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) handle: Option<String>,
    /// What its holder is called beside what it is called already.
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) sequence: Option<u64>,
}

/// What should become of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotVerdict {
    Keep,
    Free,
    Hold(Holding),
}

/// What should become of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockVerdict {
    /// Addresses that should not stay as they are.
    pub(crate) slots: BTreeMap<usize, SlotVerdict>,
    /// How many of those that are held should stay so.
    pub(crate) n_kept: usize,
    /// The owner it should get; the outer none leaves it.
    pub(crate) owner: Option<Option<String>>,
    /// Whether it should go.
    pub(crate) is_removed: bool,
    /// Whether it is to be written in any case.
    pub(crate) is_faulty: bool,
    /// Why it is left as it is.
    pub(crate) left: Option<String>,
}

impl BlockVerdict {
    /// Whether nobody would hold an address.
    pub(crate) fn is_empty(&self) -> bool {
        self.n_kept == 0 && self.slots.values().all(|verdict| *verdict == SlotVerdict::Free)
    }
}

/// Everything that should become of the records, and what is wrong with them.
pub(crate) struct Judgement<'i> {
    pub(crate) inventory: &'i Inventory,
    pub(crate) witnesses: Witnesses<'i>,
    pub(crate) reach: Reach,
    pub(crate) problems: Vec<Problem>,
    pub(crate) blocks: BTreeMap<Cidr, BlockVerdict>,
    pub(crate) handles: BTreeMap<String, HandleVerdict>,
    pub(crate) claims: BTreeMap<String, ClaimVerdict>,
    lengths: Vec<u8>,
}

impl Inventory {
    /// Names everything that does not fit.
    pub fn check(&self, reach: Reach) -> Findings {
        let judgement = Judgement::of(self, reach);
        let held = |stock: &Stock| {
            stock.slots.iter().filter(|(_, slot)| matches!(slot, Slot::Held(_))).count()
        };
        let mut problems = judgement.problems;
        problems.sort();
        problems.dedup();
        Findings {
            problems,
            blocks: self.blocks.len(),
            addresses: self.blocks.values().map(held).sum(),
            handles: self.handles.iter().count(),
            endpoints: self.endpoints.len(),
        }
    }
}

impl<'i> Judgement<'i> {
    pub(crate) fn of(inventory: &'i Inventory, reach: Reach) -> Self {
        let mut lengths: Vec<u8> = inventory.blocks.keys().map(|cidr| cidr.prefix_len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut judgement = Self {
            inventory,
            witnesses: Witnesses::of(inventory),
            reach,
            problems: Vec::new(),
            blocks: BTreeMap::new(),
            handles: BTreeMap::new(),
            claims: BTreeMap::new(),
            lengths,
        };
        judgement.name_unreadable();
        for stock in inventory.blocks.values() {
            judgement.judge_block(stock);
        }
        judgement.judge_users();
        judgement.judge_overlaps();
        let claims = Claims::of(inventory);
        judgement.judge_claims(&claims);
        judgement.judge_handles();
        judgement
    }

    pub(crate) fn name(
        &mut self,
        class: Class,
        key: &str,
        text: impl Into<String>,
    ) -> &mut Problem {
        let (key, text) = (key.to_owned(), text.into());
        self.problems.push(Problem { class, key, address: None, node: None, text, kept: None });
        self.problems.last_mut().expect("one was pushed")
    }

    fn name_unreadable(&mut self) {
        for (key, why) in &self.inventory.unreadable {
            let kept = match super::endpoints_prefix() {
                prefix if key.starts_with(&prefix) => {
                    "an endpoint is mended by the agent of its node, or by hand"
                }
                _ => "it is to be written or removed by hand",
            };
            self.name(Class::Unreadable, key, why.clone()).kept = Some(kept.to_owned());
        }
    }

    fn judge_block(&mut self, stock: &'i Stock) {
        let key = block_key(stock.cidr);
        for fault in &stock.faults {
            let address = fault.ordinal.and_then(|it| address_at(stock.cidr, it));
            let node = stock.node().map(str::to_owned);
            let problem = self.name(fault.class, &key, fault.text.clone());
            (problem.address, problem.node) = (address, node);
        }
        let verdict = BlockVerdict { is_faulty: !stock.faults.is_empty(), ..Default::default() };
        self.blocks.insert(stock.cidr, verdict);
        if stock.is_lost {
            return self.judge_lost(stock, &key);
        }
        let mut uncertain = Vec::new();
        for (ordinal, slot) in &stock.slots {
            let Some(address) = address_at(stock.cidr, *ordinal) else { continue };
            let verdict = match slot {
                Slot::Held(holder) => self.judge_held(stock, address, holder),
                Slot::Uncertain => {
                    uncertain.push((*ordinal, address));
                    continue;
                }
            };
            self.decide(stock.cidr, *ordinal, verdict);
        }
        self.judge_uncertain(stock, &uncertain);
        self.judge_place(stock, &key);
    }

    pub(crate) fn decide(&mut self, cidr: Cidr, ordinal: usize, verdict: SlotVerdict) {
        let block = self.blocks.entry(cidr).or_default();
        match verdict {
            SlotVerdict::Keep => block.n_kept += 1,
            verdict => drop(block.slots.insert(ordinal, verdict)),
        }
    }

    /// Lets an address go after all.
    pub(crate) fn decide_otherwise(&mut self, cidr: Cidr, ordinal: usize) {
        let block = self.blocks.entry(cidr).or_default();
        if block.slots.insert(ordinal, SlotVerdict::Free).is_none() {
            block.n_kept = block.n_kept.saturating_sub(1);
        }
    }

    fn judge_held(&mut self, stock: &'i Stock, address: IpAddr, holder: &Holder) -> SlotVerdict {
        let users = self.witnesses.users(address).to_vec();
        if holder.is_cooling || holder.purpose == Purpose::Windows {
            return SlotVerdict::Keep;
        }
        let is_tunnel = users.iter().all(|user| matches!(user, User::Tunnel(_) | User::Kernel));
        if is_tunnel && let Some(handle) = self.misspelt(stock, holder) {
            let written = holder.handle.as_deref().unwrap_or("nobody");
            let text = format!("held by {written}, which is not there; {handle} misses an address");
            let problem = self.name(Class::WrongHandle, &block_key(stock.cidr), text);
            problem.address = Some(address);
            let user = users.first().map(|user| self.holding(*user, address, stock.cidr));
            return SlotVerdict::Hold(Holding { handle: Some(handle), ..user.unwrap_or_default() });
        }
        if let Some(user) = users.first().copied() {
            return self.judge_used(stock, address, holder, &users, user);
        }
        let handle = holder.settled_handle();
        match holder.purpose {
            Purpose::Reserve => {
                let node = handle.and_then(|it| it.split_once('.')).map_or("", |it| it.1);
                if !self.inventory.is_gone(node) {
                    return SlotVerdict::Keep;
                }
            }
            Purpose::Workload if !stock.is_virtual() => {
                let alive = handle.and_then(|handle| self.witnesses.is_owner_alive(handle));
                if let (Some(user), Some(handle)) = (alive, handle) {
                    return self.judge_unused(stock, address, holder, handle, user);
                }
            }
            // What holds an address of no node's block is known to nobody here.
            _ if stock.is_virtual() => return SlotVerdict::Keep,
            _ => {}
        }
        self.judge_leak(stock, address, holder)
    }

    /// The handle that a holder was written for, where its own is not there: the only one that
    /// misses an address in the block.
    fn misspelt(&self, stock: &Stock, holder: &Holder) -> Option<String> {
        let own = holder.settled_handle();
        if own.is_some_and(|own| self.inventory.handles.contains(own)) {
            return None;
        }
        let held = |id: &str| self.witnesses.held(id, stock.cidr);
        let counts = self.witnesses.counts(stock.cidr).iter();
        let mut missing = counts.filter(|(id, count)| *count > held(id));
        let only = missing.next().filter(|(id, count)| *count == held(id) + 1)?;
        missing.next().is_none().then(|| only.0.to_owned())
    }

    /// An address whose holder lives, with other addresses.
    fn judge_unused(
        &mut self,
        stock: &Stock,
        address: IpAddr,
        holder: &Holder,
        handle: &str,
        user: User<'_>,
    ) -> SlotVerdict {
        let cidr = stock.cidr;
        // Listed as free, not counted by the handle and not used: three against one.
        let is_extra = self.witnesses.counted(handle, cidr) < self.witnesses.held(handle, cidr);
        let is_certain = holder.is_listed_free && is_extra;
        if is_certain && !self.witnesses.is_blind(holder.node.as_deref()) {
            return SlotVerdict::Free;
        }
        let text = format!("held by {handle}, but {} does not have it", user.spoken());
        let node = user.node().map(str::to_owned);
        let problem = self.name(Class::Mismatch, &block_key(cidr), text);
        (problem.address, problem.node) = (Some(address), node);
        problem.kept = Some("its holder lives: only its node can tell".to_owned());
        SlotVerdict::Keep
    }

    fn judge_leak(&mut self, stock: &Stock, address: IpAddr, holder: &Holder) -> SlotVerdict {
        let kept = self.why_kept(stock, holder);
        let who = match (holder.handle.as_deref(), holder.pod.as_deref()) {
            (Some(handle), Some(pod)) => format!("held by {handle} ({pod})"),
            (Some(handle), None) => format!("held by {handle}"),
            (None, _) => "held by nobody that is named".to_owned(),
        };
        let since = holder.since.map(|it| format!(" since {}", it.text())).unwrap_or_default();
        let text = format!("{who}{since}; nothing that is known uses it");
        let problem = self.name(Class::Leak, &block_key(stock.cidr), text);
        problem.address = Some(address);
        problem.node = holder.node.as_deref().or(stock.node()).map(str::to_owned);
        problem.kept = kept.clone();
        if kept.is_some() { SlotVerdict::Keep } else { SlotVerdict::Free }
    }

    /// Why an address that nobody seems to use is not let go; none if everybody was heard.
    fn why_kept(&self, stock: &Stock, holder: &Holder) -> Option<String> {
        let node = holder.node.as_deref().or(stock.node());
        if self.witnesses.is_blind(node) {
            return Some("an endpoint of its node cannot be read".to_owned());
        }
        match (&self.inventory.live, node) {
            (Some(live), Some(node)) if live.node == node => {
                return live.incomplete.clone();
            }
            (_, Some(node)) if self.inventory.is_gone(node) => return None,
            _ => {}
        }
        if holder.handle.is_none() {
            return Some("nobody is named: margay ipam release --ip lets it go".to_owned());
        }
        if holder.since.is_some_and(|since| since.is_fresh(self.reach.now, GRACE)) {
            return Some("it was given less than 15 minutes ago".to_owned());
        }
        match (self.reach.all_nodes, node) {
            (true, _) => None,
            (false, Some(node)) => Some(format!(
                "only {node} itself knows all that lives there; run it there, while its agent runs"
            )),
            (false, None) => Some("which node holds it is not known".to_owned()),
        }
    }

    /// Addresses of which the block does not say who holds them.
    fn judge_uncertain(&mut self, stock: &Stock, uncertain: &[(usize, IpAddr)]) {
        let mut unknown = Vec::new();
        for (ordinal, address) in uncertain {
            match self.witnesses.users(*address).first().copied() {
                Some(user) => {
                    let holding = self.holding(user, *address, stock.cidr);
                    self.decide(stock.cidr, *ordinal, SlotVerdict::Hold(holding));
                }
                None => unknown.push(*ordinal),
            }
        }
        if unknown.is_empty() {
            return;
        }
        let verdict = self.verdict_on_unknown(stock, unknown.len());
        for ordinal in unknown {
            self.decide(stock.cidr, ordinal, verdict.clone());
        }
    }

    /// Handles that miss an address in the block say whose it may be.
    fn verdict_on_unknown(&self, stock: &Stock, count: usize) -> SlotVerdict {
        let is_told = self.inventory.handles.iter().all(|(_, it)| it.unreadable().is_none());
        let held = self.held_in(stock);
        let missing: Vec<(&str, i64)> = self
            .witnesses
            .counts(stock.cidr)
            .iter()
            .map(|(id, count)| (*id, count - held.get(*id).copied().unwrap_or(0)))
            .filter(|(_, missing)| *missing > 0)
            .collect();
        match missing[..] {
            [] if is_told && !self.witnesses.is_blind(stock.node()) => SlotVerdict::Free,
            [(handle, missing)] if usize::try_from(missing) == Ok(count) => {
                SlotVerdict::Hold(Holding { handle: Some(handle.to_owned()), ..Holding::default() })
            }
            // Held by nobody in particular: it can be looked at, and is not given out.
            _ => SlotVerdict::Hold(Holding::default()),
        }
    }

    /// How many addresses each handle would hold in a block, as far as it is decided.
    fn held_in<'s>(&'s self, stock: &'s Stock) -> BTreeMap<&'s str, i64> {
        let mut held = BTreeMap::new();
        let verdicts = self.blocks.get(&stock.cidr).map(|block| &block.slots);
        for (ordinal, slot) in &stock.slots {
            let written = match slot {
                Slot::Held(holder) => holder.settled_handle(),
                Slot::Uncertain => None,
            };
            let handle = match verdicts.and_then(|it| it.get(ordinal)) {
                Some(SlotVerdict::Free) => None,
                None | Some(SlotVerdict::Keep) => written,
                Some(SlotVerdict::Hold(holding)) => holding.handle.as_deref().or(written),
            };
            if let Some(handle) = handle {
                *held.entry(handle).or_default() += 1;
            }
        }
        held
    }

    /// A block of which nothing can be read, made anew from those who use its addresses. As long
    /// as somebody may hold others, none of the rest is given out.
    fn judge_lost(&mut self, stock: &Stock, key: &str) {
        let cidr = stock.cidr;
        if Stock::is_too_large(cidr) {
            let left = Some("no block is that large".to_owned());
            if let Some(problem) = self.problems.iter_mut().rev().find(|it| it.key == key) {
                problem.kept.clone_from(&left);
            }
            self.blocks.entry(cidr).or_default().left = left;
            return;
        }
        let is_told = self.inventory.handles.iter().all(|(_, it)| it.unreadable().is_none());
        let mut counts = self.witnesses.counts(cidr).iter();
        let is_named = counts.all(|(id, count)| *count <= self.users_of(id, cidr));
        if is_told && is_named && !self.witnesses.is_blind(None) {
            return;
        }
        let ordinals = (0..).map_while(|ordinal| Some((ordinal, address_at(cidr, ordinal)?)));
        let unused = ordinals.filter(|(_, address)| self.witnesses.users(*address).is_empty());
        for (ordinal, _) in unused.collect::<Vec<_>>() {
            self.decide(cidr, ordinal, SlotVerdict::Hold(Holding::default()));
        }
    }

    fn users_of(&self, handle: &str, cidr: Cidr) -> i64 {
        let container = super::endpoint::container_of(handle);
        let is_its = |user: &User<'_>| match user {
            User::Endpoint(it) => *it.container == *container,
            User::Sandbox(it) => it.handle == handle,
            User::Tunnel(_) => handle.contains("-tunnel-addr-"),
            User::Kernel => false,
        };
        let addresses = self.witnesses.addresses(Some(cidr));
        let used = addresses.filter(|it| self.witnesses.users(*it).iter().any(is_its));
        i64::try_from(used.count()).unwrap_or(i64::MAX)
    }

    /// Whether the block is one that a pool would make.
    fn judge_place(&mut self, stock: &Stock, key: &str) {
        let pool = self.pool_of(stock.cidr.address());
        let text = match pool {
            Some(pool) if pool.block_size == stock.cidr.prefix_len() => return,
            Some(pool) => format!("pool {} makes blocks of /{}", pool.name, pool.block_size),
            None => "it lies in no pool".to_owned(),
        };
        let node = stock.node().map(str::to_owned);
        let kept = match self.blocks.get(&stock.cidr).is_some_and(BlockVerdict::is_empty) {
            true if self.knows_all_pools() => None,
            true => Some("a pool cannot be read".to_owned()),
            false => Some("addresses of it are held: it goes when they do".to_owned()),
        };
        if kept.is_none() {
            self.blocks.entry(stock.cidr).or_default().is_removed = true;
        }
        let problem = self.name(Class::OutOfPool, key, text);
        (problem.node, problem.kept) = (node, kept);
    }

    pub(crate) fn knows_all_pools(&self) -> bool {
        let prefix = crate::record::kind_prefix(api::Kind::IpPool);
        !self.inventory.unreadable.keys().any(|key| key.starts_with(&prefix))
    }

    pub(crate) fn pool_of(&self, address: IpAddr) -> Option<&'i Pool> {
        self.inventory.pools.iter().find(|pool| pool.cidr.contains(address))
    }

    /// The blocks that an address lies in.
    pub(crate) fn blocks_around(&self, address: IpAddr) -> Vec<&'i Stock> {
        let cidrs = self.lengths.iter().filter_map(|length| Cidr::new(address, *length));
        cidrs.filter_map(|cidr| self.inventory.blocks.get(&cidr.masked())).collect()
    }

    /// How somebody who uses an address would hold it.
    pub(crate) fn holding(&self, user: User<'_>, address: IpAddr, cidr: Cidr) -> Holding {
        let mut attributes = BTreeMap::new();
        let mut sequence = None;
        let mut set =
            |name: &str, value: &str| attributes.insert(name.to_owned(), value.to_owned());
        let handle = match user {
            User::Endpoint(it) => {
                set("node", &it.node);
                if let Some(pod) = it.pod() {
                    set("pod", &pod);
                    set("namespace", it.namespace());
                }
                let network = it.network.as_deref().or(self.witnesses.network());
                let network = network.unwrap_or(DEFAULT_NETWORK);
                match self.witnesses.handle_of(&it.container) {
                    _ if it.container.is_empty() => Some(it.name.replacen('/', ".", 1)),
                    Some(handle) => Some(handle.to_string()),
                    None => Some(format!("{network}.{}", &*it.container)),
                }
            }
            User::Sandbox(it) => {
                attributes.extend(it.attributes.clone());
                sequence = it.addresses.get(&address).copied().flatten();
                Some(it.handle.clone())
            }
            User::Tunnel(node) => {
                set("node", node);
                let stored = self.witnesses.tunnel_handle(node, cidr);
                Some(stored.map_or_else(|| format!("ipip-tunnel-addr-{node}"), str::to_owned))
            }
            User::Kernel => None,
        };
        Holding { handle, attributes, sequence }
    }
}

/// The address at a place of a block.
pub(crate) fn address_at(cidr: Cidr, ordinal: usize) -> Option<IpAddr> {
    let offset = u128::try_from(ordinal).ok()?;
    let address = match cidr.network() {
        IpAddr::V4(it) => {
            IpAddr::V4(u32::from(it).checked_add(u32::try_from(offset).ok()?)?.into())
        }
        IpAddr::V6(it) => IpAddr::V6(u128::from(it).checked_add(offset)?.into()),
    };
    cidr.contains(address).then_some(address)
}

/// The place of an address in a block.
pub(crate) fn ordinal_of(cidr: Cidr, address: IpAddr) -> Option<usize> {
    let difference = match (address, cidr.network()) {
        (IpAddr::V4(address), IpAddr::V4(first)) => {
            u128::from(u32::from(address).checked_sub(u32::from(first))?)
        }
        (IpAddr::V6(address), IpAddr::V6(first)) => {
            u128::from(address).checked_sub(first.into())?
        }
        _ => return None,
    };
    usize::try_from(difference).ok().filter(|_| cidr.contains(address))
}
