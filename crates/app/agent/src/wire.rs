//! Makes the interfaces of a sandbox, looks whether they are as they should be, and removes them.
//!
//! Every step may be repeated: what is there already is left alone, what is half there is made
//! anew. An interface is ours if its alias says so.

use std::net::IpAddr;

use ipnet::IpNet;
use kernel::sysctl::{self, Sysctl};
use kernel::{
    Address, Errno, Error, Family, Link, LinkChange, LinkName, Mac, Netlink, Netns, NewLink,
    NewLinkKind, NextHop, Operation, Removals, Result, Route, RouteFilter, RouteProtocol, Scope,
    VethPeer,
};
use sandbox::identity::Identity;
use sandbox::wiring::{GATEWAY_V4, GATEWAY_V6, HOST_MAC, Place, Setting, Wiring};

/// The protocol of routes inside containers: Calico's plugin leaves the default of `ip`.
const CONTAINER_PROTOCOL: RouteProtocol = RouteProtocol(3);

/// The metric of a container's route that another of its interfaces has already, plus a number of
/// its own.
const STAND_BY: u32 = 10_000;

/// Makes the interfaces, the host's end closed to nobody but the filter.
pub(crate) fn wire(
    here: &Netns,
    netns: &Netns,
    identity: &Identity,
    wiring: &Wiring,
) -> Result<()> {
    let mut host = Netlink::in_netns(here)?;
    let host_name = LinkName::new(&wiring.host_interface)?;
    let inner_name = LinkName::new(&wiring.container_interface)?;
    if let Some(left) = host.link_by_name(&host_name)? {
        if !is_veth(&left) {
            let kind = left.kind.as_deref().unwrap_or("interface");
            return Err(Error::Invalid(format!(
                "{host_name} is there already, a {kind} of others"
            )));
        }
        remove(&mut host, &left)?;
    }
    let mut peer = VethPeer::new(inner_name.clone(), Some(netns.clone()));
    peer.mac = Some(Mac(wiring.mac));
    peer.mtu = wiring.mtu;
    peer.n_queues = Some(wiring.queues);
    let mut pair = NewLink::new(host_name, NewLinkKind::Veth(peer));
    pair.alias = Some(identity.alias());
    pair.mac = Some(Mac(HOST_MAC));
    pair.mtu = wiring.mtu;
    pair.n_queues = Some(wiring.queues);
    let outer = host.create(&pair)?;
    forward(here, wiring.has_ipv4(), wiring.has_ipv6())?;
    apply_settings(here, &wiring.host_settings())?;
    host.apply(&Operation::ChangeLink(outer.index, LinkChange::up()))?;
    netns.enter(|| wire_inside(netns, &inner_name, wiring))?
}

/// The container's end, from a thread in its namespace.
fn wire_inside(netns: &Netns, inner_name: &LinkName, wiring: &Wiring) -> Result<()> {
    apply_settings(netns, &wiring.container_settings())?;
    let mut inside = Netlink::in_netns(netns)?;
    let Some(inner) = inside.link_by_name(inner_name)? else {
        return Err(Error::Invalid(format!("{inner_name} vanished from the container")));
    };
    let mut operations = vec![Operation::ChangeLink(inner.index, LinkChange::up())];
    let addresses = wiring.addresses.iter().map(|address| IpNet::from(*address));
    operations.extend(
        addresses.map(|network| Operation::ReplaceAddress(Address::new(inner.index, network))),
    );
    let present = inside.routes(&RouteFilter::default())?;
    for mut route in container_routes(&inner, wiring) {
        // Another interface of the container has this route: it keeps it, and ours stands by.
        let is_taken = present.iter().any(|it| {
            let leads_elsewhere =
                it.next_hops.first().is_some_and(|hop| hop.link != Some(inner.index));
            it.destination == route.destination && leads_elsewhere
        });
        if is_taken {
            route.metric = STAND_BY + inner.index.0;
        }
        operations.push(Operation::ReplaceRoute(route));
    }
    for result in inside.apply_all(&operations) {
        result?;
    }
    Ok(())
}

