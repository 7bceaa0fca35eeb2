//! How far the nodes have come with policies: what agents tell in the datastore, as users see it.

use std::collections::BTreeMap;

use store::realised::Realised;

use crate::harness::{Place, Running, policy};

const KEY: &str = "/calico/resources/v3/projectcalico.org/networkpolicies/shop/web";

/// Two nodes that tell, one that does not, and a policy.
fn cluster(place: &Place) -> i64 {
    for name in ["n1", "n2", "n3"] {
        let node =
            format!("apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {{name: {name}}}\n");
        place.give("apply", &node).ok();
    }
    place.give("apply", &policy("shop", "web", 10)).ok();
    let entry = place.store().get(KEY).unwrap().0;
    let revision = entry.unwrap_or_else(|| panic!("{:?}", place.dump())).mod_revision;
    tell(place, "n1", revision);
    revision
}

fn tell(place: &Place, node: &str, revision: i64) {
    let told = Realised { revision, ..Realised::default() };
    told.publish(&place.store(), node).unwrap();
}

#[test]
fn a_wait_ends_when_the_last_node_tells() {
    for place in Place::both() {
        let revision = cluster(&place);
        tell(&place, "n2", revision - 1);
        let words = ["wait", "--for=realised", "policy/web", "-n", "shop", "--timeout", "5m"];
        let wait = Running::start(place.command(&words));
        // One who tells and is no node of this datastore is not waited for.
        tell(&place, "removed", 1);
        tell(&place, "n2", revision);
        wait.until_says("NetworkPolicy shop/web is realised on 2/2 nodes (revision ");
        wait.until_complains("note: n3 never told");
    }
}

#[test]
fn a_wait_that_runs_out_names_the_nodes_and_why() {
    let place = Place::embedded();
    let revision = cluster(&place);
    tell(&place, "n2", 1);
    let late = place.margay("wait policy/shop/web --timeout 100ms").code(1);
    assert_eq!(late.out, "", "{late:?}");
    let late = late.complains(&["error: NetworkPolicy shop/web is not realised on all nodes"]);
    let late = late.complains(&["\n  n2: behind at revision 1\n", "\n  n3: never told"]);
    late.complains(&[&format!(": 1/2 at revision {revision}\n")]);
    let refused = BTreeMap::from([(KEY.to_owned(), "too many ports".to_owned())]);
    Realised { revision, refused, ..Realised::default() }.publish(&place.store(), "n2").unwrap();
    let refused = place.margay("wait policy web -n shop --timeout 0s").code(1);
    refused.complains(&["\n  n2: refused NetworkPolicy shop/web: too many ports\n"]);
    let answer = place.margay("wait --timeout 0 -o json").code(1);
    let answer: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(answer["isRealised"], false);
    assert_eq!(answer["revision"], revision);
    assert_eq!(
        answer["nodes"]["n1"],
        serde_json::json!({"isRealised": true, "revision": revision})
    );
    assert_eq!(answer["nodes"]["n3"]["revision"], serde_json::Value::Null);
}

#[test]
fn a_wait_for_nothing_or_for_what_nobody_tells_of_is_no_wait() {
    let place = Place::embedded();
    place.margay("wait --timeout 5m").code(0).complains(&["there are no policies to wait for"]);
    cluster(&place);
    place.margay("wait node/n1").refused(&["nodes do not tell whether a Node is realised"]);
    place.margay("wait np/other -n shop").refused(&["other"]);
    place.margay("wait --for=ready np/web").refused(&["ready", "realised"]);
    place.margay("wait --timeout soon").refused(&["soon", "500ms, 5s or 2m"]);
    tell(&place, "n2", 1_000_000);
    tell(&place, "n1", 1_000_000);
    place.margay("wait").code(0).says(&["✓ NetworkPolicy shop/web is realised on 2/2 "]);
    place.give("apply --no-wait", &policy("shop", "other", 1)).ok();
    place
        .margay("wait networkpolicies")
        .code(0)
        .says(&["✓ 2 networkpolicies are realised on 2/2 "]);
}

