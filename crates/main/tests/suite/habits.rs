//! What people type who know kubectl.

use serde_json::{Value, json};

use crate::harness::{Place, policy, pool};

#[test]
fn a_dry_run_says_what_would_happen_and_writes_nothing() {
    for place in Place::both() {
        let one = place.give("apply --dry-run", &pool("p", "10.1.0.0/24")).ok();
        assert_eq!(
            one.out,
            "✓ would be: 1 created   (dry run, nothing was written)\n  created   IPPool p\n"
        );
        assert_eq!(place.dump(), []);
        place.give("apply --dry-run=none", &policy("shop", "a", 1)).ok();
        let before = place.dump();
        let three = policy("shop", "a", 1) + &policy("shop", "b", 1);
        let answer = place.give("apply --dry-run=server -o json", &three).ok().out;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((&answer["created"], &answer["unchanged"]), (&json!(1), &json!(1)));
        assert_eq!(answer["objects"], json!(["NetworkPolicy shop/b"]));
        place.give("apply --dry-run", &policy("shop", "a", 2)).ok().says(&["1 changed"]);
        let exists = place.give("create --dry-run", &three);
        exists.refused(&["NetworkPolicy shop/a exists already", "nothing was written"]);
        place.give("create --dry-run --skip-exists", &three).ok().says(&["1 created, 1 skipped"]);
        place.give("replace --dry-run", &three).refused(&["NetworkPolicy shop/b does not exist"]);
        place.give("apply --dry-run", &pool("p", "nonsense")).refused(&["spec.cidr"]);
        assert_eq!(place.dump(), before);
        assert_eq!(place.margay("history").ok().out.lines().count(), 2);
    }
}

#[test]
fn objects_are_found_by_their_labels() {
    for place in Place::both() {
        let labelled = |name: &str, labels: &str| {
            policy("shop", name, 1)
                .replace("metadata:\n", &format!("metadata:\n  labels: {{{labels}}}\n"))
        };
        let all =
            labelled("a", "app: web, zone: x") + &labelled("b", "app: db") + &labelled("c", "");
        place.give("apply", &all).ok();
        for (selector, names) in [
            ("app=web", &["a"][..]),
            ("app==web,zone", &["a"]),
            ("app,!zone", &["b"]),
            ("app != web", &["b", "c"]),
            ("app == \"web\" || !has(app)", &["a", "c"]),
            ("app in {\"db\", \"web\"}", &["a", "b"]),
        ] {
            for format in [
                "custom-columns=NAME",
                "yaml",
                "go-template={{range .}}{{range .Items}}{{.Name}} {{end}}{{end}}",
            ] {
                let done = place.run(&["get", "np", "-A", "-l", selector, "-o", format]).ok();
                for name in ["a", "b", "c"] {
                    let shown = match format {
                        "yaml" => done.out.contains(&format!("name: {name}\n")),
                        _ => done.out.split_whitespace().any(|word| word == name),
                    };
                    assert_eq!(shown, names.contains(&name), "{selector} {done:?}");
                }
            }
        }
        let none = place.margay("get np -A -l app=none").code(0);
        none.complains(&["no networkpolicies with the labels app == \"none\""]);
        place
            .run(&["get", "np", "-l", "a b"])
            .refused(&["\"a b\" is not a selector, -l", "help: "]);
    }
}

#[test]
fn labels_are_removed_with_a_minus() {
    let place = Place::embedded();
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    place.margay("label ippool p zone=a").ok();
    place.margay("label ippool p zone=a-").refused(&["zone=a"]);
    place.margay("label ippool p zone-").ok();
    assert_eq!(place.json("get ippool p")["metadata"].get("labels"), None);
    place.margay("label ippool p zone-").refused(&["IPPool p has no label zone"]);
    place.margay("label ippool p zone").refused(&["help: key=value, or key- to remove it"]);
}

#[test]
fn files_need_no_flag() {
    let place = Place::embedded();
    place.file("a.yaml", &pool("a", "10.1.0.0/24"));
    place.file("b.yaml", &pool("b", "10.2.0.0/24"));
    place.margay("validate a.yaml").ok();
    place.margay("diff a.yaml").code(1);
    place.margay("apply a.yaml -f b.yaml").ok().says(&["2 created"]);
    place.margay("diff a.yaml b.yaml").ok();
    place.margay("apply").refused(&["<FILE>"]);
}

