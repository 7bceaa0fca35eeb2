//! What somebody meets who has only read the README: mistakes, and the way on from them.

use std::process::{Command, Stdio};

use crate::harness::{Done, Place, Running, policy, pool};

const NODE: &str = "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: n1}\n";

#[test]
fn bare_margay_reads_the_store_and_says_what_is_wrong_with_it() {
    let place = Place::embedded();
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    drop(place.store());
    let whole = std::fs::read(place.path("store.db")).unwrap();
    std::fs::write(place.path("half"), &whole[..whole.len() / 2]).unwrap();
    std::fs::create_dir(place.path("folder")).unwrap();
    place.file("text", "hello");
    for (file, reason) in [
        ("text", "✗ text: not a margay store"),
        ("folder", "✗ folder: not a regular file"),
        ("half", "✗ half: the store is damaged"),
    ] {
        let done = place.run(&["--store", file]).code(2).says(&[reason]);
        assert!(!done.out.contains("made by the first write"), "{done:?}");
        place.run(&["--store", file, "get", "nodes"]).refused(&["help: "]);
    }
    place.margay("").ok().says(&["store.db  (MARGAY_STORE="]);
    place.run(&["--store", "new"]).ok().says(&["made by the first write"]);
    assert!(!place.path("new").exists());
}

#[test]
fn a_store_is_not_made_in_a_folder_that_is_not_there() {
    let place = Place::embedded();
    place.file("p.yaml", &pool("p", "10.1.0.0/24"));
    let refused = place.margay("--store nope/x.db apply p.yaml");
    refused.refused(&["there is no folder nope", "help: mkdir -p nope"]);
    assert!(!place.path("nope").exists());
    place.margay("--store nope/x.db").code(2).says(&["there is no folder nope"]);
    place.margay("--store x.db apply p.yaml").ok();
    assert!(place.path("x.db").exists());
}

#[test]
fn all_mistakes_of_a_pool_are_named_at_once() {
    for place in Place::both() {
        place.give("apply", &pool("p", "10.1.0.0/16")).ok();
        let overlapping = pool("Q_1", "10.1.2.0/24").replace("---", "  ipipMode: always\n---");
        let unreadable = pool("q", "10.1.0.0/33").replace("---", "  ipipMode: always\n---");
        let cidr = "spec.cidr: \"10.1.0.0/33\" is not an IP address or a CIDR";
        for verb in ["apply", "create", "diff", "apply --dry-run"] {
            let mode = "spec.ipipMode: \"always\" is not one of";
            let overlap = "spec.cidr: 10.1.2.0/24 overlaps 10.1.0.0/16 of the pool p";
            place.give(verb, &overlapping).refused(&["metadata.name: \"Q_1\"", overlap, mode]);
            place.give(verb, &unreadable).refused(&[cidr, mode]);
            let nameless = unreadable.replace("  name: q\n", "  labels: {}\n");
            place.give(verb, &nameless).refused(&["IPPool without a name (given.yaml:1)", mode]);
        }
        place.give("validate", &unreadable).refused(&[cidr]);
        let both = pool("p", "10.1.0.0/16") + &overlapping;
        place.give("validate", &both).refused(&["metadata.name: \"Q_1\"", " overlaps "]);
        let patch = r#"{"spec":{"cidr":"10.1.0.0/33","ipipMode":"always"}}"#;
        place.run(&["patch", "ippool", "p", "-p", patch]).refused(&[cidr, "spec.ipipMode"]);
        let unfit = "spec.blockSize: blockSize must be from 20 to 32 (IPv4) or from 116 to 128";
        let other = "spec.blockSize: blockSize cannot change; make a new pool and move to it";
        for (size, said) in [(40, unfit), (28, other)] {
            let patch =
                patch.replace("\"ipipMode\"", &format!("\"blockSize\":{size},\"ipipMode\""));
            let refused = place.run(&["patch", "ippool", "p", "-p", &patch]);
            refused.refused(&[cidr, "spec.ipipMode", said]);
        }
        let unfit_too = unreadable.replace("spec:\n", "spec:\n  blockSize: 40\n");
        place.give("apply", &unfit_too).refused(&[cidr, unfit]);
    }
}

#[test]
fn what_is_refused_says_what_to_do() {
    let place = Place::embedded();
    place.give("apply", &(pool("p", "10.1.0.0/24") + NODE)).ok();
    place.give("create", &pool("p", "10.1.0.0/24")).refused(&["help: margay apply changes"]);
    place.give("replace", &pool("q", "10.2.0.0/24")).refused(&["help: margay apply makes"]);
    let in_tier = policy("shop", "web", 1).replace("spec:", "spec:\n  tier: nope");
    place.give("apply", &in_tier).refused(&["Tier nope does not exist", "margay get tiers"]);
    let stale = pool("p", "10.1.0.0/24").replace("metadata:", "metadata:\n  resourceVersion: '1'");
    let stale = stale.replace("---", "  natOutgoing: true\n---");
    place.give("replace", &stale).refused(&["help: margay get ippools p -o yaml"]);
    let some = place.margay("get nodes n1 n3").code(2);
    some.says(&["n1"]).complains(&["1 of 2 are not there", "help: margay get nodes"]);
    for words in ["node diags", "node run", "cluster diags"] {
        let done = place.margay(words).refused(&["is not part of this version; Calico's own"]);
        assert!(!done.err.contains("similar"), "{done:?}");
    }
    place.margay("undo foo").refused(&["help: margay history"]);
    place.margay("help field IPPool spec").ok().says(&["IPPool.spec  an object"]);
    place.give("validate", "a:\n\tb: 1\n").refused(&["given.yaml:2", "indented with a tab"]);
    let crd = pool("p", "10.1.0.0/24").replace("projectcalico.org/v3", "crd.projectcalico.org/v1");
    place.give("apply", &crd).refused(&["how Kubernetes keeps the same resources"]);
    place.give("apply", "apiVersion: v1\nkind: Pod\n").refused(&["for kubectl apply"]);
}

