//! Addresses without interfaces: our address manager under another plugin; and addresses seen in
//! use, which are never given out.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kernel::conntrack::Conntrack;
use kernel::{Netlink, RouteFilter};
use sandbox::call::Call;
use sandbox::claim::{self, Wish};
use sandbox::failure::{Code, Failure};
use sandbox::identity::{Held, Identity, Workload};
use sandbox::netconf::NetConf;

use crate::node::Node;
use crate::routes::PROTOCOL;

impl Node {
    /// Addresses that our routes lead to: whatever the records say, somebody lives there.
    pub(crate) fn addresses_in_use(&self) -> BTreeSet<IpAddr> {
        if let Some(known) = self.in_use().as_deref() {
            return known.clone();
        }
        let filter = RouteFilter { protocol: Some(PROTOCOL), ..RouteFilter::default() };
        let routes = Netlink::in_netns(&self.here).and_then(|mut it| it.routes(&filter));
        let local = routes.unwrap_or_default().into_iter().filter(|route| {
            let hop = route.next_hops.first();
            hop.is_some_and(|hop| hop.gateway.is_none() && hop.link.is_some())
        });
        local.map(|route| route.destination.addr()).collect()
    }

    /// Forgets the conversations of addresses that are let go: an open one would go on with
    /// whoever gets the address next, whatever its policy says.
    pub(crate) fn forget_connections(&self, addresses: &[IpAddr]) {
        let all = Conntrack::in_netns(&self.here);
        if let Err(error) = all.and_then(|mut all| all.delete_addresses(addresses)) {
            self.note(&format!("connections of {addresses:?} are not forgotten: {error}"));
        }
    }

    /// Gives addresses to a container whose interface another plugin makes.
    pub(crate) fn assign_alone(
        &self,
        call: &Call,
        conf: &NetConf,
        wish: &Wish,
    ) -> Result<Vec<Held>, Failure> {
        let identity = Identity::of(call);
        let handle = identity.handle(&conf.name);
        let workload = Workload::of(call);
        let assigned = self.transact(|planner| {
            if let Err(failure) = claim::ready(planner)? {
                return Ok(Err(failure));
            }
            claim::assign(planner, &self.name, &handle, &workload, wish)
        });
        let held = assigned.map_err(|error| unavailable(&error))??;
        match held.is_empty() {
            true => Err(Failure::plugin("IPAM plugin returned no IP addresses in result")),
            false => Ok(held),
        }
    }

    /// Takes them back.
    pub(crate) fn release_alone(&self, call: &Call, conf: &NetConf) -> Result<(), Failure> {
        let handle = Identity::of(call).handle(&conf.name);
        // A handle that is not there has nothing to give back.
        let released = self.transact(|planner| planner.release_by_handle(&handle));
        released.map(drop).map_err(|error| unavailable(&error))
    }

    /// Whether they are still held.
    pub(crate) fn check_alone(&self, call: &Call, conf: &NetConf) -> Result<(), Failure> {
        let identity = Identity::of(call);
        let handle = identity.handle(&conf.name);
        let held = self
            .transact(|planner| planner.ips_by_handle(&handle))
            .map_err(|error| unavailable(&error))?;
        match held {
            Ok(addresses) if !addresses.is_empty() => Ok(()),
            _ => Err(Failure::new(Code::UnknownContainer, format!("{identity} holds no address"))),
        }
    }
}

pub(crate) fn unavailable(error: &store::ipam::Error) -> Failure {
    Failure::new(Code::TryAgainLater, error.to_string())
        .with_details("the datastore does not answer; the runtime tries again by itself")
}
