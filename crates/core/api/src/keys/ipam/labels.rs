//! The labels by which block affinities are found in a Kubernetes store.

use std::collections::BTreeMap;

use sha3::{Digest, Sha3_256};

use crate::keys::AffinityType;

const HOSTNAME_HASH: &str = "projectcalico.org/hostname-hash";
const AFFINITY_TYPE: &str = "projectcalico.org/affinity-type";
const IP_VERSION: &str = "projectcalico.org/ip-version";

/// The name of a node cut to the size of a label: its SHA3-256 in base 32, without padding.
pub fn hostname_hash(hostname: &str) -> String {
    base32(&Sha3_256::digest(hostname.as_bytes()))
}

fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bit = |index: usize| bytes.get(index / 8).map_or(0, |byte| byte >> (7 - index % 8) & 1);
    (0..bytes.len() * 8)
        .step_by(5)
        .map(|start| (start..start + 5).fold(0, |digit: u8, index| digit << 1 | bit(index)))
        .map(|digit| char::from(ALPHABET[usize::from(digit % 32)]))
        .collect()
}

/// The labels of the affinity of an owner to a block, in the order of their names.
pub fn affinity_labels(
    owner_type: &str,
    owner: &str,
    cidr: &str,
) -> BTreeMap<&'static str, String> {
    let version = if cidr.contains(':') { "6" } else { "4" };
    BTreeMap::from([
        (HOSTNAME_HASH, hostname_hash(owner)),
        (AFFINITY_TYPE, owner_type.to_owned()),
        (IP_VERSION, version.to_owned()),
    ])
}

/// The label selector that finds the affinities with the given parts; none without any.
pub fn affinity_selector(
    owner_type: Option<&AffinityType>,
    owner: Option<&str>,
    family: Option<u8>,
) -> Option<String> {
    let labels = [
        owner_type.map(|owner_type| format!("{AFFINITY_TYPE}={}", owner_type.name())),
        owner.map(|owner| format!("{HOSTNAME_HASH}={}", hostname_hash(owner))),
        family.map(|family| format!("{IP_VERSION}={family}")),
    ];
    let labels: Vec<String> = labels.into_iter().flatten().collect();
    (!labels.is_empty()).then(|| labels.join(","))
}
