//! What is shown, in every form: `get`, help, versions, completion.

use serde_json::{Value, json};

use crate::harness::{Done, Place, policy, pool};

fn shop(place: &Place) {
    let all = policy("shop", "web", 1) + &policy("shop", "db", 2) + &policy("prod", "web", 3);
    place.give("apply", &(all + &pool("p", "10.1.0.0/24"))).ok();
}

#[test]
fn tables_show_the_namespace_asked_for_or_all() {
    for place in Place::both() {
        shop(&place);
        let one = place.margay("get np -n shop").ok();
        assert_eq!(one.out.lines().count(), 3, "{one:?}");
        let all = place.margay("get networkpolicies -A").ok().says(&["NAMESPACE", "prod", "shop"]);
        assert_eq!(all.out.lines().count(), 4, "{all:?}");
        let wide = place.margay("get np -A -o wide").ok();
        wide.says(&["ORDER", "SELECTOR", "app == \"web\""]);
        place.margay("get np").code(0).complains(&["no networkpolicies in namespace default"]);
        let named = place.margay("get np web db -n shop").ok();
        assert_eq!(named.out.lines().count(), 3, "{named:?}");
        let partly = place.margay("get np web absent -n shop").code(2);
        partly.says(&["web"]).complains(&["error: 1 of 2 are not there", "shop/absent"]);
        let columns = place.margay("get ippool -o custom-columns=NAME,CIDR").ok();
        assert_eq!(columns.out, "NAME  CIDR\np     10.1.0.0/24\n");
        place.margay("get ippool -o custom-columns=NAM").refused(&["NAM"]);
        place.margay("get np -o nonsense").refused(&["nonsense", "help: -o ps, wide"]);
        place.margay("get nod").refused(&["there is no kind \"nod\"", "did you mean"]);
    }
}

#[test]
fn documents_are_shown_as_yaml_json_and_by_templates() {
    for place in Place::both() {
        shop(&place);
        let pool = place.json("get ippool p");
        assert_eq!(pool["kind"], "IPPool");
        let list = place.json("get np -A");
        assert_eq!(
            (&list["kind"], list["items"].as_array().unwrap().len()),
            (&json!("NetworkPolicyList"), 3)
        );
        place
            .margay("get ippool p -o yaml")
            .ok()
            .says(&["kind: IPPool\n", "  cidr: 10.1.0.0/24\n"]);
        let template = "{{range .}}{{range .Items}}{{.ObjectMeta.Name}} {{end}}{{end}}";
        let shown = place.run(&["get", "np", "-A", "-o", &format!("go-template={template}")]).ok();
        assert_eq!(shown.out, "web db web ");
        place.file("template", template);
        let from_file = place.margay("get np -A -o go-template-file=template").ok();
        assert_eq!(from_file.out, shown.out);
        place.file("names.yaml", &(policy("shop", "db", 0) + &policy("prod", "web", 0)));
        let named = place.margay("get -f names.yaml -o wide").ok();
        assert_eq!(named.out.lines().count(), 3, "{named:?}");
    }
}

#[test]
fn what_is_exported_makes_the_same_object_elsewhere() {
    for place in Place::both() {
        shop(&place);
        place.margay("label ippool p zone=a").ok();
        let elsewhere = Place::embedded();
        for what in ["ippool p", "np -A", "np web -n shop"] {
            let exported = place.margay(&format!("get {what} -o yaml --export")).ok();
            for own in ["uid:", "creationTimestamp: \"2"] {
                assert!(!exported.out.contains(own), "{exported:?}");
            }
            elsewhere.give("apply", &exported.out).ok();
            let of = |place: &Place| {
                let mut shown = place.json(&format!("get {what} --export"));
                // The revision of a list is that of the store it was read from.
                if shown.get("items").is_some() {
                    shown["metadata"] = Value::Null;
                }
                shown
            };
            assert_eq!(of(&elsewhere), of(&place));
        }
    }
}

