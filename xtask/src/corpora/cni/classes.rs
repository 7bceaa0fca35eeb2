//! The classes of deliberate differences from the recorded plugin.
//!
//! A class explains every difference of a call or none: each predicate looks at the call, at both
//! answers, and at which of the compared things differ.

use serde_json::Value;

use super::judge::{Call, Facet};
use super::{items, text};

/// The protocol number of our routes, as `ip` prints it.
const OUR_PROTOCOL: &str = "77";

/// Where endpoints lie in the datastore.
const ENDPOINTS: &str = "/workloadendpoints/";

type Class = (&'static str, fn(&Call<'_>) -> bool);

/// In this order: the first that explains all differences.
const CLASSES: &[Class] = &[
    ("our-routes", |call| call.differing.iter().all(|facet| is_routes_only(facet))),
    ("our-version", |call| call.differs_in(&["stdout"]) && is_version_flag(call)),
    ("help-text", |call| call.differs_in(&["stdout"]) && is_help(call)),
    ("cni-1.1", is_newer_protocol),
    ("check-looks", |call| {
        call.command() == "CHECK" && call.differs_in(&["exit", "stdout"]) && call.exit == Some(0)
    }),
    ("go-crash", |call| {
        call.differs_in(&["stdout"]) && call.their_message().contains("nil pointer dereference")
    }),
    ("embedded-store-by-default", |call| {
        call.their_message().contains("error creating calico client: invalid configuration")
            && call.differs_in(&["stdout"])
    }),
    ("cni-error-words", |call| call.differs_in(&["stdout"]) && is_same_error(call)),
    ("answers-in-time", |call| call.exit.is_none() && call.differs_in(&["exit", "stdout"])),
    ("newline-in-node-name", |call| call.their_message().contains("\n) with error")),
    ("pods-without-kubernetes", |call| {
        text(&call.recorded["env"], "CNI_ARGS").contains("K8S_POD_NAME=")
            && call.their_message().contains("KUBERNETES_MASTER")
    }),
    ("sandbox-identity", is_about_another_part),
    ("nothing-left-behind", leaves_less),
];

