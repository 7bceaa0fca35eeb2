//! The incidents that operators of Calico wrote up, made again: our components cannot bring a
//! cluster there, and one that is there already is named and mended while its pods keep talking.

use std::fmt::Write as _;

use kernel::Netns;
use serde_json::json;
use store::{Op, Store, Txn, sqlite};

use super::*;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";
const BLOCKS: &str = "/calico/ipam/v2/assignment/ipv4/block/";

/// A lab of two nodes with two pods each, on one sort of datastore.
struct Cluster {
    labs: Labs,
    is_etcd: bool,
}

/// A pod of a StatefulSet on the first node: each of its sandboxes has the name of the last.
struct Sandbox {
    container: String,
    netns: String,
    address: String,
}

/// Numbered echo requests from pod to pod, while something happens.
struct Stream(Running);

impl Cluster {
    /// One on each sort of datastore.
    fn each(test: impl Fn(&Cluster)) {
        for datastore in ["sqlite", "etcd"] {
            let Some(labs) = Labs::of_root() else { return };
            let is_etcd = datastore == "etcd";
            if is_etcd && !member::is_installed() {
                continue;
            }
            labs.lab(&format!("up --nodes 2 --pods 2 --datastore {datastore}")).ok();
            test(&Cluster { labs, is_etcd });
        }
    }

    /// Runs a command on the first node.
    fn on_n1(&self, words: &[&str]) -> Done {
        self.labs.run(&[&["exec", "n1", "--"], words].concat())
    }

    fn margay(&self, words: &str) -> Done {
        let words: Vec<&str> = words.split(' ').collect();
        self.on_n1(&[&["margay"], words.as_slice()].concat())
    }

    /// Stores bytes under a key, or removes it, past every check.
    fn put(&self, key: &str, value: Option<&str>) {
        if self.is_etcd {
            let script = match value {
                Some(_) => "etcdctl --endpoints=$ETCD_ENDPOINTS put \"$0\" -- \"$1\"",
                None => "etcdctl --endpoints=$ETCD_ENDPOINTS del \"$0\"",
            };
            self.on_n1(&["sh", "-c", script, key, value.unwrap_or_default()]).ok();
            return;
        }
        let key = key.to_owned();
        let op = match value {
            Some(value) => Op::Put { key, value: value.into() },
            None => Op::Delete { key },
        };
        self.embedded().commit(Txn { compares: vec![], ops: vec![op] }).unwrap();
    }

    fn embedded(&self) -> Store {
        let file = self.labs.folder().join("default/store.db");
        Store::Sqlite(sqlite::Store::open(file).unwrap())
    }

    /// The keys below one of these.
    fn keys(&self, prefix: &str) -> Vec<String> {
        if self.is_etcd {
            let script = "etcdctl --endpoints=$ETCD_ENDPOINTS get --prefix --keys-only \"$0\"";
            let listed = self.on_n1(&["sh", "-c", script, prefix]).ok().out;
            return listed.lines().filter(|it| !it.is_empty()).map(str::to_owned).collect();
        }
        let entries = self.embedded().list(prefix).unwrap().entries;
        entries.into_iter().map(|entry| entry.key).collect()
    }

    fn value(&self, key: &str) -> Value {
        let text = match self.is_etcd {
            true => {
                let script = "etcdctl --endpoints=$ETCD_ENDPOINTS get --print-value-only \"$0\"";
                self.on_n1(&["sh", "-c", script, key]).ok().out
            }
            false => {
                let entry = self.embedded().get(key).unwrap().0.unwrap();
                String::from_utf8(entry.value).unwrap()
            }
        };
        serde_json::from_str(&text).unwrap()
    }

    /// The key of the block that an address is in.
    fn block_of(&self, address: &str) -> String {
        let number = |text: &str| text.parse::<std::net::Ipv4Addr>().map(u32::from).unwrap();
        let is_in = |key: &String| {
            let (first, length) = key.rsplit('/').next().unwrap().split_once('-').unwrap();
            let size = 1 << (32 - length.parse::<u32>().unwrap());
            (number(first)..number(first) + size).contains(&number(address))
        };
        self.keys(BLOCKS).into_iter().find(is_in).unwrap()
    }

    fn n_endpoints(&self) -> usize {
        self.keys(&format!("{RESOURCES}/workloadendpoints/")).len()
    }

