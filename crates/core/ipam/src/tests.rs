use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::keys::ipam::{Attribute, Block, Handle};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: Moment = Moment::from_nanoseconds(1_794_770_996_000_000_000);

/// A store in memory, and the view of it that one planner keeps.
#[derive(Default)]
struct Bench {
    keys: BTreeMap<String, (Vec<u8>, i64)>,
    revision: i64,
    view: View,
    reads: usize,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self::default();
        for (name, cidr, size) in
            [("a", "10.0.0.0/28", 30), ("b", "10.1.0.0/29", 31), ("c", "fd00::/124", 126)]
        {
            let spec = json!({"cidr": cidr, "blockSize": size});
            bench.object("ippools", name, json!({}), spec);
        }
        for node in ["n1", "n2", "n3"] {
            bench.object("nodes", node, json!({"rack": node}), json!({}));
        }
        bench
    }

    fn object(&mut self, plural: &str, name: &str, labels: Value, spec: Value) {
        let kind = if plural == "nodes" { "Node" } else { "IPPool" };
        let object = json!({
            "kind": kind, "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": name, "labels": labels}, "spec": spec,
        });
        self.put(&format!("/calico/resources/v3/projectcalico.org/{plural}/{name}"), &object);
    }

    fn put(&mut self, key: &str, value: &Value) {
        self.revision += 1;
        self.keys.insert(key.to_owned(), (value.to_string().into_bytes(), self.revision));
    }

    fn read(&mut self, read: &Read) {
        self.reads += 1;
        match read {
            Read::Key(key) => self.view.observe(key, self.keys.get(key).cloned(), self.revision),
            Read::Prefix(prefix) => {
                let under = self.keys.iter().filter(|(key, _)| key.starts_with(prefix.as_str()));
                let entries = under.map(|(key, (value, at))| (key.clone(), value.clone(), *at));
                let entries: Vec<_> = entries.collect();
                self.view.observe_prefix(prefix, entries, self.revision);
            }
        }
    }

    /// Whether a transaction would be applied.
    fn holds(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Absent(key) => !self.keys.contains_key(key),
            Condition::At(key, at) => self.keys.get(key).is_some_and(|it| it.1 == *at),
            Condition::NothingNewer { prefix, revision } => {
                let mut under =
                    self.keys.iter().filter(|(key, _)| key.starts_with(prefix.as_str()));
                under.all(|(_, (_, at))| at <= revision)
            }
        }
    }

    fn commit(&mut self, plan: &Plan) {
        let broken: Vec<&Condition> = plan.conditions.iter().filter(|it| !self.holds(it)).collect();
        assert!(broken.is_empty(), "{broken:?}");
        if plan.changes.is_empty() {
            return;
        }
        self.revision += 1;
        for Change { key, value } in &plan.changes {
            match value {
                Some(value) => drop(self.keys.insert(key.clone(), (value.clone(), self.revision))),
                None => drop(self.keys.remove(key)),
            }
        }
        self.view.absorb(plan, self.revision);
    }

    fn run<T>(&mut self, operations: impl Fn(&mut Planner<'_>) -> Planned<T>) -> T {
        loop {
            match plan(&self.view, NOW, &operations) {
                Step::Read(reads) => reads.iter().for_each(|read| self.read(read)),
                Step::Commit(plan) => self.commit(&plan),
                Step::Done(answer, planned) => {
                    let Step::Done(_, again) = plan(&self.view, NOW, &operations) else {
                        panic!("planning again on the same view needs more than before")
                    };
                    assert_eq!(planned, again);
                    self.commit(&planned);
                    return answer;
                }
            }
        }
    }

    fn blocks(&self) -> Vec<Block> {
        let under = |key: &&String| key.starts_with("/calico/ipam/v2/assignment/");
        let keys = self.keys.keys().filter(under);
        keys.map(|key| Block::decode(&self.json(key)).unwrap()).collect()
    }

    fn json(&self, key: &str) -> Value {
        serde_json::from_slice(&self.keys[key].0).unwrap()
    }

    /// What must be so at any time.
    fn check(&self) {
        let mut held: BTreeMap<(String, String), i64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for block in self.blocks() {
            assert_eq!(block.check(), [], "{}", block.cidr);
            for (address, holder) in holders(&block) {
                assert!(seen.insert(address), "{address} is held twice");
                let handle = holder.handle.clone().unwrap_or_default();
                *held.entry((handle, block.cidr.to_string())).or_default() += 1;
            }
            if let Some(affinity) = &block.affinity {
                let node = affinity.strip_prefix("host:").unwrap();
                let family = if block.cidr.is_ipv4() { 4 } else { 6 };
                let cidr = block.cidr.to_string().replace('/', "-");
                let key = format!("/calico/ipam/v2/host/{node}/ipv{family}/block/{cidr}");
                assert_eq!(self.json(&key)["state"], "confirmed", "{key}");
            }
        }
        let mut counted = BTreeMap::new();
        for key in self.keys.keys() {
            if let Some(id) = key.strip_prefix("/calico/ipam/v2/handle/") {
                let handle = Handle::decode(&self.json(key)).unwrap();
                assert!(!handle.blocks.is_empty(), "{id} holds nothing");
                let counts = handle.blocks.into_iter();
                counted.extend(counts.map(|(cidr, count)| ((id.to_owned(), cidr), count)));
            }
        }
        assert_eq!(counted, held);
    }
}

