//! Address pools and the settings of address management.

use net::Cidr;
use serde_json::Value;

use super::{Faults, Place};

const USES: [&str; 3] = ["Workload", "Tunnel", "LoadBalancer"];

/// A pool has a prefix without host bits.
pub(super) fn pool_cidr(spec: &Place<'_>, faults: &mut Faults) {
    let text = spec.text("cidr");
    let (message, reason) = if text.is_empty() {
        ("a pool needs a cidr".to_owned(), "IPPool CIDR must be specified")
    } else {
        match text.parse::<Cidr>() {
            Err(_) => (
                format!("\"{text}\" is not a prefix such as 10.0.0.0/16"),
                "IPPool CIDR must be a valid subnet",
            ),
            Ok(cidr) if cidr.masked() != cidr => (
                format!("{text} has host bits; the prefix is {}", cidr.masked()),
                "IP pool CIDR is not strictly masked",
            ),
            Ok(_) => return,
        }
    };
    faults.note(spec.path_of("cidr"), message, ("IPpool.CIDR", text.to_owned()), reason);
}

/// What a pool may be used for has names.
pub(super) fn pool_uses(spec: &Place<'_>, faults: &mut Faults) {
    for item in spec.each("allowedUses") {
        let text = item.value.as_str().unwrap_or_default();
        if !USES.contains(&text) {
            faults.note(
                &item.path,
                format!("\"{text}\" is not Workload, Tunnel or LoadBalancer"),
                ("IPpool.AllowedUses", spec.printed_field("allowedUses")),
                format!("unknown use: {text}"),
            );
        }
    }
}

/// A host has at least no blocks.
pub(super) fn blocks_per_host(spec: &Place<'_>, faults: &mut Faults) {
    if spec.number("maxBlocksPerHost") < 0 {
        faults.note(
            spec.path_of("maxBlocksPerHost"),
            "maxBlocksPerHost is 0 (no limit) or more",
            ("MaxBlocksPerHost", spec.printed_field("maxBlocksPerHost")),
            "must be greater than or equal to 0",
        );
    }
}

/// Affinities are marked as deleted by address management, not by people.
pub(super) fn affinity_not_deleted(spec: &Place<'_>, faults: &mut Faults) {
    let deleted = spec.value.get("deleted");
    if deleted.is_some_and(|value| value == true || value == "true") {
        faults.note(
            spec.path_of("deleted"),
            "deleted cannot be set by hand",
            ("Spec.Deleted", spec.printed()),
            "spec.Deleted cannot be set to \"true\"",
        );
    }
}

fn is_on(spec: &Place<'_>, mode: &str) -> bool {
    !matches!(spec.text(mode), "" | "Never")
}

fn is_for_load_balancers(spec: &Place<'_>) -> bool {
    spec.lists("allowedUses", "LoadBalancer")
}

/// A pool has one encapsulation, and IPIP is IPv4 only.
pub(super) fn encapsulation(spec: &Place<'_>, faults: &mut Faults) {
    if is_on(spec, "ipipMode") && is_on(spec, "vxlanMode") {
        let reason = "ipipMode and vxlanMode cannot both be enabled";
        faults.schema(spec, "ipipMode", "ipipMode and vxlanMode exclude each other", reason);
    }
    let is_ipv6 = schema_cidr(spec).is_ok_and(|cidr| !cidr.is_ipv4());
    if is_ipv6 && is_on(spec, "ipipMode") {
        let reason = "IPIP is not supported on IPv6 pools";
        faults.schema(spec, "ipipMode", "an IPv6 pool cannot use IPIP", reason);
    }
}

/// Pools for load balancers serve nothing else.
pub(super) fn load_balancer_pool(spec: &Place<'_>, faults: &mut Faults) {
    if !is_for_load_balancers(spec) {
        return;
    }
    if is_on(spec, "ipipMode") || is_on(spec, "vxlanMode") {
        let reason = "LoadBalancer IP pool cannot have IPIP or VXLAN enabled";
        faults.schema(spec, "allowedUses", "a load balancer pool has no encapsulation", reason);
    }
    if spec.lists("allowedUses", "Workload") || spec.lists("allowedUses", "Tunnel") {
        let reason = "LoadBalancer cannot be combined with Workload or Tunnel allowed uses";
        faults.schema(spec, "allowedUses", "LoadBalancer excludes Workload and Tunnel", reason);
    }
    if spec.flag("disableBGPExport") {
        let reason = "LoadBalancer IP pools cannot disable BGP export";
        let message = "a load balancer pool is exported by BGP";
        faults.schema(spec, "disableBGPExport", message, reason);
    }
    if spec.text("nodeSelector") != "all()" {
        let reason = "IP Pool with AllowedUse LoadBalancer must have nodeSelector set to all()";
        faults.schema(spec, "nodeSelector", "a load balancer pool is for all() nodes", reason);
    }
}

