//! Setting up and removing, with nobody else about.

use crate::world::{World, has};

#[test]
fn a_plan_changes_nothing_and_a_second_run_finds_nothing_to_do() {
    let Some(world) = World::new() else { return };
    let plan = world.margay("setup --plan").says(1, &["to do, for this host to be node h1"]);
    world.assert_nothing_of_ours();
    let done = world.margay("setup").says(0, &["✓ this host is node h1, with an agent"]);
    // What was planned is what was done, line by line.
    let names = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("  "));
        lines.filter_map(|line| line.split_whitespace().nth(1).map(str::to_owned)).collect()
    };
    assert!(names(&plan.out).len() > 8, "{}", plan.out);
    assert_eq!(names(&done.out)[..names(&plan.out).len()], names(&plan.out));
    world.margay("setup").says(0, &["✓ nothing to do: this host is node h1"]);
    world.margay("setup --plan").says(0, &["nothing to do"]);

    if has(&["systemd-analyze"]) {
        let unit = "/etc/systemd/system/margay.service";
        let judged = world.run(&["systemd-analyze", "verify", "--man=no", unit]);
        assert!(!judged.err.contains("margay.service"), "{judged:#?}");
    }
    let listed = world.json(&[env!("CARGO_BIN_EXE_margay"), "setup", "-o", "json"]);
    assert_eq!(listed["changes"].as_array().map(Vec::len), Some(0), "{listed}");

    // Without an agent, what only the agent needs goes away again.
    world.margay("setup --no-agent").says(0, &["removed", "margay.service", "Node h1"]);
    world.margay("setup --no-agent").says(0, &["nothing to do"]);

    world.margay("remove").says(2, &["nobody is there to ask", "help: add --yes"]);
    let plan = world.margay("remove --plan --purge").says(1, &["to be removed", "setup.json"]);
    let done = world.margay("remove --yes --purge").says(0, &["✓ margay is removed"]);
    assert_eq!(names(&done.out), names(&plan.out));
    world.assert_nothing_of_ours();
    world.margay("remove --yes --purge").says(0, &["nothing of margay is on this host"]);
}

#[test]
fn status_says_what_to_type_next_however_the_host_was_set_up() {
    let Some(world) = World::new() else { return };
    world.margay("status").says(2, &["no agent runs here", "fix: margay setup "]);
    world.margay("").says(0, &["none runs here      (margay setup --plan)"]);
    world.margay("setup").says(0, &[]);
    let by_hand =
        "fix: env \"MARGAY_STORE=/var/lib/margay/store.db\" /usr/local/bin/margay agent --node h1";
    world.margay("status").says(2, &["no agent runs here", by_hand]);
    world.shell("mkdir -p /run/systemd/system");
    let enable = "systemctl daemon-reload && systemctl enable --now margay.service";
    world.margay("status").says(2, &[&format!("fix: {enable}\n")]);
    world.margay("").says(0, &["✗ no agent runs here", enable]);
    world.shell(
        "cd /etc/systemd/system; mkdir -p multi-user.target.wants; \
                 ln -s ../margay.service multi-user.target.wants/",
    );
    world.margay("status").says(2, &["fix: systemctl restart margay.service "]);
    world.shell("rm -r /etc/systemd/system/multi-user.target.wants");

    world.margay("setup --no-agent").says(0, &[]);
    let said =
        ["✓ fine on h1: set up without an agent", "; 0 sandboxes", "next: podman run --network"];
    world.margay("status").says(0, &said);
    let status = world.json(&[env!("CARGO_BIN_EXE_margay"), "status", "-o", "json"]);
    assert_eq!(status["status"], "fine", "{status}");
    assert!(status["sandboxes"].is_object() && status.get("store").is_none(), "{status}");
    world.margay("sandboxes").says(0, &["no sandboxes on h1"]);
    world.margay("").says(0, &["none, as set up; 0 sandboxes"]);
    world.shell("rm /etc/cni/net.d/10-margay.conflist");
    let said = ["10-margay.conflist is missing", "MG-SETUP-001", "fix: margay setup --no-agent"];
    world.margay("status").says(2, &said);
}

