//! Without root: inside a user namespace that owns its networks and mounts.

use std::process::Command;

/// Runs one test of this program again, inside a user namespace of its own.
fn again_inside(test: &str) -> Option<std::process::Output> {
    let program = std::env::current_exe().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "--net"]);
    unshare.arg(&program).args(["--exact", test, "--nocapture"]);
    let probe = Command::new("unshare").args(["--user", "--map-root-user", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system allows no user namespaces");
        return None;
    }
    Some(unshare.output().unwrap())
}

#[test]
fn everything_works_inside_a_user_namespace() {
    for test in [
        "namespaces::a_named_namespace_is_made_once_and_removed_for_good",
        "namespaces::settings_belong_to_the_namespace",
        "links::a_veth_is_born_with_its_peer_in_the_pod",
        "routes::ten_thousand_routes_are_one_call_with_a_result_each",
        "ruleset::sets_are_what_nft_shows_and_what_is_read_back",
        "traffic::forged_arp_is_dropped_by_one_arp_table_for_all_interfaces",
        "connections::the_connections_of_an_address_are_forgotten_and_no_others",
    ] {
        let Some(output) = again_inside(test) else { return };
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        assert!(!text.contains("skipped:"), "{text}");
    }
}
