//! Properties that all types share.

use proptest::prelude::*;

use super::*;

fn rereads<T: std::str::FromStr + ToString + PartialEq>(text: &str) -> bool {
    let Ok(value) = text.parse::<T>() else { return true };
    value.to_string().parse().is_ok_and(|again: T| again == value)
}

proptest! {
    #[test]
    fn what_is_printed_reads_as_the_same_value(
        text in "[0-9a-f:./]{0,20}|[+-]?([0-9.]{1,8}(h|m|s|ms|us|µs|ns)){0,3}|\\PC{0,12}",
    ) {
        prop_assert!(rereads::<Port>(&text));
        prop_assert!(rereads::<Protocol>(&text));
        prop_assert!(rereads::<AsNumber>(&text));
        prop_assert!(rereads::<Dscp>(&text));
        prop_assert!(rereads::<Duration>(&text));
        prop_assert!(rereads::<MacAddress>(&text));
        prop_assert!(rereads::<Cidr>(&text));
    }

    #[test]
    fn every_duration_is_printed_exactly(nanoseconds in any::<i64>()) {
        let duration = Duration::from_nanoseconds(nanoseconds);
        prop_assert_eq!(duration.to_string().parse(), Ok(duration));
    }
}
