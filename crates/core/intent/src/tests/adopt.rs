//! Whose an interface is that no journal has.

use std::net::IpAddr;

use sandbox::identity::{Identity, Workload};
use sandbox::life::{NetnsId, Record};

use super::*;

/// Address 10.0.0.5 of this node is held by a handle.
fn held(inputs: &mut Inputs, handle: &str, node: &str, pod: Option<(&str, &str)>) {
    let mut owner = json!({ "node": node });
    if let Some((namespace, name)) = pod {
        owner["namespace"] = namespace.into();
        owner["pod"] = name.into();
    }
    let mut allocations = vec![Value::Null; 64];
    allocations[5] = 0.into();
    let unallocated: Vec<usize> = (0..64).filter(|ordinal| *ordinal != 5).collect();
    let value = json!({
        "cidr": "10.0.0.0/26", "affinity": "host:n1", "allocations": allocations,
        "unallocated": unallocated, "deleted": false,
        "attributes": [{ "handle_id": handle, "secondary": owner }],
        "sequenceNumber": 9, "sequenceNumberForAllocation": { "5": 7 },
    });
    put(inputs, "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26", value);
    inputs.complete();
}

fn stranger(interface: &str, addresses: &[&str]) -> Stranger {
    let inside = Inside {
        interface: "eth0".to_owned(),
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1400,
        addresses: addresses.iter().map(|it| it.parse::<IpAddr>().unwrap()).collect(),
        netns: NetnsId { device: 4, inode: 77 },
        path: "/run/netns/x".to_owned(),
        n_processes: 1,
    };
    Stranger { interface: interface.to_owned(), named: None, inside: Some(inside) }
}

fn recognised(inputs: &Inputs, stranger: &Stranger) -> Result<Record, String> {
    match inputs.recognise(inputs.in_sync().unwrap(), stranger, "boot1") {
        Recognised::Sandbox { record, .. } => Ok(*record),
        Recognised::Nobodys { why, .. } => Err(why),
    }
}

#[test]
fn an_endpoint_says_whose_an_interface_is() {
    let mut inputs = cluster();
    endpoint(&mut inputs, "n1", "a", "10.0.0.5", json!(["net1"]));
    held(&mut inputs, "net1.a", "n1", None);
    // Without a way to the other end the records have to do.
    let hidden = Stranger { inside: None, ..stranger("calia", &[]) };
    for stranger in [stranger("calia", &["10.0.0.5"]), hidden] {
        let record = recognised(&inputs, &stranger).unwrap();
        assert_eq!(record.identity.alias(), "margay a eth0");
        assert_eq!((record.network.as_str(), record.ipam.as_str()), ("net1", "calico-ipam"));
        assert_eq!(record.addresses[0].network.to_string(), "10.0.0.5/26");
        assert_eq!(record.addresses[0].sequence, Some(7));
        assert_eq!(record.profiles, Some(vec!["net1".to_owned()]));
        assert_eq!((record.boot.as_str(), record.wiring.addresses.len()), ("boot1", 1));
    }
}

#[test]
fn without_an_endpoint_the_holder_of_its_address_says_it() {
    let pod = Workload::Pod { namespace: "shop".to_owned(), name: "web-0".to_owned() };
    let identity = Identity { container: "abc".to_owned(), interface: "eth0".to_owned() };
    let interface = pod.host_interface(&identity);
    let mut inputs = cluster();
    held(&mut inputs, "k8s.pod-network.abc", "n1", Some(("shop", "web-0")));
    let record = recognised(&inputs, &stranger(&interface, &["10.0.0.5"])).unwrap();
    assert_eq!((&record.workload, &record.identity), (&pod, &identity));
    assert_eq!(record.network, "k8s.pod-network");
    assert_eq!(record.endpoint, "n1-k8s-web--0-eth0");
    assert_eq!(record.profiles, Some(vec!["k8s.pod-network".to_owned()]));
    let profile = resource("Profile", "kns.shop", json!({ "egress": [{ "action": "Allow" }] }));
    put(&mut inputs, &format!("{RESOURCES}/profiles/kns.shop"), profile);
    let record = recognised(&inputs, &stranger(&interface, &["10.0.0.5"])).unwrap();
    assert_eq!(record.profiles, Some(vec!["kns.shop".to_owned()]));
}

#[test]
fn a_live_address_that_nobody_holds_stays_its_own() {
    let mut inputs = cluster();
    endpoint(&mut inputs, "n1", "a", "10.0.0.9", json!(["net1"]));
    held(&mut inputs, "net1.other", "n1", None);
    let record = recognised(&inputs, &stranger("calia", &["10.0.0.9"])).unwrap();
    assert_eq!((record.handle().as_str(), record.ipam.as_str()), ("net1.a", "calico-ipam"));
    assert_eq!(record.addresses[0].sequence, None);
}

#[test]
fn contradictions_leave_an_interface_a_stranger() {
    let mut inputs = cluster();
    endpoint(&mut inputs, "n1", "a", "10.0.0.5", json!(["net1"]));
    held(&mut inputs, "net1.b", "n1", None);
    let refused = |stranger: &Stranger, why: &str| {
        let told = recognised(&inputs, stranger).unwrap_err();
        assert!(told.contains(why), "{why}: {told}");
    };
    refused(&stranger("calia", &["10.0.0.5"]), "10.0.0.5 of container a is held by net1.b");
    refused(&stranger("calia", &["10.0.0.6"]), "has 10.0.0.5, inside there is 10.0.0.6");
    // Whatever is inside: it is not called as the holder of 10.0.0.5 would be.
    refused(&stranger("calix", &["10.0.0.5"]), "no address is held for such a one");
    let other = Identity { container: "z".to_owned(), interface: "eth0".to_owned() };
    let named = Stranger { named: Some(other), ..stranger("calia", &["10.0.0.5"]) };
    refused(&named, "it was made for z eth0");
    let mut renamed = stranger("calia", &["10.0.0.5"]);
    renamed.inside.as_mut().unwrap().interface = "net1".to_owned();
    refused(&renamed, "it leads to net1 of a container");
}

#[test]
fn an_address_of_another_node_makes_nobody_known() {
    let mut inputs = cluster();
    held(&mut inputs, "net1.b", "n2", None);
    assert!(recognised(&inputs, &stranger("calib", &["10.0.0.5"])).is_err());
    held(&mut inputs, "net1.b", "n1", None);
    assert!(recognised(&inputs, &stranger("calib", &["10.0.0.5"])).is_ok());
    assert!(recognised(&inputs, &stranger("calib", &[])).is_ok(), "it is no evidence");
}
