//! What a create or apply leaves in the datastore.

use std::collections::BTreeMap;

use anyhow::Context as _;
use api::Kind;
use api::schema::{Mode, decode, object_for};
use model::prepare::{Context, Need, Neighbours, Refusal, needs, prepare_create, prepare_update};
use model::present::present;
use serde_json::{Map, Value, json};

use super::super::{Outcome, expect};

const UID: &str = "11111111-2222-3333-4444-555555555555";
const NOW: &str = "2026-01-02T03:04:05Z";

/// One row: the resources set up before, then the resource given.
pub(super) fn create(row: &Value) -> anyhow::Result<Outcome> {
    let mut store = Store::initialised()?;
    if row["action"] == "initialise" {
        return Ok(store.has_recorded_tiers(&row["stored"]));
    }
    for object in row["setup"].as_array().into_iter().flatten() {
        if let Err(error) = store.write(object, false)? {
            return Ok(Outcome::Failed(format!("while setting up: {error}")));
        }
    }
    let written = store.write(&row["in"], row["action"] == "apply")?;
    Ok(judge(written, row))
}

/// The same of a resource given as YAML.
pub(super) fn create_from_yaml(row: &Value) -> anyhow::Result<Outcome> {
    let yaml = row["yaml"].as_str().context("no yaml")?;
    let written = match text::yaml::parse(yaml.as_bytes()) {
        Ok(object) => Store::initialised()?.write(&object, false)?,
        Err(error) => Err(error.go_message()),
    };
    Ok(judge(written, row))
}

fn judge(written: Written, row: &Value) -> Outcome {
    let recorded = row["error"].as_str().unwrap_or_default();
    match written {
        Err(error) if row["ok"] == false => {
            let inner = recorded.split_once(": [").map_or(recorded, |(_, inner)| inner);
            let inner = inner.strip_suffix(']').unwrap_or(inner);
            match is_library_wording(&error, recorded) {
                true => Outcome::Passed,
                false => expect("refused", &lines(&error), &lines(inner)),
            }
        }
        Err(error) => Outcome::Failed(format!("refused: {error}")),
        Ok(_) if row["ok"] == false => Outcome::Failed(format!("not refused: {recorded}")),
        Ok((path, stored)) => {
            let ours = text::json::to_string(&json!({ path: stored }));
            expect("stored", &ours, &with_our_stamps(&row["stored"]))
        }
    }
}

/// The recorded values with our identifier and time in place of the marks for them.
fn with_our_stamps(recorded: &Value) -> String {
    // Go writes angle brackets as escapes.
    text::json::to_string(recorded)
        .replace(r"\u003cuid\u003e", UID)
        .replace(r"\u003ctime\u003e", NOW)
}

/// Whether the recorded message is a Go library's own, so that only the verdict counts: YAML and
/// JSON that cannot be read, and prefixes that a rule cannot read.
fn is_library_wording(ours: &str, recorded: &str) -> bool {
    let is_reader = recorded.starts_with("failed to execute command: error ");
    let prefix = "network address parse error";
    is_reader || ours.contains(prefix) && recorded.contains(prefix)
}

