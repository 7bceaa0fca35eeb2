//! Packets that real rules hand over.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use kernel::nflog::{Header, LogEvent, Logged, PacketLog};
use kernel::nft::{
    Base, Batch, Chain, ChainKind, Expression, Hook, Nft, Rule, Table, TableFamily, TableId,
    Verdict,
};
use kernel::{Address, LinkChange, Operation};

use crate::world::{World, name, world};

const GROUP: u16 = 77;
const V4: &str = "10.65.0.1";
const V6: &str = "fd00::1";

/// A world that reaches itself by addresses of both families.
fn looped() -> Option<World> {
    let mut world = world()?;
    let lo = world.netlink.link_by_name(&name("lo")).unwrap().unwrap().index;
    world.netlink.apply(&Operation::ChangeLink(lo, LinkChange::up())).unwrap();
    for address in [V4, V6] {
        let address = IpNet::from(address.parse::<IpAddr>().unwrap());
        let address = Address { has_no_dad: true, ..Address::new(lo, address) };
        world.netlink.apply(&Operation::AddAddress(address)).unwrap();
    }
    Some(world)
}

/// Hands over what comes in, and drops it.
fn deny(world: &World, prefix: &str, snap_len: u32) {
    let table = TableId::new(TableFamily::Inet, "margay");
    let mut batch = Batch::new();
    batch.reset_table(&Table::new(table.clone()));
    batch.add_chain(&table, &Chain::based("input", Base::new(ChainKind::Filter, Hook::Input, 0)));
    let log = Expression::Log { group: Some(GROUP), prefix: prefix.to_owned(), snap_len };
    batch.add_rule(&table, &Rule::new("input").with(log).verdict(Verdict::Drop));
    Nft::in_netns(&world.netns).unwrap().commit(&batch).unwrap();
}

/// The next packet of a protocol.
fn next(log: &mut PacketLog, protocol: u8) -> (Logged, Header) {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let Some(LogEvent::Packet(logged)) = log.next(Duration::from_secs(1)).unwrap() else {
            continue;
        };
        match logged.header {
            Some(header) if header.protocol == protocol => return (logged, header),
            _ => {}
        }
    }
    panic!("nothing came of protocol {protocol}");
}

fn send_udp(world: &World, to: &str, port: u16) -> u16 {
    let any: IpAddr = if to.contains(':') { [0; 16].into() } else { [0; 4].into() };
    let socket = world.netns.enter(|| UdpSocket::bind((any, 0))).unwrap().unwrap();
    socket.send_to(b"hello", (to.parse::<IpAddr>().unwrap(), port)).unwrap();
    socket.local_addr().unwrap().port()
}

#[test]
fn denied_packets_are_told_with_their_ports_and_the_name_of_the_rule() {
    let Some(mut world) = looped() else { return };
    let lo = world.netlink.link_by_name(&name("lo")).unwrap().unwrap().index;
    let mut log = PacketLog::open(Some(&world.netns), GROUP).unwrap();
    let longest = "x".repeat(127);
    for (prefix, snap_len) in [("i:np:2:shop/db", 0), (longest.as_str(), 128)] {
        deny(&world, prefix, snap_len);
        for address in [V4, V6] {
            let port = send_udp(&world, address, 53);
            let (logged, header) = next(&mut log, 17);
            assert_eq!(logged.prefix, prefix);
            assert_eq!((logged.input, logged.output), (Some(lo), None));
            assert_eq!(header.ports, Some((port, 53)));
            assert_eq!(header.source, address.parse::<IpAddr>().unwrap());
            assert_eq!(header.destination, header.source);

            let to = SocketAddr::new(address.parse().unwrap(), 5432);
            let connect = || TcpStream::connect_timeout(&to, Duration::from_millis(50));
            assert!(world.netns.enter(connect).unwrap().is_err());
            assert_eq!(next(&mut log, 6).1.ports.unwrap().1, 5432);
        }
    }
}

#[test]
fn a_rule_of_the_command_nft_is_heard_too_and_icmp_has_a_type() {
    let Some(world) = looped() else { return };
    world.run("nft", "add table inet t");
    world.run("nft", "add chain inet t input { type filter hook input priority 0 ; }");
    world.run("nft", &format!("add rule inet t input log group {GROUP} prefix \"seen\""));
    let mut log = PacketLog::open(Some(&world.netns), GROUP).unwrap();
    // Nobody listens on that port: an ICMP message comes back.
    send_udp(&world, V4, 53);
    assert_eq!(next(&mut log, 17).0.prefix, "seen");
    assert_eq!(next(&mut log, 1).1.icmp, Some((3, 3)));
}

#[test]
fn a_group_has_one_listener_and_is_free_when_that_one_is_gone() {
    let Some(world) = looped() else { return };
    let first = PacketLog::open(Some(&world.netns), GROUP).unwrap();
    let second = PacketLog::open(Some(&world.netns), GROUP);
    let problem = second.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(problem.contains("listen to packet log 77"), "{problem}");
    let other = PacketLog::open(Some(&world.netns), GROUP + 1);
    assert!(other.is_ok());
    drop(first);
    assert!(crate::world::eventually(|| PacketLog::open(Some(&world.netns), GROUP).is_ok()));
}

#[test]
fn what_nobody_reads_in_time_is_said_to_be_lost() {
    let Some(world) = looped() else { return };
    deny(&world, "flood", 0);
    let mut log = PacketLog::open(Some(&world.netns), GROUP).unwrap();
    let socket = world.netns.enter(|| UdpSocket::bind((V4, 0))).unwrap().unwrap();
    // The queue has room for 8 MiB, or for what an ordinary user may have.
    for _ in 0..60_000 {
        let _ = socket.send_to(&[0; 200], (V4, 9));
    }
    let mut was_lost = false;
    while let Some(event) = log.next(Duration::from_secs(1)).unwrap() {
        was_lost |= event == LogEvent::Lost;
    }
    assert!(was_lost);
    let port = send_udp(&world, V4, 53);
    assert_eq!(next(&mut log, 17).1.ports, Some((port, 53)));
}