#[test]
fn commands_of_others_lead_to_ours() {
    let place = Place::embedded();
    place.margay("describe np web -n shop").refused(&["help: margay get np web -n shop -o yaml"]);
    place.margay("explain ippool.spec.cidr").refused(&["margay help field ippool.spec.cidr"]);
    for verb in ["apply", "replace", "diff"] {
        let help = place.margay(&format!("{verb} --help")).ok();
        assert!(!help.out.contains("skip-exists"), "{help:?}");
    }
    place.margay("create --help").ok().says(&["--skip-exists"]);
}

#[test]
fn flags_and_words_of_kubectl_lead_to_what_does_their_work() {
    let place = Place::embedded();
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    for (typed, help) in [
        ("delete pool p --dry-run", "without --yes, delete names what would go, and asks first"),
        ("delete pool p --dry-run=client", "without --yes, delete names what would go"),
        ("--store store.db delete pools --all", "delete wants names; margay get KIND"),
        ("delete pool x --ignore-not-found", "margay delete --skip-not-exists"),
        ("undo --dry-run", "margay history shows what a write changed"),
        ("label pool p a=b --dry-run", "margay undo takes the change back"),
        ("label pool p a=b c=d", "one label at a time: margay label KIND NAME key=value"),
        ("label pool p a=b -l c=d", "one object at a time"),
        ("get pools --sort-by=.spec.cidr", "margay get KIND -o json | jq"),
        ("get pools --show-labels", "margay get KIND -o yaml shows the labels"),
        ("get pools --no-headers", "margay get KIND | tail -n +2"),
        ("get pools -o name", "-o custom-columns=NAME"),
        ("get pools -o jsonpath={.items}", "-o json | jq"),
        ("apply -k .", "kubectl kustomize FOLDER | margay apply -f -"),
        ("apply -f given.yaml --server-side", "leave it out"),
        ("annotate pool p a=b", "margay patch KIND NAME -p"),
        ("rollout undo", "margay undo takes the last write back"),
        ("logs p", "pods and nodes are kept by Kubernetes: kubectl logs"),
        ("get pool/p", "kind and name are two words: pool p"),
        ("get pools,nodes", "one kind at a time: pools, then nodes"),
        ("get gns", "did you mean globalnetworksets?"),
    ] {
        let done = place.margay(typed).refused(&[&format!("help: {help}")]);
        assert_eq!(done.err.matches("help: ").count(), 1, "{typed}: {done:?}");
        assert!(!done.err.contains("similar"), "{typed}: {done:?}");
    }
    // Of our own flags the nearest is named as before.
    place.margay("get pools --selectro a=b").refused(&["'--selector'"]);
    place.margay("get gpn").refused(&["help: did you mean gnp?"]);
}

#[test]
fn an_editor_changes_one_object_and_what_is_refused_comes_back() {
    let place = Place::embedded();
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    let edit = |script: &str| {
        let editor = place.file("editor", &format!("#!/bin/sh\n{script}\n"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&editor, mode).unwrap();
        let mut command = place.command(&["edit", "ippool", "p"]);
        command.env("EDITOR", &editor).env("TMPDIR", place.path(""));
        crate::harness::Done::from(command.output().unwrap())
    };
    edit("sed -i 's/natOutgoing.*//; s/^spec:/spec:\\n  natOutgoing: true/' $1")
        .ok()
        .says(&["1 changed", "undo: "]);
    assert_eq!(place.json("get ippool p")["spec"]["natOutgoing"], true);
    edit("true").ok().says(&["IPPool p was not changed"]);
    // The first time it breaks the object; the second time it sees why, and mends it.
    let twice = "if grep -q '^# .*spec.blockSize' $1; then sed -i 's/blockSize: 7/blockSize: 26/; \
                 s/disabled: .*//; s/^spec:/spec:\\n  disabled: true/' $1; \
                 else sed -i 's/blockSize: 26/blockSize: 7/' $1; fi";
    edit(twice).ok().says(&["1 changed"]);
    assert_eq!(place.json("get ippool p")["spec"]["disabled"], true);
    let stubborn = "if ! grep -q '^# ' $1; then sed -i 's/blockSize: 26/blockSize: 7/' $1; fi";
    let refused = edit(stubborn).refused(&["IPPool p was not changed", "spec.blockSize"]);
    refused.complains(&["help: the text is kept: margay apply"]);
    let blind = place.margay("edit ippool p");
    blind.refused(&["edit needs a terminal", "EDITOR=PROGRAM margay edit", "margay patch"]);
    edit("sed -i 's/name: p/name: q/' $1; if grep -q '^# ' $1; then exit 1; fi")
        .refused(&["the editor did not end well"]);
    place.margay("get ippool q").code(2);
}

/// Runs `edit` on a pool with a script for an editor, and a bound on how often it is opened.
fn edit(place: &Place, script: &str) -> crate::harness::Done {
    let count = "n=$(cat opened 2>/dev/null || echo 0); n=$((n+1)); echo $n > opened; \
                 test $n -le 30 || exit 1";
    let editor = place.file("editor", &format!("#!/bin/sh\n{count}\n{script}\n"));
    let _ = std::fs::remove_file(place.path("opened"));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&editor, mode).unwrap();
    let mut command = place.command(&["edit", "ippool", "p"]);
    command.env("EDITOR", &editor).env("TMPDIR", place.path("drafts"));
    std::fs::create_dir_all(place.path("drafts")).unwrap();
    crate::harness::Done::from(command.output().unwrap())
}

