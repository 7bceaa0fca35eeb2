//! Addresses that somebody uses: whether the records hold them for that user, and for no other.

use std::collections::BTreeMap;
use std::net::IpAddr;

use net::Cidr;

use super::endpoint::Endpoint;
use super::problem::Class;
use super::stock::{Holder, Purpose, Slot, Stock};
use super::verdict::{BlockVerdict, Holding, Judgement, SlotVerdict, address_at, ordinal_of};
use super::witness::{User, Witnesses};
use crate::record::block_key;

impl<'i> Judgement<'i> {
    /// An address that is held and used: by the same?
    pub(super) fn judge_used(
        &mut self,
        stock: &Stock,
        address: IpAddr,
        holder: &Holder,
        users: &[User<'i>],
        first: User<'i>,
    ) -> SlotVerdict {
        let handle = holder.settled_handle();
        let owns = |user: &&User<'i>| match (**user, handle) {
            (User::Endpoint(it), Some(handle)) => it.owns(handle),
            (User::Sandbox(it), Some(handle)) => it.handle == handle,
            (User::Tunnel(_), Some(_)) => holder.purpose == Purpose::Tunnel,
            (User::Kernel, _) => true,
            (_, None) => false,
        };
        if let Some(owner) = users.iter().find(owns) {
            return match owner {
                User::Endpoint(it) => self.judge_details(stock, address, holder, it),
                User::Tunnel(node) => self.judge_tunnel(stock, address, holder, node),
                _ => SlotVerdict::Keep,
            };
        }
        match first {
            User::Endpoint(it) if !it.is_by_container || holder.is_machine => {
                return SlotVerdict::Keep;
            }
            User::Endpoint(it) if it.container.is_empty() => {
                let text = format!("{} does not name its container", it.spoken());
                self.name_address(Class::Mismatch, stock.cidr, address, text, Some(&it.node));
                self.keep("an endpoint is mended by the agent of its node, or by hand");
                return SlotVerdict::Keep;
            }
            _ => {}
        }
        let Some(handle) = handle else {
            let text = format!("held without a handle, used by {}", first.spoken());
            self.name_address(Class::Mismatch, stock.cidr, address, text, first.node());
            return SlotVerdict::Hold(self.holding(first, address, stock.cidr));
        };
        let holding = self.holding(first, address, stock.cidr);
        if self.is_missed(stock, &holding, first) {
            let text = format!("held by {handle}, used by {}", first.spoken());
            self.name_address(Class::Mismatch, stock.cidr, address, text, first.node());
            return SlotVerdict::Hold(holding);
        }
        if let Some(other) = self.witnesses.is_owner_alive(handle) {
            let text = format!("held for {}, used by {}", other.spoken(), first.spoken());
            self.name_address(Class::Duplicate, stock.cidr, address, text, first.node());
            let kept = "both live: remove one of them, or restart it to get another address";
            self.keep(kept);
            return SlotVerdict::Keep;
        }
        let text = format!("held by {handle}, used by {}", first.spoken());
        self.name_address(Class::Mismatch, stock.cidr, address, text, first.node());
        let cidr = stock.cidr;
        let balance = |id: &str| self.witnesses.counted(id, cidr) - self.witnesses.held(id, cidr);
        let is_confirmed = self.inventory.handles.contains(handle) && balance(handle) >= 0;
        match (first, is_confirmed) {
            (User::Sandbox(_), _) | (_, false) => SlotVerdict::Hold(holding),
            _ => {
                self.keep("the handle agrees with the block: only the node can tell");
                SlotVerdict::Keep
            }
        }
    }

    /// Whether the handle of a user counts an address in the block that the block does not give it:
    /// what it holds and somebody else uses does not count.
    fn is_missed(&self, stock: &Stock, holding: &Holding, user: User<'_>) -> bool {
        let Some(own) = holding.handle.as_deref() else { return false };
        let counted = self.witnesses.counted(own, stock.cidr);
        let is_own = |(ordinal, slot): &&(usize, Slot)| {
            let Slot::Held(holder) = slot else { return false };
            let address = address_at(stock.cidr, *ordinal);
            let users = address.map_or(&[][..], |it| self.witnesses.users(it));
            let is_users = users.is_empty() || users.iter().any(|it| it.is_same(user));
            holder.settled_handle() == Some(own) && is_users
        };
        let held = stock.slots.iter().filter(is_own).count();
        i64::try_from(held).is_ok_and(|held| counted > held)
    }

    fn judge_tunnel(
        &mut self,
        stock: &Stock,
        address: IpAddr,
        holder: &Holder,
        node: &str,
    ) -> SlotVerdict {
        if holder.node.as_deref() == Some(node) {
            return SlotVerdict::Keep;
        }
        let held = holder.node.as_deref().unwrap_or("no node");
        let text = format!("held on {held}, but it is the tunnel of {node}");
        self.name_address(Class::Mismatch, stock.cidr, address, text, Some(node));
        let attributes = BTreeMap::from([("node".to_owned(), node.to_owned())]);
        SlotVerdict::Hold(Holding { attributes, ..Holding::default() })
    }

