//! Rules of other programs on the same host, before the agent and after it: what policy allows
//! passes, what it denies does not, and nobody's rules are touched.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use kernel::Netns;
use serde_json::{Value, json};

use crate::node::{Node, may_run, until};
use crate::outage::{address, status};

/// The address of a service, whose ports lead to those of a container.
const SERVICE: &str = "10.96.0.10";
/// The address of the host.
const HOST: &str = "172.30.0.1";
/// What policy allows, denies, and allows at times.
const PORTS: [u16; 3] = [80, 81, 443];
const PATIENCE: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(200);

/// Two containers, of which one serves.
struct Pair {
    node: Node,
    client: Netns,
    server: IpAddr,
    listeners: Vec<TcpListener>,
}

/// Rules of another program.
struct Other {
    name: &'static str,
    /// What makes them, and its input.
    program: &'static str,
    rules: String,
    /// Whether it leads the service to its container.
    has_service: bool,
    /// Where it drops what is forwarded.
    drops: Option<(&'static str, &'static str)>,
}

impl Pair {
    fn new() -> Pair {
        let mut node = Node::new(2);
        node.start_agent();
        node.must("ADD", "client", 0);
        let server = address(&node.must("ADD", "server", 1)).parse().unwrap();
        let client = Netns::open(node.netns("c0")).unwrap();
        let own = Netns::open(node.netns("c1")).unwrap();
        let listen = |port: u16| {
            let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let listeners = own.enter(|| PORTS.map(listen)).unwrap().into();
        let pair = Pair { node, client, server, listeners };
        pair.apply(&[80]);
        pair
    }

    /// Lets these ports be reached, and no others.
    fn apply(&self, ports: &[u16]) {
        let rule =
            json!({ "action": "Allow", "protocol": "TCP", "destination": { "ports": ports } });
        let policy = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy",
            "metadata": { "name": "web" },
            "spec": { "selector": "all()", "types": ["Ingress"], "ingress": [rule] },
        });
        let file = self.node.path("policy.json");
        std::fs::write(&file, policy.to_string()).unwrap();
        let applied = self.node.margay(&["apply", "-f", file.to_str().unwrap()]).output().unwrap();
        assert!(applied.status.success(), "{applied:?}");
    }

    /// Who connects, as the server sees it; none if nobody does.
    fn connects(&self, to: IpAddr, port: u16, patience: Duration) -> Option<IpAddr> {
        let place = SocketAddr::new(to, port);
        let connected = self.client.enter(|| TcpStream::connect_timeout(&place, patience)).unwrap();
        let own = PORTS.iter().position(|it| *it == port).unwrap();
        let accepted = self.listeners[own].accept().ok().map(|(_, peer)| peer.ip());
        assert_eq!(connected.is_ok(), accepted.is_some(), "{place} {connected:?} {accepted:?}");
        accepted
    }

    fn reaches(&self, to: IpAddr, port: u16) -> bool {
        self.connects(to, port, PATIENCE).is_some()
    }

    /// Policy is what decides, by the pod's own address and by that of the service.
    fn is_as_policy_says(&self, other: &Other, when: &str) {
        let service: IpAddr = SERVICE.parse().unwrap();
        let what = format!("{} {when}", other.name);
        match other.drops {
            None => until(&what, || self.reaches(self.server, 80)),
            Some(_) => assert_eq!(self.connects(self.server, 80, MOMENT), None, "{what}"),
        }
        assert_eq!(self.connects(self.server, 81, MOMENT), None, "{what}");
        if other.has_service {
            until(&format!("{what}: the service"), || self.reaches(service, 80));
            // The other program's mark has come through: the source is the host's.
            let seen = self.connects(service, 80, PATIENCE);
            assert_eq!(seen, Some(HOST.parse().unwrap()), "{what}");
            assert_eq!(self.connects(service, 81, MOMENT), None, "{what}");
        }
    }

    /// The rules of others, with their handles.
    fn foreign(&self) -> String {
        let listed =
            self.node.inside("host", "nft", &["-a", "-s", "list", "ruleset"]).output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
        let text = String::from_utf8(listed.stdout).unwrap();
        let tables = text.split_inclusive("\n}\n").filter(|table| {
            !table.starts_with("table inet margay") && !table.starts_with("table arp margay")
        });
        let legacy = self.node.inside("host", "iptables-legacy-save", &[]).output().unwrap();
        let legacy = String::from_utf8(legacy.stdout).unwrap();
        let rules = legacy.lines().filter(|line| line.starts_with('-'));
        tables.collect::<String>() + &rules.collect::<Vec<_>>().join("\n")
    }

    /// Whether the program takes the rules; says so if not.
    fn load(&self, other: &Other) -> bool {
        let file = self.node.path("rules");
        std::fs::write(&file, other.rules.replace("SERVER", &self.server.to_string())).unwrap();
        let file = file.to_str().unwrap();
        let words: &[&str] = if other.program == "nft" { &["-f", file] } else { &[file] };
        let Ok(done) = self.node.inside("host", other.program, words).output() else {
            eprintln!("SKIPPED: there is no program {}", other.program);
            return false;
        };
        let why = String::from_utf8_lossy(&done.stderr);
        // nsenter ends so where there is no such program.
        if done.status.code() == Some(127) || why.contains("does the kernel support it") {
            eprintln!("SKIPPED: {}: {} cannot be used: {why}", other.name, other.program);
            return false;
        }
        assert!(done.status.success(), "{}: {why}", other.name);
        true
    }

    fn unload(&self) {
        for table in self.foreign().lines().filter_map(|line| line.strip_prefix("table ")) {
            let name: Vec<&str> = table.split(' ').take(2).collect();
            let words = ["delete", "table", name[0], name[1]];
            assert!(self.node.inside("host", "nft", &words).output().unwrap().status.success());
        }
        for words in [["-t", "nat", "-F"], ["-t", "filter", "-F"]] {
            let _ = self.node.inside("host", "iptables-legacy", &words).output();
        }
    }

    /// What the agent says of other programs' rules.
    fn findings(&self) -> Vec<Value> {
        let said = status(&self.node);
        let all = said["findings"].as_array().cloned().unwrap_or_default();
        all.into_iter().filter(|it| it["code"] == "MG-FILTER-002").collect()
    }

    /// The other program's drops are named, with what helps.
    fn is_named(&self, (table, chain): (&str, &str)) -> String {
        let place = format!("chain {chain} of table {table},");
        let of_it = || {
            let all = self.findings();
            all.into_iter().find(|it| it["problem"].as_str().unwrap().starts_with(&place))
        };
        until("the drop is named", || of_it().is_some());
        of_it().unwrap()["fix"].as_str().unwrap().to_owned()
    }

    /// One program's rules come after the agent, stay while it works, and are there when the next
    /// one starts.
    fn lives_beside(&mut self, other: &Other) {
        if !self.load(other) {
            return;
        }
        let rules = self.foreign();
        assert!(!rules.is_empty(), "{}", other.name);
        self.is_as_policy_says(other, "after the agent");
        self.apply(&[80, 443]);
        if other.drops.is_none() {
            until("the policy is in force", || self.reaches(self.server, 443));
        }
        self.is_as_policy_says(other, "after a change");
        self.node.kill_agent(true);
        self.apply(&[80]);
        self.node.start_agent();
        if other.drops.is_none() {
            let is_closed = || self.connects(self.server, 443, MOMENT).is_none();
            until("the policy is in force", is_closed);
        }
        self.is_as_policy_says(other, "before the agent");
        assert_eq!(self.foreign(), rules, "{}", other.name);
        match other.drops {
            None => assert_eq!(self.findings(), [] as [Value; 0], "{}", other.name),
            Some(place) => self.is_put_right(other, place),
        }
        self.unload();
        until("nothing is named any more", || self.findings().is_empty());
    }

    /// What is said to help does.
    fn is_put_right(&self, other: &Other, place: (&str, &str)) {
        let mut fix = self.is_named(place);
        if fix.starts_with("firewall-cmd") {
            // Nobody is here to carry it out; this is what becomes of it.
            let (table, chain) = place;
            let insert = format!("nft insert rule {table} {chain}");
            fix = format!("{insert} iifname 'cali*' accept; {insert} oifname 'cali*' accept");
        }
        let done = self.node.inside("host", "sh", &["-ec", &fix]).output().unwrap();
        assert!(done.status.success(), "{fix}: {done:?}");
        until("what helps does", || self.reaches(self.server, 80));
        assert_eq!(self.connects(self.server, 81, MOMENT), None, "{}", other.name);
        until("it is not named any more", || self.findings().is_empty());
    }
}

