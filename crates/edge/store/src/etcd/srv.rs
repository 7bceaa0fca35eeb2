//! DNS SRV discovery: one query, by hand, against the name servers of `/etc/resolv.conf`.
//!
//! A resolver library is a hundred times this size. The decoder is total: it takes any bytes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::Error;

const TYPE_SRV: u16 = 33;
const CLASS_IN: u16 = 1;
/// RFC 1035 §4.1.1: truncated, and the response code.
const FLAG_TRUNCATED: u16 = 0x0200;
const RCODE_MASK: u16 = 0x000f;
const RCODE_NO_SUCH_NAME: u16 = 3;
/// A name has at most this many labels and pointers; more is a loop.
const NAME_STEPS_MAX: usize = 128;

/// One SRV record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    priority: u16,
    weight: u16,
    port: u16,
    target: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Records(Vec<Record>),
    Truncated,
}

/// The client addresses that `domain` publishes: those with TLS first.
pub(super) async fn discover(domain: &str, timeout: Duration) -> Result<Vec<String>, Error> {
    let servers = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    discover_at(domain, &name_servers(&servers), timeout).await
}

async fn discover_at(
    domain: &str,
    servers: &[SocketAddr],
    timeout: Duration,
) -> Result<Vec<String>, Error> {
    let mut urls = Vec::new();
    let mut problem = None;
    for (service, scheme) in [("_etcd-client-ssl", "https"), ("_etcd-client", "http")] {
        let name = format!("{service}._tcp.{domain}");
        match ask_all(&name, servers, timeout).await {
            Ok(mut records) => {
                records.sort_by_key(|record| (record.priority, u16::MAX - record.weight));
                let url = |record: Record| format!("{scheme}://{}:{}", record.target, record.port);
                urls.extend(records.into_iter().map(url));
            }
            Err(error) => problem = Some(error),
        }
    }
    match (urls.is_empty(), problem) {
        (false, _) => Ok(urls),
        (true, Some(problem)) => {
            Err(Error::Config(format!("etcd discovery in {domain}: {problem}")))
        }
        (true, None) => Err(Error::Config(format!(
            "etcd discovery in {domain}: no SRV record _etcd-client-ssl._tcp or _etcd-client._tcp"
        ))),
    }
}

fn name_servers(resolv_conf: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let (keyword, rest) = line.trim().split_once(char::is_whitespace)?;
        let ip: IpAddr = rest.trim().parse().ok()?;
        (keyword == "nameserver").then_some(SocketAddr::new(ip, 53))
    };
    let found: Vec<_> = resolv_conf.lines().filter_map(address).collect();
    // resolv.conf(5): without any, the one on this host is meant.
    if found.is_empty() { vec![SocketAddr::from(([127, 0, 0, 1], 53))] } else { found }
}

async fn ask_all(
    name: &str,
    servers: &[SocketAddr],
    timeout: Duration,
) -> Result<Vec<Record>, String> {
    let mut problem = "no name server".to_string();
    let share = timeout / u32::try_from(servers.len().max(1)).unwrap_or(u32::MAX);
    for server in servers {
        problem = match tokio::time::timeout(share, ask(name, *server)).await {
            Ok(Ok(records)) => return Ok(records),
            Ok(Err(problem)) => format!("name server {}: {problem}", server.ip()),
            Err(_) => format!("name server {}: no answer", server.ip()),
        };
    }
    Err(problem)
}

async fn ask(name: &str, server: SocketAddr) -> Result<Vec<Record>, String> {
    let id = super::watch::random_word();
    let query = encode(id, name).ok_or_else(|| format!("{name} is not a domain name"))?;
    let text = |error: std::io::Error| error.to_string();
    let local: IpAddr = if server.is_ipv4() { [0u8; 4].into() } else { [0u8; 16].into() };
    let socket = UdpSocket::bind((local, 0)).await.map_err(text)?;
    socket.connect(server).await.map_err(text)?;
    socket.send(&query).await.map_err(text)?;
    let mut buffer = vec![0; 4096];
    let answer = loop {
        let len = socket.recv(&mut buffer).await.map_err(text)?;
        let bytes = buffer.get(..len).unwrap_or_default();
        // Anyone can send us a datagram; only the right id is an answer.
        if bytes.get(..2) == Some(&id.to_be_bytes()) {
            break decode(bytes)?;
        }
    };
    match answer {
        Answer::Records(records) => Ok(records),
        Answer::Truncated => match decode(&ask_by_tcp(&query, server).await.map_err(text)?)? {
            Answer::Records(records) => Ok(records),
            Answer::Truncated => Err("the answer is cut off".into()),
        },
    }
}