    /// How the holder is written, where the endpoint agrees on who it is.
    fn judge_details(
        &mut self,
        stock: &Stock,
        address: IpAddr,
        holder: &Holder,
        endpoint: &Endpoint,
    ) -> SlotVerdict {
        let written = holder.handle.as_deref().unwrap_or_default();
        let settled = holder.settled_handle().unwrap_or_default();
        let id = match self.inventory.handles.contains(settled) {
            true => settled,
            false => self.witnesses.handle_of(&endpoint.container).map_or(settled, |it| &**it),
        };
        let mut holding = Holding { handle: Some(id.to_owned()), ..Holding::default() };
        let mut wrong = Vec::new();
        if id != written {
            wrong.push((
                Class::WrongHandle,
                format!("held by {written:?}, which is written {id:?}"),
            ));
        }
        if holder.is_machine {
            return SlotVerdict::Keep;
        }
        if holder.node.as_deref() != Some(&*endpoint.node) {
            let node = holder.node.as_deref().unwrap_or("no node");
            let text = format!("held on {node}, but {} is on {}", endpoint.spoken(), endpoint.node);
            wrong.push((Class::Mismatch, text));
            holding.attributes.insert("node".to_owned(), endpoint.node.to_string());
        }
        if let (Some(pod), Some(named)) = (endpoint.pod(), holder.pod.as_deref())
            && named.split_once('/') != Some((endpoint.namespace(), &pod))
        {
            let spoken = endpoint.spoken();
            wrong.push((Class::Mismatch, format!("held for {named}, but {spoken} has it")));
            holding.attributes.insert("pod".to_owned(), pod);
            holding.attributes.insert("namespace".to_owned(), endpoint.namespace().to_owned());
        }
        if wrong.is_empty() {
            return SlotVerdict::Keep;
        }
        for (class, text) in wrong {
            self.name_address(class, stock.cidr, address, text, Some(&endpoint.node));
        }
        SlotVerdict::Hold(holding)
    }

    fn name_address(
        &mut self,
        class: Class,
        cidr: Cidr,
        address: IpAddr,
        text: String,
        node: Option<&str>,
    ) {
        let node = node.map(str::to_owned);
        let problem = self.name(class, &block_key(cidr), text);
        (problem.address, problem.node) = (Some(address), node);
    }

    /// Says of the problem that was named last why it stays.
    pub(super) fn keep(&mut self, why: &str) {
        if let Some(problem) = self.problems.last_mut() {
            problem.kept = Some(why.to_owned());
        }
    }

    /// Every address that somebody uses is held, and used by one only.
    pub(super) fn judge_users(&mut self) {
        let addresses: Vec<IpAddr> = self.witnesses.addresses(None).collect();
        for address in addresses {
            let users = self.witnesses.users(address);
            let Some(first) = users.first().copied() else { continue };
            if users.len() > 1 {
                let users = users.to_vec();
                self.judge_twins(address, &users);
            }
            let blocks = self.blocks_around(address);
            let is_held = |stock: &&Stock| {
                let slot = ordinal_of(stock.cidr, address).and_then(|it| stock.slot(it));
                // An uncertain one was decided on with its block.
                slot.is_some_and(|slot| match slot {
                    Slot::Held(holder) => !holder.is_cooling,
                    Slot::Uncertain => true,
                })
            };
            if blocks.iter().any(is_held) {
                continue;
            }
            self.judge_unheld(address, first, &blocks);
        }
    }