#[test]
fn fields_are_explained() {
    let place = Place::embedded();
    let field = place.margay("help field HostEndpoint.spec.expectedIPs").ok();
    field.says(&["HostEndpoint.spec.expectedIPs", "a list", "an IP address"]);
    place.margay("help field ippool").ok().says(&["IPPool", "spec"]);
    place.margay("help field ippool.spec.cidr").ok().says(&["required"]);
    place.margay("help field ippool.spec.cdr").refused(&["did you mean cidr?"]);
    place.margay("help field").refused(&["which field?"]);
    place.margay("help apply").ok().says(&["Examples:", "margay apply -f"]);
    place.margay("help nothing").refused(&["there is no command nothing"]);
}

#[test]
fn versions_are_those_of_the_program_and_of_the_cluster() {
    for place in Place::both() {
        place.margay("version --client").ok().says(&["margay   ", "Calico v3."]);
        place.margay("version").ok().says(&["nothing was ever written"]);
        shop(&place);
        let versions = place.json("version");
        assert_eq!(versions["cluster"]["datastoreReady"], true);
        place.margay("version").ok().says(&["cluster  v3.", "guid "]);
    }
}

#[test]
fn the_bare_command_says_which_store_and_why_and_leaves_no_trace() {
    let place = Place::embedded();
    let bare = place.margay("").ok();
    bare.says(&["store.db  (MARGAY_STORE=", "made by the first write", "margay help"]);
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0);
}

#[test]
fn wrong_words_are_refused_with_two_and_help_is_an_answer() {
    let place = Place::embedded();
    for words in ["gett np", "get", "get np -A -n shop", "apply", "delete np x --nonsense"] {
        let done = place.margay(words).code(2);
        assert!(done.out.is_empty() && done.err.starts_with("error: "), "{done:?}");
    }
    for words in ["--help", "get --help", "--version", "help"] {
        place.margay(words).ok();
    }
}

#[test]
fn every_error_comes_with_the_next_step() {
    let place = Place::embedded();
    place.file("bad.yaml", &pool("q", "nonsense"));
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    for words in [
        "get nonsense",
        "get ippool absent",
        "get ippool -o nonsense",
        "get ippool -w -o nonsense",
        "get ippool -o custom-columns=NONSENSE",
        "get ippool p -o custom-columns=NONSENSE",
        "get ippool -o go-template={{",
        "get ippool -l a=b=c",
        "apply",
        "apply -f bad.yaml",
        "validate -f bad.yaml",
        "diff -f bad.yaml",
        "apply --dry-run -f bad.yaml",
        "patch ippool p -p {",
        "patch ippool p -p {spec:{cidr:nonsense}}",
        "patch ippool p -t json -p {}",
        "label ippool p nonsense",
        "label ippool absent a=b",
        "delete ippool",
        "delete ippool absent",
        "delete ippool p",
        "undo 99",
        "ipam configure",
        "ipam show --ip nonsense",
        "help field",
        "help field IPPool.nonsense",
        "help nonsense",
        "nonsense",
        "completion nonsense",
    ] {
        let done = place.margay(words).refused(&["\nhelp: "]);
        assert!(!done.err.contains("\n\n"), "{done:?}");
    }
    place.margay("get np").code(0).complains(&["-A shows those of all"]);
    let empty = Place::embedded();
    empty.margay("ipam show").code(0).complains(&["no pools; margay help field IPPool.spec"]);
    empty.margay("history").code(0).complains(&["no writes yet; "]);
}

/// Asks as bash does: the words of the line behind `--`, and which of them is being typed.
fn candidates(place: &Place, line: &[&str]) -> Vec<String> {
    let words: Vec<&str> = std::iter::once("--").chain(line.iter().copied()).collect();
    let mut command = place.command(&words);
    command.env("COMPLETE", "bash").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_COMP_TYPE", "9");
    command.env("_CLAP_COMPLETE_INDEX", (line.len() - 1).to_string());
    command.env("MARGAY_LAB_DIR", place.path("labs"));
    let done = Done::from(command.output().unwrap()).ok();
    done.out.lines().map(str::to_owned).collect()
}

