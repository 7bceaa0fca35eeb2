//! Pools of addresses, and which of them serve a request.

use std::collections::BTreeMap;

use model::selector::Selector;
use net::Cidr;
use serde_json::Value;

/// A pool as address management sees it.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub cidr: Cidr,
    /// The prefix length of its blocks.
    pub block_size: u8,
    /// Why nothing new may be taken from it, if so.
    pub closed: Option<Closed>,
    /// Which nodes may use it; none means all.
    pub node_selector: Option<Selector>,
    /// Which namespaces may use it; none means all.
    pub namespace_selector: Option<Selector>,
    /// What its addresses are for.
    pub allowed_uses: Vec<String>,
    /// Whether it is used only when asked for.
    pub is_manual: bool,
}

/// Why nothing new may be taken from a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Somebody switched it off.
    Disabled,
    /// It is being deleted.
    Terminating,
    /// Its status says that nothing can be allocated.
    NotAllocatable,
}

/// Why a pool does not serve a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing new is taken from it.
    Closed(Closed),
    /// Its object cannot be used.
    Unreadable(String),
    /// Its blocks are too small for what the host keeps for itself.
    BlocksTooSmall,
    /// It is used only when asked for.
    Manual,
    /// Its selector for nodes, which did not match.
    NodeSelector(String),
    /// Its selector for namespaces, which did not match.
    NamespaceSelector(String),
    /// What it is for, which is something else.
    Uses(Vec<String>),
}

impl Pool {
    /// Reads the stored object.
    pub(crate) fn read(name: &str, object: &Value) -> Result<Self, String> {
        let spec = &object["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default();
        let cidr = Cidr::parse_strict(text("cidr"))
            .ok_or_else(|| format!("spec.cidr: {:?} is not a network", text("cidr")))?
            .masked();
        let default_size = if cidr.is_ipv4() { 26 } else { 122 };
        let block_size = match spec["blockSize"].as_u64().unwrap_or(0) {
            0 => default_size,
            size => u8::try_from(size).unwrap_or(u8::MAX),
        };
        if Cidr::new(cidr.address(), block_size).is_none() || block_size < cidr.prefix_len() {
            return Err(format!("spec.blockSize: {block_size} does not fit {cidr}"));
        }
        let uses: Vec<String> = spec["allowedUses"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it.as_str().map(str::to_owned))
            .collect();
        Ok(Self {
            name: name.to_owned(),
            cidr,
            block_size,
            closed: closed(object),
            node_selector: selector("spec.nodeSelector", text("nodeSelector"))?,
            namespace_selector: selector("spec.namespaceSelector", text("namespaceSelector"))?,
            allowed_uses: match uses.is_empty() {
                true => vec!["Workload".to_owned(), "Tunnel".to_owned()],
                false => uses,
            },
            is_manual: !matches!(text("assignmentMode"), "" | "Automatic"),
        })
    }

    pub(crate) fn selects_node(&self, labels: &BTreeMap<String, String>) -> bool {
        self.node_selector.as_ref().is_none_or(|selector| selector.matches_labels(labels))
    }

    fn selects_namespace(&self, labels: &BTreeMap<String, String>) -> bool {
        self.namespace_selector.as_ref().is_none_or(|selector| selector.matches_labels(labels))
    }

    pub(crate) fn allows(&self, purpose: &str) -> bool {
        self.allowed_uses.iter().any(|allowed| allowed == purpose)
    }

    /// Why an automatic request does not take it, if so.
    pub(crate) fn refusal(
        &self,
        node: &BTreeMap<String, String>,
        namespace: &BTreeMap<String, String>,
    ) -> Option<Refusal> {
        let told = |selector: &Option<Selector>| {
            selector.as_ref().map(Selector::to_string).unwrap_or_default()
        };
        if let Some(closed) = self.closed {
            Some(Refusal::Closed(closed))
        } else if self.is_manual {
            Some(Refusal::Manual)
        } else if !self.selects_node(node) {
            Some(Refusal::NodeSelector(told(&self.node_selector)))
        } else if !self.selects_namespace(namespace) {
            Some(Refusal::NamespaceSelector(told(&self.namespace_selector)))
        } else {
            None
        }
    }
}

fn closed(object: &Value) -> Option<Closed> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut refused =
        conditions.filter(|it| it["type"] == "Allocatable" && it["status"] == "False");
    if !object["metadata"]["deletionTimestamp"].is_null() {
        Some(Closed::Terminating)
    } else if object["spec"]["disabled"] == true {
        Some(Closed::Disabled)
    } else {
        refused.next().map(|_| Closed::NotAllocatable)
    }
}

fn selector(field: &str, text: &str) -> Result<Option<Selector>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| format!("{field}: {error}"))
}
