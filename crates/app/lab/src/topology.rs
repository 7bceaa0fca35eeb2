//! The wiring below the product: one fabric with a bridge, and a cable to every node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use kernel::sysctl::{self, Sysctl};
use kernel::{
    Address, Family, LinkChange, LinkName, Neighbour, NeighbourKind, Netlink, Netns, NewLink,
    NewLinkKind, NextHop, Operation, Route, RouteProtocol, VethPeer,
};

use crate::failure::Failure;
use crate::lab::{FABRIC, Lab};
use crate::state::Node;

const BRIDGE: &str = "br0";
/// Nodes that may find out about each other by asking.
const STRANGERS_MAX: usize = 16;
const GATEWAY_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(172, 30, 0, 1));
const GATEWAY_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd30, 0, 0, 0, 0, 0, 0, 1));

/// Makes a namespace of the lab, with its loopback interface on.
pub(crate) fn namespace(lab: &Lab, name: &str) -> Result<Netns, Failure> {
    let netns = Netns::create_named(lab.place.namespaces(), name)?;
    // Nobody shares an address with us here: waiting a second for an answer to that question would
    // be most of the time that a lab takes. Ping is for everybody.
    let settings = [
        (Sysctl::of_default(Family::V6, "accept_dad"), "0"),
        (Sysctl::of_family(Family::V4, "ping_group_range"), "0 0"),
    ];
    for written in sysctl::write_all(&netns, &settings)? {
        unless_absent(written, lab.state.ipv6)?;
    }
    let mut netlink = Netlink::in_netns(&netns)?;
    switch_on(&mut netlink, "lo")?;
    Ok(netns)
}

/// A lab without IPv6 works on a kernel without it.
fn unless_absent(done: kernel::Result<()>, is_needed: bool) -> Result<(), Failure> {
    match done {
        Err(kernel::Error::NoIpv6 { .. }) if !is_needed => Ok(()),
        done => Ok(done?),
    }
}

fn switch_on(netlink: &mut Netlink, name: &str) -> Result<kernel::Link, Failure> {
    let link = find(netlink, name)?;
    netlink.apply(&Operation::ChangeLink(link.index, LinkChange::up()))?;
    Ok(link)
}

/// The interface of that name.
pub(crate) fn find(netlink: &mut Netlink, name: &str) -> Result<kernel::Link, Failure> {
    let found = netlink.link_by_name(&LinkName::new(name)?)?;
    found.ok_or_else(|| Failure::new(format!("there is no interface {name}")))
}

fn add_address(netlink: &mut Netlink, link: &kernel::Link, net: IpNet) -> Result<(), Failure> {
    let mut address = Address::new(link.index, net);
    address.has_no_dad = matches!(net, IpNet::V6(_));
    Ok(netlink.apply(&Operation::AddAddress(address))?)
}

/// Makes the fabric: a namespace with a bridge that is every node's router.
pub(crate) fn fabric(lab: &Lab) -> Result<(), Failure> {
    let netns = namespace(lab, FABRIC)?;
    let mut netlink = Netlink::in_netns(&netns)?;
    let mut bridge = NewLink::new(LinkName::new(BRIDGE)?, NewLinkKind::Bridge);
    bridge.is_up = true;
    let bridge = netlink.create(&bridge)?;
    for (gateway, len) in gateways(lab.state.ipv6) {
        let net = IpNet::new(gateway, len).expect("the lengths are right");
        add_address(&mut netlink, &bridge, net)?;
    }
    Ok(())
}

fn gateways(ipv6: bool) -> impl Iterator<Item = (IpAddr, u8)> {
    std::iter::once((GATEWAY_V4, 24)).chain(ipv6.then_some((GATEWAY_V6, 64)))
}

/// Makes a node: a namespace that forwards, with a cable to the bridge and a default route.
pub(crate) fn node(lab: &Lab, node: &Node) -> Result<(), Failure> {
    let netns = namespace(lab, &node.name)?;
    sysctl::write(&netns, &Sysctl::of_family(Family::V4, "ip_forward"), "1")?;
    if lab.state.ipv6 {
        sysctl::write(&netns, &Sysctl::of_all(Family::V6, "forwarding"), "1")?;
    }
    let mut fabric = Netlink::in_netns(&lab.netns(FABRIC)?)?;
    let bridge = find(&mut fabric, BRIDGE)?;
    let mut peer = VethPeer::new(LinkName::new("eth0")?, Some(netns.clone()));
    peer.mac = Some(node.mac());
    let mut cable = NewLink::new(LinkName::new(&node.name)?, NewLinkKind::Veth(peer));
    cable.is_up = true;
    cable.alias = Some(format!("margay lab {}", lab.place.name));
    let port = fabric.create(&cable)?;
    let join = LinkChange { master: Some(Some(bridge.index)), ..LinkChange::default() };
    fabric.apply(&Operation::ChangeLink(port.index, join))?;

    let mut netlink = Netlink::in_netns(&netns)?;
    let eth0 = switch_on(&mut netlink, "eth0")?;
    for net in node.addresses(lab.state.ipv6) {
        add_address(&mut netlink, &eth0, net)?;
    }
    // A node without a default route answers none of its pods' questions for their gateway.
    for (gateway, _) in gateways(lab.state.ipv6) {
        let everywhere = match gateway {
            IpAddr::V4(_) => IpNet::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            IpAddr::V6(_) => IpNet::new(Ipv6Addr::UNSPECIFIED.into(), 0),
        };
        let everywhere = everywhere.expect("zero is a length");
        let hop = NextHop::via(gateway, Some(eth0.index));
        let route = Route::unicast(everywhere, RouteProtocol::STATIC, hop);
        netlink.apply(&Operation::AddRoute(route))?;
    }
    if lab.state.nodes.len() > STRANGERS_MAX {
        introduce(lab, node, &mut netlink, &eth0)?;
    }
    Ok(())
}

/// Tells a node the Ethernet addresses of all others.
///
/// What nodes learn by asking counts against a limit that all namespaces of a machine share (1024
/// as the kernel comes), and beyond it packets are lost; what they are told does not.
fn introduce(
    lab: &Lab,
    node: &Node,
    netlink: &mut Netlink,
    eth0: &kernel::Link,
) -> Result<(), Failure> {
    let others = lab.state.nodes.iter().filter(|other| other.number != node.number);
    let known = others.flat_map(|other| {
        let kind = NeighbourKind::Permanent(other.mac());
        let addresses = other.addresses(lab.state.ipv6).into_iter();
        addresses.map(move |net| Neighbour { link: eth0.index, address: net.addr(), kind })
    });
    let told: Vec<Operation> = known.map(Operation::ReplaceNeighbour).collect();
    for done in netlink.apply_all(&told) {
        done?;
    }
    Ok(())
}

/// Plugs the cable of a node in, or pulls it.
pub(crate) fn plug(lab: &Lab, node: &str, is_up: bool) -> Result<(), Failure> {
    let mut fabric = Netlink::in_netns(&lab.netns(FABRIC)?)?;
    let port = find(&mut fabric, node)?;
    let change = LinkChange { is_up: Some(is_up), ..LinkChange::default() };
    Ok(fabric.apply(&Operation::ChangeLink(port.index, change))?)
}

/// Whether the cable of a node is plugged in.
pub(crate) fn is_plugged(lab: &Lab, node: &str) -> Result<bool, Failure> {
    let mut netlink = Netlink::in_netns(&lab.netns(node)?)?;
    Ok(find(&mut netlink, "eth0")?.is_running)
}