#[test]
fn a_wait_for_all_waits_for_removals_and_a_policy_may_be_global() {
    let place = Place::embedded();
    let revision = cluster(&place);
    tell(&place, "n2", revision);
    place.margay("wait").code(0);
    // n1 has heard of a removal, n2 has not.
    place.margay("delete np web -n shop --yes").ok();
    tell(&place, "n1", revision + 1);
    let late = place.margay("wait --timeout 50ms").code(1);
    late.complains(&[
        "all policies are not realised",
        &format!("n2: behind at revision {revision}"),
    ]);
    tell(&place, "n2", revision + 1);
    place.margay("wait").code(0).says(&["✓ all policies are realised on 2/2 nodes"]);

    let global = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\n\
                  metadata: {name: closed}\nspec: {selector: all()}\n";
    place.give("apply --no-wait", global).ok();
    let late = place.margay("wait policy/closed --timeout 50ms").code(1);
    late.complains(&["GlobalNetworkPolicy closed is not realised"]);
    place.margay("wait policy/nobody").refused(&["NetworkPolicy default/nobody does not exist"]);
    let hint = "note: 1 more policy is global: margay get gnp -o wide";
    place.margay("get policy -A -o wide").code(0).complains(&[hint]);
    let theirs = place.margay("calicoctl get policy -A -o wide").ok();
    assert!(!theirs.err.contains("global"), "{theirs:?}");
    let undone = place.margay("undo").ok();
    undone.says(&["taken back: GlobalNetworkPolicy closed   (realised on 0/2 nodes after "]);
}

#[test]
fn a_wide_table_of_policies_counts_the_nodes_that_have_each() {
    let place = Place::embedded();
    let revision = cluster(&place);
    let calicoctl = |words: &str| place.margay(&format!("calicoctl {words}")).ok().out;
    let before = calicoctl("get np -A -o wide");
    tell(&place, "n2", revision - 1);
    let words = ["get np -A -o wide", "get np web -n shop -o wide"];
    for words in words {
        let table = place.margay(words).ok();
        let lines: Vec<&str> = table.out.lines().collect();
        assert!(lines[0].ends_with("  REALISED"), "{table:?}");
        assert!(lines[1].trim_end().ends_with("  1/2"), "{table:?}");
    }
    assert!(!place.margay("get np -A").ok().out.contains("REALISED"));
    assert!(!place.margay("get nodes -o wide").ok().out.contains("REALISED"));
    assert_eq!(calicoctl("get np -A -o wide"), before, "calicoctl's columns are Calico's");
}

#[test]
fn a_write_says_how_far_the_nodes_are_where_any_tells() {
    let place = Place::embedded();
    let quiet = place.give("apply", &policy("shop", "first", 1)).ok();
    assert!(!quiet.out.contains("realised"), "{quiet:?}");
    cluster(&place);
    tell(&place, "n1", 1_000_000);
    let said = place.give("apply", &policy("shop", "web", 20)).ok();
    let said = said.says(&["✓ 1 changed   (revision ", "; realised on 1/1 nodes in "]);
    assert_eq!(said.out.lines().count(), 2, "{said:?}");
    let unchanged = place.give("apply", &policy("shop", "web", 20)).ok();
    assert!(!unchanged.out.contains("realised"), "nothing is waited for: {unchanged:?}");
    tell(&place, "n1", 1);
    let late = place.give("apply", &policy("shop", "web", 30)).ok();
    late.says(&["; realised on 0/1 nodes after "]);
    let hasty = place.give("apply --no-wait", &policy("shop", "web", 40)).ok();
    assert!(!hasty.out.contains("realised"), "{hasty:?}");
    let structured = place.give("apply -o json", &policy("shop", "web", 50)).ok();
    assert!(!structured.out.contains("realised"), "{structured:?}");
    tell(&place, "n1", 1_000_000);
    let gone = place.margay("delete np web -n shop --yes").ok();
    gone.says(&["✓ 1 removed   (realised on 1/1 nodes in "]);
}
