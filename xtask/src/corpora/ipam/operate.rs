//! One step of a scenario, carried out by us.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context;
use api::Kind;
use api::keys::AffinityType;
use api::keys::ipam::{Attribute, Block, IpamConfig};
use api::schema::{Mode, decode, object_for};
use ipam::{
    AssignIp, Assignment, AutoAssign, EnsureBlock, HostReserved, Owner, OwnerChange, OwnerCheck,
    OwnerUpdate, PoolUsage, Release,
};
use net::Cidr;
use serde_json::{Value, json};
use store::resources::{Name, Verb};

use super::Bench;
use super::answer::Answer;

/// The arguments of a step.
struct Arguments<'a>(&'a Value);

impl Arguments<'_> {
    fn text(&self, name: &str) -> String {
        self.0[name].as_str().unwrap_or_default().to_owned()
    }

    fn given(&self, name: &str) -> Option<String> {
        self.0[name].as_str().map(str::to_owned)
    }

    fn number(&self, name: &str) -> i64 {
        self.0[name].as_i64().unwrap_or_default()
    }

    fn flag(&self, name: &str) -> bool {
        self.0[name] == true
    }

    fn cidr(&self, name: &str) -> anyhow::Result<Cidr> {
        self.text(name).parse().with_context(|| format!("{name} is no CIDR"))
    }

    fn cidrs(&self, name: &str) -> Vec<Cidr> {
        let items = self.0[name].as_array().into_iter().flatten();
        items.filter_map(|it| it.as_str()?.parse().ok()).collect()
    }

    fn address(&self, name: &str) -> anyhow::Result<IpAddr> {
        self.text(name).parse().with_context(|| format!("{name} is no address"))
    }

    fn labels(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let fields = self.0[name].as_object()?.iter();
        Some(fields.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect())
    }

    fn reserved(&self, name: &str) -> Option<HostReserved> {
        let value = self.0.get(name).filter(|it| it.is_object())?;
        let number = |field: &str| {
            value[field].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or_default()
        };
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let (start, end) = (number("startOfBlock"), number("endOfBlock"));
        Some(HostReserved { start, end, handle: text("handle"), note: text("note") })
    }

    fn owner(&self) -> Owner {
        let kind = AffinityType::from_name(&self.text("affinity_type"));
        Owner { kind, name: self.text("host") }
    }
}

pub(super) fn step(bench: &Bench, step: &Value) -> anyhow::Result<Answer> {
    let with = Arguments(&step["args"]);
    let operation = step["op"].as_str().context("step without op")?;
    if let Some((verb, kind)) = resource(operation) {
        return write(bench, verb, kind, &with);
    }
    Ok(match operation {
        "put" => {
            bench.put(&with.text("key"), with.0["value"].as_str())?;
            Answer::default()
        }
        "edit_key" => edit(bench, &with)?,
        "sleep" => {
            let seconds = with.0["seconds"].as_f64().unwrap_or_default();
            bench.ahead.set(bench.ahead.get() + Duration::from_secs_f64(seconds));
            Answer::default()
        }
        "auto_assign" => auto_assign(bench, &with)?,
        "assign_ip" => assign_ip(bench, &with)?,
        "release_ips" => release_ips(bench, &with)?,
        "ensure_block" => ensure_block(bench, &with)?,
        "get_utilization" => utilization(bench, &with)?,
        "get_config" | "set_config" => config(bench, operation, &with)?,
        "set_owner_attributes" => set_owner(bench, &with)?,
        "ips_by_handle" => {
            let answer = bench.plan(|planner| planner.ips_by_handle(&with.text("handle")))?;
            let addresses = answer.as_ref().map_or_else(|_| Vec::new(), Clone::clone);
            let mut texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
            texts.sort_unstable();
            Answer::of(json!(texts), answer.as_ref().err())
        }
        "get_attributes" => {
            let address = with.address("ip")?;
            match bench.plan(|planner| planner.get_attributes(address))? {
                Ok(holder) => Answer::result(attribute(&holder)),
                Err(error) => Answer::of(Value::Null, Some(&error)),
            }
        }
        "claim_affinity" => {
            let (cidr, owner) = (with.cidr("cidr")?, with.owner());
            let answer = bench.plan(|planner| planner.claim_affinity(cidr, &owner))?;
            let texts = |cidrs: &[Cidr]| cidrs.iter().map(Cidr::to_string).collect::<Vec<_>>();
            let claimed = answer.clone().unwrap_or_default();
            let result =
                json!({"claimed": texts(&claimed.claimed), "failed": texts(&claimed.failed)});
            Answer::of(result, answer.as_ref().err())
        }
        _ => return affinities(bench, operation, &with),
    })
}