    /// The address and the host's interface of a pod of the lab.
    fn pod(&self, name: &str) -> (String, String) {
        let (_, status) = self.labs.json("status");
        let pods = status["pods"].as_array().unwrap();
        let pod = pods.iter().find(|pod| pod["name"] == name).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&pod["addresses"][0]), text(&pod["interface"]))
    }

    fn stream(&self, from: &str, to: &str) -> Stream {
        let words = ["exec", from, "--", "ping", "-n", "-i", "0.05", to];
        let stream = Running::start(self.labs.command(&words));
        stream.until_says("icmp_seq=1 ");
        Stream(stream)
    }

    /// A CNI call on the first node for a sandbox of the pod `shop/db-0`, which goes well.
    fn must(&self, command: &str, sandbox: &Sandbox) -> String {
        let agent = self.labs.folder().join("default/nodes/n1/run/agent.sock");
        let conf = json!({
            "cniVersion": "1.0.0", "name": "lab", "type": "calico", "nodename": "n1",
            "nodename_file_optional": true, "agent_socket": agent,
            "ipam": { "type": "calico-ipam" },
        });
        let script = "printf %s \"$0\" | env CNI_COMMAND=\"$1\" CNI_CONTAINERID=\"$2\" \
                      CNI_NETNS=\"$3\" CNI_IFNAME=eth0 CNI_PATH=/none \
                      CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=db-0' calico";
        let conf = conf.to_string();
        let words = ["exec", "n1", "--", "sh", "-c", script];
        let rest = [conf.as_str(), command, &sandbox.container, &sandbox.netns];
        self.labs.run(&[&words[..], &rest].concat()).ok().out
    }

    /// The next sandbox of the pod.
    fn add(&self, container: &str) -> Sandbox {
        let names = self.labs.dir.path().join("netns");
        Netns::create_named(&names, container).unwrap();
        let netns = names.join(container).display().to_string();
        let container = container.to_owned();
        let mut sandbox = Sandbox { container, netns, address: String::new() };
        let said = self.must("ADD", &sandbox);
        let answer: Value = serde_json::from_str(&said).unwrap();
        let address = answer["ips"][0]["address"].as_str().unwrap();
        sandbox.address = address.split('/').next().unwrap().to_owned();
        sandbox
    }

    fn end(&self, sandbox: &Sandbox) {
        self.must("DEL", sandbox);
        let names = self.labs.dir.path().join("netns");
        Netns::delete_named(&names, &sandbox.container).unwrap();
    }

    /// The sandbox answers, and the records have its address for it and for nobody else.
    fn assert_works(&self, sandbox: &Sandbox) {
        let Sandbox { container, address, .. } = sandbox;
        self.on_n1(&["ping", "-c1", "-W5", address]).ok();
        self.margay(&format!("ipam show --ip {address}")).ok().says(&["is in use"]);
        let endpoint = format!("{RESOURCES}/workloadendpoints/shop/n1-k8s-db--0-eth0");
        assert_eq!(self.value(&endpoint)["spec"]["containerID"], container.as_str());
    }

    /// Sandboxes of one name come and go, their DELs late, twice, and out of turn; what is left
    /// is the last one.
    fn churn(&self) {
        let mut old = self.add("db0-0");
        for round in 1..=4 {
            let new = self.add(&format!("db0-{round}"));
            self.must("DEL", &old);
            self.assert_works(&new);
            self.end(&old);
            self.assert_works(&new);
            old = new;
        }
        self.margay("ipam check").ok();
        self.end(&old);
        self.margay("reconcile").ok().says(&["agree"]);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let names = self.labs.dir.path().join("netns");
        for entry in fs::read_dir(&names).into_iter().flatten().flatten() {
            let _ = Netns::delete_named(&names, &entry.file_name().to_string_lossy());
        }
    }
}

impl Stream {
    /// Everything until now was answered.
    #[track_caller]
    fn assert_none_lost(self) {
        let number = |line: &String| {
            line.split_once("icmp_seq=")?.1.split(' ').next()?.parse::<usize>().ok()
        };
        let answered: Vec<usize> = self.0.out().iter().filter_map(number).collect();
        assert_eq!(answered, (1..=answered.len()).collect::<Vec<_>>(), "a packet was lost");
    }
}

