//! The machine against a datastore that is cut off, down, or both, at any moment.

use super::*;

const POLICIES: &str = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/";

fn key(name: &str) -> String {
    format!("{POLICIES}{name}")
}

/// A node, its kernel and its datastore, in one thread.
struct World {
    hold: Hold,
    stored: BTreeMap<String, Vec<u8>>,
    revisions: BTreeMap<String, i64>,
    /// What the kernel has.
    kernel: BTreeMap<String, Vec<u8>>,
    now: Duration,
    is_down: bool,
    revision: i64,
    news: Vec<News>,
}

impl World {
    fn new() -> Self {
        let mut hold = Hold::new(BTreeMap::new());
        hold.begin(Some(std::iter::empty()));
        Self::with(Self {
            hold,
            stored: BTreeMap::new(),
            revisions: BTreeMap::new(),
            kernel: BTreeMap::new(),
            now: Duration::ZERO,
            is_down: false,
            revision: 0,
            news: Vec::new(),
        })
    }

    fn with(mut self) -> Self {
        self.flush();
        self
    }

    /// `cut!` cuts the node off alone, `cut2` if there are two of them, `deny` without an `allow`.
    fn is_cut(&self) -> bool {
        let begins = |text: &[u8]| self.kernel.values().filter(|it| it.starts_with(text)).count();
        let is_denied = begins(b"deny") > 0 && begins(b"allow") == 0;
        begins(b"cut!") > 0 || begins(b"cut2") > 1 || is_denied
    }

    fn read(&mut self, name: &str, value: Option<&str>) {
        self.revision += 1;
        let (key, value) = (key(name), value.map(|value| value.as_bytes().to_vec()));
        let before = self.stored.get(&key).cloned();
        self.hold.changed(&key, before.as_deref(), value.as_deref(), self.revision);
        self.revisions.insert(key.clone(), self.revision);
        match value {
            Some(value) => self.stored.insert(key, value),
            None => self.stored.remove(&key),
        };
    }

    fn put(&mut self, name: &str, value: &str) {
        self.read(name, Some(value));
        self.flush();
    }

    fn wanted(&self) -> BTreeMap<String, Vec<u8>> {
        let keys = self.stored.keys().chain(self.hold.entries.keys());
        let wanted = keys.filter_map(|key| {
            let stored = self.stored.get(key).map(Vec::as_slice);
            Some((key.clone(), self.hold.over(key, stored)?.to_vec()))
        });
        wanted.collect()
    }

    fn flush(&mut self) {
        let wanted = self.wanted();
        self.hold.stage(wanted != self.kernel, &BTreeSet::new());
        self.kernel = self.wanted();
        self.hold.committed(self.now);
    }

    /// One test, if one is due; false if none is.
    fn step(&mut self) -> bool {
        let Some(test) = self.hold.test() else { return false };
        let is_reached = !self.is_down && !self.is_cut();
        self.now += Duration::from_secs(1);
        let before = self.wanted();
        let outcome = self.hold.tried(test, is_reached, self.now);
        self.news.extend(outcome.news);
        // Whatever is different was told.
        let now = self.wanted();
        let keys = before.keys().chain(now.keys());
        for key in keys.filter(|key| before.get(*key) != now.get(*key)) {
            assert!(outcome.retake.contains(key), "{key}");
        }
        if !outcome.retake.is_empty() {
            self.flush();
        }
        true
    }

    fn run(&mut self) {
        let mut n_steps = 0;
        while self.step() {
            n_steps += 1;
            assert!(n_steps < 3000, "{:?} {:?}", self.hold, self.kernel);
        }
    }

    fn held(&self) -> Vec<&str> {
        self.hold.held().map(|held| held.key.rsplit('/').next().unwrap()).collect()
    }

    fn in_force(&self, name: &str) -> Option<&str> {
        self.kernel.get(&key(name)).map(|value| std::str::from_utf8(value).unwrap())
    }

    /// The next run of the agent, which knows what this one wrote down.
    fn restart(self, saved: BTreeMap<String, Saved>) -> Self {
        let text = |value: &Vec<u8>| String::from_utf8(value.clone()).unwrap();
        let stored = self.stored.iter().map(|(key, value)| (key.clone(), text(value)));
        let mut known: BTreeMap<String, String> = stored.collect();
        self.hold.amend(&mut known);
        let mut hold = Hold::new(saved);
        hold.begin(Some(known.iter().map(|(key, value)| (key.as_str(), value.as_bytes()))));
        for (key, value) in &self.stored {
            hold.changed(key, None, Some(value), self.revisions[key]);
        }
        hold.settle(|key| self.stored.contains_key(key));
        // Everything is installed anew.
        Self::with(Self { hold, news: Vec::new(), kernel: BTreeMap::new(), ..self })
    }
}

