//! The endpoints of other nodes: a cluster has many, so little is kept of each.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::names::WorkloadEndpointParts;
use net::Cidr;
use policy::input::Workload;

/// An endpoint that is stored as another node's. The graph of policies has the rest of it.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    pub(crate) node: Arc<str>,
    pub(crate) interface: Box<str>,
    pub(crate) addresses: Box<[Cidr]>,
    /// All of it, if this node's journal may have a say in it: then the graph has to be told of it
    /// again some day.
    pub(crate) workload: Option<Arc<Workload>>,
}

/// Makes them small.
#[derive(Debug)]
pub(crate) struct Condenser {
    /// What the names of endpoints begin with that this node's sandboxes have.
    own: String,
    /// The names of nodes so far; each has many endpoints.
    nodes: BTreeSet<Arc<str>>,
}

impl Condenser {
    pub(crate) fn new(node: &str) -> Self {
        let parts = WorkloadEndpointParts { node: node.to_owned(), ..Default::default() };
        // Every name begins with nothing: who has no such names keeps all of them whole.
        Self { own: parts.name_prefix().unwrap_or_default(), nodes: BTreeSet::new() }
    }

    /// What is kept of an endpoint; `was_here` if it was stored as this node's before.
    pub(crate) fn condense(
        &mut self,
        path: &str,
        workload: Arc<Workload>,
        was_here: bool,
    ) -> Elsewhere {
        let node = match self.nodes.get(workload.node.as_str()) {
            Some(node) => Arc::clone(node),
            None => {
                let node: Arc<str> = workload.node.as_str().into();
                self.nodes.insert(Arc::clone(&node));
                node
            }
        };
        let name = path.rsplit('/').next().unwrap_or(path);
        let may_be_ours = was_here || name.starts_with(&self.own);
        Elsewhere {
            node,
            interface: workload.interface.as_str().into(),
            addresses: workload.addresses.as_slice().into(),
            workload: may_be_ours.then_some(workload),
        }
    }
}