#[test]
fn completion_knows_verbs_kinds_and_the_names_in_the_store() {
    for place in Place::both() {
        shop(&place);
        let script = place.margay("completion bash").ok();
        assert!(script.out.contains("COMPLETE=\"bash\"") && script.out.contains("complete "));
        for shell in ["zsh", "fish", "elvish"] {
            assert!(place.margay(&format!("completion {shell}")).ok().out.contains("margay"));
        }
        assert!(candidates(&place, &["margay", "ap"]).contains(&"apply".to_owned()));
        let kinds = candidates(&place, &["margay", "get", "ippo"]);
        assert!(kinds.contains(&"ippools".to_owned()), "{kinds:?}");
        assert_eq!(candidates(&place, &["margay", "get", "ippool", ""])[..1], ["p"]);
        let names = candidates(&place, &["margay", "get", "np", "-n", "shop", "w"]);
        assert_eq!(names, ["web"]);
        let names = candidates(&place, &["margay", "delete", "np", "--namespace=shop", "d"]);
        assert_eq!(names, ["db"]);
        let names = candidates(&place, &["margay", "-c", "nowhere", "get", "ippool", "p"]);
        assert_eq!(names, Vec::<String>::new());
    }
}

#[test]
fn completion_knows_namespaces_formats_fields_and_writes() {
    for place in Place::both() {
        shop(&place);
        let of = |line: &[&str]| candidates(&place, line);
        assert_eq!(of(&["margay", "get", "np", "-n", ""]), ["prod", "shop"]);
        assert_eq!(of(&["margay", "apply", "-n", "s"]), ["shop"]);
        assert_eq!(of(&["margay", "get", "np", "-A", ""])[..2], ["db", "web"]);
        assert_eq!(of(&["margay", "get", "np", "-o", "y"]), ["yaml"]);
        assert_eq!(of(&["margay", "get", "np", "-o", "go-template-"]), ["go-template-file="]);
        assert_eq!(of(&["margay", "help", "fie"]), ["field"]);
        assert_eq!(of(&["margay", "help", "field", "IPP"]), ["IPPool"]);
        assert_eq!(of(&["margay", "help", "field", "np.spec.sel"]), ["np.spec.selector"]);
        let nested = of(&["margay", "help", "field", "np.spec.ingress.destination.p"]);
        assert_eq!(nested, ["np.spec.ingress.destination.ports"]);
        place.margay("label ippool p zone=a").ok();
        assert_eq!(of(&["margay", "undo", ""])[..2], ["2", "1"]);
        // The shell asks us for the other name as well.
        assert_eq!(of(&["calicoctl", "get", "np", "-n", "shop", "w"]), ["web"]);
        let verbs = of(&["/usr/bin/calicoctl", ""]);
        assert!(verbs.contains(&"apply".to_owned()) && !verbs.contains(&"undo".to_owned()));
        for shell in ["bash", "zsh", "fish"] {
            let script = place.margay(&format!("completion {shell}")).ok();
            assert!(script.out.contains(" calicoctl"), "{script:?}");
        }
    }
}

#[test]
fn every_part_of_the_program_is_explained_and_completed() {
    let place = Place::embedded();
    place.margay("--help").ok().says(&["\n  agent ", "\n  cni ", "\n  lab "]);
    place.margay("help agent").ok().says(&["Usage: margay agent [OPTIONS]", "--run-dir"]);
    place.margay("help lab").ok().says(&["Usage: margay lab [OPTIONS] <COMMAND>", "\n  break "]);
    place.margay("help lab break").ok().says(&["Usage: margay lab break ", "link-down"]);
    place.margay("help lab nonsense").refused(&["there is no command nonsense"]);
    place.margay("--store x agent").refused(&["before the word agent", "margay agent --help"]);
    let folder = place.path("labs/default");
    std::fs::create_dir_all(&folder).unwrap();
    let state = r#"{"name":"default","is_built":true,"since":0,"datastore":"sqlite","ipv6":false,
        "nodes":[{"name":"n1","number":1}],"broken":[],"pods":[{"name":"n1-web","node":"n1",
        "container":"c","interface":"i","addresses":[]}]}"#;
    std::fs::write(folder.join("state.json"), state).unwrap();
    let of = |line: &[&str]| {
        let mut all = candidates(&place, line);
        all.retain(|one| {
            line.last().is_some_and(|last| last.starts_with('-')) || !one.starts_with('-')
        });
        all
    };
    assert_eq!(of(&["margay", "lab", "pod", ""]), ["add", "rm"]);
    assert_eq!(of(&["margay", "lab", "exec", ""]), ["n1-web", "n1"]);
    assert_eq!(of(&["margay", "lab", "break", "link"]), ["link-down"]);
    assert_eq!(of(&["margay", "lab", "break", "link-down", ""]), ["n1"]);
    assert_eq!(of(&["margay", "lab", "break", "interface-deleted", ""]), ["n1-web"]);
    assert_eq!(of(&["margay", "lab", "pod", "rm", ""]), ["n1-web"]);
    assert_eq!(of(&["margay", "lab", "pod", "rm", "--name", "other", ""]), Vec::<String>::new());
    assert_eq!(of(&["margay", "lab", "--name", ""]), ["default"]);
    assert_eq!(of(&["margay", "agent", "--ru"]), ["--run-dir"]);
}

