//! Address pools: defaults that depend on the address family, and peace with other pools.

use api::{CalicoError, Problem};
use net::Cidr;
use serde_json::{Value, json};

use super::{Neighbours, Refusal, metadata_text, said, section, set_if_empty, spec_text, unsaid};

const CIDR: &str = "IPPool.Spec.CIDR";

/// Fills in a pool and compares it with its former self or with the other pools.
pub(super) fn fill(
    old: Option<&Value>,
    object: &mut Value,
    neighbours: &Neighbours,
) -> Result<(), Refusal> {
    let given = spec_text(object, "cidr").to_owned();
    if given.is_empty() {
        let calico = unsaid(CIDR, "IPPool CIDR must be specified");
        return Err(Refusal::invalid("spec.cidr", "a pool needs a cidr", calico));
    }
    let Some(cidr) = Cidr::parse_strict(&given) else {
        let message = format!("\"{given}\" is not a prefix such as 10.0.0.0/16");
        let calico = said(CIDR, given, "IPPool CIDR must be a valid subnet");
        return Err(Refusal::invalid("spec.cidr", message, calico));
    };
    let canonical = cidr.masked().to_string();
    section(object, "spec").insert("cidr".to_owned(), canonical.clone().into());
    fill_defaults(object, cidr);

    let mut problems = Vec::new();
    let mut note = |path: &str, message: String, calico: CalicoError| {
        problems.push(Problem::invalid(path, message, calico));
    };
    match old {
        Some(old) => {
            uses_still_fit(old, object)?;
            if !is_same_prefix(spec_text(old, "cidr"), &canonical) {
                let calico = said(CIDR, &canonical, "IPPool CIDR cannot be modified");
                let message = "the cidr cannot change; make a new pool and move to it";
                note("spec.cidr", message.to_owned(), calico);
            }
            let (before, now) = (block_size(old), block_size(object));
            if before != now {
                let reason = "IPPool BlockSize cannot be modified";
                let calico = said("IPPool.Spec.BlockSize", now.to_string(), reason);
                note("spec.blockSize", format!("the block size is {before} and stays it"), calico);
            }
        }
        None => {
            for other in overlapping(object, cidr, &neighbours.ip_pools) {
                let (name, other_cidr) = (metadata_text(other, "name"), spec_text(other, "cidr"));
                let reason = format!(
                    "IPPool({}) CIDR overlaps with IPPool({name}) CIDR {other_cidr}",
                    metadata_text(object, "name")
                );
                let calico = said(CIDR, &canonical, reason);
                let message = format!("{canonical} overlaps {other_cidr} of the pool {name}");
                note("spec.cidr", message, calico);
            }
        }
    }
    if cidr != cidr.masked() {
        let calico = said(CIDR, &canonical, "IPPool CIDR is not strictly masked");
        let message = format!("{given} has host bits; the prefix is {canonical}");
        note("spec.cidr", message, calico);
    }
    if problems.is_empty() { Ok(()) } else { Err(Refusal::Invalid(problems)) }
}

/// Pools written before a field existed lack it; users see what it stands for.
pub(crate) fn fill_stored(object: &mut Value) {
    if let Some(cidr) = Cidr::parse_strict(spec_text(object, "cidr")) {
        fill_defaults(object, cidr);
    }
}

fn fill_defaults(object: &mut Value, cidr: Cidr) {
    let spec = section(object, "spec");
    set_if_empty(spec, "nodeSelector", "all()");
    set_if_empty(spec, "blockSize", if cidr.is_ipv4() { 26 } else { 122 });
    set_if_empty(spec, "allowedUses", json!(["Workload", "Tunnel"]));
    set_if_empty(spec, "ipipMode", "Never");
    set_if_empty(spec, "vxlanMode", "Never");
    // Unlike the others an empty text here counts as given.
    if spec.get("assignmentMode").is_none_or(Value::is_null) {
        spec.insert("assignmentMode".to_owned(), "Automatic".into());
    }
}

fn block_size(object: &Value) -> i64 {
    let size = object.get("spec").and_then(|spec| spec.get("blockSize"));
    size.and_then(Value::as_i64).unwrap_or_default()
}

/// Whether the prefix is the same, be it that the old text was not in canonical form.
fn is_same_prefix(old: &str, new: &str) -> bool {
    let masked = |text: &str| Cidr::parse_strict(text).map(Cidr::masked);
    old == new || masked(old).is_some_and(|old| Some(old) == masked(new))
}

/// Addresses that services have from a pool cannot be taken back for workloads.
fn uses_still_fit(old: &Value, new: &Value) -> Result<(), Refusal> {
    let uses = |object: &Value| -> Vec<String> {
        let list = object.get("spec").and_then(|spec| spec.get("allowedUses"));
        let items = list.and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let now = uses(new);
    let was_for_services = uses(old).iter().any(|item| item == "LoadBalancer");
    if was_for_services && now.iter().any(|item| item != "LoadBalancer") {
        let reason = "IPPool allowed use cannot be changed from LoadBalacer to Workload or Tunnel";
        let calico = said("IPPool.Spec.AllowedUses", format!("[{}]", now.join(" ")), reason);
        let message = "a pool for load balancers stays one";
        return Err(Refusal::invalid("spec.allowedUses", message, calico));
    }
    Ok(())
}

fn overlapping<'a>(object: &Value, cidr: Cidr, pools: &'a [Value]) -> Vec<&'a Value> {
    let name = metadata_text(object, "name");
    let overlaps = |pool: &&Value| {
        let other = Cidr::parse_strict(spec_text(pool, "cidr"));
        metadata_text(pool, "name") != name && other.is_some_and(|other| other.overlaps(cidr))
    };
    pools.iter().filter(overlaps).collect()
}

/// Blocks that are already cut from the prefix are of the pool's block size.
pub(super) fn blocks_agree(object: &Value, neighbours: &Neighbours) -> Result<(), Refusal> {
    let Some(cidr) = Cidr::parse_strict(spec_text(object, "cidr")) else { return Ok(()) };
    let size = block_size(object);
    let conflict = neighbours
        .blocks
        .iter()
        .find(|block| i64::from(block.prefix_len()) != size && block.overlaps(cidr));
    match conflict {
        None => Ok(()),
        Some(block) => {
            let reason = "IPPool blocksSize conflicts with existing allocations that use a \
                          different blockSize";
            let calico = said("IPPool.Spec.BlockSize", size.to_string(), reason);
            let message = format!("addresses are in use in the block {block}");
            Err(Refusal::invalid("spec.blockSize", message, calico))
        }
    }
}
