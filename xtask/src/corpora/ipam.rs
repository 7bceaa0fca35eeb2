//! Address management, step by step, on an embedded store.
//!
//! Each scenario starts with an empty store; after every step the answer, the error and everything
//! that is stored are compared. What depends on the clock is masked on both sides. `sleep` moves
//! our clock instead of waiting.

mod answer;
mod faults;
mod operate;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use ipam::{AutoAssign, Moment, View};
use serde_json::{Value, json};
use store::resources::{Manner, Resources};
use store::{Op, Store, Txn};

use super::{Outcome, Row, expect, rows};
use answer::{Answer, masked};

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let mut outcomes = Vec::new();
    for row in rows(&dir.join("scenarios.jsonl"))? {
        let name = row["id"].as_str().context("scenario without id")?.to_owned();
        let outcome = scenario(&row).with_context(|| name.clone())?;
        outcomes.push(Row { name, outcome });
    }
    let bench = Bench::new()?;
    for row in rows(&dir.join("first-blocks.jsonl"))? {
        let name = row["id"].as_str().context("row without id")?.to_owned();
        let outcome = first_blocks(&bench, &row).with_context(|| name.clone())?;
        outcomes.push(Row { name, outcome });
    }
    Ok(outcomes)
}

/// A client on a store of its own, with a clock that can be moved.
struct Bench {
    client: Resources,
    driver: store::ipam::Driver,
    ahead: std::cell::Cell<Duration>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let store = Store::Sqlite(store::sqlite::Store::open(folder.path().join("store"))?);
        let manner = Manner { rewrite_unchanged: true, ..Manner::default() };
        let driver = store::ipam::Driver::new(store.clone());
        let client = Resources::new(store, manner);
        Ok(Self { client, driver, ahead: Default::default(), _folder: folder })
    }

    fn now(&self) -> Moment {
        let ahead = u64::try_from(self.ahead.get().as_nanos()).unwrap_or_default();
        Moment::from_nanoseconds(store::ipam::now().nanoseconds() + ahead)
    }

    fn plan<T>(
        &self,
        operations: impl FnMut(&mut ipam::Planner<'_>) -> ipam::Planned<T>,
    ) -> anyhow::Result<T> {
        let mut view = View::default();
        Ok(self.driver.run_with(&mut view, || self.now(), operations)?.answer)
    }

    fn put(&self, key: &str, value: Option<&str>) -> anyhow::Result<()> {
        let key = key.to_owned();
        let op = match value {
            Some(value) => Op::Put { key, value: value.into() },
            None => Op::Delete { key },
        };
        self.client.store().commit(Txn { compares: Vec::new(), ops: vec![op] })?;
        Ok(())
    }

    /// Everything under a prefix as [key, value] pairs.
    fn contents(&self, prefix: &str) -> anyhow::Result<Vec<Value>> {
        let entries = self.client.store().list(prefix)?.entries.into_iter();
        entries.map(|it| Ok(json!([it.key, String::from_utf8(it.value)?]))).collect()
    }
}

fn scenario(row: &Value) -> anyhow::Result<Outcome> {
    let bench = Bench::new()?;
    let varies = row["varies"] == true;
    let mut class = None;
    for step in row["steps"].as_array().context("scenario without steps")? {
        let before = bench.contents("/calico/resources/")?;
        let records = bench.contents("/calico/ipam/v2/")?;
        let ours = operate::step(&bench, step)?;
        if let Some(how) = compare(&bench, step, &ours, &before, varies)? {
            class = class.or(faults::class(row, step));
            let after = bench.contents("/calico/ipam/v2/")?;
            let wrong = class.and_then(|class| {
                faults::wrong(
                    class,
                    step,
                    &ours,
                    &faults::Records { before: &records, after: &after },
                )
            });
            if let Some(wrong) = wrong {
                return Ok(Outcome::Failed(format!("step {} {}: {wrong}", step["n"], step["op"])));
            }
            // Where only the counts of handles differ, the rest of the scenario still counts.
            match class {
                Some(faults::HANDLES) if how.is_in_handles => {}
                Some(class) => return Ok(Outcome::Differs(class)),
                None => {
                    let (n, op, how) = (&step["n"], &step["op"], how.told);
                    return Ok(Outcome::Failed(format!("step {n} {op}: {how}")));
                }
            }
        }
    }
    Ok(class.map_or(Outcome::Passed, Outcome::Differs))
}

