//! Stored values: the first byte chooses the key; what can be read is written so that it reads
//! the same. An endpoint or a policy that is read at once is read by all rules, as the same.

#![no_main]

use api::Kind;
use api::keys::value::Stored;
use api::keys::{Key, value};
use libfuzzer_sys::fuzz_target;
use model::resource::{Resource, plain_policy, plain_workload_endpoint};

const PATHS: [&str; 21] = [
    "/calico/v1/host/h/workload/k8s/w/endpoint/e",
    "/calico/v1/host/h/endpoint/e",
    "/calico/v1/policy/NetworkPolicy/n/p",
    "/calico/v1/policy/tier/t/policy/p",
    "/calico/v1/policy/profile/p/rules",
    "/calico/v1/policy/profile/p/labels",
    "/calico/v1/policy/tier/t/metadata",
    "/calico/v1/netset/n",
    "/calico/v1/ipam/v4/pool/10.0.0.0-8",
    "/calico/v1/config/c",
    "/calico/v1/Ready",
    "/calico/v1/host/h/metadata",
    "/calico/v1/host/h/wireguard",
    "/calico/v1/host/h/orchestrator_refs",
    "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26",
    "/calico/ipam/v2/host/h/ipv4/block/10.0.0.0-26",
    "/calico/ipam/v2/handle/h",
    "/calico/ipam/v2/config",
    "/calico/felix/v1/host/h/endpoint/e",
    "/calico/felix/v2/no-region/host/h/status",
    "/calico/resources/v3/projectcalico.org/ipamconfigs/default",
];

fuzz_target!(|input: &[u8]| {
    let [choice, raw @ ..] = input else { return };
    let endpoint = plain_workload_endpoint(raw).map(Resource::WorkloadEndpoint);
    is_read_alike(Kind::WorkloadEndpoint, endpoint, raw);
    let global = plain_policy("GlobalNetworkPolicy", raw).map(Resource::GlobalNetworkPolicy);
    is_read_alike(Kind::GlobalNetworkPolicy, global, raw);
    let own = plain_policy("NetworkPolicy", raw).map(Resource::NetworkPolicy);
    is_read_alike(Kind::NetworkPolicy, own, raw);
    let choice = usize::from(*choice) % (PATHS.len() + Kind::all().count());
    let path = match PATHS.get(choice) {
        Some(path) => (*path).to_owned(),
        None => {
            let kind = Kind::all().nth(choice - PATHS.len()).expect("the choice is in range");
            path_of(kind)
        }
    };
    let Some(key) = Key::parse(&path) else { return };
    let _ = value::parse_as_calico(&key, raw).map_err(|error| error.to_string());
    let Ok(stored) = value::parse(&key, raw) else { return };
    let written = value::write(&stored);
    let again = value::parse(&key, &written).map(|stored| value::write(&stored));
    assert_eq!(again.map(String::from_utf8), Ok(String::from_utf8(written)), "{path}");
});

fn path_of(kind: Kind) -> String {
    let folder = format!("/calico/resources/v3/projectcalico.org/{}", kind.plural());
    if kind.is_namespaced() { folder + "/n/a" } else { folder + "/a" }
}

fn is_read_alike(kind: Kind, plain: Option<Resource>, raw: &[u8]) {
    let Some(plain) = plain else { return };
    let key = Key::parse(&path_of(kind)).expect("it is a key");
    let Ok(Stored::Json(stored)) = value::parse(&key, raw) else {
        panic!("only read at once: {plain:?}");
    };
    assert_eq!(Resource::read(kind, &stored), Ok(plain));
}