#[test]
fn help_does_not_lead_astray() {
    let place = Place::embedded();
    place.give("apply", NODE).ok();
    for words in ["delete tier default --yes", "delete profile projectcalico-default-allow --yes"] {
        let done = place.margay(words).refused(&["built in"]);
        assert!(!done.err.contains("--skip-not-exists"), "{done:?}");
    }
    place.margay("delete node n2 --yes").refused(&["help: --skip-not-exists"]);
    let typo = r#"{"spec":{"bgp":{"asNumbr":1}}}"#;
    let done = place.run(&["patch", "node", "n1", "-p", typo]);
    done.refused(&["did you mean asNumber?", "help: margay help field Node.spec.bgp\n"]);
    let done = place.run(&["label", "node", "n1", "bad.key/x y=1"]);
    done.refused(&["help: margay help field Node.metadata.labels\n"]);
    let nowhere = r#"[{"op":"replace","path":"/spec/no","value":1}]"#;
    let done = place.run(&["patch", "node", "n1", "-t", "json", "-p", nowhere]);
    done.refused(&["help: paths are those of the object: margay get nodes n1 -o json"]);
    for verb in ["validate", "diff"] {
        let done = place.margay(&format!("{verb} nope.yaml")).refused(&["no such file"]);
        assert!(!done.err.contains("written"), "{done:?}");
    }
    place.margay("apply nope.yaml").refused(&["nothing was written"]);
    place.margay("apply").refused(&["help: name files or folders, with or without -f"]);
    place.margay("apply --help").ok().says(&["[FILE]...  A file, a folder, or -"]);
    let done = place.margay("get --foo").refused(&["'--foo'", "help: add --help"]);
    assert!(!done.err.contains("as a value"), "{done:?}");
    place.margay("describe --help").refused(&["help: margay get KIND NAME -o yaml"]);
}

#[test]
fn a_list_as_kubectl_writes_it_is_read() {
    let place = Place::embedded();
    let item = |name: &str| {
        format!(
            "- apiVersion: projectcalico.org/v3\n  kind: NetworkSet\n  metadata:\n    \
             name: {name}\n    namespace: shop\n"
        )
    };
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}{}", item("a"), item("b"));
    place.give("apply", &list).ok().says(&["2 created"]);
    place.give("diff", &list).ok();
    let bad = list.replace("name: b\n", "name: b\n    labls: {}\n");
    place.give("validate", &bad).refused(&["NetworkSet shop/b (given.yaml:9)", "labls"]);
    place.give("validate", "apiVersion: v1\nkind: List\n").refused(&["under items"]);
    let theirs = place.give("calicoctl validate", &list).code(1);
    theirs.complains(&["unknown resource type (List) and/or version (v1)"]);
}

#[test]
fn the_addresses_of_a_large_pool_are_counted_in_full() {
    let place = Place::embedded();
    place.give("apply", &pool("six", "fd00:1::/48")).ok();
    let shown = place.margay("ipam show").ok();
    let row: Vec<&str> = shown.out.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["six", "fd00:1::/48", "1.2e24", "0", "0", "1.2e24"]);
    let all = place.json("ipam show");
    assert_eq!(all[0]["total"], (1_u128 << 80).to_string());
    assert_eq!(all[0]["free"], all[0]["total"]);
    place.margay("calicoctl ipam show").ok().says(&["9.2234e+18"]);
}

#[test]
fn labels_can_be_followed() {
    for place in Place::both() {
        place.give("apply", NODE).ok();
        let words = ["get", "nodes", "-l", "zone=a", "-w"];
        let watch = Running::start(place.command(&words));
        watch.until_complains("no nodes yet");
        let other = NODE.replace("n1", "a-node-with-a-long-name");
        place.give("apply", &other).ok();
        place.margay("label node a-node-with-a-long-name zone=a").ok();
        place.margay("label node n1 zone=a").ok();
        watch.until_says("n1");
        place.margay("label node n1 zone-").ok();
        watch.until_says("Node n1 removed");
        place.margay("delete node n1 --yes").ok();
        place.margay("delete node a-node-with-a-long-name --yes").ok();
        watch.until_says("Node a-node-with-a-long-name removed");
        let removed = ["Node n1 removed", "Node a-node-with-a-long-name removed"];
        let rows = ["NAME", "a-node-with-a-long-name", "n1"];
        assert_eq!(watch.out(), rows.into_iter().chain(removed).collect::<Vec<_>>());
    }
}

