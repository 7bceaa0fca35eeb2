//! Calico's network configuration, as far as it means something on Linux.
//!
//! Fields that we do not know are left alone: plugins further down the chain, and runtimes, put
//! theirs there. A field of the wrong type is refused with its path.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::failure::Failure;

/// Where Calico's node agent leaves the node's name.
pub const NODE_NAME_FILE: &str = "/var/lib/calico/nodename";
/// Where it leaves the MTU that it found to be right.
pub const MTU_FILE: &str = "/var/lib/calico/mtu";

/// The network configuration of one plugin.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NetConf {
    /// The name of the network: part of handles, and the profile of plain containers.
    pub name: String,
    /// The MTU of pods; 0 leaves it to the MTU file, then to the kernel.
    pub mtu: i64,
    /// Whether a missing MTU file is an error.
    pub require_mtu_file: bool,
    /// Queues of the interface; 0 means one.
    pub num_queues: i64,
    /// `veth` or `netkit`.
    pub device_type: String,
    /// The node's name; goes before the file.
    pub nodename: String,
    /// The file with the node's name.
    pub nodename_file: String,
    /// Whether that file may be missing.
    pub nodename_file_optional: bool,
    /// The node's name, as older configurations say it.
    pub hostname: String,
    /// `etcdv3`, `kubernetes`, or empty.
    pub datastore_type: String,
    /// etcd's endpoints, with commas between.
    pub etcd_endpoints: String,
    /// A domain whose SRV records name the endpoints.
    pub etcd_discovery_srv: String,
    /// A host and port, as older configurations say it.
    pub etcd_authority: String,
    /// The scheme that goes with it.
    pub etcd_scheme: String,
    /// The client's key.
    pub etcd_key_file: String,
    /// The client's certificate.
    pub etcd_cert_file: String,
    /// Who signed the server's certificate.
    pub etcd_ca_cert_file: String,
    /// The embedded store's file; ours.
    pub store: String,
    /// The agent's socket; ours.
    pub agent_socket: String,
    /// The folder of a plugin that acts without an agent; ours.
    pub state_dir: String,
    /// Address management.
    pub ipam: Ipam,
    /// What decides about policy; an empty type means profiles.
    pub policy: Policy,
    /// How to reach Kubernetes.
    pub kubernetes: Kubernetes,
    /// Settings inside the container.
    pub container_settings: ContainerSettings,
    /// With `host-local`: keep its routes and add the default ones.
    pub include_default_routes: bool,
    /// Features that annotations may use.
    pub feature_control: FeatureControl,
    /// Another dataplane.
    pub dataplane_options: DataplaneOptions,
    /// Addresses that must answer before an ADD goes on.
    pub readiness_gates: Vec<String>,
    /// What the runtime adds.
    pub args: Arguments,
    /// The result of the ADD, handed back with CHECK and DEL.
    #[serde(rename = "prevResult")]
    pub previous: Option<Value>,
    /// For GC: the attachments that are in use; none if nothing is said of them.
    #[serde(rename = "cni.dev/valid-attachments", deserialize_with = "said")]
    pub valid_attachments: Option<Vec<Attachment>>,
    /// The same, as some runtimes spell it.
    #[serde(rename = "cni.dev/attachments", deserialize_with = "said")]
    pub attachments: Option<Vec<Attachment>>,
}

/// A list that is there; Go writes an empty one as `null`.
fn said<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Attachment>>, D::Error> {
    Ok(Some(Option::deserialize(from)?.unwrap_or_default()))
}

/// The part of the configuration about addresses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Ipam {
    /// The plugin that manages addresses.
    #[serde(rename = "type")]
    pub plugin: String,
    /// For `host-local`: a network, or `usePodCidr`.
    pub subnet: String,
    /// `"false"` for no IPv4 address.
    pub assign_ipv4: Option<String>,
    /// `"true"` for an IPv6 address.
    pub assign_ipv6: Option<String>,
    /// Names or CIDRs of pools.
    pub ipv4_pools: Vec<String>,
    /// Names or CIDRs of pools.
    pub ipv6_pools: Vec<String>,
}

/// The part of the configuration about policy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// `k8s`, or empty.
    #[serde(rename = "type")]
    pub kind: String,
}

/// The part of the configuration about Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Kubernetes {
    /// The file with its address and credentials.
    pub kubeconfig: String,
    /// The node's name there.
    pub node_name: String,
}