#[test]
fn a_host_that_shall_do_without_its_agent_does_without_what_the_agent_left() {
    let Some(world) = World::new() else { return };
    world.margay("setup").says(0, &[]);
    world.shell(
        "cd /etc/systemd/system; mkdir -p multi-user.target.wants; \
                 ln -s ../margay.service multi-user.target.wants/",
    );
    world.start_agent();
    world.margay("setup --no-agent").says(2, &["the agent runs (process ", "help: kill "]);
    world.stop_agent();
    // Its socket stays, at which plugins would wait for it.
    let said = ["agent.sock", "multi-user.target.wants/margay.service", "margay.service"];
    world.margay("setup --no-agent").says(0, &said);
    world.margay("status").says(0, &["✓ fine on h1: set up without an agent"]);
    world.margay("setup --no-agent").says(0, &["nothing to do"]);
    world.shell("test ! -L /etc/systemd/system/multi-user.target.wants/margay.service");

    world.margay("setup").says(0, &[]);
    world.shell(
        "cd /etc/systemd/system; mkdir -p multi-user.target.wants; \
                 ln -s ../margay.service multi-user.target.wants/",
    );
    world.margay("remove --yes --purge").says(0, &["multi-user.target.wants/margay.service"]);
    world.shell("test ! -L /etc/systemd/system/multi-user.target.wants/margay.service");
    world.assert_nothing_of_ours();
}

#[test]
fn nothing_that_stands_in_the_place_of_a_file_holds_setting_up_or_removing_up() {
    let Some(world) = World::new() else { return };
    world.margay("setup").says(0, &[]);
    let places = [
        "/etc/cni/net.d/10-margay.conflist",
        "/etc/systemd/system/margay.service",
        "/usr/local/bin/margay",
        "/usr/lib/cni/calico",
        "/var/lib/margay/agent",
    ];
    let bounded = |words: &str| {
        let program = env!("CARGO_BIN_EXE_margay");
        let words = ["timeout", "60", program].into_iter().chain(words.split(' '));
        world.run(&words.collect::<Vec<_>>())
    };
    for path in places {
        for (make, what) in [
            (format!("mkfifo {path}"), "a named pipe"),
            (format!("mkdir {path}"), "a folder"),
            (format!("ln -s {path} {path}"), ""),
            (format!("mknod {path} c 1 5"), "a device"),
        ] {
            world.shell(
                &format!("mv {path} /layer-kept; {make}").replace("/layer-kept", "/run/kept"),
            );
            let said =
                [&format!("{path}: {what}"), "files of others stand in the way", "--replace"];
            bounded("setup").says(2, &said);
            bounded("remove --plan").says(1, &["to be removed"]);
            world.shell(&format!("rm -r {path}; mv /run/kept {path}"));
        }
    }
    let receipt = "/etc/margay/setup.json";
    for command in ["setup", "remove --plan", "status"] {
        world.shell(&format!("mv {receipt} /run/kept; mkfifo {receipt}"));
        let done = bounded(command);
        assert_eq!(done.code, 2, "{command}: {done:?}");
        if command != "status" {
            done.says(2, &[&format!("{receipt}: a named pipe stands there"), "move it away"]);
        }
        world.shell(&format!("rm {receipt}; mv /run/kept {receipt}"));
    }
    world.margay("setup").says(0, &["nothing to do"]);
}

