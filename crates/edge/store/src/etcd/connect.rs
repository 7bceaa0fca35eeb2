//! Connections to one endpoint, and single calls over them.

use std::path::PathBuf;
use std::time::Duration;

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic_prost::ProstCodec;

use super::config::{Config, Pem};
use super::failure::Failure;
use crate::Error;

/// More than any message should have: pages and watch fragments are far smaller.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Where distributions keep the authorities that the system trusts.
const SYSTEM_CA_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Connects to `url`; gives up after `timeout`.
pub(super) async fn connect(
    config: &Config,
    url: &str,
    timeout: Duration,
) -> Result<Channel, Failure> {
    let endpoint = endpoint(config, url).map_err(Failure::Answered)?;
    match tokio::time::timeout(timeout, endpoint.connect()).await {
        Ok(connected) => Ok(connected?),
        Err(_) => {
            let waited = timeout.as_secs_f64();
            Err(Failure::NotServed(format!("no answer to a connection within {waited:.1} s")))
        }
    }
}

fn endpoint(config: &Config, url: &str) -> Result<Endpoint, Error> {
    let unusable =
        |error: tonic::transport::Error| Error::Config(format!("etcd endpoint {url}: {error}"));
    let endpoint = Endpoint::from_shared(url.to_string())
        .map_err(unusable)?
        .tcp_nodelay(true)
        .http2_keep_alive_interval(config.keep_alive)
        .keep_alive_timeout(config.keep_alive / 2)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(1024 * 1024)
        .initial_connection_window_size(2 * 1024 * 1024);
    if !url.starts_with("https://") {
        return Ok(endpoint);
    }
    endpoint.tls_config(tls(config)?).map_err(|error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Error::Config(format!("etcd certificate, key or authority cannot be used: {cause}"))
    })
}

fn tls(config: &Config) -> Result<ClientTlsConfig, Error> {
    let ca = match &config.ca {
        Some(ca) => ca.read()?,
        None => system_ca()?.read()?,
    };
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    Ok(match (&config.certificate, &config.key) {
        (Some(certificate), Some(key)) => {
            tls.identity(Identity::from_pem(certificate.read()?, key.read()?))
        }
        _ => tls,
    })
}

fn system_ca() -> Result<Pem, Error> {
    let from_environment = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    from_environment
        .into_iter()
        .chain(SYSTEM_CA_FILES.iter().map(PathBuf::from))
        .find(|path| path.exists())
        .map(Pem::File)
        .ok_or_else(|| {
            Error::Config("etcd: no CA is given and the system has no list of authorities".into())
        })
}

/// Sends one request over a connection.
pub(super) async fn unary<Q, A>(
    channel: &Channel,
    path: &'static str,
    message: Q,
    token: Option<MetadataValue<Ascii>>,
    timeout: Duration,
) -> Result<A, Failure>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let request = request(message, token);
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let answering = async {
        grpc.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    };
    match tokio::time::timeout(timeout, answering).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::no_answer(timeout)),
    }
}

/// Adds what every request carries: the token, and the wish to be refused by a member that is cut
/// off from the others, instead of being served stale or not at all.
pub(super) fn request<T>(message: T, token: Option<MetadataValue<Ascii>>) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}
