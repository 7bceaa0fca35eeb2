//! podman with the CNI backend.

use crate::image;
use crate::world::{Done, World, has};

/// Limits that the container of a test may have anywhere; `runc`, because other runtimes want a
/// certain layout of cgroups.
const SETTINGS: &str = r#"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[network]
network_backend = "cni"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
"#;

/// A host with podman and an image.
struct Podman(World);

impl Podman {
    /// None, said aloud, where podman is not installed.
    fn new() -> Option<Podman> {
        let installed = has(&["podman", "runc", "conmon", "iptables", "nft", "setpriv"]);
        if !installed || !image::has_busybox() {
            return None;
        }
        let world = World::new()?;
        std::fs::write(world.path("containers.conf"), SETTINGS).unwrap();
        let podman = Podman(world);
        podman.ok(&["import", "--quiet", &image::files(&podman.0), "box"]);
        Some(podman)
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        self.run(words).says(0, &[]).out.trim_end().to_owned()
    }

    fn run(&self, words: &[&str]) -> Done {
        let (storage, state) = (self.0.text("layers/storage"), self.0.text("layers/state"));
        let own = ["podman", "--log-level=error", "--root", &storage, "--runroot", &state];
        let driver = ["--storage-driver", "vfs"];
        self.0.run(&own.into_iter().chain(driver).chain(words.iter().copied()).collect::<Vec<_>>())
    }

    /// Runs a container of our network with a web server; its address.
    #[track_caller]
    fn serve(&self, name: &str, flags: &[&str]) -> String {
        let mut words = vec!["run", "--detach", "--name", name, "--network", "margay"];
        words.extend(flags);
        words.extend(["box", "/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/www"]);
        self.ok(&words);
        self.told(name, "IPAddress")
    }

    /// What podman was told of a container's network.
    fn told(&self, name: &str, field: &str) -> String {
        let format = format!("{{{{.NetworkSettings.Networks.margay.{field}}}}}");
        self.ok(&["inspect", name, "--format", &format])
    }

    /// Two containers reach each other; when they are gone, nothing of them is left.
    fn two_containers(&self, has_ipv6: bool) {
        let (a, b) = (self.serve("a", &[]), self.serve("b", &[]));
        let mut pairs = vec![("a", b), ("b", a.clone())];
        if has_ipv6 {
            pairs.push(("a", self.told("b", "GlobalIPv6Address")));
        }
        for (from, to) in pairs {
            let to = to.as_str();
            self.ok(&["exec", from, "/bin/busybox", "ping", "-c1", "-W20", to]);
            let ask =
                format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | /bin/busybox nc -w 20 {to} 80");
            let answer = self.ok(&["exec", from, "/bin/busybox", "sh", "-c", &ask]);
            assert!(answer.ends_with("hello"), "{answer}");
        }
        assert!(self.0.fetch(&[], &a, 80).ends_with("hello"));
        self.ok(&["rm", "--force", "--time=0", "a", "b"]);
        self.0.assert_no_container();
    }
}

#[test]
fn containers_reach_each_other_without_an_agent() {
    let Some(podman) = Podman::new() else { return };
    let setup = "setup --no-agent --pool 10.9.0.0/16 --pool fd09::/64";
    podman.0.margay(setup).says(0, &["this host is node h1, without an agent"]);
    podman.two_containers(true);
    // Nobody watches here; who asks is told what is missing.
    let address = podman.serve("c", &[]);
    podman.0.margay("status").says(0, &["✓ fine on h1"]);
    podman.0.shell(&format!("ip route del {address}/32"));
    podman.0.margay("status").says(2, &[&format!("no route leads to {address}"), "MG-ROUTE-008"]);
    podman.0.shell("nft delete table inet margay; nft delete table arp margay");
    podman.0.margay("status").says(2, &["the packet filter is gone", "MG-FILTER-001"]);
    podman.serve("d", &[]);
    podman.0.margay("status").says(0, &["✓ fine on h1"]);
    podman.0.shell("for it in $(ip -o link | grep -o 'cali[^@]*'); do ip link del $it; done");
    podman.0.margay("status").says(2, &["is gone", "MG-ROUTE-001", "delete the container"]);
    podman.ok(&["rm", "--force", "--time=0", "c", "d"]);
    podman.0.margay("remove --yes --purge").says(0, &["margay is removed"]);
    podman.0.assert_nothing_of_ours();
}

#[test]
fn containers_reach_each_other_with_the_agent_of_the_unit() {
    let Some(podman) = Podman::new() else { return };
    podman.0.margay("setup").says(0, &["next: systemctl daemon-reload"]);
    podman.0.start_agent();
    podman.two_containers(false);
    podman.serve("c", &[]);
    podman.0.stop_agent();
    podman.0.shell(
        "nft 'table ip kube-proxy { chain c { type filter hook forward priority -110; \
         mark and 0x4000 == 0x4000 accept; }; }'",
    );
    let theirs = || podman.0.shell("nft -a -s list table ip kube-proxy");
    let rules = theirs();
    // A container that runs is named, and nothing is touched.
    let address = podman.ok(&["exec", "c", "/bin/busybox", "ip", "-4", "addr", "show", "eth0"]);
    podman.0.margay("remove --yes").says(2, &["containers run; nothing was removed", "10.65."]);
    let after = podman.ok(&["exec", "c", "/bin/busybox", "ip", "-4", "addr", "show", "eth0"]);
    assert_eq!(after, address);
    podman.0.margay("remove --yes --force").says(0, &["margay is removed", "kept", "store.db"]);
    assert_eq!(theirs(), rules, "rules of others are not ours to change");
    // The datastore stays, and in it nothing of the container.
    podman.0.assert_no_container();
    // The network is gone, which podman says; but what it keeps of the container outside of this
    // host, in cgroups, goes.
    podman.run(&["rm", "--force", "--time=0", "c"]);
    podman.0.margay("remove --yes --purge").says(0, &["margay is removed"]);
    podman.0.assert_nothing_of_ours();
}

#[test]
fn a_published_port_leads_to_the_container() {
    let Some(podman) = Podman::new() else { return };
    podman.0.margay("setup --no-agent --open").says(0, &["Profile margay"]);
    podman.serve("a", &["--publish", "8080:80"]);
    assert!(podman.0.fetch(&[], "172.30.0.1", 8080).ends_with("hello"));
    let outside = ["ip", "netns", "exec", "out"];
    assert!(podman.0.fetch(&outside, "172.30.0.1", 8080).ends_with("hello"));
    podman.ok(&["rm", "--force", "--time=0", "a"]);
    podman.0.assert_no_container();
}