fn affinities(bench: &Bench, operation: &str, with: &Arguments<'_>) -> anyhow::Result<Answer> {
    let must_be_empty = with.flag("must_be_empty");
    Ok(Answer::nothing(match operation {
        "release_by_handle" => {
            bench.plan(|planner| planner.release_by_handle(&with.text("handle")))?
        }
        "release_affinity" => {
            let (cidr, host) = (with.cidr("cidr")?, with.text("host"));
            bench.plan(|planner| planner.release_affinity(cidr, &host, must_be_empty))?
        }
        "release_host_affinities" => {
            let owner = with.owner();
            bench.plan(|planner| planner.release_host_affinities(&owner, must_be_empty))?
        }
        "release_pool_affinities" => {
            let cidr = with.cidr("cidr")?;
            bench.plan(|planner| planner.release_pool_affinities(cidr))?
        }
        "release_block_affinity" => {
            let cidr = with.cidr("cidr")?;
            bench.plan(|planner| planner.release_block_affinity(cidr, must_be_empty))?
        }
        "remove_ipam_host" => {
            let owner = with.owner();
            bench.plan(|planner| planner.remove_ipam_host(&owner))?
        }
        "gc_cold_ips" => {
            let cidr = with.cidr("cidr")?;
            bench.plan(|planner| planner.gc_cold_ips(cidr))?
        }
        "upgrade_host" => bench.plan(|planner| planner.upgrade_host(&with.text("host")))?,
        other => anyhow::bail!("no operation {other}"),
    }))
}

fn resource(operation: &str) -> Option<(Option<Verb>, Kind)> {
    let (verb, kind) = operation.split_once('_')?;
    let verb = match verb {
        "create" => Some(Verb::Create),
        "update" => Some(Verb::Update),
        "delete" => None,
        _ => return None,
    };
    let kind = match kind {
        "pool" => Kind::IpPool,
        "node" => Kind::Node,
        "reservation" => Kind::IpReservation,
        _ => return None,
    };
    Some((verb, kind))
}

/// A write of an object by the client. An update changes only the fields that are named.
fn write(
    bench: &Bench,
    verb: Option<Verb>,
    kind: Kind,
    with: &Arguments<'_>,
) -> anyhow::Result<Answer> {
    let name = Name::cluster(kind, with.text("name"));
    let Some(verb) = verb else {
        return Ok(match bench.client.delete(&name, None) {
            Ok(_) => Answer::default(),
            Err(error) => Answer::refused(error.calico()),
        });
    };
    let mut object = json!({
        "kind": kind.name(), "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": with.text("name")}, "spec": {},
    });
    if verb == Verb::Update {
        object = bench.client.get(&name)?.object;
    }
    for (field, value) in with.0["spec"].as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    if let Some(labels) = with.labels("labels") {
        object["metadata"]["labels"] = json!(labels);
    }
    let (object, problems) = decode(object_for(kind), object, Mode::User);
    anyhow::ensure!(problems.is_empty(), "{problems:?}");
    Ok(match bench.client.write(verb, &object) {
        Ok(written) if kind == Kind::IpPool => {
            Answer::result(written.stored()?.object["spec"].clone())
        }
        Ok(_) => Answer::default(),
        Err(error) => Answer::refused(error.calico()),
    })
}

fn edit(bench: &Bench, with: &Arguments<'_>) -> anyhow::Result<Answer> {
    let key = with.text("key");
    let entry = bench.client.store().get(&key)?.0.context("no such key")?;
    let text = String::from_utf8(entry.value)?;
    bench.put(&key, Some(&text.replace(&with.text("old"), &with.text("new"))))?;
    Ok(Answer::default())
}