#[test]
fn what_cannot_be_removed_is_counted_once() {
    let Some(world) = World::new() else { return };
    world.shell(
        "mkdir -p /var/lib/margay /run/margay; mount -t tmpfs tmpfs /var/lib/margay; \
                 mount -t tmpfs tmpfs /run/margay",
    );
    world.margay("setup --no-agent").says(0, &[]);
    let removed = world.margay("remove --yes --purge");
    let removed = removed.says(1, &["! 2 of ", "/var/lib/margay: it is a mount point; umount "]);
    assert_eq!(removed.out.matches("it is a mount point").count(), 2, "{removed:?}");
    world.margay("remove --yes --purge").says(1, &["! 2 of 2 could not be removed\n"]);
    world.shell("umount /var/lib/margay /run/margay");
    world.margay("remove --yes --purge").says(0, &["✓ margay is removed"]);
}

#[test]
fn files_of_others_are_put_aside_only_when_told_and_come_back() {
    let Some(world) = World::new() else { return };
    world.shell("mkdir -p /opt/cni/bin && echo theirs > /opt/cni/bin/calico");
    let setup = "setup --no-agent --bin-dir /opt/cni/bin";
    let refused = world.margay(setup);
    refused.says(2, &["files of others stand in the way; nothing was changed", "--replace"]);
    assert_eq!(world.shell("cat /opt/cni/bin/calico; find /etc -name '*margay*'"), "theirs");
    world.margay(&format!("{setup} --replace")).says(0, &["replaced  /opt/cni/bin/calico"]);
    assert_eq!(world.shell("readlink /opt/cni/bin/calico"), "/usr/local/bin/margay");
    world.margay(&format!("{setup} --replace")).says(0, &["nothing to do"]);
    world.margay("remove --yes --purge").says(0, &["restored  /opt/cni/bin/calico"]);
    assert_eq!(world.shell("cat /opt/cni/bin/*"), "theirs");
    // A file with our name and without our mark is not ours to remove.
    world.shell("mkdir -p /etc/cni/net.d && echo {} > /etc/cni/net.d/10-margay.conflist");
    world.margay("remove --yes --purge").says(0, &["nothing of margay is on this host"]);
    assert_eq!(world.shell("cat /etc/cni/net.d/10-margay.conflist"), "{}");
}

#[test]
fn beside_an_agent_of_calico_nothing_is_done() {
    let Some(world) = World::new() else { return };
    let copy = world.text("calico-node");
    std::fs::copy("/bin/sleep", &copy).unwrap();
    world.start(&mut world.command(&[&copy, "infinity"]));
    crate::world::until("it runs", || world.run(&["pidof", "calico-node"]).code == 0);
    world.margay("setup").says(2, &["Calico's calico-node (process", "nothing was changed"]);
    world.margay("agent --node h1").says(2, &["Calico's calico-node (process", "stop it first"]);
    world.assert_nothing_of_ours();
}

#[test]
fn an_image_is_made_and_cleaned_below_its_root() {
    let Some(world) = World::new() else { return };
    let image = world.text("image");
    let setup = format!("setup --root {image} --node web1 --pool 10.9.0.0/16 --pool fd09::/64");
    world.margay(&setup).says(0, &["this host is node web1", "IPPool default-ipv6-ippool"]);
    world.margay(&setup).says(0, &["nothing to do"]);
    world.assert_nothing_of_ours();
    let conflist = world.json(&["cat", &format!("{image}/etc/cni/net.d/10-margay.conflist")]);
    assert_eq!(conflist["plugins"][0]["ipam"]["assign_ipv6"], "true");
    assert_eq!(conflist["plugins"][0]["agent_socket"], "/run/margay/agent.sock");
    let link = world.shell(&format!("readlink {image}/opt/cni/bin/calico"));
    assert_eq!(link, "/usr/local/bin/margay");
    let store = format!("{image}/var/lib/margay/store.db");
    let pools = world.margay(&format!("get ippools --store {store}"));
    pools.says(0, &["10.9.0.0/16", "fd09::/64"]);
    world.margay(&format!("remove --root {image} --yes --purge")).says(0, &["margay is removed"]);
    assert_eq!(world.shell(&format!("find {image} -mindepth 1")), "");
}