/// Lets the host pass packets on between its interfaces, in the families that are needed; whether
/// anything had to be switched on.
///
/// A host that forwards IPv6 no longer listens to routers unless told to: one that got its own
/// default route from a router would lose it.
pub(crate) fn forward(here: &Netns, ipv4: bool, ipv6: bool) -> Result<bool> {
    let is_on = |switch: &Sysctl| Ok::<bool, Error>(sysctl::read(here, switch)? == "1");
    let switch = Sysctl::of_family(Family::V4, "ip_forward");
    let mut is_new = ipv4 && !is_on(&switch)?;
    if is_new {
        sysctl::write(here, &switch, "1")?;
    }
    let switch = Sysctl::of_all(Family::V6, "forwarding");
    if !ipv6 || is_on(&switch)? {
        return Ok(is_new);
    }
    is_new = true;
    for link in Netlink::in_netns(here)?.links()? {
        let listens = Sysctl::of_link(Family::V6, &link.name, "accept_ra");
        // An interface without IPv6 has no such setting.
        if sysctl::read(here, &listens).is_ok_and(|value| value == "1") {
            sysctl::write(here, &listens, "2")?;
        }
    }
    sysctl::write(here, &switch, "1")?;
    Ok(is_new)
}

/// Removes the host's end, and with it the other one, if it still is this sandbox's.
pub(crate) fn unwire(
    here: &Netns,
    removals: &Removals,
    identity: &Identity,
    host_interface: &str,
) -> Result<()> {
    let mut host = Netlink::in_netns(here)?;
    let Some(link) = host.link_by_name(&LinkName::new(host_interface)?)? else {
        return Ok(());
    };
    // One that does not bear the name is another's: names of interfaces come again.
    let owner = link.alias.as_deref().and_then(Identity::from_alias);
    match owner.as_ref() == Some(identity) && is_veth(&link) {
        true => removals.remove(link.index),
        false => Ok(()),
    }
}

/// Removes the host's interface of this name, whoever made it.
pub(crate) fn remove_named(here: &Netns, removals: &Removals, name: &str) -> Result<()> {
    match Netlink::in_netns(here)?.link_by_name(&LinkName::new(name)?)? {
        Some(link) => removals.remove(link.index),
        None => Ok(()),
    }
}

/// Whether the host's interface of this name was made for a sandbox.
pub(crate) fn is_of(here: &Netns, identity: &Identity, host_interface: &str) -> Result<bool> {
    let link = Netlink::in_netns(here)?.link_by_name(&LinkName::new(host_interface)?)?;
    let alias = link.and_then(|link| link.alias);
    Ok(alias.as_deref().and_then(Identity::from_alias).as_ref() == Some(identity))
}

/// What is not as ADD left it, in words.
pub(crate) fn faults(
    here: &Netns,
    netns: &Netns,
    identity: &Identity,
    wiring: &Wiring,
) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut host = Netlink::in_netns(here)?;
    let name = &wiring.host_interface;
    match host.link_by_name(&LinkName::new(name)?)? {
        None => faults.push(format!("the host's interface {name} is missing")),
        Some(link) => {
            if link.alias != Some(identity.alias()) {
                faults.push(format!("the host's interface {name} belongs to another sandbox"));
            }
            if !link.is_up {
                faults.push(format!("the host's interface {name} is down"));
            }
            let filter = RouteFilter { link: Some(link.index), ..RouteFilter::default() };
            let led: Vec<IpAddr> =
                host.routes(&filter)?.iter().map(|route| route.destination.addr()).collect();
            for address in wiring.addresses.iter().filter(|address| !led.contains(address)) {
                faults.push(format!("the host's route to {address} is missing"));
            }
        }
    }
    faults.extend(wrong_settings(here, &wiring.host_settings())?);
    let mut inside = Netlink::in_netns(netns)?;
    let name = &wiring.container_interface;
    let Some(inner) = inside.link_by_name(&LinkName::new(name)?)? else {
        faults.push(format!("the container's interface {name} is missing"));
        return Ok(faults);
    };
    if !inner.is_up {
        faults.push(format!("the container's interface {name} is down"));
    }
    let present: Vec<IpAddr> =
        inside.addresses(Some(inner.index))?.iter().map(|address| address.address.addr()).collect();
    for address in wiring.addresses.iter().filter(|address| !present.contains(address)) {
        faults.push(format!("the address {address} is missing from the container's {name}"));
    }
    let filter = RouteFilter { link: Some(inner.index), ..RouteFilter::default() };
    let routes = inside.routes(&filter)?;
    for wanted in container_routes(&inner, wiring) {
        let found = routes.iter().any(|route| {
            route.destination == wanted.destination && route.next_hops == wanted.next_hops
        });
        if !found {
            faults.push(format!("the container's route {} is missing", wanted.destination));
        }
    }
    Ok(faults)
}