#[test]
fn a_change_that_does_no_harm_is_soon_forgotten() {
    let mut world = World::new();
    world.put("a", "fine");
    assert!(world.hold.test().is_some());
    world.run();
    assert!(world.hold.entries.is_empty() && world.news.is_empty());
    assert_eq!(world.in_force("a"), Some("fine"));
}

#[test]
fn a_change_that_cuts_the_node_off_is_held_until_it_changes() {
    let mut world = World::new();
    world.put("a", "fine");
    world.run();
    world.put("a", "cut!");
    assert!(world.is_cut());
    world.run();
    assert_eq!(world.in_force("a"), Some("fine"));
    assert_eq!(world.held(), ["a"]);
    assert_eq!(world.news.last(), Some(&News::Held(key("a"))));
    assert!(world.now < Duration::from_secs(15), "{:?}", world.now);
    let held = world.hold.held().next().unwrap();
    assert!(held.is_blamed && held.has_good && !held.is_removal);
    assert_eq!(held.revision, 2);
    world.put("a", "better");
    world.run();
    assert_eq!(world.in_force("a"), Some("better"));
    assert!(world.held().is_empty());
}

#[test]
fn a_removal_is_held_as_well() {
    let mut world = World::new();
    world.put("a", "allow");
    world.put("b", "deny");
    world.run();
    world.read("a", None);
    world.flush();
    assert!(world.is_cut());
    world.run();
    assert_eq!((world.held(), world.in_force("a")), (vec!["a"], Some("allow")));
    assert!(world.hold.held().all(|held| held.is_removal && held.has_good));
    // The next run still has it, although the datastore has not.
    let saved = world.hold.take_unsaved().unwrap();
    let mut world = world.restart(saved);
    assert_eq!((world.held(), world.in_force("a")), (vec!["a"], Some("allow")));
    world.put("b", "fine");
    world.run();
    assert_eq!((world.held(), world.in_force("a")), (Vec::new(), None));
}

#[test]
fn who_is_to_blame_is_found_among_many() {
    let mut world = World::new();
    for n in 0..20 {
        world.read(&format!("p{n:02}"), Some("fine"));
    }
    world.read("p07", Some("cut!"));
    world.read("p15", Some("cut2"));
    world.read("p16", Some("cut2"));
    world.flush();
    world.run();
    // Of two that cut only together, one may stay.
    assert_eq!(world.held(), ["p07", "p16"]);
    assert_eq!(world.kernel.len(), 18);
}

#[test]
fn a_datastore_that_is_down_costs_nobody_his_name() {
    let mut world = World::new();
    world.put("a", "fine");
    world.run();
    world.is_down = true;
    world.put("a", "other");
    for _ in 0..200 {
        world.step();
    }
    assert!(world.news.iter().all(|it| !matches!(it, News::Held(_))), "{:?}", world.news);
    world.is_down = false;
    world.run();
    assert!(world.held().is_empty());
    assert_eq!(world.in_force("a"), Some("other"));
    assert!(world.hold.entries.is_empty());
}

#[test]
fn a_datastore_that_comes_back_at_the_wrong_moment_costs_nobody_his_name() {
    for n_down in 1..60 {
        let mut world = World::new();
        world.is_down = true;
        world.put("a", "fine");
        for _ in 0..n_down {
            world.step();
        }
        world.is_down = false;
        world.run();
        assert!(world.held().is_empty(), "{n_down}");
        assert_eq!(world.in_force("a"), Some("fine"), "{n_down}");
    }
}

#[test]
fn a_change_during_an_outage_that_cuts_the_node_off_is_found_later() {
    let mut world = World::new();
    world.is_down = true;
    world.put("a", "cut!");
    for _ in 0..100 {
        world.step();
    }
    world.is_down = false;
    world.run();
    assert_eq!(world.held(), ["a"]);
    assert!(!world.is_cut());
}

#[test]
fn what_is_held_gets_another_chance_when_something_else_has_changed() {
    let mut world = World::new();
    world.put("a", "cut2");
    world.put("b", "cut2");
    world.run();
    assert_eq!(world.held().len(), 1);
    let held = world.held()[0].to_owned();
    let other = if held == "a" { "b" } else { "a" };
    world.put(other, "harmless");
    world.run();
    assert!(world.held().is_empty());
    assert_eq!(world.in_force(&held), Some("cut2"));
    assert_eq!(world.news.last(), Some(&News::Released(key(&held))));
}

