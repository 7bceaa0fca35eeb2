//! Every verb that changes something, on both stores.

use crate::harness::{Place, policy, pool};

#[test]
fn apply_says_what_was_created_changed_and_left_alone() {
    for place in Place::both() {
        let two = policy("shop", "web", 1) + &policy("shop", "db", 2);
        let first = place.give("apply", &two).ok();
        assert!(first.out.starts_with("✓ 2 created   (revision "), "{first:?}");
        assert!(first.out.ends_with(")\nundo: margay undo 1\n"), "{first:?}");

        let mixed = policy("shop", "web", 1) + &policy("shop", "db", 3) + &pool("p", "10.1.0.0/24");
        let second = place.give("apply", &mixed).ok();
        assert!(second.out.starts_with("✓ 1 created, 1 changed, 1 unchanged "), "{second:?}");

        let third = place.give("apply", &mixed).ok();
        assert!(third.out.starts_with("✓ 3 unchanged"), "{third:?}");
        assert!(!third.out.contains("undo"), "nothing to take back: {third:?}");
    }
}

#[test]
fn a_refused_first_write_leaves_an_empty_store_empty() {
    for place in Place::both() {
        let bad = pool("p", "10.1.0.0/24") + &pool("q", "10.1.0.1/99");
        place.give("apply", &bad).refused(&["nothing was written", "spec.cidr"]);
        let left = place.store().list("/").unwrap();
        assert_eq!((left.entries.len(), left.revision), (0, 1));
    }
}

#[test]
fn create_wants_what_is_not_there_and_replace_what_is() {
    for place in Place::both() {
        place.give("replace", &policy("shop", "web", 1)).refused(&[
            "nothing was written",
            "NetworkPolicy shop/web",
            "does not exist",
        ]);
        place.give("create", &policy("shop", "web", 1)).ok().says(&["✓ 1 created"]);
        let both = policy("shop", "new", 1) + &policy("shop", "web", 9);
        place.give("create", &both).refused(&[
            "nothing was written, 1 good object was left alone too",
            "  NetworkPolicy shop/web exists already  (given.yaml:10)",
        ]);
        place.margay("get np new -n shop").refused(&["new"]);
        place.give("create --skip-exists", &both).ok().says(&["1 created", "1 skipped"]);
        assert_eq!(place.json("get np web -n shop")["spec"]["order"], 1);
        place.give("replace", &policy("shop", "web", 9)).ok().says(&["✓ 1 changed"]);
        assert_eq!(place.json("get np web -n shop")["spec"]["order"], 9);
    }
}

