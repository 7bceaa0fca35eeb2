//! What nobody told us to remove: containers that died in silence, and endpoints without a sandbox.

use std::process::Command;

use crate::node::{Node, may_run, until};

const ENDPOINTS: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/";

fn is_stored(node: &Node, id: &str) -> bool {
    let handle = format!("net1.{id}");
    let endpoints = node.stored(ENDPOINTS);
    let has_endpoint = endpoints.iter().any(|(_, it)| it["spec"]["containerID"] == id);
    has_endpoint || node.allocated().iter().any(|(_, held)| *held == handle)
}

fn events(node: &Node) -> String {
    let state = node.path("state").display().to_string();
    let told = node.margay(&["events", "--state-dir", &state]).output().unwrap();
    String::from_utf8(told.stdout).unwrap()
}

#[test]
fn what_no_witness_confirms_goes_and_nothing_else() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(4);
    node.start_agent();
    for (container, id) in ["kept", "cut-off", "dead", "ghost"].into_iter().enumerate() {
        node.must("ADD", id, container);
    }
    node.kill_agent(true);
    // One dies, and nobody calls DEL; its interface goes with its namespace.
    let gone = node.netns("c2");
    let unmounted = Command::new("umount").arg("-l").arg(&gone).status().unwrap();
    assert!(unmounted.success());
    std::fs::remove_file(&gone).unwrap();
    // One lost its interface but lives; of one nothing is left but its records.
    for id in ["cut-off", "ghost"] {
        node.ip(&["link", "del", &format!("cali{id}")]);
    }
    let files = std::fs::read_dir(node.path("state/sandboxes")).unwrap();
    let of_ghost = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path).is_ok_and(|text| text.contains("\"ghost\""))
    };
    let file = files.map(|file| file.unwrap().path()).find(of_ghost).unwrap();
    std::fs::remove_file(file).unwrap();

    node.start_agent_with(&["--join-every", "1"]);
    until("the dead one and the ghost are gone", || {
        !is_stored(&node, "dead") && !is_stored(&node, "ghost")
    });
    assert!(is_stored(&node, "kept") && is_stored(&node, "cut-off"));
    node.must("CHECK", "kept", 0);
    assert_eq!(node.journal().len(), 2);
    let events = events(&node);
    assert!(events.contains("nobody called DEL"), "{events}");
    assert!(events.contains("calighost is not there"), "{events}");
    // Whoever calls late does no harm.
    node.must("DEL", "ghost", 3);
    node.must("DEL", "dead", 3);
    node.must("CHECK", "kept", 0);
    node.must("DEL", "cut-off", 1);
    node.must("DEL", "kept", 0);
    node.assert_empty();
}