/// A difference between what we did and what was recorded.
struct Difference {
    told: String,
    /// Whether only the counts of handles differ.
    is_in_handles: bool,
}

/// How our answer or our store differs from what was recorded.
fn compare(
    bench: &Bench,
    step: &Value,
    ours: &Answer,
    before: &[Value],
    varies: bool,
) -> anyhow::Result<Option<Difference>> {
    let told = |outcome: Outcome, is_in_handles: bool| match outcome {
        Outcome::Failed(told) => Some(Difference { told, is_in_handles }),
        _ => None,
    };
    let (answer, recorded) = (ours.settled(varies), Answer::recorded(step).settled(varies));
    if let Some(how) = told(expect("answer", &answer, &recorded), false) {
        return Ok(Some(how));
    }
    if varies {
        return Ok(None);
    }
    let texts = |entries: &[Value]| entries.iter().map(masked).collect::<Vec<String>>();
    let others = |texts: &[String]| {
        let is_other = |text: &&String| !text.starts_with("/calico/ipam/v2/handle/");
        texts.iter().filter(is_other).cloned().collect::<Vec<String>>()
    };
    let ours = texts(&bench.contents("/calico/ipam/v2/")?);
    let theirs = texts(step["state"].as_array().map_or(&[], Vec::as_slice));
    let is_in_handles = others(&ours) == others(&theirs);
    if let Some(how) = told(expect("state", &ours, &theirs), is_in_handles) {
        return Ok(Some(how));
    }
    let after = bench.contents("/calico/resources/")?;
    let mut changed: Vec<Value> =
        after.iter().filter(|entry| !before.contains(entry)).cloned().collect();
    for gone in before.iter().filter(|old| after.iter().all(|new| new[0] != old[0])) {
        changed.push(json!([gone[0], null]));
    }
    let theirs = texts(step["other_changes"].as_array().map_or(&[], Vec::as_slice));
    Ok(told(expect("other changes", &texts(&changed), &theirs), false))
}

/// One host, one pool: which blocks it takes, on a store that only has them.
fn first_blocks(bench: &Bench, row: &Value) -> anyhow::Result<Outcome> {
    let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let spec = json!({"cidr": text("pool"), "blockSize": row["block_size"], "disabled": false});
    let pool = json!({
        "kind": "IPPool", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "pool"}, "spec": spec,
    });
    let node = json!({
        "kind": "Node", "apiVersion": "projectcalico.org/v3", "metadata": {"name": text("host")},
    });
    let mut view = View::default();
    view.observe_prefix("/calico/", [], 1);
    let at = "/calico/resources/v3/projectcalico.org";
    view.observe(&format!("{at}/ippools/pool"), Some((pool.to_string().into(), 1)), 1);
    let path = format!("{at}/nodes/{}", text("host"));
    view.observe(&path, Some((node.to_string().into(), 1)), 1);
    let is_ipv4 = !text("pool").contains(':');
    let size = row["block_size"].as_i64().unwrap_or_default();
    let addresses = 1_i64 << (if is_ipv4 { 32 } else { 128 } - size);
    let request = |number: i64| AutoAssign {
        node: text("host"),
        num4: if is_ipv4 { number } else { 0 },
        num6: if is_ipv4 { 0 } else { number },
        purpose: "Workload".to_owned(),
        ..AutoAssign::default()
    };
    let step = ipam::plan(&view, bench.now(), |planner| {
        let first = planner.auto_assign(&request(addresses))?;
        Ok((first, planner.auto_assign(&request(1))?))
    });
    let ipam::Step::Done((first, second), _) = step else {
        return Ok(Outcome::Failed("more had to be read".to_owned()));
    };
    let block = |assigned: &ipam::Assigned| {
        assigned.addresses().next().map(|it| it.masked().to_string()).unwrap_or_default()
    };
    let given = first.addresses().next().map(|it| it.address().to_string()).unwrap_or_default();
    let second = match text("second_block") == text("first_block") {
        true => block(&first),
        false => block(&second),
    };
    let ours = [block(&first), given, second];
    let theirs = [text("first_block"), text("first_address"), text("second_block")];
    Ok(expect("blocks", &ours, &theirs))
}