/// The lines of a message; those of a list of faults come in no fixed order.
fn lines(message: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = message.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

struct Store {
    objects: BTreeMap<String, (Kind, Value)>,
}

type Written = Result<(String, Value), String>;

impl Store {
    /// The tiers that every datastore has.
    fn initialised() -> anyhow::Result<Self> {
        let mut store = Self { objects: BTreeMap::new() };
        let tiers = [
            ("default", 1_000_000, "Deny"),
            ("kube-admin", 1000, "Pass"),
            ("kube-baseline", 10_000_000, "Pass"),
        ];
        for (name, order, action) in tiers {
            let tier = json!({
                "kind": "Tier", "apiVersion": "projectcalico.org/v3",
                "metadata": { "name": name },
                "spec": { "order": order, "defaultAction": action },
            });
            store.write(&tier, false)?.map_err(anyhow::Error::msg)?;
        }
        Ok(store)
    }

    /// Whether the tiers are as recorded. The rest of a fresh datastore is not prepared here.
    fn has_recorded_tiers(&self, recorded: &Value) -> Outcome {
        let mut recorded = recorded.clone();
        if let Value::Object(objects) = &mut recorded {
            objects.retain(|_, object| object["kind"] == "Tier");
        }
        let tiers: Map<String, Value> = (self.objects.iter())
            .map(|(path, (_, object))| (path.clone(), object.clone()))
            .collect();
        let ours = text::json::to_string(&Value::Object(tiers));
        expect("tiers", &ours, &with_our_stamps(&recorded))
    }

    /// Creates the object, or replaces it if it may.
    fn write(&mut self, given: &Value, may_replace: bool) -> anyhow::Result<Written> {
        let kind: Kind = given["kind"].as_str().context("no kind")?.parse()?;
        let (object, problems) = decode(object_for(kind), given.clone(), Mode::User);
        if let Some(problem) = problems.first() {
            return Ok(Err(problem.calico.reason.clone()));
        }
        let context = Context {
            uid: UID.to_owned(),
            now: NOW.to_owned(),
            default_namespace: "default".to_owned(),
        };
        let neighbours = self.answer(needs(kind, &object));
        let stored = match prepare_create(kind, object.clone(), &context, &neighbours) {
            Err(refusal) => return Ok(Err(sentence(kind, &object, &refusal))),
            Ok(stored) => stored,
        };
        let path = path(kind, &stored);
        let stored = match self.objects.get(&path) {
            None => stored,
            Some(_) if !may_replace => {
                return Ok(Err(format!(
                    "resource already exists: {} with error: <nil>",
                    shown(kind, &stored)
                )));
            }
            Some((_, old)) => {
                let old = present(kind, old.clone())?;
                match prepare_update(kind, &old, object.clone(), &context, &neighbours) {
                    Err(refusal) => return Ok(Err(sentence(kind, &object, &refusal))),
                    Ok(stored) => stored,
                }
            }
        };
        self.objects.insert(path.clone(), (kind, stored.clone()));
        Ok(Ok((path, stored)))
    }

    fn answer(&self, needs: Vec<Need>) -> Neighbours {
        let of_kind = |wanted: Kind| {
            self.objects.values().filter(move |(kind, _)| *kind == wanted).map(|(_, object)| object)
        };
        let name =
            |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut neighbours = Neighbours::default();
        for need in needs {
            match need {
                Need::Tier(tier) => {
                    neighbours.tier_exists = of_kind(Kind::Tier).any(|object| name(object) == tier);
                }
                Need::IpPools => neighbours.ip_pools = of_kind(Kind::IpPool).cloned().collect(),
                Need::Blocks => {}
                Need::BgpFilters => {
                    neighbours.bgp_filters = of_kind(Kind::BgpFilter).map(name).collect()
                }
            }
        }
        neighbours
    }
}

fn path(kind: Kind, object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let root = format!("/calico/resources/v3/projectcalico.org/{}", kind.plural());
    match kind.is_namespaced() {
        true => format!("{root}/{}/{}", text("namespace"), text("name")),
        false => format!("{root}/{}", text("name")),
    }
}

fn shown(kind: Kind, object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    match kind.is_namespaced() {
        true => format!("{kind}({}/{})", text("namespace"), text("name")),
        false => format!("{kind}({})", text("name")),
    }
}

/// The sentence of Calico's tools for a refusal.
fn sentence(kind: Kind, object: &Value, refusal: &Refusal) -> String {
    match refusal {
        Refusal::Missing { kind, name } => {
            format!("resource does not exist: {kind}({name}) with error: <nil>")
        }
        Refusal::BuiltIn => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let what = kind.name().to_lowercase();
            format!(
                "resource already exists: {name} with error: {name} already exists. The {what} \
                 \"{name}\" is default provided by Calico"
            )
        }
        Refusal::Refused { calico, .. } => calico.clone(),
        Refusal::Invalid(problems) => {
            let entries: Vec<String> = problems
                .iter()
                .map(|problem| {
                    let told = &problem.calico;
                    let value = told.value.as_ref().map(|value| format!(" = '{value}'"));
                    format!("{}{} ({})", told.field, value.unwrap_or_default(), told.reason)
                })
                .collect();
            match entries.as_slice() {
                [only] => format!("error with field {only}"),
                several => {
                    let list: String =
                        several.iter().map(|entry| format!("-  {entry}\n")).collect();
                    format!("error with the following fields:\n{list}")
                }
            }
        }
    }
}
