//! One good object of every kind that a datastore holds, with every field that can be filled.
//!
//! A few fields are written by hand; the schema's tables give the others, and the rules of writes
//! say which values are good.

use api::keys::value::{self, Stored};
use api::keys::{Key, ResourceKey, ResourceKind};
use api::schema::{self, Field, Limit, Shape};
use api::{Kind, Problem};
use model::resource::Resource;
use serde_json::{Map, Value, json};

/// Stands for a number in names; every object has its own.
pub(crate) const NUMBER: &str = "nnnnn";
/// Stands for an address; every object has its own.
pub(crate) const ADDRESS: &str = "10.66.77.88";
/// Stands for a block of addresses, in values.
pub(crate) const BLOCK: &str = "10.77.88.0/26";
/// The same in keys.
pub(crate) const BLOCK_IN_KEY: &str = "10.77.88.0-26";

/// The name of samples that are good, and still of no use to the agent.
pub(crate) const REQUESTS: &str = "policy for requests";

/// An object and where it lies.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// What it is called here.
    pub(crate) name: &'static str,
    pub(crate) key: String,
    pub(crate) value: Value,
}

/// What the rules of writes have against a stored value.
pub(crate) fn problems(key: &str, bytes: &[u8]) -> Vec<String> {
    let Some(key) = Key::parse(key) else { return Vec::new() };
    let spoken =
        |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    let stored = match value::parse(&key, bytes) {
        Ok(Stored::Json(stored)) => stored,
        Ok(_) => return Vec::new(),
        Err(value::ValueError::Fields(problems)) => return spoken(problems),
        Err(error) => return vec![error.to_string()],
    };
    match key {
        // In etcd claims are records of addresses; nobody writes them as resources.
        Key::Resource(ResourceKey { kind: ResourceKind::Api(Kind::BlockAffinity), .. }) => {
            Vec::new()
        }
        Key::Resource(ResourceKey { kind: ResourceKind::Api(kind), .. }) => {
            Resource::read(kind, &stored).err().map(spoken).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Sample> {
    let mut all: Vec<Sample> = bases()
        .into_iter()
        .map(|(name, kind, spec)| {
            let mut sample = resource(name, kind, spec);
            assert_good(&sample);
            enrich(kind, &mut sample);
            sample
        })
        .collect();
    all.extend(records());
    all.iter().for_each(assert_good);
    all
}

fn assert_good(sample: &Sample) {
    let problems = problems(&sample.key, sample.value.to_string().as_bytes());
    assert!(problems.is_empty(), "{}: {problems:?}", sample.name);
}

/// The fields of the schema's tables that no sample of the kind has.
pub(crate) fn missing(samples: &[Sample]) -> Vec<String> {
    let mut missing = Vec::new();
    for kind in Kind::all() {
        let folder = format!("/{}/", kind.plural());
        let of_kind = samples.iter().filter(|sample| sample.key.contains(&folder));
        let values: Vec<&Value> = of_kind.map(|sample| &sample.value).collect();
        for field in schema::object_for(kind).fields.iter().filter(|it| it.name == "spec") {
            look(&values, field, &format!("{} spec", kind.name()), &mut missing);
        }
    }
    missing
}

/// Notes a field that none of the values has, or what is missing inside it.
fn look(values: &[&Value], field: &Field, path: &str, missing: &mut Vec<String>) {
    let found: Vec<&Value> = values.iter().filter_map(|value| value.get(field.name)).collect();
    let (inner, found) = match field.shape {
        _ if found.is_empty() => {
            missing.push(path.to_owned());
            return;
        }
        Shape::Object(inner) => (inner, found),
        Shape::List(Shape::Object(inner)) => {
            (*inner, found.into_iter().filter_map(Value::as_array).flatten().collect())
        }
        _ => return,
    };
    for field in inner.fields {
        look(&found, field, &format!("{path}.{}", field.name), missing);
    }
}

fn resource(name: &'static str, kind: Kind, spec: Value) -> Sample {
    let mut object = match kind {
        Kind::WorkloadEndpoint => format!("n1-cni-bad{NUMBER}-eth0"),
        Kind::FelixConfiguration if name == "settings" => format!("node.bad-{NUMBER}"),
        _ => format!("bad-{NUMBER}"),
    };
    if name == "workload elsewhere" {
        object = object.replace("n1", "n2");
    }
    // Policies carry the name of their tier in front.
    let is_policy = matches!(
        kind,
        Kind::GlobalNetworkPolicy
            | Kind::NetworkPolicy
            | Kind::StagedGlobalNetworkPolicy
            | Kind::StagedNetworkPolicy
    );
    if is_policy {
        object = format!("default.{object}");
    }
    let namespace = if kind.is_namespaced() { "default" } else { "" };
    let mut metadata = json!({
        "name": object, "uid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        "creationTimestamp": "2026-01-02T03:04:05Z", "generation": 3,
        "labels": { "role": "victim", "a": "b" }, "annotations": { "note": "x" },
        "ownerReferences": [
            { "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true },
        ],
        "finalizers": ["tidy"],
        "managedFields": [{ "manager": "m", "time": "2026-01-02T03:04:05Z", "fieldsV1": {} }],
    });
    if kind.is_namespaced() {
        metadata["namespace"] = json!(namespace);
    }
    let value = json!({
        "apiVersion": "projectcalico.org/v3", "kind": kind.name(), "metadata": metadata,
        "spec": spec,
    });
    let kind = ResourceKind::Api(kind);
    let key = ResourceKey { kind, namespace: namespace.to_owned(), name: object };
    Sample { name, key: key.path(), value }
}

/// Records of addresses, and the flag that the datastore may be used.
fn records() -> Vec<Sample> {
    let ipam = "/calico/ipam/v2";
    let block = json!({
        "cidr": BLOCK, "affinity": "host:n2", "affinity_claim_time": "2026-01-02T03:04:05Z",
        "allocations": (0..64).map(|it| if it == 0 { json!(0) } else { Value::Null })
            .collect::<Vec<_>>(),
        "unallocated": (1..64).collect::<Vec<_>>(),
        "attributes": [{
            "handle_id": "net1.x", "secondary": { "node": "n2", "pod": "p", "namespace": "d" },
        }],
        "sequenceNumber": 7, "sequenceNumberForAllocation": { "0": 5 }, "deleted": false,
    });
    let sample = |name, key: String, value| Sample { name, key, value };
    vec![
        sample("block", format!("{ipam}/assignment/ipv4/block/{BLOCK_IN_KEY}"), block),
        sample(
            "claim",
            format!("{ipam}/host/n2/ipv4/block/{BLOCK_IN_KEY}"),
            json!({ "state": "confirmed", "deleted": false }),
        ),
        sample(
            "handle",
            format!("{ipam}/handle/bad.{NUMBER}"),
            json!({ "block": { BLOCK: 1 }, "deleted": false }),
        ),
        sample(
            "node's settings of addresses",
            format!("{ipam}/host/bad-{NUMBER}"),
            json!({ "deleted": false }),
        ),
    ]
}

fn rules(is_ingress: bool) -> Value {
    let mut rules = json!([
        {
            "action": "Allow", "ipVersion": 4, "protocol": "TCP",
            "metadata": { "annotations": { "why": "x" } },
            "source": {
                "nets": ["10.1.0.0/16", "10.2.0.0/16"], "notNets": ["10.1.1.0/24"],
                "selector": "a == 'b'", "notSelector": "c == 'd'",
                "namespaceSelector": "has(e)", "ports": [1024, "2000:3000"], "notPorts": [2500],
                "serviceAccounts": { "names": ["robot"], "selector": "f == 'g'" },
            },
            "destination": {
                "nets": ["10.65.0.0/16"], "notNets": ["10.65.9.0/24"],
                "selector": "all()", "notSelector": "h == 'i'",
                "namespaceSelector": "all()", "ports": [80, "http"], "notPorts": ["81:90"],
            },
        },
        { "action": "Deny", "protocol": "ICMP", "icmp": { "type": 8, "code": 0 } },
        { "action": "Log", "protocol": "ICMP", "notICMP": { "type": 3, "code": 1 } },
        { "action": "Pass", "notProtocol": 132 },
        { "action": "Deny", "source": { "selector": "a in { 'b', 'c' }" } },
    ]);
    let side = if is_ingress { "source" } else { "destination" };
    let service = json!({ "services": { "name": "s", "namespace": "default" } });
    rules.as_array_mut().unwrap().push(json!({ "action": "Allow", side: service }));
    rules
}

type Base = (&'static str, Kind, Value);

fn bases() -> Vec<Base> {
    let mut bases = policies();
    bases.extend(endpoints());
    bases.extend(others());
    let all: Vec<Kind> = bases.iter().map(|it| it.1).collect();
    let missing: Vec<Kind> = Kind::all().filter(|kind| !all.contains(kind)).collect();
    assert!(missing.is_empty(), "no sample of {missing:?}");
    bases
}

fn policies() -> Vec<Base> {
    let plain = json!({
        "tier": "default", "order": 50.5, "selector": "role == 'victim'",
        "types": ["Ingress", "Egress"], "ingress": rules(true), "egress": rules(false),
    });
    let mut global = plain.clone();
    global["doNotTrack"] = json!(false);
    global["preDNAT"] = json!(false);
    let forwarded = json!({
        "tier": "default", "order": 1, "selector": "has(host)", "applyOnForward": true,
        "preDNAT": true, "types": ["Ingress"],
        "ingress": [{ "action": "Deny", "source": { "nets": ["192.0.2.0/24"] } }],
    });
    // Nobody here looks into requests, so it is named though it is good.
    let mut requests = plain.clone();
    requests["egress"] = json!([]);
    requests["ingress"] = json!([{
        "action": "Allow", "protocol": "TCP", "destination": { "ports": [8080] },
        "http": { "methods": ["GET"], "paths": [{ "exact": "/a" }, { "prefix": "/b" }] },
    }]);
    let kubernetes = json!({
        "podSelector": { "matchLabels": { "role": "victim" }, "matchExpressions": [
            { "key": "a", "operator": "In", "values": ["b"] },
        ]},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{
            "ports": [{ "protocol": "TCP", "port": 80, "endPort": 90 }, { "port": "http" }],
            "from": [
                { "podSelector": { "matchLabels": { "a": "b" } }, "namespaceSelector": {} },
                { "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"] } },
            ],
        }],
        "egress": [{ "to": [{ "ipBlock": { "cidr": "10.0.0.0/8" } }] }],
    });
    vec![
        ("global policy", Kind::GlobalNetworkPolicy, global.clone()),
        (REQUESTS, Kind::GlobalNetworkPolicy, requests.clone()),
        (REQUESTS, Kind::NetworkPolicy, requests.clone()),
        (REQUESTS, Kind::StagedGlobalNetworkPolicy, requests.clone()),
        (REQUESTS, Kind::Profile, json!({ "ingress": requests["ingress"] })),
        (REQUESTS, Kind::StagedNetworkPolicy, requests),
        ("forward policy", Kind::GlobalNetworkPolicy, forwarded),
        ("policy", Kind::NetworkPolicy, plain.clone()),
        ("staged global policy", Kind::StagedGlobalNetworkPolicy, global),
        ("staged policy", Kind::StagedNetworkPolicy, plain),
        ("staged Kubernetes policy", Kind::StagedKubernetesNetworkPolicy, kubernetes),
        ("tier", Kind::Tier, json!({ "order": 500.5, "defaultAction": "Pass" })),
        (
            "profile",
            Kind::Profile,
            json!({ "ingress": rules(true), "egress": rules(false), "labelsToApply": { "x": "y" } }),
        ),
    ]
}

fn endpoints() -> Vec<Base> {
    let ports = json!([{ "name": "http", "protocol": "TCP", "port": 8080 }]);
    let host = json!({
        "node": "n1", "interfaceName": format!("bad{NUMBER}"), "expectedIPs": [ADDRESS],
        "profiles": ["net1"], "ports": ports,
    });
    let mut workload = json!({
        "orchestrator": "cni", "node": "n1", "containerID": format!("bad{NUMBER}"),
        "endpoint": "eth0", "interfaceName": format!("calibad{NUMBER}"), "profiles": ["net1"],
        "ipNetworks": [format!("{ADDRESS}/32"), "fd66::77/128"], "mac": "ee:ee:ee:ee:ee:ee",
        "ipNATs": [{ "internalIP": ADDRESS, "externalIP": "192.0.2.9" }],
        "allowSpoofedSourcePrefixes": ["10.99.0.0/16"], "ports": ports,
    });
    let here = workload.clone();
    workload["node"] = json!("n2");
    let nets = json!({ "nets": [format!("{ADDRESS}/32"), "10.3.0.0/16", "fd66::/64"] });
    vec![
        ("host endpoint", Kind::HostEndpoint, host),
        ("workload here", Kind::WorkloadEndpoint, here),
        ("workload elsewhere", Kind::WorkloadEndpoint, workload),
        ("network set", Kind::NetworkSet, nets.clone()),
        ("global network set", Kind::GlobalNetworkSet, nets),
        ("migration", Kind::LiveMigration, json!({ "source": { "workload": {} } })),
    ]
}

/// What cannot be found by trying.
fn settings() -> Value {
    json!({
        "featureDetectOverride": "MASQFullyRandom=true", "featureGates": "One=two",
        "chainInsertMode": "Append", "defaultEndpointToHostAction": "Return",
        "iptablesFilterAllowAction": "Return", "iptablesMangleAllowAction": "Return",
        "iptablesFilterDenyAction": "Reject", "nftablesFilterAllowAction": "Return",
        "nftablesMangleAllowAction": "Return", "nftablesFilterDenyAction": "Reject",
        "logActionRateLimit": "5/second", "bpfExternalServiceMode": "DSR",
        "healthTimeoutOverrides": [{ "name": "x", "timeout": "5s" }],
        "bpfMapSizeConntrackScaling": "DoubleIfFull", "bpfEnforceRPF": "Loose",
        "routeSource": "WorkloadIPs", "serviceLoopPrevention": "Reject",
        "workloadSourceSpoofing": "Any",
    })
}

fn others() -> Vec<Base> {
    let node = json!({
        "bgp": { "ipv4Address": "172.30.0.9/24", "ipv6Address": "fd30::9/64", "asNumber": 64512 },
        "orchRefs": [{ "nodeName": "x", "orchestrator": "k8s" }],
        "addresses": [{ "address": "172.30.0.9", "type": "InternalIP" }],
        "vxlanTunnelMACAddr": "66:00:00:00:00:01", "vxlanTunnelMACAddrV6": "66:00:00:00:00:02",
    });
    let filter = |cidr: &str, action: &str| {
        json!([{
            "action": action, "cidr": cidr, "matchOperator": "In",
            "prefixLength": { "min": 8, "max": 32 }, "communities": { "values": ["1:2"] },
            "operations": [
                { "addCommunity": { "value": "1:2" } }, { "prependASPath": { "prefix": [64512] } },
                { "setPriority": { "value": 10 } },
            ],
        }])
    };
    let filter = json!({
        "exportV4": filter("10.0.0.0/8", "Accept"), "importV4": filter("10.0.0.0/8", "Accept"),
        "exportV6": filter("fd00::/8", "Accept"), "importV6": filter("fd00::/8", "Accept"),
    });
    let services = json!({
        "serviceClusterIPs": [{ "cidr": "10.96.0.0/12" }],
        "communities": [{ "name": "one", "value": "1:2" }],
        "prefixAdvertisements": [{ "cidr": "10.0.0.0/8", "communities": ["one"] }],
    });
    let affinity = json!({ "state": "confirmed", "node": "n2", "cidr": BLOCK, "deleted": "false" });
    vec![
        ("node", Kind::Node, node),
        ("BGP settings", Kind::BgpConfiguration, services),
        ("BGP filter", Kind::BgpFilter, filter),
        ("BGP peer", Kind::BgpPeer, json!({ "peerIP": "192.0.2.1", "asNumber": 64513 })),
        (
            "BGP peers by labels",
            Kind::BgpPeer,
            json!({
                "nodeSelector": "has(x)", "peerSelector": "has(y)", "nextHopMode": "Auto",
                "reversePeering": "Auto",
            }),
        ),
        (
            "BGP peers that are workloads",
            Kind::BgpPeer,
            json!({ "localWorkloadSelector": "has(x)", "asNumber": 64514 }),
        ),
        (
            "settings for some nodes",
            Kind::FelixConfiguration,
            json!({ "nodeSelector": "has(x)", "routeTableRange": { "min": 1, "max": 250 } }),
        ),
        ("claim as a resource", Kind::BlockAffinity, affinity),
        (
            "node status",
            Kind::CalicoNodeStatus,
            json!({ "node": "n1", "classes": ["Agent"], "updatePeriodSeconds": 10 }),
        ),
        ("cluster", Kind::ClusterInformation, json!({ "datastoreReady": true })),
        ("settings", Kind::FelixConfiguration, settings()),
        ("settings of addresses", Kind::IpamConfiguration, json!({ "strictAffinity": false })),
        ("pool", Kind::IpPool, json!({ "cidr": BLOCK, "blockSize": 28, "natOutgoing": true })),
        ("reservation", Kind::IpReservation, json!({ "reservedCIDRs": [BLOCK] })),
        ("controllers", Kind::KubeControllersConfiguration, json!({ "controllers": {} })),
    ]
}

/// Fills in every field of the spec for which a good value is found.
fn enrich(kind: Kind, sample: &mut Sample) {
    let table = schema::object_for(kind);
    for field in table.fields.iter().filter(|it| ["spec", "status"].contains(&it.name)) {
        let key = sample.key.clone();
        let is_good = |value: &Value| problems(&key, value.to_string().as_bytes()).is_empty();
        fill(&mut sample.value, &mut vec![field.name.to_owned()], field, &is_good);
    }
}

/// Fills the field at a path, and what is inside it.
fn fill(root: &mut Value, path: &mut Vec<String>, field: &Field, is_good: &dyn Fn(&Value) -> bool) {
    let pointer = format!("/{}", path.join("/"));
    // A rule for some requests is valid, and put aside all the same.
    if field.name == "http" && root.pointer(&pointer).is_none() {
        return;
    }
    if root.pointer(&pointer).is_none() {
        let (last, parents) = path.split_last().unwrap();
        let parent = parents.iter().map(|it| format!("/{it}")).collect::<String>();
        let mut found = false;
        for candidate in candidates(&field.shape, field.limits, field.default) {
            let mut tried = root.clone();
            let Some(Value::Object(fields)) = tried.pointer_mut(&parent) else { return };
            fields.insert(last.clone(), candidate);
            if is_good(&tried) {
                *root = tried;
                found = true;
                break;
            }
        }
        if !found {
            return;
        }
    }
    let (inner, more) = match field.shape {
        Shape::Object(inner) => (inner, None),
        Shape::List(Shape::Object(inner)) => (*inner, Some("0")),
        _ => return,
    };
    path.extend(more.map(str::to_owned));
    for field in inner.fields {
        path.push(field.name.to_owned());
        fill(root, path, field, is_good);
        path.pop();
    }
    if more.is_some() {
        path.pop();
    }
}

/// Values that may be good ones.
fn candidates(shape: &Shape, limits: &[Limit], default: Option<&str>) -> Vec<Value> {
    let mut all: Vec<Value> =
        default.and_then(|text| serde_json::from_str(text).ok()).into_iter().collect();
    for limit in limits {
        match limit {
            Limit::OneOf(texts) => all.extend(texts.iter().map(|it| json!(it))),
            Limit::OneOfNumbers(numbers) => all.extend(numbers.iter().map(|it| json!(it))),
            Limit::Minimum(least) => all.push(json!(least)),
            _ => {}
        }
    }
    let texts = [
        "all()",
        "a",
        "10.9.0.1",
        "10.9.0.0/16",
        "fd09::1",
        "fd09::/64",
        "1:2",
        "1m0s",
        "Info",
        "eth0",
        "n1",
        "2026-01-02T03:04:05Z",
        "8080",
        "iptables",
        "Enabled",
        "tcp:22",
    ];
    match shape {
        Shape::Text | Shape::StrictText => all.extend(texts.map(Value::from)),
        Shape::Bool => all.extend([json!(true), json!(false)]),
        Shape::Int { .. } => all.extend([1, 0, 10, 100, 1000, 4].map(Value::from)),
        Shape::Float => all.push(json!(1.5)),
        Shape::Port => all.push(json!(80)),
        Shape::Protocol => all.push(json!("TCP")),
        Shape::AsNumber => all.push(json!(64512)),
        Shape::Dscp => all.extend([json!("EF"), json!(10)]),
        Shape::Duration => all.push(json!("1m0s")),
        Shape::Time => all.push(json!("2026-01-02T03:04:05Z")),
        Shape::IntOrText => all.push(json!(80)),
        Shape::Map(_) => all.push(json!({ "a": "b" })),
        Shape::Any => all.push(json!({})),
        Shape::Object(object) => all.extend([json!({}), least(object)]),
        Shape::List(item) => {
            let mut each: Vec<Limit> = Vec::new();
            for limit in limits {
                if let Limit::Each(inner) = limit {
                    each.extend(inner.iter().copied());
                }
            }
            all.extend(candidates(item, &each, None).into_iter().map(|it| json!([it])));
        }
    }
    all
}

/// An object with what it must have.
fn least(object: &schema::Object) -> Value {
    let required = object.fields.iter().filter(|field| field.required);
    let filled = required.filter_map(|field| {
        let first = candidates(&field.shape, field.limits, field.default).into_iter().next()?;
        Some((field.name.to_owned(), first))
    });
    Value::Object(filled.collect::<Map<_, _>>())
}
