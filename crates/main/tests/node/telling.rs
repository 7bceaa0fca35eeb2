//! What the packet filter counts and records is as the agent was told.

use crate::node::{Node, may_run, until};

/// The rules of our table, and what `margay drops` says, with such an agent.
fn seen(node: &mut Node, more: &[&str]) -> (String, String) {
    node.start_agent_with(more);
    let run = node.path("run");
    let words = ["drops", "--run-dir", run.to_str().unwrap()];
    let drops = || node.inside("host", env!("CARGO_BIN_EXE_margay"), &words).output().unwrap();
    // Who answers has brought the kernel up to date; the socket may be one that was left.
    until("the agent answers", || drops().status.success());
    let drops = drops();
    let listed = node.inside("host", "nft", &["list", "table", "inet", "margay"]).output().unwrap();
    node.kill_agent(true);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&listed.stdout), text(&drops.stderr))
}

#[test]
fn counters_and_records_of_denied_packets_are_a_choice() {
    if !may_run() {
        return;
    }
    let mut node = Node::new(1);
    node.start_agent();
    node.must("ADD", "pod1", 0);
    node.kill_agent(true);
    let n_counted = |text: &str| text.lines().filter(|it| it.contains(" counter ")).count();
    let (usual, drops) = seen(&mut node, &[]);
    assert!(n_counted(&usual) > 0 && usual.contains("log "), "{usual}");
    assert!(drops.contains("no denied packets on n1"), "{drops}");
    let (all, _) = seen(&mut node, &["--counters", "all"]);
    assert!(n_counted(&all) > n_counted(&usual), "{all}");
    let (none, drops) = seen(&mut node, &["--counters", "none", "--no-drops"]);
    assert!(n_counted(&none) == 0 && !none.contains("log "), "{none}");
    assert!(drops.contains("was started with --no-drops"), "{drops}");
}