/// An endpoint of the first node whose sandbox is gone, as an object that can be applied.
fn ghost(number: usize) -> Value {
    let container = format!("{number:04x}ghost");
    let interface = format!("cali{container}");
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "WorkloadEndpoint",
        "metadata": { "name": format!("n1-cni-{container}-eth0"), "namespace": "default" },
        "spec": {
            "node": "n1", "orchestrator": "cni", "containerID": container, "endpoint": "eth0",
            "interfaceName": interface, "profiles": ["lab"],
            "ipNetworks": [format!("10.65.{}.{}/32", 128 + number / 250, 1 + number % 250)],
        },
    })
}

/// 600 endpoints without an interface, interfaces without an endpoint, a pod without a gateway.
/// A policy that lets nothing reach the pods of a name, as it is stored.
fn closed(pod: &str) -> String {
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy",
        "metadata": { "name": "closed", "uid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6" },
        "spec": {
            "tier": "default", "order": 1.0, "selector": format!("pod == '{pod}'"),
            "types": ["Ingress"],
        },
    })
    .to_string()
}

#[test]
fn incident_0() {
    Cluster::each(|cluster| {
        let (target, _) = cluster.pod("n2-db");
        let reaches =
            || cluster.labs.lab(&format!("exec n1-web -- ping -n -c1 -W1 {target}")).code == 0;
        assert!(reaches());
        // What real clients put there once: two addresses that are none.
        let bad = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "HostEndpoint",
            "metadata": { "name": "unfit", "uid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf7" },
            "spec": { "node": "n2", "interfaceName": "other0", "expectedIPs": ["", ""] },
        });
        cluster.put(&format!("{RESOURCES}/hostendpoints/unfit"), Some(&bad.to_string()));
        let stored = |kind: &str, spec: Value| {
            let uid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf8";
            let metadata = json!({ "name": "unfit", "uid": uid });
            let api = "projectcalico.org/v3";
            json!({ "apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec })
        };
        let others = [
            ("tiers", stored("Tier", json!({ "order": "first" }))),
            ("profiles", stored("Profile", json!({ "ingress": [{ "action": "Jump" }] }))),
            ("globalnetworksets", stored("GlobalNetworkSet", json!({ "nets": ["10.0.0.0/99"] }))),
            ("felixconfigurations", stored("FelixConfiguration", json!({ "vxlanPort": {} }))),
            (
                "globalnetworkpolicies",
                stored("GlobalNetworkPolicy", json!({ "selector": "pod ==", "types": ["Both"] })),
            ),
        ];
        for (kind, object) in &others {
            cluster.put(&format!("{RESOURCES}/{kind}/unfit"), Some(&object.to_string()));
        }
        let names_all = || {
            let told = cluster.margay("status -o json").out;
            let is_named = |object: &Value| {
                told.contains(&format!("{} unfit ", object["kind"].as_str().unwrap()))
            };
            told.contains("spec.expectedIPs[0]")
                && is_named(&bad)
                && others.iter().all(|(_, object)| is_named(object))
        };
        until("status names every one of them", names_all);
        // Everything else goes on: a policy comes into force, and is taken back.
        let key = format!("{RESOURCES}/globalnetworkpolicies/closed");
        let endpoints = cluster.keys(&format!("{RESOURCES}/workloadendpoints/"));
        let network = json!([format!("{target}/32")]);
        let mut all = endpoints.iter();
        let of_pod = all.find(|it| cluster.value(it)["spec"]["ipNetworks"] == network).unwrap();
        let mut endpoint = cluster.value(of_pod);
        endpoint["metadata"]["labels"]["pod"] = "n2-db".into();
        cluster.put(of_pod, Some(&endpoint.to_string()));
        cluster.put(&key, Some(&closed("n2-db")));
        until("the policy is in force", || !reaches());
        cluster.put(&key, None);
        until("the policy is gone", reaches);
        for (kind, _) in &others {
            cluster.put(&format!("{RESOURCES}/{kind}/unfit"), None);
        }
        cluster.put(&format!("{RESOURCES}/hostendpoints/unfit"), None);
        until("nothing is wrong any more", || {
            !cluster.margay("status -o json").out.contains("unfit")
        });
    });
}