pub(crate) fn is_veth(link: &Link) -> bool {
    link.kind.as_deref() == Some("veth")
}

fn remove(netlink: &mut Netlink, link: &Link) -> Result<()> {
    match netlink.apply(&Operation::DeleteLink(link.index)) {
        Err(error) if error.errno() == Some(Errno::NODEV) => Ok(()),
        result => result,
    }
}

fn container_routes(inner: &Link, wiring: &Wiring) -> Vec<Route> {
    let mut routes = Vec::new();
    if wiring.has_ipv4() {
        let gateway = IpNet::from(IpAddr::V4(GATEWAY_V4));
        let hop = NextHop::on(inner.index);
        routes.push(Route::unicast(gateway, CONTAINER_PROTOCOL, hop));
    }
    for destination in &wiring.routes {
        let gateway: IpAddr = match destination.is_ipv4() {
            true if wiring.has_ipv4() => GATEWAY_V4.into(),
            false if wiring.has_ipv6() => GATEWAY_V6.into(),
            _ => continue,
        };
        let network = destination.masked().into();
        let hop = NextHop::via(gateway, Some(inner.index));
        routes.push(Route {
            scope: Scope::Universe,
            ..Route::unicast(network, CONTAINER_PROTOCOL, hop)
        });
    }
    routes
}

fn sysctl_of(setting: &Setting) -> Result<Sysctl> {
    let family = if setting.is_ipv6 { Family::V6 } else { Family::V4 };
    Ok(match &setting.place {
        Place::Family => Sysctl::of_family(family, setting.name),
        Place::All => Sysctl::of_all(family, setting.name),
        Place::Default => Sysctl::of_default(family, setting.name),
        Place::Interface(name) => Sysctl::of_link(family, &LinkName::new(name)?, setting.name),
        Place::Neighbours(name) => {
            Sysctl::of_neighbours(family, &LinkName::new(name)?, setting.name)
        }
    })
}

fn apply_settings(netns: &Netns, settings: &[Setting]) -> Result<()> {
    let named: Vec<(Sysctl, &str)> = settings
        .iter()
        .map(|setting| Ok((sysctl_of(setting)?, setting.value)))
        .collect::<Result<_>>()?;
    let results = sysctl::write_all(netns, &named)?;
    for (setting, result) in settings.iter().zip(results) {
        if setting.is_required {
            result?;
        }
    }
    Ok(())
}

/// Puts the settings of the host's end right, if it is there; what was changed, in words.
pub(crate) fn mend_settings(here: &Netns, wiring: &Wiring) -> Vec<String> {
    let mut mended = Vec::new();
    for setting in wiring.host_settings() {
        let Ok(sysctl) = sysctl_of(&setting) else { continue };
        // An interface that is gone, or has no such family, has no settings.
        let Ok(value) = sysctl::read(here, &sysctl) else { continue };
        if value != setting.value && sysctl::write(here, &sysctl, setting.value).is_ok() {
            mended.push(format!("{sysctl} was {value}, is {}", setting.value));
        }
    }
    mended
}

fn wrong_settings(netns: &Netns, settings: &[Setting]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for setting in settings.iter().filter(|setting| setting.is_required) {
        let sysctl = sysctl_of(setting)?;
        match sysctl::read(netns, &sysctl) {
            Ok(value) if value == setting.value => {}
            Ok(value) => wrong.push(format!("{sysctl} is {value}, not {}", setting.value)),
            Err(error) => wrong.push(error.to_string()),
        }
    }
    Ok(wrong)
}