/// The service as kube-proxy has it in iptables.
fn kube_proxy_chains() -> String {
    let mut rules = String::from(
        "*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment \"service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
",
    );
    for port in [80, 81] {
        rules += &format!(
            ":KUBE-SVC-{port} - [0:0]
:KUBE-SEP-{port} - [0:0]
-A KUBE-SERVICES -d {SERVICE}/32 -p tcp -m tcp --dport {port} -j KUBE-SVC-{port}
-A KUBE-SVC-{port} -d {SERVICE}/32 -p tcp -m tcp --dport {port} -j KUBE-MARK-MASQ
-A KUBE-SVC-{port} -j KUBE-SEP-{port}
-A KUBE-SEP-{port} -p tcp -m tcp -j DNAT --to-destination SERVER:{port}
"
        );
    }
    rules + "COMMIT\n"
}

fn kube_proxy_filter() -> &'static str {
    "*filter
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A FORWARD -j KUBE-FORWARD
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
"
}

fn kube_proxy_nftables() -> String {
    format!(
        "table ip kube-proxy {{
  set cluster-ips {{ type ipv4_addr; elements = {{ {SERVICE} }} }}
  map service-ips {{
    type ipv4_addr . inet_proto . inet_service : verdict
    elements = {{ {SERVICE} . tcp . 80 : goto service-80, {SERVICE} . tcp . 81 : goto service-81 }}
  }}
  map no-endpoint-services {{ type ipv4_addr . inet_proto . inet_service : verdict; }}
  chain endpoint-80 {{ meta l4proto tcp dnat to SERVER:80; }}
  chain endpoint-81 {{ meta l4proto tcp dnat to SERVER:81; }}
  chain mark-for-masquerade {{ mark set mark or 0x4000; }}
  chain masquerading {{
    mark and 0x4000 == 0 return
    mark set mark xor 0x4000
    masquerade fully-random
  }}
  chain service-80 {{
    jump mark-for-masquerade
    numgen random mod 1 vmap {{ 0 : goto endpoint-80 }}
  }}
  chain service-81 {{
    jump mark-for-masquerade
    numgen random mod 1 vmap {{ 0 : goto endpoint-81 }}
  }}
  chain services {{ ip daddr . meta l4proto . th dport vmap @service-ips; }}
  chain cluster-ips-check {{ ip daddr @cluster-ips reject; }}
  chain service-endpoints-check {{ ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }}
  chain filter-forward {{
    type filter hook forward priority -110; policy accept;
    ct state new jump service-endpoints-check
    ct state new jump cluster-ips-check
  }}
  chain nat-prerouting {{ type nat hook prerouting priority -100; policy accept; jump services; }}
  chain nat-output {{ type nat hook output priority -100; policy accept; jump services; }}
  chain nat-postrouting {{
    type nat hook postrouting priority 100; policy accept;
    jump masquerading
  }}
}}
"
    )
}