/// Settings inside the container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ContainerSettings {
    /// Whether the container may forward packets.
    pub allow_ip_forwarding: bool,
}

/// Features that annotations may use.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct FeatureControl {
    /// Addresses from annotations that address management does not know.
    pub ip_addrs_no_ipam: bool,
    /// Floating addresses.
    pub floating_ips: bool,
}

/// Another dataplane.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct DataplaneOptions {
    /// Its name; empty for Linux.
    #[serde(rename = "type")]
    pub kind: String,
}

/// What the runtime adds to the configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Arguments {
    /// Mesos' labels.
    #[serde(rename = "org.apache.mesos")]
    pub mesos: Mesos,
}

/// Mesos' arguments.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Mesos {
    /// About the network.
    pub network_info: MesosNetwork,
}

/// What Mesos says about the network.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MesosNetwork {
    /// The labels, one level deeper than one would think.
    pub labels: MesosLabels,
}

/// Mesos' list of labels.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MesosLabels {
    /// The list.
    pub labels: Vec<Label>,
}

/// One label.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Label {
    /// Its name, in whatever characters.
    pub key: String,
    /// Its value, in whatever characters.
    pub value: String,
}

/// An attachment that is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub struct Attachment {
    /// The container.
    #[serde(rename = "containerID")]
    pub container: String,
    /// The interface inside.
    #[serde(rename = "ifname")]
    pub interface: String,
}

impl NetConf {
    /// Reads a configuration.
    pub fn read(configuration: &Value) -> Result<Self, Failure> {
        let mut value = configuration.clone();
        drop_nulls(&mut value);
        serde_path_to_error::deserialize(value).map_err(|error| {
            Failure::plugin(format!("failed to load netconf: {}: {}", error.path(), error.inner()))
        })
    }

    /// Whether the container gets an IPv4 address.
    pub fn assigns_ipv4(&self) -> bool {
        self.ipam.assign_ipv4.as_deref() != Some("false")
    }

    /// Whether the container gets an IPv6 address.
    pub fn assigns_ipv6(&self) -> bool {
        self.ipam.assign_ipv6.as_deref() == Some("true")
    }

    /// The file with the node's name.
    pub fn node_name_file(&self) -> &str {
        if self.nodename_file.is_empty() { NODE_NAME_FILE } else { &self.nodename_file }
    }

    /// The labels that Mesos gives, in characters that labels may have.
    pub fn labels(&self) -> Vec<(String, String)> {
        let labels = &self.args.mesos.network_info.labels.labels;
        labels.iter().map(|label| (label_text(&label.key), label_text(&label.value))).collect()
    }

    /// Whether the datastore is an etcd.
    pub fn names_etcd(&self) -> bool {
        [&self.etcd_endpoints, &self.etcd_discovery_srv, &self.etcd_authority]
            .into_iter()
            .any(|field| !field.is_empty())
    }

    /// Refuses an ADD for which Kubernetes would have to be asked: what it says about pools and
    /// policy would be missing.
    pub fn needs_kubernetes(&self) -> Result<(), Failure> {
        let why = match (self.policy.kind.as_str(), self.kubernetes.kubeconfig.as_str()) {
            ("k8s", _) => "policy.type is k8s".to_owned(),
            (_, "") => return Ok(()),
            (_, file) => format!("kubernetes.kubeconfig is {file}"),
        };
        Err(Failure::plugin(format!("failed to get namespace default: {why}"))
            .with_details("the Kubernetes API is not asked yet; leave the field out"))
    }

    /// What cannot be served at all.
    pub fn unsupported(&self) -> Result<(), Failure> {
        if !matches!(self.device_type.as_str(), "" | "veth" | "netkit") {
            return Err(Failure::plugin(format!(
                "unknown device_type {:?} in CNI config (supported: \"veth\", \"netkit\")",
                self.device_type
            )));
        }
        if !self.dataplane_options.kind.is_empty() {
            let kind = &self.dataplane_options.kind;
            return Err(Failure::plugin(format!("invalid dataplane type: {kind}")));
        }
        if self.ipam.plugin.is_empty() {
            return Err(Failure::plugin("no plugin name provided")
                .with_details("ipam.type is missing; calico-ipam manages addresses in the store"));
        }
        Ok(())
    }
}

/// Go reads null as the field's zero value.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Characters that labels cannot have become dashes; at the ends they fall away.
fn label_text(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' })
        .collect();
    plain.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}