#[test]
fn incident_1() {
    const N_GHOSTS: usize = 600;
    Cluster::each(|cluster| {
        cluster.churn();

        let (address, _) = cluster.pod("n2-web");
        let stream = cluster.stream("n1-web", &address);
        let back = cluster.stream("n2-db", &cluster.pod("n1-db").0);
        let before = cluster.n_endpoints();
        let mut documents = String::new();
        for number in 0..N_GHOSTS {
            let _ = writeln!(documents, "---\n{}", ghost(number));
        }
        let file = cluster.labs.dir.path().join("ghosts.yaml");
        fs::write(&file, documents).unwrap();
        // As Calico leaves them: an interface that leads to a place where nobody is any more, and a
        // pod that runs, of which only its address is still written down.
        Netns::create_named(cluster.labs.dir.path().join("netns"), "empty").unwrap();
        let empty = cluster.labs.dir.path().join("netns/empty").display().to_string();
        let pair = ["link", "add", "cali0rphan", "type", "veth", "peer", "name", "eth0", "netns"];
        let (_, interface) = cluster.pod("n1-db");
        cluster.labs.agent("n1").into_iter().for_each(kill);
        until("the agent to end", || cluster.labs.agent("n1").is_empty());
        cluster.margay(&format!("apply -f {}", file.display())).ok();
        cluster.on_n1(&[&["ip"], &pair[..], &[empty.as_str()]].concat()).ok();
        cluster.on_n1(&["ip", "link", "set", &interface, "alias", ""]).ok();
        fs::remove_dir_all(cluster.labs.folder().join("default/nodes/n1/state/sandboxes")).unwrap();
        let is_its = |key: &String| {
            key.contains("/n1-cni-") && cluster.value(key)["spec"]["interfaceName"] == *interface
        };
        let keys = cluster.keys(&format!("{RESOURCES}/workloadendpoints/"));
        let own: Vec<&String> = keys.iter().filter(|key| !key.contains("ghost")).collect();
        let own = own.into_iter().find(|key| is_its(key)).unwrap();
        cluster.put(own, None);

        cluster.labs.lab("heal");
        until("everything is named", || {
            let said = cluster.margay("status").out;
            said.contains("no sandbox is known to endpoint") && said.contains("cali0rphan")
        });
        cluster.margay("status").says(&["… and", "fix: margay reconcile"]);
        let plan = cluster.margay("reconcile --plan -o json").code(1).out;
        let plan: Value = serde_json::from_str(&plan).unwrap();
        let n_open = plan["matters"].as_array().unwrap().len();
        assert!(n_open > N_GHOSTS, "{n_open}");
        // Pods that were not in the journal are back in it by themselves.
        until("the lost endpoint is back", || cluster.n_endpoints() == before + N_GHOSTS);
        cluster.margay("events adopted").ok().says(&[&interface]);
        cluster.margay("reconcile").code(0).says(&["601 settled"]);
        assert_eq!(cluster.n_endpoints(), before);
        cluster.margay("reconcile").ok().says(&["agree"]);
        let links = cluster.on_n1(&["ip", "link"]).ok().out;
        assert!(!links.contains("cali0rphan"), "{links}");
        cluster.labs.lab("test").ok().says(&["6/6 pairs"]);
        stream.assert_none_lost();
        back.assert_none_lost();
        cluster.margay("ipam check").ok();
    });
}

