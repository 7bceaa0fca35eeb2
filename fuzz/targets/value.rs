//! Stored values: the first byte chooses the key; what can be read is written so that it reads
//! the same. An endpoint that is read at once is read by all rules, as the same.

#![no_main]

use api::Kind;
use api::keys::value::Stored;
use api::keys::{Key, value};
use libfuzzer_sys::fuzz_target;
use model::resource::{Resource, plain_workload_endpoint};

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
    if let Some(plain) = plain_workload_endpoint(raw) {
        let key = Key::parse("/calico/resources/v3/projectcalico.org/workloadendpoints/n/a");
        let Ok(Stored::Json(stored)) = value::parse(&key.expect("it is a key"), raw) else {
            panic!("only read at once: {plain:?}");
        };
        let read = Resource::read(Kind::WorkloadEndpoint, &stored);
        assert_eq!(read, Ok(Resource::WorkloadEndpoint(plain)));
    }
    let choice = usize::from(*choice) % (PATHS.len() + Kind::all().count());
    let path = match PATHS.get(choice) {
        Some(path) => (*path).to_owned(),
        None => {
            let kind = Kind::all().nth(choice - PATHS.len()).expect("the choice is in range");
            let folder = format!("/calico/resources/v3/projectcalico.org/{}", kind.plural());
            if kind.is_namespaced() { folder + "/n/a" } else { folder + "/a" }
        }
    };
    let Some(key) = Key::parse(&path) else { return };
    let _ = value::parse_as_calico(&key, raw).map_err(|error| error.to_string());
    let Ok(stored) = value::parse(&key, raw) else { return };
    let written = value::write(&stored);
    let again = value::parse(&key, &written).map(|stored| value::write(&stored));
    assert_eq!(again.map(String::from_utf8), Ok(String::from_utf8(written)), "{path}");
});
