use super::*;

fn ask_one(pod: &str, protocol: Protocol, address: &str) -> Answer {
    let question = Question { pod: pod.into(), address: address.parse().unwrap(), protocol };
    ask(&[question], Duration::from_secs(5)).remove(0)
}

#[test]
fn the_loopback_interface_answers_echo_or_says_why_not() {
    // Without root and with the kernel's default range nobody may open this socket.
    match ask_one("x", Protocol::Icmp, "127.0.0.1") {
        Ok(_) => {}
        Err(why) => assert!(why.contains("permi") || why.contains("denied"), "{why}"),
    }
}

#[test]
fn what_the_system_says_is_said_without_its_number() {
    let error = std::io::Error::from_raw_os_error(111);
    assert_eq!(spoken(&error), "connection refused");
}
