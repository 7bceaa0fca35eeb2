use proptest::prelude::*;

use super::*;

/// An answer to `query` with the given records; the target's domain is a pointer into the question.
fn answer(query: &[u8], flags: u16, records: &[(u16, u16, u16, &str)]) -> Vec<u8> {
    let mut message = query.to_vec();
    message[2..4].copy_from_slice(&flags.to_be_bytes());
    message[6..8].copy_from_slice(&word(records.len()));
    // The question is `_etcd-client…._tcp.DOMAIN`: the domain begins after two labels.
    let first = usize::from(message[12]);
    let domain = 12 + 1 + first + 1 + usize::from(message[12 + 1 + first]);
    for (priority, weight, port, host) in records {
        message.extend([0xc0, 12]);
        message.extend([0, 33, 0, 1, 0, 0, 0, 60]);
        let mut data = Vec::new();
        for word in [priority, weight, port] {
            data.extend(word.to_be_bytes());
        }
        data.push(u8::try_from(host.len()).unwrap());
        data.extend(host.as_bytes());
        data.extend([0xc0, u8::try_from(domain).unwrap()]);
        message.extend(word(data.len()));
        message.extend(data);
    }
    message
}

fn word(value: usize) -> [u8; 2] {
    u16::try_from(value).unwrap().to_be_bytes()
}

fn is_tls_question(query: &[u8]) -> bool {
    query.windows(16).any(|window| window == b"_etcd-client-ssl")
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn members_come_by_priority_then_weight_and_tls_first() {
    run(async {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let serving = async {
            let mut buffer = [0; 512];
            loop {
                let (len, peer) = server.recv_from(&mut buffer).await.unwrap();
                let query = &buffer[..len];
                let records: &[_] = match is_tls_question(query) {
                    true => &[(20, 0, 2379, "c"), (10, 1, 2379, "b"), (10, 9, 2381, "a")],
                    false => &[(0, 0, 2379, "plain")],
                };
                server.send_to(&answer(query, 0x8180, records), peer).await.unwrap();
            }
        };
        let servers = [address];
        let discovering = discover_at("example.org", &servers, Duration::from_secs(5));
        let urls = tokio::select! { urls = discovering => urls.unwrap(), () = serving => vec![] };
        let expected = [
            "https://a.example.org:2381",
            "https://b.example.org:2379",
            "https://c.example.org:2379",
            "http://plain.example.org:2379",
        ];
        assert_eq!(urls, expected);
    });
}

#[test]
fn a_truncated_answer_is_asked_for_again_by_tcp() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = UdpSocket::bind(address).await.unwrap();
        let by_udp = async {
            let mut buffer = [0; 512];
            loop {
                let (len, peer) = server.recv_from(&mut buffer).await.unwrap();
                let flags = if is_tls_question(&buffer[..len]) { 0x8380 } else { 0x8183 };
                server.send_to(&answer(&buffer[..len], flags, &[]), peer).await.unwrap();
            }
        };
        let by_tcp = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut query = vec![0; usize::from(stream.read_u16().await.unwrap())];
                stream.read_exact(&mut query).await.unwrap();
                let answer = answer(&query, 0x8180, &[(0, 0, 2379, "tcp")]);
                stream.write_all(&[&word(answer.len())[..], &answer].concat()).await.unwrap();
            }
        };
        let servers = [address];
        let discovering = discover_at("example.org", &servers, Duration::from_secs(5));
        let urls = tokio::select! {
            urls = discovering => urls.unwrap(), () = by_udp => vec![], () = by_tcp => vec![],
        };
        assert_eq!(urls, ["https://tcp.example.org:2379"]);
    });
}

#[test]
fn without_records_or_server_the_error_names_the_domain() {
    run(async {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap();
        let error = discover_at("example.org", &[address], Duration::from_millis(50)).await;
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "etcd discovery in example.org: name server 127.0.0.1: no answer");
    });
}

#[test]
fn name_servers_are_read_from_resolv_conf() {
    let text = "# c\nsearch x\nnameserver 10.0.0.1\nnameserver\tfe80::1\nnameserver bad\n";
    let servers: Vec<_> = name_servers(text).iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.1:53", "[fe80::1]:53"]);
    assert_eq!(name_servers("").len(), 1);
}

#[test]
fn a_name_that_points_to_itself_is_an_error() {
    let mut message = answer(&encode(7, "_etcd-client._tcp.a").unwrap(), 0x8180, &[]);
    message[12..14].copy_from_slice(&[0xc0, 12]);
    assert!(decode(&message).unwrap_err().contains("endless"));
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn a_damaged_answer_is_an_answer_or_an_error(at in 0usize..90, byte in any::<u8>()) {
        let query = encode(7, "_etcd-client._tcp.example.org").unwrap();
        let mut message = answer(&query, 0x8180, &[(1, 2, 2379, "a"), (1, 2, 2379, "b")]);
        let at = at % message.len();
        message[at] = byte;
        let _ = decode(&message);
    }
}