fn docker() -> &'static str {
    "*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
-A DOCKER-ISOLATION-STAGE-2 -j RETURN
-A DOCKER-USER -j RETURN
COMMIT
"
}

fn firewalld() -> &'static str {
    "table inet firewalld {
  chain filter_FORWARD {
    type filter hook forward priority 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname lo accept
    ct state invalid drop
    jump filter_FORWARD_POLICIES
    reject with icmpx type admin-prohibited
  }
  chain filter_FORWARD_POLICIES { iifname eth9 goto filter_FWD_public; }
  chain filter_FWD_public { jump filter_FWD_public_allow; reject with icmpx type admin-prohibited; }
  chain filter_FWD_public_allow { ct state new accept; }
  chain nat_POSTROUTING { type nat hook postrouting priority 110; policy accept; }
}
"
}

fn others() -> Vec<Other> {
    let kube_proxy = kube_proxy_chains() + kube_proxy_filter();
    // Its rules alone, so nobody serves the address of the service: pods talk to each other. That
    // services by IPVS are held to policy is shown in `policy/services.rs`.
    let ipvs = kube_proxy
        .lines()
        .filter(|line| !line.contains("KUBE-SEP") && !line.contains("KUBE-SVC"))
        .collect::<Vec<_>>()
        .join("\n")
        + "\n";
    let of = |name, program, rules: String| Other {
        name,
        program,
        rules,
        has_service: true,
        drops: None,
    };
    vec![
        of("kube-proxy by iptables-nft", "iptables-nft-restore", kube_proxy.clone()),
        of("kube-proxy by iptables-legacy", "iptables-legacy-restore", kube_proxy),
        of("kube-proxy by nftables", "nft", kube_proxy_nftables()),
        Other {
            has_service: false,
            ..of("kube-proxy by ipvs, its rules", "iptables-nft-restore", ipvs)
        },
        Other {
            has_service: false,
            drops: Some(("ip filter", "FORWARD")),
            ..of("Docker", "iptables-nft-restore", docker().to_owned())
        },
        Other {
            has_service: false,
            drops: Some(("inet firewalld", "filter_FORWARD")),
            ..of("firewalld", "nft", firewalld().to_owned())
        },
    ]
}

#[test]
fn policy_decides_beside_kube_proxy_docker_and_firewalld() {
    // kube-proxy's marks are none of ours.
    let marks = policy::render::Settings::default().mark_mask;
    assert_eq!(marks & (0x4000 | 0x8000), 0);
    if !may_run() {
        return;
    }
    let mut pair = Pair::new();
    for other in others() {
        pair.lives_beside(&other);
    }
}