fn request(node: &str, num4: i64, num6: i64, handle: &str) -> AutoAssign {
    AutoAssign {
        node: node.to_owned(),
        num4,
        num6,
        handle: Some(handle.to_owned()),
        attributes: BTreeMap::from([("node".to_owned(), node.to_owned())]),
        purpose: "Workload".to_owned(),
        ..AutoAssign::default()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn addresses(assigned: &Assigned) -> Vec<String> {
    assigned.addresses().map(|it| it.address().to_string()).collect()
}

#[test]
fn requests_on_one_view_become_one_transaction() {
    let mut bench = Bench::new();
    let before = bench.revision;
    let (first, second) = bench.run(|planner| {
        let first = planner.auto_assign(&request("n1", 1, 1, "h1"))?;
        Ok((first, planner.auto_assign(&request("n1", 1, 1, "h2"))?))
    });
    assert_eq!(bench.revision, before + 1);
    let all: BTreeSet<String> = addresses(&first).into_iter().chain(addresses(&second)).collect();
    assert_eq!(all.len(), 4);
    bench.check();
}

#[test]
fn a_warm_view_needs_no_reads() {
    let mut bench = Bench::new();
    bench.run(|planner| planner.auto_assign(&request("n1", 1, 1, "h1")));
    let prefix = "/calico/ipam/v2/handle/".to_owned();
    bench.read(&Read::Prefix(prefix));
    let reads = bench.reads;
    bench.run(|planner| planner.auto_assign(&request("n1", 1, 1, "h2")));
    bench.run(|planner| planner.release_by_handle("h1")).unwrap();
    assert_eq!(bench.reads, reads);
    bench.check();
}

#[test]
fn a_watch_that_goes_on_makes_nothing_known_that_was_forgotten() {
    let mut view = View::default();
    view.advance("/calico/ipam/v2/", 7);
    assert_eq!(view.record("/calico/ipam/v2/handle/h").map(|it| it.is_some()), None);
    view.complete("/calico/ipam/v2/", 7);
    view.advance("/calico/ipam/v2/", 9);
    assert_eq!(view.record("/calico/ipam/v2/handle/h").map(|it| it.is_some()), Some(false));
    assert_eq!(view.revision_of("/calico/ipam/v2/handle/"), Some(9));
}

#[test]
fn a_plan_rests_on_the_pool_and_on_nothing_new_beside_it() {
    let mut bench = Bench::new();
    bench.run(|planner| planner.auto_assign(&request("n1", 1, 0, "h1")));
    bench.read(&Read::Key("/calico/ipam/v2/handle/h2".to_owned()));
    let step = plan(&bench.view, NOW, |planner| planner.auto_assign(&request("n1", 1, 0, "h2")));
    let Step::Done(_, planned) = step else { panic!("{step:?}") };
    let holds = |bench: &Bench| planned.conditions.iter().all(|it| bench.holds(it));
    assert!(holds(&bench));
    let pool = "/calico/resources/v3/projectcalico.org/ippools/a";
    let stored = bench.keys.remove(pool).unwrap();
    assert!(!holds(&bench), "the pool went");
    bench.keys.insert(pool.to_owned(), stored);
    bench.object("ippools", "d", json!({}), json!({"cidr": "10.9.0.0/24"}));
    assert!(!holds(&bench), "a pool came");
}

/// The course of a request of n2 to its third transaction, with the blocks that it has tried:
/// somebody else is always faster.
fn always_late(bench: &mut Bench, rival: &Value) -> (Vec<String>, Vec<String>) {
    let wanted = request("n2", 1, 0, "h");
    let mut view = View::default();
    let mut pursuit = Pursuit::new(&view);
    let (mut course, mut blocks) = (Vec::new(), Vec::new());
    while blocks.len() < 3 {
        match pursuit.next(&mut view, NOW, |planner| planner.auto_assign(&wanted)) {
            Next::Read(reads) => {
                bench.view = std::mem::take(pursuit.view(&mut view));
                reads.iter().for_each(|read| bench.read(read));
                *pursuit.view(&mut view) = std::mem::take(&mut bench.view);
                course.push(format!("{reads:?}"));
            }
            Next::Commit(plan) => {
                let plan = plan.clone();
                let mut keys = plan.changes.iter().map(|change| &change.key);
                let block = keys.find(|key| key.contains("/assignment/")).unwrap().clone();
                bench.put(&block, rival);
                let current = plan.conditions.iter().map(|condition| match condition {
                    Condition::Absent(key) | Condition::At(key, _) => bench.keys.get(key).cloned(),
                    Condition::NothingNewer { .. } => None,
                });
                let outcome = Outcome::Conflict(current.collect(), bench.revision);
                pursuit.committed(&mut view, outcome);
                course.push("commit".to_owned());
                blocks.push(block);
            }
            Next::Wait(attempt) => course.push(format!("wait {attempt}")),
            next => panic!("{next:?}"),
        }
    }
    (course.split_off(course.len() - 5), blocks)
}

/// After a pause what a refusal has told is old: a plan on it would be refused again, and again.
#[test]
fn a_block_on_which_others_are_faster_is_read_again_and_then_left_to_them() {
    let mut bench = Bench::new();
    bench.keys.remove("/calico/resources/v3/projectcalico.org/ippools/b");
    let (all, owner) = ("10.0.0.0/28".parse().unwrap(), Owner::node("n1"));
    bench.run(|planner| planner.claim_affinity(all, &owner)).unwrap();
    let rival = bench.json("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30");
    let (course, blocks) = always_late(&mut bench, &rival);
    let read = format!("{:?}", [Read::Key(blocks[0].clone())]);
    assert_eq!(course, ["commit", "commit", "wait 2", &read, "commit"]);
    assert_eq!(blocks[0], blocks[1]);
    assert_ne!(blocks[1], blocks[2]);
}

/// Many nodes that start together on few free blocks: all but the first find each one taken.
#[test]
fn who_is_late_for_free_blocks_looks_at_all_of_them() {
    let mut bench = Bench::new();
    bench.keys.remove("/calico/resources/v3/projectcalico.org/ippools/b");
    let rival = json!({"cidr": "10.0.0.0/30", "affinity": "host:n1"});
    let (course, blocks) = always_late(&mut bench, &rival);
    let lost = [&blocks[0], &blocks[1]].map(|key| Read::Key(key.clone()));
    let lost = lost.into_iter().collect::<BTreeSet<_>>().into_iter();
    let all = Read::Prefix("/calico/ipam/v2/assignment/ipv4/block/".to_owned());
    let read = format!("{:?}", lost.chain([all]).collect::<Vec<_>>());
    assert_eq!(course, ["commit", "commit", "wait 2", &read, "commit"]);
    assert_eq!(blocks.iter().collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn addresses_seen_in_use_are_passed_over() {
    let mut bench = Bench::new();
    let free = addresses(&bench.run(|planner| planner.auto_assign(&request("n1", 1, 1, "h1"))));
    bench.run(|planner| planner.release_by_handle("h1")).unwrap();
    let avoid: BTreeSet<IpAddr> = free.iter().map(|it| ip(it)).collect();
    let wanted = AutoAssign { avoid: avoid.clone(), ..request("n1", 4, 4, "h2") };
    let given = bench.run(|planner| planner.auto_assign(&wanted));
    assert_eq!(addresses(&given).len(), 8);
    assert!(given.addresses().all(|it| !avoid.contains(&it.address())));
    bench.check();
}

#[test]
fn a_block_without_an_address_to_give_is_not_begun() {
    let first = Bench::new().run(|planner| planner.auto_assign(&request("n1", 1, 0, "h1")));
    let block = first.addresses().next().unwrap().masked();
    let IpAddr::V4(start) = block.network() else { panic!("{block}") };
    let size = 1_u32 << (32 - block.prefix_len());
    let avoid = (0..size).map(|n| IpAddr::V4((u32::from(start) + n).into())).collect();
    let mut bench = Bench::new();
    let wanted = AutoAssign { avoid, ..request("n1", 1, 0, "h1") };
    let given = bench.run(|planner| planner.auto_assign(&wanted));
    assert_eq!(given.addresses().count(), 1, "{given:?}");
    assert!(given.addresses().all(|it| !block.contains(it.address())), "{given:?}");
    bench.check();
}

#[test]
fn both_families_or_neither() {
    let mut bench = Bench::new();
    bench.keys.remove("/calico/resources/v3/projectcalico.org/ippools/c");
    let before = bench.revision;
    let given = bench.run(|planner| planner.auto_assign(&request("n1", 1, 1, "h1")));
    assert!(matches!(given.error, Some(Error::NoQualifiedPool { .. })));
    assert_eq!((given.v4, given.v6), (None, None));
    assert_eq!(bench.revision, before);
}

#[test]
fn a_refusal_says_which_pool_and_why() {
    let mut bench = Bench::new();
    for (name, spec) in [
        ("a", json!({"cidr": "10.0.0.0/28", "nodeSelector": "rack == 'r9'"})),
        ("b", json!({"cidr": "10.1.0.0/29", "blockSize": 31, "disabled": true})),
    ] {
        bench.object("ippools", name, json!({}), spec);
    }
    bench.object("ippools", "d", json!({}), json!({"cidr": "10.2.0.0/24", "nodeSelector": "("}));
    let given = bench.run(|planner| planner.auto_assign(&request("n1", 1, 0, "h1")));
    let error = given.error.unwrap();
    assert_eq!(error.to_string(), "cannot find a qualified ippool");
    let told = error.explain();
    for part in ["a cannot be used (spec.blockSize", "b is disabled", "d cannot be used"] {
        assert!(told.contains(part), "{told}");
    }
    let spec = json!({"cidr": "10.0.0.0/24", "nodeSelector": "rack == 'r9'"});
    bench.object("ippools", "a", json!({}), spec);
    bench.view = View::default();
    let given = bench.run(|planner| planner.auto_assign(&request("n1", 1, 0, "h1")));
    let error = given.error.unwrap();
    assert_eq!(error.to_string(), "no configured Calico pools for node n1");
    assert!(
        error.explain().contains("a has the nodeSelector rack == \"r9\""),
        "{}",
        error.explain()
    );
}

#[test]
fn a_pool_with_more_blocks_than_anybody_can_count_may_be_reserved() {
    let mut bench = Bench::new();
    bench.object("ippools", "c", json!({}), json!({"cidr": "fd00::/16", "blockSize": 122}));
    let key = "/calico/resources/v3/projectcalico.org/ipreservations/r";
    bench.put(key, &json!({"spec": {"reservedCIDRs": ["fd00::/17", "fd00:8000::/17"]}}));
    let given = bench.run(|planner| planner.auto_assign(&request("n1", 0, 1, "h1")));
    assert_eq!(addresses(&given).len(), 0);
    bench.put(key, &json!({"spec": {"reservedCIDRs": ["fd00::/17"]}}));
    bench.view = View::default();
    let given = bench.run(|planner| planner.auto_assign(&request("n1", 0, 1, "h1")));
    assert_eq!(addresses(&given).len(), 1);
}

#[test]
fn the_reserve_is_filled_once_and_handed_over_in_one_transaction() {
    let mut bench = Bench::new();
    let base = request("n1", 0, 0, "ignored");
    bench.run(|planner| planner.fill_reserve(2, 1, &base));
    bench.run(|planner| planner.fill_reserve(2, 1, &base));
    let reserve = bench.run(|planner| planner.reserve("n1")).unwrap();
    assert_eq!(reserve.len(), 3);
    let block = bench.blocks().remove(0);
    assert_eq!(
        block.attributes,
        [Attribute::new(Some("margay-reserve.n1".into()), BTreeMap::new())]
    );
    let holder = Attribute::new(
        Some("net.container".to_owned()),
        BTreeMap::from([("pod".to_owned(), "p".to_owned())]),
    );
    for address in reserve {
        let before = bench.revision;
        bench.run(|planner| planner.take_reserve("n1", address, &holder)).unwrap();
        assert_eq!(bench.revision, before + 1);
        bench.check();
        let again = bench.run(|planner| planner.take_reserve("n1", address, &holder));
        assert_eq!(again, Err(Error::NotInReserve { node: "n1".to_owned() }));
    }
    assert_eq!(bench.run(|planner| planner.reserve("n1")), Ok(Vec::new()));
    assert_eq!(bench.run(|planner| planner.ips_by_handle("net.container")).unwrap().len(), 3);
}

#[test]
fn what_is_not_known_survives() {
    let mut bench = Bench::new();
    bench.run(|planner| planner.auto_assign(&request("n1", 1, 0, "h1")));
    let key = bench.keys.keys().find(|key| key.contains("/assignment/")).unwrap().clone();
    let mut value = bench.json(&key);
    value["later"] = json!({"kept": 1});
    bench.put(&key, &value);
    bench.view = View::default();
    bench.run(|planner| planner.auto_assign(&request("n1", 1, 0, "h2")));
    bench.run(|planner| planner.release_by_handle("h1")).unwrap();
    assert_eq!(bench.json(&key)["later"], json!({"kept": 1}));
}

#[derive(Clone, Debug)]
enum Act {
    Auto(usize, i64, i64, usize),
    Specific(usize, u8, usize),
    ReleaseHandle(usize),
    ReleaseAddress(u8),
    Claim(usize, u8),
    Unclaim(usize, bool),
    Cooldown(i64),
    Forget,
}

fn act() -> impl Strategy<Value = Act> {
    let node = 0..3_usize;
    let handle = 0..4_usize;
    prop_oneof![
        4 => (node.clone(), 0..6_i64, 0..6_i64, handle.clone())
            .prop_map(|(node, v4, v6, handle)| Act::Auto(node, v4, v6, handle)),
        2 => (node.clone(), 0..16_u8, handle.clone())
            .prop_map(|(node, at, handle)| Act::Specific(node, at, handle)),
        3 => handle.prop_map(Act::ReleaseHandle),
        2 => (0..16_u8).prop_map(Act::ReleaseAddress),
        1 => (node.clone(), 0..4_u8).prop_map(|(node, at)| Act::Claim(node, at)),
        1 => (node, any::<bool>()).prop_map(|(node, empty)| Act::Unclaim(node, empty)),
        1 => prop_oneof![Just(0), Just(60)].prop_map(Act::Cooldown),
        1 => Just(Act::Forget),
    ]
}

fn perform(bench: &mut Bench, act: &Act) {
    let node = |index: &usize| format!("n{}", index + 1);
    let handle = |index: &usize| format!("h{index}");
    match act {
        Act::Auto(at, v4, v6, by) => {
            let wanted = request(&node(at), *v4, *v6, &handle(by));
            let given = bench.run(|planner| planner.auto_assign(&wanted));
            let distinct: BTreeSet<String> = addresses(&given).into_iter().collect();
            assert_eq!(distinct.len(), addresses(&given).len());
        }
        Act::Specific(at, last, by) => {
            let wanted = AssignIp {
                node: node(at),
                address: IpAddr::from([10, 0, 0, *last]),
                handle: Some(handle(by)),
                attributes: BTreeMap::new(),
                purpose: String::new(),
                max_per_handle: 0,
                reserved: None,
            };
            bench.run(|planner| planner.assign_ip(&wanted)).ok();
        }
        Act::ReleaseHandle(by) => {
            bench.run(|planner| planner.release_by_handle(&handle(by))).ok();
        }
        Act::ReleaseAddress(last) => {
            let wanted = [Release::address(IpAddr::from([10, 0, 0, *last]))];
            assert_eq!(bench.run(|planner| planner.release_ips(&wanted)).error, None);
        }
        Act::Claim(at, block) => {
            let cidr = net::Cidr::new(IpAddr::from([10, 0, 0, block * 4]), 30).unwrap();
            let owner = Owner::node(node(at));
            bench.run(|planner| planner.claim_affinity(cidr, &owner)).unwrap();
        }
        Act::Unclaim(at, empty) => {
            let owner = Owner::node(node(at));
            bench.run(|planner| planner.release_host_affinities(&owner, *empty)).ok();
        }
        Act::Cooldown(seconds) => {
            let change = |config: &mut api::keys::ipam::IpamConfig| {
                config.cooldown_seconds = *seconds;
            };
            bench.run(|planner| planner.set_config(change)).unwrap();
        }
        Act::Forget => bench.view = View::default(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_agree_after_any_operations(acts in proptest::collection::vec(act(), 1..40)) {
        let mut bench = Bench::new();
        for act in &acts {
            perform(&mut bench, act);
            if !acts.iter().any(|it| matches!(it, Act::Cooldown(60))) {
                bench.check();
            }
        }
        for block in bench.blocks() {
            prop_assert_eq!(block.check(), []);
        }
    }
}

#[test]
fn whatever_is_removed_of_an_address_in_use_is_claimed_back() {
    let mut bench = Bench::new();
    let given = bench.run(|planner| planner.auto_assign(&request("n1", 1, 0, "h1")));
    let network = given.addresses().next().unwrap();
    let attributes = request("n1", 1, 0, "h1").attributes;
    let (node, handle) = ("n1".to_owned(), "h1".to_owned());
    let wanted = Reclaim { node, network, handle, attributes };
    let reclaim = |bench: &mut Bench| {
        bench.view = View::default();
        let done = bench.run(|planner| planner.reclaim(&wanted));
        bench.check();
        done
    };
    let before = bench.keys.clone();
    assert_eq!(reclaim(&mut bench).unwrap().lost, [], "nothing is missing");
    assert_eq!(bench.keys, before, "and nothing is written");
    let affinity = bench.keys.keys().find(|key| key.contains("/v2/host/")).unwrap().clone();
    let block = bench.keys.keys().find(|key| key.contains("/assignment/")).unwrap().clone();
    for (gone, lost) in [
        (vec![affinity.as_str()], vec![Lost::Affinity(network.masked())]),
        (vec!["/calico/ipam/v2/handle/h1"], vec![Lost::Handle("h1".to_owned())]),
        (vec![block.as_str()], vec![Lost::Block(network.masked()), Lost::Address(network)]),
    ] {
        gone.iter().for_each(|key| drop(bench.keys.remove(*key)));
        assert_eq!(reclaim(&mut bench).unwrap().lost, lost, "{gone:?}");
        assert_eq!(reclaim(&mut bench).unwrap().lost, [], "once is enough");
    }
    bench.run(|planner| planner.release_by_handle("h1")).unwrap();
    let again = reclaim(&mut bench).unwrap();
    assert!(again.lost.contains(&Lost::Address(network)), "{again:?}");
    assert!(again.sequence.is_some());
}

#[test]
fn an_address_that_somebody_else_has_by_now_is_not_claimed_back() {
    let mut bench = Bench::new();
    let given = bench.run(|planner| planner.auto_assign(&request("n1", 1, 0, "h1")));
    let network = given.addresses().next().unwrap();
    bench.run(|planner| planner.release_by_handle("h1")).unwrap();
    let (node, handle) = ("n2".to_owned(), Some("h2".to_owned()));
    let (address, attributes) = (network.address(), BTreeMap::new());
    let purpose = String::new();
    let taken =
        AssignIp { node, address, handle, attributes, purpose, max_per_handle: 0, reserved: None };
    bench.run(|planner| planner.assign_ip(&taken)).unwrap();
    let before = bench.keys.clone();
    let (node, handle) = ("n1".to_owned(), "h1".to_owned());
    let wanted = Reclaim { node, network, handle, attributes: BTreeMap::new() };
    let refused = bench.run(|planner| planner.reclaim(&wanted)).unwrap_err();
    assert_eq!(refused, Error::AlreadyAssigned { address, handle: Some("h2".to_owned()) });
    assert_eq!(bench.keys, before);
}

/// A collector lets the addresses of both families go, one after the other, and we have heard of
/// the first: the handle must not count what the block of the second does not hold any more.
#[test]
fn a_handle_is_not_claimed_back_on_the_strength_of_an_old_block() {
    let mut bench = Bench::new();
    let given = bench.run(|planner| planner.auto_assign(&request("n1", 1, 1, "h1")));
    let networks: Vec<net::Cidr> = given.addresses().collect();
    let attributes = request("n1", 1, 1, "h1").attributes;
    let all: Vec<Reclaim> = networks
        .into_iter()
        .map(|network| {
            let (node, handle) = ("n1".to_owned(), "h1".to_owned());
            Reclaim { node, network, handle, attributes: attributes.clone() }
        })
        .collect();
    let old = bench.view.clone();
    bench.view = View::default();
    bench.run(|planner| planner.release_by_handle("h1")).unwrap();
    bench.view = old;
    // All but the block of the second address is up to date.
    let is_second = |key: &str| key.contains("/assignment/ipv6/");
    let news: Vec<String> = bench.keys.keys().filter(|key| !is_second(key)).cloned().collect();
    bench.view.observe("/calico/ipam/v2/handle/h1", None, bench.revision);
    news.into_iter().for_each(|key| bench.read(&Read::Key(key)));
    let reclaim = |planner: &mut Planner<'_>| {
        for wanted in &all {
            planner.reclaim(wanted)?.unwrap();
        }
        Ok(())
    };
    let plan = loop {
        match plan(&bench.view, NOW, reclaim) {
            Step::Read(reads) => reads.iter().for_each(|read| bench.read(read)),
            Step::Done((), plan) => break plan,
            Step::Commit(_) => panic!("it is one transaction"),
        }
    };
    let writes_handle = plan.changes.iter().any(|it| it.key.ends_with("/handle/h1"));
    assert!(writes_handle, "{plan:?}");
    assert!(!plan.conditions.iter().all(|condition| bench.holds(condition)), "{plan:?}");
}