#[test]
fn the_headings_of_an_empty_list_wait_for_the_first_row() {
    for place in Place::both() {
        let watch = Running::start(place.command(&["get", "ippools", "-w"]));
        watch.until_complains("no ippools yet");
        place.give("apply", &pool("a-pool-with-a-long-name", "10.1.0.0/24")).ok();
        watch.until_says("a-pool");
        let lines = watch.out();
        assert_eq!(lines[0].find("CIDR"), lines[1].find("10.1.0.0/24"), "{lines:#?}");
    }
}

#[test]
fn a_watch_says_once_that_etcd_is_back() {
    let Some(mut place) = Place::etcd() else { return };
    let watch = Running::start(place.command(&["get", "ippools", "-w", "-o", "json"]));
    watch.until_says("synced");
    place.member().kill();
    watch.until_complains("waiting for ");
    place.member().restart();
    crate::member::wait_until_serving(&place.store());
    watch.until_complains(" answers again");
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    watch.until_says("\"put\"");
    let n_back = watch.err().iter().filter(|line| line.contains("answers again")).count();
    assert_eq!(n_back, 1, "{:#?}", watch.err());
}

#[test]
fn tls_to_an_etcd_without_it_is_named() {
    let Some(mut place) = Place::etcd() else { return };
    let url = place.member().url.clone();
    let mut command = place.command(&["get", "nodes"]);
    command.env("ETCD_ENDPOINTS", url.replace("http://", "https://"));
    let done = Done::from(command.output().unwrap());
    done.refused(&[
        "why: what listens there does not seem to speak TLS",
        &format!("help: ETCD_ENDPOINTS={url}"),
    ]);
}

/// What bash would offer for the pieces into which it cuts a line, the cursor at its end.
fn offered(place: &Place, line: &str, pieces: &[&str]) -> Vec<String> {
    let script = place.path("script.bash");
    std::fs::write(&script, place.margay("completion bash").ok().out).unwrap();
    let last = pieces.last().copied().filter(|piece| *piece != "=").unwrap_or_default();
    let ask = format!(
        "source '{}'; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9; \
         COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _complete_$1 $1 '{last}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    let surroundings = place.command(&[]);
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &ask, "bash"]).args(pieces).stderr(Stdio::inherit());
    bash.env_clear().envs(surroundings.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let out = String::from_utf8(bash.output().unwrap().stdout).unwrap();
    out.lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn bash_completes_values_behind_an_equals_sign() {
    let place = Place::embedded();
    place.give("apply", &(policy("shop", "web", 1) + NODE)).ok();
    let of = |line: &str, pieces: &[&str]| offered(&place, line, pieces);
    let words = ["margay", "get", "nodes", "--output", "=", "y"];
    assert_eq!(of("margay get nodes --output=y", &words), ["yaml"]);
    let words = ["margay", "get", "np", "--namespace", "=", "s"];
    assert_eq!(of("margay get np --namespace=s", &words), ["shop"]);
    let words = ["margay", "ipam", "configure", "--strictaffinity", "=", "t"];
    assert_eq!(of("margay ipam configure --strictaffinity=t", &words), ["true"]);
    let words = ["margay", "get", "nodes", "-o", "custom-columns", "="];
    assert_eq!(of("margay get nodes -o custom-columns=", &words), ["NAME", "ASN", "IPV4", "IPV6"]);
    let words = ["margay", "get", "nodes", "-o", "custom-columns", "=", "NAME,A"];
    assert_eq!(of("margay get nodes -o custom-columns=NAME,A", &words), ["NAME,ASN"]);
    // Apart they stay apart.
    assert_eq!(of("margay get nodes n", &["margay", "get", "nodes", "n"]), ["n1"]);
}

#[test]
fn calicoctl_is_completed_with_what_it_has() {
    let place = Place::embedded();
    place.give("apply", NODE).ok();
    for program in [&["calicoctl"][..], &["margay", "calicoctl"]] {
        let of = |rest: &[&str]| {
            let pieces: Vec<&str> = program.iter().chain(rest).copied().collect();
            offered(&place, &pieces.join(" "), &pieces)
        };
        let verbs = of(&[""]);
        for verb in ["get", "node", "cluster", "datastore"] {
            assert!(verbs.iter().any(|one| one == verb), "{verb} {verbs:?}");
        }
        assert!(!verbs.iter().any(|one| one == "undo" || one == "--store"), "{verbs:?}");
        let flags = of(&["get", "nodes", "--"]);
        for flag in ["--store", "--selector", "--watch", "--version"] {
            assert!(!flags.iter().any(|one| one == flag), "{flag} {flags:?}");
        }
        assert!(flags.iter().any(|one| one == "--export"), "{flags:?}");
        assert_eq!(of(&["get", "nodes", "n"]), ["n1"]);
        assert_eq!(of(&["node", "st"]), ["status"]);
    }
}