#[test]
fn a_setup_that_cannot_finish_is_removed_or_finished_later() {
    let Some(world) = World::new() else { return };
    world.shell("mount -t tmpfs -o ro tmpfs /etc/systemd/system");
    let refused = world.margay("setup");
    refused.says(2, &["/etc/systemd/system/margay.service", "read-only file system"]);
    // As if it had been killed while it wrote.
    world.shell("touch /usr/lib/cni/calico.margay-new /etc/margay/setup.json.margay-new");
    world.margay("remove --yes --purge").says(0, &["✓ margay is removed"]);
    world.assert_nothing_of_ours();
    world.margay("setup").says(2, &["read-only file system"]);
    world.shell("umount /etc/systemd/system");
    world.margay("setup").says(0, &["made  /etc/systemd/system/margay.service"]);
    world.margay("setup").says(0, &["nothing to do"]);
}

#[test]
fn agent_and_plugin_are_told_which_datastore() {
    let Some(world) = World::new() else { return };
    let image = world.text("image");
    let setup = |variables: &[&str], flags: &[&str]| {
        let program = env!("CARGO_BIN_EXE_margay");
        let words = [program, "setup", "--root", image.as_str(), "--node", "web1"];
        let all = std::iter::once("env").chain(variables.iter().copied());
        world.run(&all.chain(words).chain(flags.iter().copied()).collect::<Vec<_>>())
    };
    let etcd = ["ETCD_ENDPOINTS=https://10.0.0.9:2379", "ETCD_KEY_FILE=/etc/etcd/key.pem"];
    setup(&etcd, &[]).says(0, &["this host is node web1, with an agent"]);
    let unit = world.shell(&format!("cat {image}/etc/systemd/system/margay.service"));
    assert!(unit.contains("Environment=\"ETCD_ENDPOINTS=https://10.0.0.9:2379\"\n"), "{unit}");
    assert!(unit.contains("Environment=\"ETCD_KEY_FILE=/etc/etcd/key.pem\"\n"), "{unit}");
    setup(&etcd, &["--no-agent"]).says(0, &["removed", "margay.service"]);
    let conflist = world.json(&["cat", &format!("{image}/etc/cni/net.d/10-margay.conflist")]);
    assert_eq!(conflist["plugins"][0]["etcd_endpoints"], "https://10.0.0.9:2379");
    assert_eq!(conflist["plugins"][0]["etcd_key_file"], "/etc/etcd/key.pem");
    // A password stands in no file that everybody may read.
    let secret = ["ETCD_ENDPOINTS=https://10.0.0.9:2379", "ETCD_USERNAME=u", "ETCD_PASSWORD=hush"];
    for flags in [&[][..], &["--no-agent"]] {
        setup(&secret, flags).says(2, &["password", "nothing was changed"]);
    }
    assert_eq!(world.shell(&format!("grep -rl hush {image} || true")), "");
    // The agent reads the host's own file: two that contradict each other are one too many.
    world.shell(&format!("mkdir -p {image}/etc/calico"));
    let file = r#"{apiVersion: projectcalico.org/v3, kind: CalicoAPIConfig, spec: {}}"#;
    std::fs::write(world.path("image/etc/calico/calicoctl.cfg"), file).unwrap();
    setup(&[], &["--store", "/srv/store.db"]).says(2, &["two datastores are named"]);
}

#[test]
fn names_and_paths_that_cannot_be_used_are_refused() {
    let Some(world) = World::new() else { return };
    world.margay("setup --node a/b").says(2, &["\"a/b\" cannot be a name, --node"]);
    world.margay("setup --network .x").says(2, &["cannot be a name, --network"]);
    world.margay("setup --bin-dir relative").says(2, &["relative cannot be used", "begin with /"]);
    world.margay("setup --pool 10.0.0.0/99").says(2, &["--pool"]);
    world.margay("setup --store /nowhere/store.db").says(2, &["there is no folder /nowhere"]);
    world.assert_nothing_of_ours();
}