#[test]
fn a_change_that_is_taken_back_by_its_author_is_forgotten() {
    for n_steps in 0..12 {
        let mut world = World::new();
        world.put("a", "fine");
        world.run();
        world.put("a", "cut!");
        for _ in 0..n_steps {
            world.step();
        }
        world.put("a", "fine");
        world.run();
        assert!(world.hold.entries.is_empty(), "{n_steps}: {:?}", world.hold);
        assert_eq!(world.in_force("a"), Some("fine"));
    }
}

#[test]
fn what_concerns_no_host_is_never_on_trial() {
    let mut world = World::new();
    world.read("a", Some("cut!"));
    world.hold.stage(false, &BTreeSet::new());
    assert!(world.hold.test().is_none() && world.hold.entries.is_empty());
    assert!(world.hold.take_unsaved().is_none());
    for other in ["ippools/a", "profiles/kns.new", "workloadendpoints/a/b"] {
        world.hold.changed(&format!("{RESOURCES}{other}"), None, Some(b"x"), 9);
        assert!(world.hold.entries.is_empty(), "{other}");
    }
    world.hold.changed(&format!("{PROFILES}kns.a"), Some(b"x"), Some(b"y"), 9);
    assert!(!world.hold.entries.is_empty());
}

#[test]
fn at_the_first_start_only_endpoints_of_this_host_are_taken_back() {
    let mut hold = Hold::new(BTreeMap::new());
    hold.begin(None::<std::iter::Empty<(&str, &[u8])>>);
    let ours = "/calico/resources/v3/projectcalico.org/hostendpoints/ours".to_owned();
    let theirs = "/calico/resources/v3/projectcalico.org/hostendpoints/theirs".to_owned();
    for (n, key) in [&ours, &theirs, &key("deny")].into_iter().enumerate() {
        hold.changed(key, None, Some(b"x"), i64::try_from(n).unwrap() + 2);
    }
    hold.stage(true, &BTreeSet::from([ours.clone()]));
    hold.committed(Duration::ZERO);
    let test = hold.test().unwrap();
    let outcome = hold.tried(test, false, PATIENCE);
    assert_eq!(outcome.retake, BTreeSet::from([ours.clone()]));
    assert_eq!(hold.over(&ours, Some(b"x")), None);
    assert_eq!(hold.over(&key("deny"), Some(b"x")), Some(&b"x"[..]));
}

/// A small generator, so that every run is the same.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Whatever happens, in the end the node is not cut off, who does no harm alone or with others is
/// in force, and what is not in force is told; over restarts at any moment.
#[test]
fn in_the_end_the_datastore_is_within_reach_and_nothing_harmless_is_held() {
    for seed in 0..1000 {
        let mut random = Random(seed);
        let mut world = World::new();
        let mut saved = BTreeMap::new();
        let mut n_outages = 0;
        for _ in 0..random.below(40) {
            match random.below(12) {
                0 => {
                    world.is_down = !world.is_down;
                    n_outages += u64::from(world.is_down);
                }
                // A datastore out of reach delivers nothing.
                1..=4 if !world.is_down => {
                    let name = format!("p{}", random.below(5));
                    let values = ["fine", "fair", "cut!", "cut2", "cut2b"];
                    let value = values[usize::try_from(random.below(5)).unwrap()];
                    let value = (random.below(5) > 0).then_some(value);
                    world.read(&name, value);
                    if random.below(2) == 0 {
                        world.flush();
                    }
                }
                5 => {
                    world.flush();
                    saved = world.hold.take_unsaved().unwrap_or(saved);
                    if !world.is_down {
                        world = world.restart(saved.clone());
                    }
                }
                _ => {
                    world.step();
                    saved = world.hold.take_unsaved().unwrap_or(saved);
                }
            }
        }
        world.flush();
        world.is_down = false;
        world.run();
        assert!(!world.is_cut(), "seed {seed}: {:?}", world.kernel);
        let held: BTreeSet<String> = world.hold.held().map(|held| held.key.to_owned()).collect();
        for key in world.stored.keys().chain(world.kernel.keys()) {
            let is_stored = world.kernel.get(key) == world.stored.get(key);
            assert!(is_stored || held.contains(key), "seed {seed}: {key}");
        }
        // Two outages, each at the wrong moment, can make something look guilty.
        for key in held.iter().filter(|_| n_outages < 2) {
            let value = world.stored.get(key).map(Vec::as_slice).unwrap_or_default();
            // A value that cuts only with others may be held for their sake.
            assert!(value.starts_with(b"cut"), "seed {seed}: {key}");
        }
    }
}
