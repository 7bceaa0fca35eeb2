//! Bad objects: refused when they come, named and left out when they are there already.

use std::os::unix::ffi::OsStringExt as _;

use serde_json::{Value, json};

use crate::harness::{Place, policy, pool};

const HEPS: &str = "/calico/resources/v3/projectcalico.org/hostendpoints/";

fn endpoint(name: &str, addresses: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: HostEndpoint\nmetadata:\n  name: {name}\nspec:\n  \
         node: n1\n  interfaceName: eth0\n  expectedIPs: {addresses}\n---\n"
    )
}

#[test]
fn incident_0_one_empty_string_stops_nothing() {
    for place in Place::both() {
        let bad = endpoint("unfit", "[\"\", \"\"]");
        let misspelt = endpoint("good", "[10.0.0.1]") + &bad.replace("Name: eth0", "Nam: eth0");
        place.give("apply", &misspelt).refused(&[
            "nothing was written",
            "HostEndpoint unfit (given.yaml:10) is not valid",
            "spec.interfaceNam: unknown field; did you mean interfaceName?  (given.yaml:16)",
            "spec.expectedIPs[0]: \"\" is not an IP address",
            "spec.expectedIPs[1]: \"\" is not an IP address",
            "(given.yaml:17)",
        ]);
        let help = "help: margay help field HostEndpoint.spec.expectedIPs";
        place.give("apply", &bad).refused(&["spec.expectedIPs[0]: \"\" is not an IP", help]);
        place.margay("get hep").code(0).complains(&["no hostendpoints"]);

        place.give("apply", &endpoint("good", "[10.0.0.1]")).ok();
        let mut stored = place.stored(&format!("{HEPS}good"));
        stored["metadata"]["name"] = json!("unfit");
        stored["spec"]["expectedIPs"] = json!(["", ""]);
        place.put(&format!("{HEPS}unfit"), &stored.to_string());
        let template = "go-template={{range .}}{{range .Items}}{{.ObjectMeta.Name}}{{end}}{{end}}";
        for form in ["ps", "wide", "yaml", "json", template] {
            let shown = place.run(&["get", "hep", "-o", form]).code(1).says(&["good"]);
            assert!(!shown.out.contains("unfit"), "{shown:?}");
            shown.complains(&[
                "✗ HostEndpoint unfit is stored but cannot be used: spec.expectedIPs[0]: \"\" is not",
                "fix: margay get hostendpoints unfit -o yaml",
            ]);
        }
        let seen = place.margay("get hep unfit good -o yaml").code(1);
        seen.says(&["name: unfit", "name: good"]).complains(&["spec.expectedIPs[1]"]);

        place
            .run(&["patch", "hep", "unfit", "-p", r#"{"spec":{"expectedIPs":["10.0.0.2"]}}"#])
            .ok();
        place.margay("get hep").ok().says(&["unfit", "good"]);
    }
}

#[test]
fn a_damaged_object_is_named_and_its_neighbours_are_served() {
    let faults: [(&str, &str, &str, Value); 7] = [
        ("ippools", "spec", "cidr", json!("10.0.0.0/99")),
        ("ippools", "spec", "natOutgoing", json!("yes")),
        ("ippools", "spec", "blockSize", json!(99)),
        ("networkpolicies", "spec", "selector", json!("app ==")),
        ("networkpolicies", "spec", "order", json!({})),
        ("networkpolicies", "spec", "tier", json!([])),
        ("networkpolicies", "metadata", "labels", json!([1])),
    ];
    for place in Place::both() {
        place.give("apply", &(policy("shop", "good", 1) + &pool("good", "10.1.0.0/24"))).ok();
        for (kind, part, field, damage) in &faults {
            let all = place.dump();
            let is_good = |key: &str| key.contains(kind) && key.ends_with("good");
            let key = all.iter().map(|(key, _)| key).find(|key| is_good(key)).unwrap();
            let mut stored = place.stored(key);
            stored["metadata"]["name"] = json!("damaged");
            stored[part][field] = damage.clone();
            place.put(&key.replace("good", "damaged"), &stored.to_string());
            let shown = place.margay(&format!("get {kind} -A")).code(1);
            let shown = shown.complains(&["damaged is stored but", &format!("{part}.{field}")]);
            assert!(shown.out.lines().count() == 2 && shown.out.contains("good"), "{shown:?}");
        }
        place.put("/calico/resources/v3/projectcalico.org/ippools/damaged", "{");
        let line = ["✗ IPPool damaged is stored but", "fix: margay delete ippools damaged\n"];
        place.margay("get ippool damaged").code(1).complains(&line);
        place.margay("delete ippools damaged --yes").ok();
        place.margay("get ippool").ok();
    }
}

#[test]
fn what_we_do_not_know_survives_apply_label_and_patch() {
    for place in Place::both() {
        place.give("apply", &pool("p", "10.1.0.0/24")).ok();
        let key = "/calico/resources/v3/projectcalico.org/ippools/p";
        let mut stored = place.stored(key);
        stored["spec"]["later"] = json!({"a": [1, 2.50]});
        stored["metadata"]["later"] = json!("x");
        stored["status"] = json!({"later": true});
        place.put(key, &stored.to_string());
        let survives = |what: &str| {
            let now = place.stored(key);
            for pointer in ["/spec/later", "/metadata/later", "/status"] {
                assert_eq!(now.pointer(pointer), stored.pointer(pointer), "{what} {pointer}");
            }
        };
        let changed = pool("p", "10.1.0.0/24").replace("---", "  natOutgoing: true");
        place.give("apply", &changed).ok().says(&["1 changed"]);
        survives("apply");
        place.margay("label ippool p a=b").ok();
        survives("label");
        place.run(&["patch", "ippool", "p", "-p", r#"{"spec":{"natOutgoing":false}}"#]).ok();
        survives("patch");
        let shown = place.json("get ippool p");
        assert_eq!(shown["spec"].get("later"), None, "what is shown can be applied");
    }
}

#[test]
fn a_watch_takes_back_what_became_unusable() {
    for place in Place::both() {
        place.give("apply", &endpoint("hep", "[10.0.0.1]")).ok();
        let watch =
            crate::harness::Running::start(place.command(&["get", "hep", "-w", "-o", "json"]));
        watch.until_says(r#""type":"synced""#);
        let mut stored = place.stored(&format!("{HEPS}hep"));
        stored["spec"]["expectedIPs"] = json!([""]);
        place.put(&format!("{HEPS}hep"), &stored.to_string());
        watch.until_says(
            r#"{"type":"unusable","object":{"kind":"HostEndpoint","metadata":{"name":"hep"}}"#,
        );
        watch.until_complains("spec.expectedIPs[0]");
    }
}

#[test]
fn a_key_that_is_no_text_is_named() {
    for mut place in Place::both() {
        place.give("apply", &policy("shop", "web", 1)).ok();
        let prefix = "/calico/resources/v3/projectcalico.org/networkpolicies/shop/";
        if place.is_etcd() {
            let key = std::ffi::OsString::from_vec([prefix.as_bytes(), b"a\xff"].concat());
            place.member().etcdctl(&["put".as_ref(), key.as_os_str(), "{}".as_ref()]);
        } else {
            let sql = rusqlite::Connection::open(place.path("store.db")).unwrap();
            let insert = format!(
                "INSERT INTO kv VALUES (CAST(x'{}61ff' AS TEXT), x'7b7d', 9, 9, 1)",
                prefix.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()
            );
            sql.execute_batch(&insert).unwrap();
        }
        let escaped = format!("{prefix}a\\xff");
        let ours = place.margay("get np -n shop").code(1).says(&["web"]);
        ours.complains(&[&format!("{escaped} is stored but cannot be used: the key is not UTF-8")]);
        let theirs = place.run(&["calicoctl", "get", "np", "-n", "shop"]).code(0);
        theirs.complains(&[&format!("warning: {escaped} is left out: the key is not UTF-8")]);
    }
}