fn n_drafts(place: &Place) -> usize {
    place.path("drafts").read_dir().unwrap().count()
}

#[test]
fn an_editor_that_leaves_nothing_has_cancelled() {
    let place = Place::embedded();
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    for script in [": > $1", "echo '# only this' > $1", "rm $1"] {
        edit(&place, script).ok().says(&["IPPool p was not changed"]);
        assert_eq!(n_drafts(&place), 0, "{script}");
    }
    edit(&place, "printf '\\377' > $1").refused(&["IPPool p was not changed", "is not UTF-8"]);
}

#[test]
fn a_text_that_is_refused_is_not_opened_for_ever() {
    let place = Place::embedded();
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    let same = "sed -i '/^#/d; s/blockSize: 26/blockSize: 7/' $1";
    edit(&place, same).refused(&["IPPool p was not changed", "the text is kept: margay apply"]);
    assert_eq!(std::fs::read_to_string(place.path("opened")).unwrap(), "2\n");
    let restless = "sed -i \"s/blockSize: .*/blockSize: $((n+40))/\" $1";
    edit(&place, restless).refused(&["IPPool p was not changed", "the text is kept: margay apply"]);
    assert_eq!(std::fs::read_to_string(place.path("opened")).unwrap(), "20\n");
}

#[test]
fn a_draft_is_never_written_through_a_link() {
    let place = Place::embedded();
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    place.file("precious", "mine");
    let script = "rm $1; ln -s $PWD/precious $1";
    edit(&place, script).refused(&["IPPool p was not changed", "cannot be read"]);
    // While it is read it is a file; when it is written again it may be a link.
    let racing = "sed -i 's/blockSize: 26/blockSize: 7/' $1; ln -s $PWD/precious ${1%.yaml}.new";
    edit(&place, racing).code(2);
    assert_eq!(std::fs::read_to_string(place.path("precious")).unwrap(), "mine");
}

#[test]
fn an_edit_that_was_overtaken_can_be_written_all_the_same() {
    let place = Place::embedded();
    place.give("apply", &pool("p", "10.1.0.0/24")).ok();
    let margay = place.command(&[]).get_program().to_owned();
    let script = format!(
        "if [ $n = 1 ]; then {} label ippool p theirs=1 >/dev/null; \
         sed -i 's/^spec:/spec:\\n  disabled: true/' $1; else sed -i '/^#/d' $1; fi",
        margay.display()
    );
    edit(&place, &script).ok().says(&["1 changed"]);
    assert_eq!(place.json("get ippool p")["spec"]["disabled"], true);
    assert_eq!(n_drafts(&place), 0);
}

#[test]
fn all_mistakes_of_a_list_are_named_at_once() {
    let place = Place::embedded();
    let policy = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\n\
                  metadata: {name: x}\nspec:\n  ingress:\n  - action: Allow\n    \
                  protocol: TCP\n    \
                  destination: {ports: [99999, \"70-80\", 80, \"90:70\", \"9-8\"]}\n";
    let refused = place.give("apply", policy).code(2);
    refused.complains(&[
        "destination.ports[0]: expected a port from 0 to 65535",
        "destination.ports[1]: \"70-80\" is no range of ports; did you mean \"70:80\"?",
        "destination.ports[3]: \"90:70\" is not a port",
        "destination.ports[4]: \"9-8\" is no range of ports: one goes up, such as \"8:9\"",
    ]);
}