/// What somebody or something does to the records of the block of a pod that runs.
type Damage = (&'static str, fn(&mut Value, usize));

/// Records of addresses that no longer match what runs.
#[test]
fn incident_2() {
    let damages: [Damage; 7] = [
        ("the address of a live pod is free", |block, place| {
            block["allocations"][place] = Value::Null;
            block["unallocated"].as_array_mut().unwrap().push(place.into());
        }),
        ("allocated and free at once", |block, place| {
            block["unallocated"].as_array_mut().unwrap().push(place.into());
        }),
        ("an address of a pod long gone", |block, _| leak(block)),
        ("an index that leads nowhere", |block, place| block["allocations"][place] = 99.into()),
        ("a negative index", |block, place| block["allocations"][place] = (-1).into()),
        ("a list that is cut off", |block, _| {
            block["allocations"].as_array_mut().unwrap().truncate(3);
        }),
        ("lists that are missing", |block, _| {
            block.as_object_mut().unwrap().remove("allocations");
            block.as_object_mut().unwrap().remove("unallocated");
        }),
    ];
    Cluster::each(|cluster| {
        cluster.churn();
        let (address, _) = cluster.pod("n1-web");
        let streams =
            [cluster.stream("n2-web", &address), cluster.stream("n1-web", &cluster.pod("n2-db").0)];
        let key = cluster.block_of(&address);
        let first = key.rsplit('/').next().unwrap().split('-').next().unwrap();
        let last = |text: &str| text.rsplit('.').next().unwrap().parse::<usize>().unwrap();
        let place = last(&address) - last(first);
        for (what, damage) in &damages {
            let mut block = cluster.value(&key);
            damage(&mut block, place);
            // With nobody there to mend it at once, as where Calico ran until now.
            cluster.labs.agent("n1").into_iter().for_each(kill);
            until("the agent to end", || cluster.labs.agent("n1").is_empty());
            cluster.put(&key, Some(&block.to_string()));
            let checked = cluster.margay("ipam check --show-problem-ips");
            assert_ne!(checked.code, 0, "{what}: {checked:?}");
            let plan = cluster.margay("ipam repair --plan");
            assert_eq!(plan.code, 1, "{what}: {plan:?}");
            cluster.labs.lab("heal");
            cluster.margay("ipam repair --yes");
            until("the records to be right", || cluster.margay("ipam check").code == 0);
            cluster.margay(&format!("ipam show --ip {address}")).ok().says(&["is in use"]);
        }
        let (_, interface) = cluster.pod("n1-web");
        cluster.on_n1(&["ip", "link", "show", &interface]).ok();
        cluster.labs.lab("test").ok().says(&["6/6 pairs"]);
        streams.into_iter().for_each(Stream::assert_none_lost);
        // The next pods get addresses that nobody has.
        cluster.labs.lab("pod add n1").ok();
        cluster.labs.lab("test").ok().says(&["10/10 pairs"]);
        cluster.margay("ipam check").ok();
    });
}

/// What I2's block in etcd showed: the handle of a pod by its name, and no such pod.
fn leak(block: &mut Value) {
    let attributes = block["attributes"].as_array_mut().unwrap();
    attributes.push(json!({
        "handle_id": "kube-system.prometheus-node-exporter-9x2bw",
        "secondary": { "node": "n1", "namespace": "kube-system", "pod": "prometheus-9x2bw" },
    }));
    let index = attributes.len() - 1;
    let free = block["unallocated"].as_array_mut().unwrap().pop().unwrap();
    block["allocations"][usize::try_from(free.as_u64().unwrap()).unwrap()] = index.into();
}

/// A move of addresses that hangs, without a word, in front of everything.
#[test]
fn incident_3() {
    Cluster::each(|cluster| {
        // What Calico's init container runs on a new cluster, whose datastore nobody reaches yet.
        let away = "DATASTORE_TYPE=etcdv3 ETCD_ENDPOINTS=http://192.0.2.1:2379";
        let networks = cluster.labs.dir.path().join("networks");
        let shown = networks.display();
        let run = |settings: &str| {
            let script = format!(
                "exec env {settings} MARGAY_NETWORKS_DIR={shown} KUBERNETES_NODE_NAME=n1 \
                 calico-ipam -upgrade --network lab --timeout 6 --conf-dir /nowhere"
            );
            cluster.on_n1(&["sh", "-c", &script])
        };
        run(away).ok().says(&["nothing to move"]);

        // Pods of host-local run on the node, and the datastore does not answer.
        fs::create_dir_all(networks.join("lab")).unwrap();
        for (number, name) in ["10.65.200.5", "10.65.200.6"].iter().enumerate() {
            let text = format!("hostlocal{number}\r\neth0");
            fs::write(networks.join("lab").join(name), text).unwrap();
        }
        let (address, _) = cluster.pod("n2-web");
        let stream = cluster.stream("n1-web", &address);
        let waited = run(&format!("-u MARGAY_STORE {away}"));
        waited.code(2).complains(&["waiting for", "192.0.2.1", " s of 6 s", "fix: "]);
        assert_eq!(fs::read_dir(networks.join("lab")).unwrap().count(), 2, "nothing was changed");

        // It ends half way; nothing stands still because of it: pods come, and it goes on later.
        let ended = run("MARGAY_FAULT=after-claim");
        assert_ne!(ended.code, 0, "{ended:?}");
        let ready = format!("{RESOURCES}/clusterinformations/default");
        assert_eq!(cluster.value(&ready)["spec"]["datastoreReady"], true);
        cluster.labs.lab("pod add n1").ok();
        run("").code(0).says(&["2 addresses moved to calico-ipam, node n1"]);
        assert!(!networks.join("lab").exists());
        run(away).ok().says(&["nothing to move"]);
        let held = cluster.margay("ipam show --ip 10.65.200.5").ok();
        held.says(&["is in use", "lab.hostlocal0"]);
        cluster.labs.lab("test").ok().says(&["10/10 pairs"]);
        stream.assert_none_lost();
    });
}
