//! Datagrams about links, addresses, routes, neighbours, connections and logged packets: every one
//! is readable or refused, and what counts as lost is never more than the messages that can be in
//! it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    let events = kernel::decode_events(datagram);
    // The shortest message is a header, but a cut one may follow it.
    assert!(events.len() <= datagram.len() / 16 + 1);
    for event in events {
        if let kernel::Event::Route(route) = event {
            assert_eq!(route.as_listed(), route.as_listed().as_listed());
            let _ = route.to_string();
        }
    }
    let _ = kernel::conntrack::decode_connections(datagram);
    assert!(kernel::nflog::decode_packets(datagram).len() <= datagram.len() / 16 + 1);
    let header = kernel::nflog::decode_header(datagram);
    assert!(header.is_none_or(|it| it.ports.is_none() || !it.is_later_fragment));
});