async fn ask_by_tcp(query: &[u8], server: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let len = u16::try_from(query.len()).unwrap_or_default();
    stream.write_all(&[&len.to_be_bytes(), query].concat()).await?;
    let len = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(len)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// A query for the SRV records of `name`. None if that is no domain name.
fn encode(id: u16, name: &str) -> Option<Vec<u8>> {
    let mut query = Vec::new();
    // Recursion desired; one question.
    for word in [id, 0x0100, 1, 0, 0, 0] {
        query.extend(word.to_be_bytes());
    }
    for label in name.trim_end_matches('.').split('.') {
        let len = u8::try_from(label.len()).ok().filter(|len| (1..=63).contains(len))?;
        query.push(len);
        query.extend(label.as_bytes());
    }
    query.push(0);
    query.extend(TYPE_SRV.to_be_bytes());
    query.extend(CLASS_IN.to_be_bytes());
    (name.len() <= 253).then_some(query)
}

/// RFC 1035 §4.1, RFC 2782.
fn decode(message: &[u8]) -> Result<Answer, String> {
    let mut reader = Reader { message, at: 2 };
    let flags = reader.word()?;
    match flags & RCODE_MASK {
        0 => {}
        RCODE_NO_SUCH_NAME => return Ok(Answer::Records(Vec::new())),
        code => return Err(format!("it answers with error {code}")),
    }
    if flags & FLAG_TRUNCATED != 0 {
        return Ok(Answer::Truncated);
    }
    let (n_questions, n_answers) = (reader.word()?, reader.word()?);
    reader.skip(4)?;
    for _ in 0..n_questions {
        reader.name()?;
        reader.skip(4)?;
    }
    let mut records = Vec::new();
    for _ in 0..n_answers {
        reader.name()?;
        let (kind, class) = (reader.word()?, reader.word()?);
        reader.skip(4)?;
        let end = usize::from(reader.word()?).saturating_add(reader.at);
        if (kind, class) == (TYPE_SRV, CLASS_IN) {
            let (priority, weight, port) = (reader.word()?, reader.word()?, reader.word()?);
            let target = reader.name()?;
            // RFC 2782: the root as target means that there is no such service.
            if !target.is_empty() {
                records.push(Record { priority, weight, port, target });
            }
        }
        reader.at = end;
    }
    Ok(Answer::Records(records))
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, String> {
        let byte = *self.message.get(self.at).ok_or("the answer ends early")?;
        self.at = self.at.saturating_add(1);
        Ok(byte)
    }

    fn word(&mut self) -> Result<u16, String> {
        Ok(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn skip(&mut self, len: usize) -> Result<(), String> {
        (0..len).try_for_each(|_| self.byte().map(|_| ()))
    }

    /// Reads a name and goes to its end, which lies after its first pointer, if it has one.
    fn name(&mut self) -> Result<String, String> {
        let mut labels: Vec<String> = Vec::new();
        let mut end = None;
        for _ in 0..NAME_STEPS_MAX {
            let len = self.byte()?;
            match len >> 6 {
                0 if len == 0 => {
                    self.at = end.unwrap_or(self.at);
                    return Ok(labels.join("."));
                }
                0 => {
                    let label = (0..len).map(|_| self.byte()).collect::<Result<Vec<u8>, _>>()?;
                    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
                    if !label.iter().all(is_plain) {
                        return Err("the answer has a name that is no host name".into());
                    }
                    labels.push(label.into_iter().map(char::from).collect());
                }
                3 => {
                    let target = u16::from_be_bytes([len & 0x3f, self.byte()?]);
                    end.get_or_insert(self.at);
                    self.at = usize::from(target);
                }
                _ => return Err("the answer has a label of an unknown kind".into()),
            }
        }
        Err("the answer has an endless name".into())
    }
}

#[cfg(test)]
mod tests;