/// The class that explains every difference of a call, if there is one.
pub(super) fn class(call: &Call<'_>) -> Option<&'static str> {
    CLASSES.iter().find(|(_, explains)| explains(call)).map(|(name, _)| *name)
}

/// What is wrong with our answer to a call of a class: a class says what Calico's answer is not
/// good for, and this what ours must be. The state after the call is the ledger's to judge.
pub(super) fn wrong(class: &str, call: &Call<'_>) -> Option<&'static str> {
    let exit = call.seen["exit"].as_i64();
    let (answer, message) = (call.our_answer(), call.our_message());
    let is_silent = exit == Some(0) && text(call.seen, "stdout").is_empty();
    let has_addresses = exit == Some(0) && !items(&answer, "ips").is_empty();
    let is_right = match class {
        "our-version" => text(call.seen, "stdout").trim_end() == api::EMULATED_CALICO_VERSION,
        "go-crash" => message == "Calico is currently not ready to process requests",
        "embedded-store-by-default" => message.contains("ClusterInformation(default)"),
        "answers-in-time" => exit == Some(1) && answer["code"] == 11 && !message.is_empty(),
        "newline-in-node-name" => has_addresses && is_on_named_node(call),
        "pods-without-kubernetes" => has_addresses && is_pod(call),
        "cni-1.1" | "sandbox-identity" => match call.command() {
            "ADD" if exit == Some(0) => has_addresses && is_of_version(call, &answer),
            "DEL" | "GC" | "STATUS" if exit == Some(0) => is_silent,
            // An interface is in one network.
            "ADD" if class == "sandbox-identity" => {
                answer["code"] == 4 && message.contains("is attached to network")
            }
            // The list of versions, which the predicate compared.
            _ => class == "cni-1.1",
        },
        _ => true,
    };
    (!is_right).then_some("our answer is not the right one either")
}

/// The answer is in the version of the protocol that was asked for.
fn is_of_version(call: &Call<'_>, answer: &Value) -> bool {
    let asked: Value = serde_json::from_str(text(call.recorded, "stdin")).unwrap_or_default();
    answer["cniVersion"] == asked["cniVersion"]
}

/// The specs of all endpoints in our store, with their namespaces.
fn endpoints(call: &Call<'_>) -> Vec<Value> {
    let pairs = items(call.seen, "store").iter();
    let ours = pairs.filter(|it| it[0].as_str().is_some_and(|key| key.contains(ENDPOINTS)));
    ours.filter_map(|it| serde_json::from_str(it[1].as_str()?).ok()).collect()
}

/// The only endpoint is on the node that the file names, line end or not.
fn is_on_named_node(call: &Call<'_>) -> bool {
    let files = &call.recorded["setup"]["files"];
    let name = text(files, "/var/lib/calico/nodename");
    let endpoints = endpoints(call);
    let spec = endpoints.first().map(|endpoint| &endpoint["spec"]);
    name.ends_with('\n') && endpoints.len() == 1 && spec.is_some_and(|it| it["node"] == name.trim())
}

/// The only endpoint is that of the pod that the arguments name.
fn is_pod(call: &Call<'_>) -> bool {
    let arguments = text(&call.recorded["env"], "CNI_ARGS");
    let argument = |name: &str| {
        let mut pairs = arguments.split(';').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()
    };
    let endpoints = endpoints(call);
    let [endpoint] = endpoints.as_slice() else { return false };
    let spec = &endpoint["spec"];
    endpoint["metadata"]["namespace"] == argument("K8S_POD_NAMESPACE")
        && spec["pod"] == argument("K8S_POD_NAME")
        && spec["orchestrator"] == "k8s"
        && spec["containerID"] == text(&call.recorded["env"], "CNI_CONTAINERID")
}

/// Whether two states of the host differ only in our routes: in the mark that they carry, and in
/// the blackholes of our own blocks.
pub(super) fn is_routes_only(facet: &Facet) -> bool {
    if facet.name != "host_state" {
        return false;
    }
    let mut ours = facet.ours.clone();
    if let Some(routes) = ours.get_mut("routes").and_then(Value::as_array_mut) {
        let is_ours = |route: &Value| route["protocol"] == OUR_PROTOCOL;
        routes.retain(|route| !(route["type"] == "blackhole" && is_ours(route)));
        for route in routes.iter_mut().filter(|route| is_ours(route)) {
            route["protocol"] = "boot".into();
        }
        routes.sort_by_key(Value::to_string);
    }
    ours == facet.theirs
}

fn is_version_flag(call: &Call<'_>) -> bool {
    let flags = items(call.recorded, "argv");
    flags.iter().any(|flag| flag == "-v") && text(call.seen, "stdout").starts_with('v')
}

fn is_help(call: &Call<'_>) -> bool {
    let both = [call.recorded, call.seen].map(|answer| text(answer, "stdout"));
    both.iter().all(|printed| printed.contains("\nUsage:\n"))
}

/// Version 1.1 of the protocol: asked for, or named in the list of what is spoken.
fn is_newer_protocol(call: &Call<'_>) -> bool {
    // GC came with it: Calico refuses every one, we one that does not say what is in use.
    let is_refused_gc = call.command() == "GC" && call.our_message().contains("valid-attachments");
    if is_refused_gc {
        return call.exit == Some(1);
    }
    if text(call.recorded, "stdin").contains("\"cniVersion\":\"1.1.0\"") {
        return call.exit == Some(1) && call.seen["exit"] == 0;
    }
    let older = |answer: Value| {
        let versions = items(&answer, "supportedVersions").iter();
        let versions: Vec<Value> =
            versions.filter(|version| *version != "1.1.0").cloned().collect();
        let details = text(&answer, "details").replace(" \"1.1.0\"]", "]");
        (answer["code"].clone(), text(&answer, "msg").to_owned(), details, versions)
    };
    let lists_versions = call.command() == "VERSION"
        || text(&call.their_answer(), "details").contains("plugin supports [");
    lists_versions
        && call.differs_in(&["stdout"])
        && older(call.our_answer()) == older(call.their_answer())
}

/// Refused by both with one code, in other words: those of a Go library or of the kernel there,
/// those that name the object here; or in the same words with advice added.
fn is_same_error(call: &Call<'_>) -> bool {
    const LIBRARY_WORDS: &[&str] = &[
        "json: ",
        "unexpected end of JSON",
        "invalid configuration: no configuration",
        "no such file or directory",
        "unknown FS magic",
        "file exists",
        "invalid argument",
        "error with field",
        "error with the following fields",
    ];
    let theirs = call.their_message();
    let ours = call.our_message();
    let same_code = call.our_answer()["code"] == call.their_answer()["code"];
    let in_library_words = LIBRARY_WORDS.iter().any(|words| theirs.contains(words));
    same_code && !ours.is_empty() && (ours == theirs || in_library_words)
}

/// An earlier call of the chain was about the same container, or about one whose id begins alike,
/// but named another interface, namespace, network or node.
fn is_about_another_part(call: &Call<'_>) -> bool {
    const USED_OF_ID: usize = 11;
    let parts = |row: &Value| {
        let env = |name: &str| text(&row["env"], name).to_owned();
        let conf: Value = serde_json::from_str(text(row, "stdin")).unwrap_or_default();
        let field = |name: &str| text(&conf, name).to_owned();
        let names = [env("CNI_CONTAINERID"), env("CNI_IFNAME"), env("CNI_NETNS")];
        (names, [field("name"), field("nodename")])
    };
    let this = parts(call.recorded);
    let start: String = this.0[0].chars().take(USED_OF_ID).collect();
    call.prior.iter().any(|row| {
        let other = parts(row);
        other.0[0].starts_with(&start) && other != this
    })
}

/// Both refuse an ADD with one code, or both do a DEL, and ours holds no address, endpoint or
/// interface afterwards.
fn leaves_less(call: &Call<'_>) -> bool {
    let agree = match call.command() {
        "ADD" => call.exit == Some(1) && (is_same_error(call) || !call.differing_in("stdout")),
        "DEL" => call.exit == Some(0) && !call.differing_in("stdout"),
        _ => false,
    };
    let has_interfaces = items(&call.seen["host_state"], "links")
        .iter()
        .any(|link| text(link, "name").starts_with("cali"));
    let holds = items(call.seen, "etcd_after").iter().any(|pair| {
        let key = pair[0].as_str().unwrap_or_default();
        let value = pair[1].as_str().unwrap_or_default();
        let is_held = value.contains("\"handle_id\"") || key.contains("/workloadendpoints/");
        !value.is_empty() && (is_held || key.contains("/ipam/v2/handle/"))
    });
    agree && !call.differing_in("exit") && !has_interfaces && !holds && keeps_what_was_there(call)
}

/// Interfaces that somebody else made have no address in the recordings.
fn keeps_what_was_there(call: &Call<'_>) -> bool {
    let links = |answer: &Value| items(&answer["container_state"], "links").to_vec();
    let ours = links(call.seen);
    let foreign = links(call.recorded).into_iter().filter(|it| items(it, "addresses").is_empty());
    foreign.into_iter().all(|it| ours.iter().any(|our| text(our, "name") == text(&it, "name")))
}