fn auto_assign(bench: &Bench, with: &Arguments<'_>) -> anyhow::Result<Answer> {
    let request = AutoAssign {
        node: with.text("host"),
        num4: with.number("num4"),
        num6: with.number("num6"),
        handle: with.given("handle"),
        attributes: with.labels("attrs").unwrap_or_default(),
        purpose: with.text("use"),
        pools4: with.cidrs("ipv4_pools"),
        pools6: with.cidrs("ipv6_pools"),
        max_blocks: with.number("max_blocks_per_host"),
        reserved4: with.reserved("host_reserved_v4"),
        reserved6: with.reserved("host_reserved_v6"),
        max_per_handle: with.number("max_alloc_to_handle"),
        namespace: with.0.get("namespace").filter(|it| it.is_object()).map(|it| {
            let labels = it.get("labels").unwrap_or(it);
            Arguments(&json!({"labels": labels})).labels("labels").unwrap_or_default()
        }),
        ..AutoAssign::default()
    };
    let answer = bench.plan(|planner| planner.auto_assign(&request))?;
    let result = json!({"v4": assignment(&answer.v4), "v6": assignment(&answer.v6)});
    Ok(Answer::of(result, answer.error.as_ref()))
}

fn assignment(given: &Option<Assignment>) -> Value {
    let Some(given) = given else { return Value::Null };
    json!({
        "ip_version": given.family,
        "ips": given.addresses.iter().map(Cidr::to_string).collect::<Vec<_>>(),
        "msgs": given.messages,
        "num_requested": given.requested,
        "partial_error": given.shortfall(),
    })
}

fn assign_ip(bench: &Bench, with: &Arguments<'_>) -> anyhow::Result<Answer> {
    let request = AssignIp {
        node: with.text("host"),
        address: with.address("ip")?,
        handle: with.given("handle"),
        attributes: with.labels("attrs").unwrap_or_default(),
        purpose: with.text("use"),
        max_per_handle: with.number("max_alloc_to_handle"),
        reserved: None,
    };
    Ok(Answer::nothing(bench.plan(|planner| planner.assign_ip(&request))?))
}

/// The sequence number stored for an address at this moment.
fn sequence_of(bench: &Bench, address: &str) -> anyhow::Result<u64> {
    let address: IpAddr = address.parse()?;
    for entry in bench.contents("/calico/ipam/v2/assignment/")? {
        let value = serde_json::from_str(entry[1].as_str().unwrap_or_default())?;
        let Ok(block) = Block::decode(&value) else { continue };
        if let Some(ordinal) = block.ordinal(address) {
            return Ok(block.sequence_of(ordinal).unwrap_or_default());
        }
    }
    Ok(0)
}

fn release_ips(bench: &Bench, with: &Arguments<'_>) -> anyhow::Result<Answer> {
    let mut releases = Vec::new();
    for item in with.0["ips"].as_array().into_iter().flatten().map(Arguments) {
        let address = item.text("address");
        let sequence = match item.given("seq").as_deref() {
            None | Some("") => None,
            Some("current") => Some(sequence_of(bench, &address)?),
            Some("current+1") => Some(sequence_of(bench, &address)?.wrapping_add(1)),
            Some("current-1") => Some(sequence_of(bench, &address)?.wrapping_sub(1)),
            Some(number) => Some(number.parse()?),
        };
        releases.push(Release { address, handle: item.text("handle"), sequence });
    }
    let answer = bench.plan(|planner| planner.release_ips(&releases))?;
    let texts = |addresses: &[IpAddr]| {
        let mut texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        texts.sort_unstable();
        texts
    };
    let result =
        json!({"no_error_for": texts(&answer.done), "unallocated": texts(&answer.unallocated)});
    Ok(Answer::of(result, answer.error.as_ref()))
}

fn ensure_block(bench: &Bench, with: &Arguments<'_>) -> anyhow::Result<Answer> {
    let request = EnsureBlock {
        node: with.text("host"),
        reserved4: with.reserved("host_reserved_v4"),
        reserved6: with.reserved("host_reserved_v6"),
        pools4: with.cidrs("ipv4_pools"),
        pools6: with.cidrs("ipv6_pools"),
    };
    let answer = bench.plan(|planner| planner.ensure_block(&request))?;
    let ipam::Ensured { v4, v6 } = answer.as_ref().copied().unwrap_or_default();
    let text = |cidr: Option<Cidr>| cidr.map(|cidr| cidr.to_string());
    Ok(Answer::of(json!({"v4": text(v4), "v6": text(v6)}), answer.as_ref().err()))
}