#[test]
fn the_three_patches_change_only_what_they_name() {
    for place in Place::both() {
        place.give("apply", &(policy("shop", "web", 1) + &pool("p", "10.1.0.0/24"))).ok();
        let patches = [
            ("strategic", "ippool p", r#"{"spec":{"natOutgoing":true}}"#),
            ("merge", "np web -n shop", r#"{"spec":{"order":7,"selector":null}}"#),
            ("json", "ippool p", r#"[{"op":"replace","path":"/spec/ipipMode","value":"Always"}]"#),
        ];
        for (kind, target, patch) in patches {
            let mut words = vec!["patch", "-t", kind, "-p", patch];
            words.extend(target.split(' '));
            place.run(&words).ok().says(&["✓ 1 changed", "undo: margay undo "]);
        }
        let pool = place.json("get ippool p");
        assert_eq!(pool["spec"]["natOutgoing"], true);
        assert_eq!(pool["spec"]["ipipMode"], "Always");
        assert_eq!(pool["spec"]["cidr"], "10.1.0.0/24");
        let policy = place.json("get np web -n shop");
        assert_eq!((&policy["spec"]["order"], policy["spec"].get("selector")), (&7.into(), None));

        let bad = ["patch", "ippool", "p", "-p", r#"{"spec":{"cidr":"10.1.0.0/244"}}"#];
        place.run(&bad).refused(&["IPPool p", "nothing was written", "spec.cidr"]);
        let unknown = ["patch", "ippool", "p", "-p", r#"{"spec":{"natOutgoin":true}}"#];
        place.run(&unknown).refused(&["spec.natOutgoin", "natOutgoing"]);
        place.run(&["patch", "ippool", "q", "-p", "{}"]).refused(&["IPPool q", "does not exist"]);
        place.run(&["patch", "ippool", "p", "-p", "{"]).refused(&["the patch cannot be read"]);
        assert_eq!(place.json("get ippool p"), pool);
    }
}

#[test]
fn a_label_is_added_kept_overwritten_and_removed() {
    for place in Place::both() {
        place.give("apply", &pool("p", "10.1.0.0/24")).ok();
        place.margay("label ippool p zone=a").ok().says(&["✓ 1 changed"]);
        place.margay("label ippool p zone=a").ok().says(&["✓ 1 unchanged"]);
        place.margay("label ippool p zone=b").refused(&["zone=a", "help: --overwrite"]);
        place.margay("label ippool p zone=b --overwrite").ok();
        assert_eq!(place.json("get ippool p")["metadata"]["labels"]["zone"], "b");
        place.margay("label ippool p zone --remove").ok();
        assert_eq!(place.json("get ippool p")["metadata"].get("labels"), None);
        place.margay("label ippool p zone --remove").refused(&["IPPool p", "zone"]);
        place.margay("label ippool p nonsense").refused(&["\"nonsense\"", "key=value"]);
    }
}

#[test]
fn delete_asks_or_wants_a_yes() {
    for place in Place::both() {
        place.give("apply", &(policy("shop", "web", 1) + &policy("shop", "db", 2))).ok();
        let asked = place.margay("delete np web -n shop");
        asked.refused(&["nothing was removed", "NetworkPolicy shop/web", "help: add --yes"]);
        place.margay("delete np absent -n shop --yes").refused(&["nothing was removed"]);
        let mixed = place.margay("delete np web absent -n shop --yes");
        mixed.refused(&["nothing was removed, 1 good object was left alone too", "shop/absent"]);
        let gone = place.margay("delete np db web absent -n shop --yes --skip-not-exists");
        gone.ok().says(&["removed", "skipped", "undo: margay undo "]);
        place.margay("get np -n shop").code(0).complains(&["no networkpolicies in namespace shop"]);
        place.give("delete --yes --skip-not-exists", &policy("shop", "web", 1)).ok();
    }
}

#[test]
fn several_bad_documents_are_refused_at_once_and_nothing_is_written() {
    for place in Place::both() {
        let bad = policy("shop", "web", 1).replace("selector: app", "selectr: app")
            + &pool("p", "10.0.0.0/99")
            + &pool("good", "10.2.0.0/24");
        place.give("apply", &bad).refused(&[
            "nothing was written",
            "NetworkPolicy shop/web (given.yaml:1) is not valid",
            "spec.selectr: unknown field; did you mean selector?  (given.yaml:8)",
            "IPPool p (given.yaml:10) is not valid",
            "spec.cidr: \"10.0.0.0/99\" is not",
        ]);
        let invalid = bad.replace("selectr: app", "selector: app");
        let refused = place.give("apply", &invalid);
        refused.refused(&["IPPool p (given.yaml:10)", "spec.cidr", "given.yaml:15"]);
        place.margay("get ippool").code(0).complains(&["no ippools"]);
        place.give("validate", &bad).refused(&["spec.selectr"]);
        place.give("validate", &invalid).refused(&["1 of 3 documents is not valid", "spec.cidr"]);
        let good = place.give("validate", &pool("good", "10.2.0.0/24")).ok();
        assert_eq!(good.out, "✓ 1 document is valid\n");
    }
}

#[test]
fn diff_shows_what_apply_would_do_and_says_it_by_its_exit_code() {
    for place in Place::both() {
        let first = place.give("diff", &policy("shop", "web", 1)).code(1);
        first.says(&["NetworkPolicy shop/web would be created"]);
        assert_eq!(place.dump(), [], "diff writes nothing");
        place.give("apply", &policy("shop", "web", 1)).ok();
        assert_eq!(place.give("diff", &policy("shop", "web", 1)).ok().out, "");
        let changed = place.give("diff", &policy("shop", "web", 5)).code(1);
        let changed = changed.says(&["shop/web would change", "-   order: 1", "+   order: 5"]);
        assert_eq!(changed.err, "");
        let added = place.give("diff", &policy("shop", "db", 5)).code(1);
        added.says(&["NetworkPolicy shop/db would be created", "+   order: 5"]);
        place.give("diff", &pool("p", "10.0.0.0/99")).refused(&["spec.cidr"]);
        assert_eq!(place.json("get np web -n shop")["spec"]["order"], 1, "diff writes nothing");
    }
}

#[test]
fn folders_and_standard_input_are_read() {
    let place = Place::embedded();
    place.file("all/one.yaml", &pool("a", "10.1.0.0/24"));
    place.file("all/below/two.yaml", &pool("b", "10.2.0.0/24"));
    place.margay("apply -f all").ok().says(&["✓ 1 created"]);
    place.margay("apply -f all -R").ok().says(&["✓ 1 created, 1 unchanged"]);
    place.file("input", &pool("c", "10.3.0.0/24"));
    let mut command = place.command(&["apply", "-f", "-"]);
    command.stdin(std::fs::File::open(place.path("input")).unwrap());
    crate::harness::Done::from(command.output().unwrap()).ok().says(&["✓ 1 created"]);
    place.margay("apply -f nowhere.yaml").refused(&["nowhere.yaml"]);
}

#[test]
fn ipam_settings_and_usage_are_shown_and_set() {
    for place in Place::both() {
        place.give("apply", &pool("p", "10.1.0.0/24")).ok();
        let pools = place.json("ipam show");
        assert_eq!((&pools[0]["pool"], &pools[0]["total"]), (&"p".into(), &"256".into()));
        place.margay("ipam show").ok().says(&["POOL", "10.1.0.0/24", "256"]);
        place.margay("ipam show --ip 10.1.0.7").ok().says(&["10.1.0.7 is not assigned"]);
        place.margay("ipam show --ip 10.1.0.777").refused(&["\"10.1.0.777\" is not an IP address"]);
        place
            .margay("ipam configure --strictaffinity=true")
            .ok()
            .says(&["strict affinity", "true"]);
        place.margay("ipam configure --max-blocks-per-host=3").ok();
        let settings = place.margay("ipam show --show-configuration").ok();
        settings.says(&["strict affinity", "true", "blocks per node", "3"]);
        place.margay("ipam configure").refused(&["nothing to set"]);
    }
}

#[test]
fn what_cannot_be_changed_can_be_given_as_it_is() {
    for place in Place::both() {
        place.give("apply", &policy("shop", "web", 1)).ok();
        for kind in ["profile", "clusterinformation"] {
            for export in ["", "--export"] {
                let shown = place.margay(&format!("get {kind} -o yaml {export}")).ok().out;
                place.give("apply", &shown).ok().says(&["✓ 1 unchanged"]);
                place.give("replace", &shown).ok().says(&["✓ 1 unchanged"]);
            }
        }
        let shown = place.margay("get profile -o yaml").ok().out;
        let changed = shown.replacen("action: Allow", "action: Deny", 1);
        place.give("apply", &changed).refused(&["it is built in and cannot be changed"]);
        let shown = place.margay("get clusterinformation -o yaml").ok().out;
        let changed = shown.replace("datastoreReady: true", "datastoreReady: false");
        place.give("apply", &changed).refused(&["kept by the nodes and cannot be changed"]);
    }
}

#[test]
fn validate_sees_pools_of_one_file_that_overlap() {
    let place = Place::embedded();
    let file = pool("p", "10.1.0.0/24") + &pool("q", "10.1.0.0/16") + &pool("r", "10.2.0.0/16");
    let refused = place.give("validate", &file);
    refused.refused(&["1 of 3 documents is not valid", "IPPool q", "spec.cidr", "overlaps"]);
    let again = pool("p", "10.1.0.0/24") + &pool("p", "10.1.0.0/24");
    place.give("validate", &again).ok();
    assert!(!place.path("store.db").exists());
}

/// A block with one address in use by a node.
fn block(cidr: &str, node: &str) -> String {
    format!(
        r#"{{"cidr":"{cidr}","affinity":null,"allocations":[0,null],"unallocated":[1],
        "attributes":[{{"handle_id":"h","secondary":{{"node":"{node}"}}}}],"deleted":false}}"#
    )
}

#[test]
fn a_node_that_goes_half_way_says_what_went() {
    for place in Place::both() {
        let node = "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata:\n  name: n1\n\
                    spec:\n  ipv4VXLANTunnelAddr: 10.1.0.0\n  bgp:\n    \
                    ipv4IPIPTunnelAddr: 10.2.0.0\n    ipv4Address: 192.0.2.1/24\n";
        place.give("apply", node).ok();
        place.put("/calico/ipam/v2/assignment/ipv4/block/10.1.0.0-31", &block("10.1.0.0/31", "n1"));
        place.put("/calico/ipam/v2/assignment/ipv4/block/10.2.0.0-31", "no block");
        let refused = place.margay("delete node n1 --yes").refused(&[
            "error: only a part was removed\n",
            "Node n1 is still there: ",
            "10.2.0.0-31",
            "done before that: 10.1.0.0 was released",
        ]);
        assert!(!refused.err.contains("nothing was removed"), "{refused:?}");
        place.put("/calico/ipam/v2/assignment/ipv4/block/10.1.0.0-31", &block("10.1.0.0/31", "n1"));
        let theirs = place.run(&["calicoctl", "delete", "node", "n1"]).code(1);
        let said = theirs.out + &theirs.err;
        assert!(
            said.contains("Node(n1) was not deleted, but before that: 10.1.0.0 was released"),
            "{said}"
        );
        place.margay("get node n1").ok();
    }
}