#[test]
fn the_defaults_of_fields_are_those_that_are_written() {
    let place = Place::embedded();
    let tier = "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: t}\n";
    place.give("apply", &(pool("p", "10.1.0.0/24") + &policy("shop", "web", 1) + tier)).ok();
    for (object, path, default) in [
        ("ippool p", "IPPool.spec.blockSize", "26"),
        ("ippool p", "IPPool.spec.ipipMode", "Never"),
        ("ippool p", "IPPool.spec.vxlanMode", "Never"),
        ("ippool p", "IPPool.spec.nodeSelector", "all()"),
        ("ippool p", "IPPool.spec.assignmentMode", "Automatic"),
        ("ippool p", "IPPool.spec.allowedUses", "[Workload, Tunnel]"),
        ("np web -n shop", "NetworkPolicy.spec.types", "[Ingress]"),
        ("np web -n shop", "NetworkPolicy.spec.tier", "default"),
        ("tier t", "Tier.spec.order", "1000000"),
        ("tier t", "Tier.spec.defaultAction", "Deny"),
    ] {
        let field = path.rsplit('.').next().unwrap();
        let written = place.json(&format!("get {object}"))["spec"][field].clone();
        let words = match &written {
            Value::String(text) => text.clone(),
            Value::Array(items) => {
                let items: Vec<&str> = items.iter().map(|item| item.as_str().unwrap()).collect();
                format!("[{}]", items.join(", "))
            }
            other => other.to_string(),
        };
        assert_eq!(words, default, "{path}");
        place.margay(&format!("help field {path}")).ok().says(&[&format!("default  {default}")]);
    }
}

#[test]
fn answers_of_writes_can_be_read_by_programs() {
    for place in Place::both() {
        let answer: Value =
            serde_json::from_str(&place.give("apply -o json", &pool("p", "10.1.0.0/24")).ok().out)
                .unwrap();
        assert_eq!(answer["created"], 1);
        assert_eq!(answer["changed"], 0);
        assert_eq!(answer["objects"], json!(["IPPool p"]));
        assert_eq!(answer["undo"], 1);
        assert!(answer["revision"].as_i64().is_some_and(|revision| revision > 1), "{answer}");
    }
}

#[test]
fn under_the_other_name_the_output_is_calicoctls() {
    for place in Place::both() {
        let file = place.file("pool.yaml", &pool("p", "10.1.0.0/24"));
        let created = place.run(&["calicoctl", "create", "-f", &file]).code(0);
        assert_eq!(created.out, "Successfully created 1 'IPPool' resource(s)\n");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_margay"), place.path("calicoctl")).unwrap();
        let mut command = std::process::Command::new(place.path("calicoctl"));
        command.args(["get", "ippool"]).env_clear();
        command
            .envs(place.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        let shown = Done::from(command.output().unwrap()).code(0);
        assert_eq!(
            shown.out.split_whitespace().take(4).collect::<Vec<_>>(),
            ["NAME", "CIDR", "SELECTOR", "p"]
        );
    }
}