fn utilization(bench: &Bench, with: &Arguments<'_>) -> anyhow::Result<Answer> {
    let names = with.0["pools"].as_array().into_iter().flatten();
    let names: Vec<String> = names.filter_map(|it| it.as_str().map(str::to_owned)).collect();
    let pools = bench.plan(|planner| planner.get_utilization(&names))?;
    let shown = |pool: &PoolUsage| {
        let blocks: Vec<Value> = pool
            .blocks
            .iter()
            .map(|it| {
                json!({"cidr": it.cidr.to_string(), "capacity": it.capacity, "in_use": it.in_use,
                    "reserved": it.reserved, "available": it.free})
            })
            .collect();
        json!({
            "name": pool.name.as_deref().unwrap_or("orphaned allocation blocks"),
            "cidr": pool.cidr.map_or("0.0.0.0/0".to_owned(), |cidr| cidr.to_string()),
            "capacity": pool.capacity, "in_use": pool.in_use, "reserved": pool.reserved,
            "available": pool.free, "blocks": blocks,
        })
    };
    Ok(Answer::result(pools.iter().map(shown).collect()))
}

fn config(bench: &Bench, operation: &str, with: &Arguments<'_>) -> anyhow::Result<Answer> {
    let given = Arguments(&with.0["config"]);
    if operation == "set_config" {
        let change = |config: &mut IpamConfig| {
            config.strict_affinity = given.flag("strictAffinity");
            config.auto_allocate_blocks = given.flag("autoAllocateBlocks");
            config.max_blocks_per_host = given.number("maxBlocksPerHost");
            config.cooldown_seconds = given.number("ipCooldownSeconds");
            config.kubevirt_address_persistence = given.given("kubeVirtVMAddressPersistence");
        };
        let answer = bench.plan(|planner| planner.set_config(change))?;
        return Ok(Answer::nothing(answer.map(drop)));
    }
    Ok(match bench.plan(|planner| planner.get_config())? {
        Err(error) => Answer::of(Value::Null, Some(&error)),
        Ok(config) => Answer::result(json!({
            "strictAffinity": config.strict_affinity,
            "autoAllocateBlocks": config.auto_allocate_blocks,
            "maxBlocksPerHost": config.max_blocks_per_host,
            "ipCooldownSeconds": config.cooldown_seconds,
            "kubeVirtVMAddressPersistence": config.kubevirt_address_persistence,
        })),
    })
}

fn attribute(holder: &Attribute) -> Value {
    let mut shown = serde_json::Map::new();
    shown.extend(holder.handle.clone().map(|it| ("handle_id".to_owned(), it.into())));
    let maps =
        [("secondary", &holder.active_owner), ("alternateOwnerAttrs", &holder.alternate_owner)];
    for (name, attributes) in maps.into_iter().filter(|(_, attributes)| !attributes.is_empty()) {
        shown.insert(name.to_owned(), json!(attributes));
    }
    Value::Object(shown)
}

fn set_owner(bench: &Bench, with: &Arguments<'_>) -> anyhow::Result<Answer> {
    let update = |which: &str| OwnerUpdate {
        set: with.labels(which),
        clear: with.flag(&format!("clear_{which}")),
        expect: match with.flag(&format!("expect_{which}_empty")) {
            true => Some(OwnerCheck::Nobody),
            false => with.0.get(format!("expect_{which}")).map(|pod| {
                let pod = Arguments(pod);
                OwnerCheck::Pod { namespace: pod.text("namespace"), name: pod.text("name") }
            }),
        },
    };
    let change = OwnerChange { active: update("active"), alternate: update("alternate") };
    let (address, handle) = (with.address("ip")?, with.text("handle"));
    let answer = bench.plan(|planner| planner.set_owner_attributes(address, &handle, &change))?;
    Ok(Answer::nothing(answer))
}
