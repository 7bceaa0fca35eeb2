//! Connection tracking, with `conntrack` as the oracle.

use kernel::Family;
use kernel::conntrack::Conntrack;

use crate::world::{World, world};

fn track(world: &World, source: &str, destination: &str, port: u16) {
    world.run(
        "conntrack",
        &format!("-I -s {source} -d {destination} -p tcp --sport {port} --dport 80 --state ESTABLISHED -t 600"),
    );
}

#[test]
fn the_connections_of_an_address_are_forgotten_and_no_others() {
    let Some(world) = world() else { return };
    for port in 1000..1100 {
        track(&world, "10.65.0.1", "10.65.0.2", port);
        track(&world, "10.65.0.3", "10.65.0.1", port);
        track(&world, "10.65.0.3", "10.65.0.2", port);
    }
    track(&world, "fd00::1", "fd00::2", 1000);
    let mut conntrack = Conntrack::in_netns(&world.netns).unwrap();
    assert_eq!(conntrack.connections(None).unwrap().len(), 301);
    assert_eq!(conntrack.count().unwrap(), 301);
    let v6 = conntrack.connections(Some(Family::V6)).unwrap();
    assert_eq!((v6.len(), v6[0].protocol), (1, 6));
    assert_eq!((v6[0].original.source_port, v6[0].original.destination_port), (1000, 80));
    assert_eq!(v6[0].reply.source, v6[0].original.destination);

    let pod = "10.65.0.1".parse().unwrap();
    assert_eq!(conntrack.delete_addresses(&[pod]).unwrap(), 200);
    assert_eq!(conntrack.delete_addresses(&[pod]).unwrap(), 0);
    let left = world.run("conntrack", "-L");
    assert_eq!(left.lines().count(), 101);
    assert!(!left.contains("10.65.0.1 "), "{left}");
    assert_eq!(conntrack.delete_where(|_| true).unwrap(), 101);
    assert_eq!(conntrack.connections(None).unwrap(), []);
    assert_eq!(conntrack.count().unwrap(), 0);
}
