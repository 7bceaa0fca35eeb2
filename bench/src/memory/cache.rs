//! Three ways to remember endpoints: not at all, as bytes, and as what a node works with.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, ensure};
use serde_json::Value;
use store::KeyValue;

use crate::samples;

/// Something that remembers endpoints.
pub(super) trait Cache {
    /// Remembers an entry of the store.
    fn put(&mut self, entry: KeyValue) -> anyhow::Result<()>;

    /// Looks whether everything is there.
    fn check(&self, count: usize) -> anyhow::Result<()>;
}

/// Remembers nothing.
pub(super) struct Nothing;

impl Cache for Nothing {
    fn put(&mut self, _: KeyValue) -> anyhow::Result<()> {
        Ok(())
    }

    fn check(&self, _: usize) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Keys and values as they are stored.
#[derive(Default)]
pub(super) struct Raw(BTreeMap<String, Box<[u8]>>);

impl Cache for Raw {
    fn put(&mut self, entry: KeyValue) -> anyhow::Result<()> {
        self.0.insert(entry.key, entry.value.into());
        Ok(())
    }

    fn check(&self, count: usize) -> anyhow::Result<()> {
        ensure!(self.0.len() == count, "{} entries", self.0.len());
        Ok(())
    }
}

/// A text that many endpoints share, by its number.
type Shared = u32;

/// What policy and routing need of an endpoint: who it is, where it is, its labels, addresses and
/// profiles. Texts that repeat are kept once; everything of variable length is in one allocation.
struct Endpoint {
    node: Shared,
    interface: Box<str>,
    addresses: Box<[Ipv4Addr]>,
    /// Names and values of labels in turn, then the profiles.
    texts: Box<[Shared]>,
    n_labels: u8,
}

/// Endpoints in the compact form.
#[derive(Default)]
pub(super) struct Compact {
    numbers: BTreeMap<Box<str>, Shared>,
    endpoints: BTreeMap<Box<str>, Endpoint>,
}

impl Compact {
    fn share(&mut self, text: &str) -> anyhow::Result<Shared> {
        if let Some(number) = self.numbers.get(text) {
            return Ok(*number);
        }
        let number = Shared::try_from(self.numbers.len())?;
        self.numbers.insert(text.into(), number);
        Ok(number)
    }
}

impl Cache for Compact {
    fn put(&mut self, entry: KeyValue) -> anyhow::Result<()> {
        let value = text::json::parse(&entry.value)?;
        let spec = |name: &str| value["spec"][name].as_str().unwrap_or_default();
        let list = |name: &str| value["spec"][name].as_array().into_iter().flatten();
        let mut texts = Vec::new();
        let mut n_labels = 0;
        for (name, value) in value["metadata"]["labels"].as_object().into_iter().flatten() {
            texts.push(self.share(name)?);
            texts.push(self.share(value.as_str().unwrap_or_default())?);
            n_labels += 1;
        }
        for profile in list("profiles").filter_map(Value::as_str) {
            texts.push(self.share(profile)?);
        }
        let addresses = list("ipNetworks").filter_map(Value::as_str).map(|net| {
            let address = net.split('/').next().unwrap_or(net);
            address.parse().with_context(|| net.to_owned())
        });
        let endpoint = Endpoint {
            node: self.share(spec("node"))?,
            interface: spec("interfaceName").into(),
            addresses: addresses.collect::<anyhow::Result<_>>()?,
            texts: texts.into(),
            n_labels,
        };
        let name = entry.key.strip_prefix(samples::WORKLOAD_ENDPOINTS).context("another key")?;
        self.endpoints.insert(name.into(), endpoint);
        Ok(())
    }

    fn check(&self, count: usize) -> anyhow::Result<()> {
        let is_whole = |endpoint: &Endpoint| {
            endpoint.texts.len() > usize::from(endpoint.n_labels) * 2
                && !endpoint.interface.is_empty()
                && !endpoint.addresses.is_empty()
                && self.numbers.len() > endpoint.node as usize
        };
        let n_whole = self.endpoints.values().filter(|endpoint| is_whole(endpoint)).count();
        ensure!(n_whole == count, "{n_whole} endpoints");
        Ok(())
    }
}