    fn judge_twins(&mut self, address: IpAddr, users: &[User<'i>]) {
        let distinct = Witnesses::distinct(users);
        if distinct.len() < 2 {
            return;
        }
        let names: Vec<String> = distinct.iter().map(User::spoken).collect();
        let key = match distinct.iter().find(|user| matches!(user, User::Endpoint(_))) {
            Some(User::Endpoint(it)) => super::endpoints_prefix() + &it.name,
            _ => String::new(),
        };
        let node = distinct[0].node().map(str::to_owned);
        let problem = self.name(Class::Duplicate, &key, names.join(" and "));
        (problem.address, problem.node) = (Some(address), node);
        self.keep("both live: remove one of them, or restart it to get another address");
    }

    fn judge_unheld(&mut self, address: IpAddr, user: User<'i>, blocks: &[&'i Stock]) {
        let key = match user {
            User::Endpoint(it) => super::endpoints_prefix() + &it.name,
            _ => String::new(),
        };
        let node = user.node().map(str::to_owned);
        let Some(pool) = self.pool_of(address) else {
            // What a kernel has beside pools is no business of address management.
            if blocks.is_empty() && !matches!(user, User::Endpoint(_)) {
                return;
            }
            let text = format!("used by {}, lies in no pool", user.spoken());
            let problem = self.name(Class::OutOfPool, &key, text);
            (problem.address, problem.node) = (Some(address), node);
            self.keep("a pool for it is to be written by hand");
            return;
        };
        let text = format!("used by {}, held by nobody", user.spoken());
        let problem = self.name(Class::NotAllocated, &key, text);
        (problem.address, problem.node) = (Some(address), node);
        if matches!(user, User::Kernel) {
            self.keep("whose it is, only the agent of this node can tell");
            return;
        }
        let home = Cidr::new(address, pool.block_size).map(Cidr::masked);
        let stock = blocks.iter().find(|stock| Some(stock.cidr) == home).or(blocks.first());
        let Some(cidr) = stock.map(|stock| stock.cidr).or(home) else { return };
        let left = self.blocks.get(&cidr).and_then(|verdict| verdict.left.clone());
        let mut after = self.inventory.blocks.range(cidr..);
        let has_rival = after.next().is_some_and(|(it, _)| *it != cidr && cidr.overlaps(*it));
        if let Some(left) = left {
            self.keep(&left);
        } else if stock.is_none() && has_rival {
            self.keep("blocks of another size lie there");
        } else if let Some(ordinal) = ordinal_of(cidr, address) {
            let holding = self.holding(user, address, cidr);
            self.decide(cidr, ordinal, SlotVerdict::Hold(holding));
            let verdict = self.blocks.entry(cidr).or_default();
            verdict.is_removed = false;
            if stock.is_none() {
                verdict.owner = Some(user.node().map(|node| format!("host:{node}")));
            }
        }
    }

    /// Blocks that lie within each other.
    pub(super) fn judge_overlaps(&mut self) {
        let cidrs: Vec<Cidr> = self.inventory.blocks.keys().copied().collect();
        for inner in &cidrs {
            let around = self.blocks_around(inner.address()).into_iter();
            let outer = around.filter(|it| it.cidr.prefix_len() < inner.prefix_len());
            for outer in outer.map(|it| it.cidr).collect::<Vec<_>>() {
                self.judge_overlap(*inner, outer);
            }
        }
    }

    fn judge_overlap(&mut self, inner: Cidr, outer: Cidr) {
        let text = format!("it lies within the block {outer}");
        self.name(Class::Duplicate, &block_key(inner), text);
        let held = |cidr: &Cidr| -> BTreeMap<IpAddr, Holder> {
            let slots = self.inventory.blocks.get(cidr).into_iter().flat_map(|it| &it.slots);
            let holders = slots.filter_map(|(ordinal, slot)| match slot {
                Slot::Held(holder) => Some((address_at(*cidr, *ordinal)?, holder.clone())),
                Slot::Uncertain => None,
            });
            holders.collect()
        };
        let (of_inner, of_outer) = (held(&inner), held(&outer));
        for (address, holder) in &of_inner {
            let Some(other) = of_outer.get(address) else { continue };
            let told = |it: &Holder| it.handle.as_deref().unwrap_or("nobody").to_owned();
            let text = format!("held by {} and, in {outer}, by {}", told(holder), told(other));
            self.name_address(Class::Duplicate, inner, *address, text, holder.node.as_deref());
            let lives = |it: &Holder| {
                it.settled_handle().is_some_and(|it| self.witnesses.is_owner_alive(it).is_some())
            };
            let (same, one, two) = (holder.handle == other.handle, lives(holder), lives(other));
            // The address stays held: only one of its two records goes.
            let loser = match (same, one, two) {
                (true, ..) | (false, false, true) => {
                    Some(self.misfit(inner, outer).unwrap_or(inner))
                }
                (false, true, false) => Some(outer),
                _ => None,
            };
            match loser {
                Some(loser) => {
                    let loser = if same {
                        loser
                    } else if one {
                        outer
                    } else {
                        inner
                    };
                    if let Some(ordinal) = ordinal_of(loser, *address) {
                        self.decide_otherwise(loser, ordinal);
                    }
                }
                None => self.keep("which of them is right, their nodes must tell"),
            }
        }
        let loser = self.misfit(inner, outer);
        let is_empty = |it: &Cidr| self.blocks.get(it).is_some_and(BlockVerdict::is_empty);
        match loser.filter(is_empty) {
            Some(loser) if self.knows_all_pools() => {
                self.blocks.entry(loser).or_default().is_removed = true;
            }
            _ => {
                let key = block_key(inner);
                let problems = self.problems.iter_mut().rev();
                let mut whole = problems.filter(|it| it.key == key && it.address.is_none());
                if let Some(problem) = whole.find(|it| it.class == Class::Duplicate) {
                    problem.kept = Some("addresses of both are held".to_owned());
                }
            }
        }
    }

    /// Which of two blocks its pool would not make.
    fn misfit(&self, inner: Cidr, outer: Cidr) -> Option<Cidr> {
        let size = self.pool_of(inner.address())?.block_size;
        match (inner.prefix_len() == size, outer.prefix_len() == size) {
            (true, false) => Some(outer),
            (false, true) => Some(inner),
            _ => None,
        }
    }
}
