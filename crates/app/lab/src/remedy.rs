//! What an agent says puts things right, as it is typed outside of the agent's node.
//!
//! An agent speaks to somebody on its node: `margay reconcile`, which there talks to that node's
//! agent. On the machine that the lab runs on it would be about another datastore, or none.

use crate::lab::flag;

/// Programs that agents tell people to run; whatever else a fix begins with is a sentence.
const PROGRAMS: [&str; 4] = ["margay", "ip", "ss", "rm"];
/// What stands between a command and a remark about it, which a shell passes over.
const GAP: &str = "      ";

/// A fix of the agent of a node, for people who are not on the node.
pub(crate) fn from_outside(fix: &str, node: &str, lab: &str) -> String {
    let (command, remark) = match fix.split_once(GAP) {
        Some((command, remark)) => (command, format!("{GAP}{remark}")),
        None => (fix, String::new()),
    };
    if !command.split(' ').next().is_some_and(|word| PROGRAMS.contains(&word)) {
        return fix.to_owned();
    }
    let flag = flag(lab);
    // What a shell would take for itself has to reach the node's.
    let is_plain = command.chars().all(|c| c.is_ascii_alphanumeric() || " -_./:=,@%+".contains(c));
    match is_plain {
        true => format!("margay lab exec{flag} {node} -- {command}{remark}"),
        false => {
            let quoted = text::words::shell(command);
            format!("margay lab exec{flag} {node} -- sh -c {quoted}{remark}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::from_outside;

    #[test]
    fn commands_are_run_on_the_node_and_sentences_stay() {
        let of = |fix| from_outside(fix, "n1", "x");
        let shown = of("ip route show 10.0.0.0/26      # remove it if it is not wanted");
        assert_eq!(
            shown,
            "margay lab exec --name x n1 -- ip route show 10.0.0.0/26      # remove it if it is \
             not wanted"
        );
        let shown = from_outside("margay get nodes", "n2", "default");
        assert_eq!(shown, "margay lab exec n2 -- margay get nodes");
        let sentence = "delete the pod; its runtime makes it anew";
        assert_eq!(of(sentence), sentence);
    }

    #[test]
    fn what_needs_a_shell_gets_the_nodes() {
        let of = |fix| from_outside(fix, "n1", "default");
        let shown = of("margay get wep -A; margay ipam show      # delete what has it");
        let wanted = "margay lab exec n1 -- sh -c 'margay get wep -A; margay ipam show'      \
                      # delete what has it";
        assert_eq!(shown, wanted);
        assert_eq!(of("rm a'b"), r"margay lab exec n1 -- sh -c 'rm a'\''b'");
    }
}