/// Tunnel addresses belong to nodes, and nodes and namespaces are never "global()".
pub(super) fn pool_selectors(spec: &Place<'_>, faults: &mut Faults) {
    if spec.lists("allowedUses", "Tunnel") && !spec.text("namespaceSelector").is_empty() {
        let reason = "IP Pool with AllowedUse Tunnel cannot have namespaceSelector";
        let message = "tunnel addresses have no namespace; remove Tunnel or namespaceSelector";
        faults.schema(spec, "namespaceSelector", message, reason);
    }
    for field in ["nodeSelector", "namespaceSelector"] {
        if spec.text(field).contains("global(") {
            let reason = format!("global() selector is not valid for IPPool {field}");
            let message = format!("global() selects nothing in {field}");
            faults.schema(spec, field, message, reason);
        }
    }
}

/// The pool's prefix as the CRD rules read it: no bare address, no leading zeros.
fn schema_cidr(spec: &Place<'_>) -> Result<Cidr, ()> {
    let text = spec.text("cidr");
    let (address, length) = text.split_once('/').ok_or(())?;
    let has_leading_zero = length.len() > 1 && length.starts_with('0');
    let is_mapped = address.contains(':') && address.contains('.');
    if has_leading_zero || is_mapped {
        return Err(());
    }
    Cidr::parse_strict(text).ok_or(())
}

/// A pool's prefix is masked and not link-local.
pub(super) fn pool_range(spec: &Place<'_>, faults: &mut Faults) {
    let text = spec.text("cidr");
    let Ok(cidr) = schema_cidr(spec) else {
        let reason =
            format!("network address parse error during conversion from string: \"{text}\"");
        let message = format!("\"{text}\" is not a prefix such as 10.0.0.0/16");
        faults.schema(spec, "cidr", message, reason);
        return;
    };
    if cidr != cidr.masked() {
        let message = format!("{text} has host bits; the prefix is {}", cidr.masked());
        faults.schema(spec, "cidr", message, "IPPool CIDR must be strictly masked");
    }
    for (version, range) in [(4, "169.254.0.0/16"), (6, "fe80::/10")] {
        let is_link_local = range
            .parse::<Cidr>()
            .is_ok_and(|range| range.contains(cidr.address()) || cidr.contains(range.address()));
        if is_link_local {
            let reason = format!("IPPool CIDR overlaps with IPv{version} link local range {range}");
            faults.schema(spec, "cidr", format!("{text} overlaps {range}, link-local"), reason);
        }
    }
}

/// Blocks are of a workable size and fit into the pool. Where it cannot be told of which family a
/// pool is, the sizes of both will do.
pub(super) fn pool_block_size(spec: &Place<'_>, faults: &mut Faults) {
    let cidr = schema_cidr(spec).ok();
    let given = spec.number("blockSize");
    let (is_allowed, words) = match cidr.map(Cidr::is_ipv4) {
        Some(true) => ((20..=32).contains(&given), "from 20 to 32"),
        Some(false) => ((116..=128).contains(&given), "from 116 to 128"),
        None => (
            (20..=32).contains(&given) || (116..=128).contains(&given),
            "from 20 to 32 (IPv4) or from 116 to 128 (IPv6)",
        ),
    };
    if given != 0 && !is_allowed {
        let reason = "blockSize must be between 20 and 32 for IPv4 pools, and between 116 and 128 \
                      for IPv6 pools";
        faults.schema(spec, "blockSize", format!("blockSize must be {words}"), reason);
    }
    let Some(cidr) = cidr else { return };
    let block_size = match given {
        0 if cidr.is_ipv4() => 26,
        0 => 122,
        given => given,
    };
    if !spec.flag("disabled") && i64::from(cidr.prefix_len()) > block_size {
        let reason = "IP pool size is too small for use with Calico IPAM. It must be equal to or \
                      greater than the block size.";
        let message = format!("a block of /{block_size} does not fit into {cidr}");
        faults.schema(spec, "cidr", message, reason);
    }
}

/// Blocks are cut from the prefix of a pool, so neither it nor their size can change.
pub(super) fn pool_is_immovable(old: &Value, new: &Place<'_>, faults: &mut Faults) {
    let (Some(spec), Some(old)) = (new.at("spec"), old.get("spec")) else { return };
    let fields = [("cidr", "CIDR"), ("blockSize", "Block size")];
    for (field, name) in fields {
        let (Some(now), Some(before)) = (spec.at(field), old.get(field)) else { continue };
        if now.value != before {
            let reason = format!(
                "{name} cannot be changed; follow IP pool migration guide to avoid corruption."
            );
            let message = format!("{field} cannot change; make a new pool and move to it");
            faults.schema(&now, "", message, reason);
        }
    }
}
