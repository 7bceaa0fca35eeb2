//! Addresses, ports and the other small values: what can be read is printed so that it reads
//! the same.

#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use net::{AsNumber, Cidr, Dscp, Duration, MacAddress, Port, Protocol};

fn check<T: FromStr + Display + Debug + PartialEq>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let printed = value.to_string();
        assert_eq!(printed.parse::<T>().ok(), Some(value), "{text} {printed}");
    }
}

fuzz_target!(|text: &str| {
    check::<AsNumber>(text);
    check::<Cidr>(text);
    check::<Dscp>(text);
    check::<Duration>(text);
    check::<MacAddress>(text);
    check::<Port>(text);
    check::<Protocol>(text);
    let address = net::parse_ip(text);
    assert_eq!(address.and_then(|ip| net::parse_ip(&ip.to_string())), address);
    let _ = Cidr::parse_strict(text);
});
