//! Connections that earlier packets have left.

use kernel::Netns;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// To delete connections, in the numbers of netfilter's part that tracks them.
const DELETE: u16 = 1 << 8 | 2;
/// A request that is acknowledged.
const FLAGS: u16 = 1 | 4;

/// Forgets every connection of a namespace, so that each packet is the first of its own.
pub(crate) fn forget(netns: &Netns) {
    let socket = netns
        .enter(|| {
            let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
            let protocol = Some(netlink::NETFILTER);
            rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol).unwrap()
        })
        .unwrap();
    let mut message = Vec::new();
    message.extend(20_u32.to_ne_bytes());
    message.extend(DELETE.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    message.extend([0; 12]);
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &message, SendFlags::empty(), &kernel).unwrap();
    let mut answer = [0; 256];
    let (n, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty()).unwrap();
    let code = answer[..n].get(16..20).map(|it| i32::from_ne_bytes(it.try_into().unwrap()));
    assert_eq!(code, Some(0), "the connections of a namespace cannot be forgotten");
}
