//! The agent's parameters: the table, reading, merging, and where the texts come from.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use model::felix::{
    Config, Consequence, DatastoreSettings, DatastoreType, Host, Kind, Parameter, Problem, Scope,
    Source, Sources, TableRange, Value, from_environment, from_file, from_resource,
};
use net::{Cidr, Port};
use serde_json::{Map, Value as Json, json};

use super::{Outcome, Row, expect, rows};

type Texts = BTreeMap<String, String>;
type Check = fn(&Json) -> anyhow::Result<Outcome>;

/// The host that the rows suppose.
const HOST: Host<'_> =
    Host { name: "host", exists: &|path| path == "/usr", find_executable: &|_| None };

pub(crate) fn run(dir: &Path) -> anyhow::Result<Vec<Row>> {
    let files: [(&str, Check); 7] = [
        ("params.jsonl", check_parameter),
        ("parse.jsonl", check_parse),
        ("merge.jsonl", check_merge),
        ("datastore.jsonl", check_datastore),
        ("environ.jsonl", check_environment),
        ("file.jsonl", check_file),
        ("resource.jsonl", check_resource),
    ];
    let mut all = Vec::new();
    for (file, check) in files {
        for (index, row) in rows(&dir.join(file))?.iter().enumerate() {
            let name = format!("{file}:{}", index + 1);
            let outcome = check(row).with_context(|| name.clone())?;
            all.push(Row { name, outcome });
        }
    }
    Ok(all)
}

/// The recorded fields that ours has too, in our order, so that one comparison shows them all.
fn compare(ours: Json, row: &Json) -> Outcome {
    let recorded: Map<String, Json> = ours
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.keys())
        .map(|key| (key.clone(), row[key].clone()))
        .collect();
    expect("row", &ours, &Json::from(recorded))
}

/// A row where the real program died: right when we give the answer that was meant.
fn despite_crash(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Passed => Outcome::Differs("go-crash"),
        other => other,
    }
}

fn text<'a>(row: &'a Json, field: &str) -> anyhow::Result<&'a str> {
    row[field].as_str().with_context(|| format!("no {field}"))
}

fn sources(row: &Json) -> anyhow::Result<Sources> {
    let given: BTreeMap<String, Texts> = serde_json::from_value(row["sources"].clone())?;
    given
        .into_iter()
        .map(|(source, texts)| {
            Ok(match source.as_str() {
                "datastore_global" => (Source::DatastoreGlobal, texts),
                "datastore_per_selector" => (Source::DatastorePerSelector, texts),
                "datastore_per_host" => (Source::DatastorePerHost, texts),
                "config_file" => (Source::ConfigFile, texts),
                "environment" => (Source::Environment, environment(&texts)),
                "internal_override" => (Source::InternalOverride, texts),
                other => bail!("unknown source {other}"),
            })
        })
        .collect()
}

/// The parameters as they are after a way through environment variables.
fn environment(texts: &Texts) -> Texts {
    let variables: Texts =
        texts.iter().map(|(name, text)| (format!("FELIX_{name}"), text.clone())).collect();
    from_environment(variables.iter().map(|(name, text)| (name.as_str(), text.as_str())))
}

fn is_refused(problems: &[Problem]) -> bool {
    problems.iter().any(|problem| problem.consequence == Consequence::Refused)
}

fn check_parameter(row: &Json) -> anyhow::Result<Outcome> {
    let name = text(row, "name")?;
    let Some(parameter) = Parameter::named(name) else {
        return Ok(Outcome::Failed(format!("no parameter {name}")));
    };
    let mut ours = json!({
        "name": parameter.name,
        "env": parameter.environment_variable(),
        "config_file_key": parameter.name,
        "felixconfiguration_field": parameter.field.map(|field| field.name),
        "kind": kind_name(parameter.kind),
        "default_string": parameter.default_text,
        "default": json_value(&parameter.default()),
        "zero": json_value(&parameter.zero()),
        "non_zero": parameter.is_non_zero(),
        "die_on_parse_failure": parameter.is_fatal_when_bad(),
        "local_only": parameter.is_local_only(),
        "user_editable": (!parameter.is_internal()).then_some(true),
    });
    if let Kind::OneOf(words) = parameter.kind {
        ours["allowed"] = words.split(' ').collect();
    }
    // Two open ranges are the wider of them; that an empty pattern is none follows from
    // empty texts being ignored.
    let recorded = match row["constraint"].as_str() {
        Some("0,9999") => Some("0"),
        Some("nil-on-empty") => None,
        constraint => constraint,
    };
    Ok(match compare(ours, row) {
        Outcome::Passed => expect("constraint", &constraint(parameter.kind).as_deref(), &recorded),
        outcome => outcome,
    })
}

/// How Calico writes the limits of a kind.
fn constraint(kind: Kind) -> Option<String> {
    match kind {
        Kind::Int(i64::MIN, i64::MAX) => None,
        Kind::Int(low, i64::MAX) => Some(low.to_string()),
        Kind::Int(low, high) => Some(format!("{low}:{high}")),
        Kind::ExistingFile => Some("must-exist".to_owned()),
        Kind::Executable => Some("must-exist,executable".to_owned()),
        _ => None,
    }
}

/// What Calico calls the kind.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "bool",
        Kind::OptionalBool => "*bool",
        Kind::Int(..) => "int",
        Kind::Seconds => "seconds",
        Kind::Milliseconds => "millis",
        Kind::OneOf(_) => "oneof",
        Kind::Text => "string",
        Kind::Hostname => "hostname",
        Kind::HostAddress => "host-address",
        Kind::Authority => "authority",
        Kind::InterfaceNames => "iface-list",
        Kind::InterfacePatterns => "iface-list-regexp",
        Kind::InterfaceFilter => "iface-param",
        Kind::InterfaceFilters => "iface-filter-slice",
        Kind::Pattern => "regexp",
        Kind::File | Kind::ExistingFile | Kind::Executable => "file",
        Kind::Ipv4 => "ipv4",
        Kind::Ipv6 => "ipv6",
        Kind::FailsafePorts => "port-list",
        Kind::PortRange => "portrange",
        Kind::PortRanges => "portrange-list",
        Kind::Endpoints => "endpoint-list",
        Kind::MarkMask => "mark-bitmask",
        Kind::Cidrs => "cidr-list",
        Kind::Region => "region",
        Kind::TableRange => "route-table-range",
        Kind::TableRanges => "route-table-ranges",
        Kind::KeyValues => "keyvaluelist",
        Kind::KeyDurations => "keydurationlist",
        Kind::Dscp => "dscp",
        Kind::LogRate => "log-rate",
    }
}

fn check_parse(row: &Json) -> anyhow::Result<Outcome> {
    let (name, raw) = (text(row, "param")?, text(row, "raw")?);
    let texts = environment(&BTreeMap::from([(name.to_owned(), raw.to_owned())]));
    let (config, problems) =
        Config::resolve(&BTreeMap::from([(Source::Environment, texts)]), &HOST);
    let outcome = match &problems[..] {
        [] if raw.is_empty() => "ignored",
        [] if raw.eq_ignore_ascii_case("none") => "zeroed",
        [] => "parsed",
        problems if is_refused(problems) => "fatal",
        _ => "defaulted",
    };
    let parsed = config.get(name).map_or(Json::Null, json_value);
    Ok(match text(row, "outcome")? {
        "crash" => {
            despite_crash(expect("row", &(outcome, parsed), &("defaulted", row["parsed"].clone())))
        }
        "fatal" => expect("outcome", &outcome, &"fatal"),
        _ => compare(json!({ "outcome": outcome, "parsed": parsed }), row),
    })
}

fn check_merge(row: &Json) -> anyhow::Result<Outcome> {
    let (config, problems) = Config::resolve(&sources(row)?, &HOST);
    let recorded = text(row, "outcome")?;
    let is_fatal = is_refused(&problems);
    if is_fatal || row["effective"].is_null() {
        // A crash row without values had an error besides.
        let meant = recorded == "fatal" || recorded == "crash" && row["effective"].is_null();
        let outcome = expect("refused", &is_fatal, &meant);
        return Ok(if recorded == "crash" { despite_crash(outcome) } else { outcome });
    }
    let named = row["effective"].as_object().context("no effective")?.keys();
    let effective: Map<String, Json> = named
        .map(|name| (name.clone(), config.get(name).map_or(json!("no parameter"), json_value)))
        .collect();
    let ours = json!({
        "effective": effective,
        "raw_values": config.raw_values(),
        "openstack_active": config.is_openstack(),
        "kubernetes_provider": config.kubernetes_provider(),
        "program_ipip_cluster_routes": config.programs_ipip_routes(),
        "program_noencap_cluster_routes": config.programs_unencapsulated_routes(),
        "interface_prefixes": config.interface_prefixes(),
        "route_table_indices": config.route_tables().iter().map(json_tables).collect::<Vec<_>>(),
    });
    let is_valid = config.contradictions().is_empty();
    Ok(match (recorded, compare(ours, row)) {
        ("crash", outcome) => despite_crash(outcome),
        (_, Outcome::Passed) => expect("valid", &is_valid, &(recorded == "ok")),
        (_, outcome) => outcome,
    })
}

fn check_datastore(row: &Json) -> anyhow::Result<Outcome> {
    let sources = sources(row)?;
    let (config, problems) = Config::resolve(&sources, &HOST);
    if is_refused(&problems) {
        return Ok(expect("refused", &true, &row["error"].is_string()));
    }
    let base = DatastoreSettings {
        datastore_type: match row["base"]["datastore_type"].as_str() {
            Some("kubernetes") => DatastoreType::Kubernetes,
            _ => DatastoreType::EtcdV3,
        },
        etcd_endpoints: text(&row["base"], "etcd_endpoints")?.to_owned(),
        etcd_key_file: String::new(),
        etcd_cert_file: String::new(),
        etcd_ca_cert_file: String::new(),
    };
    let settings = base.overridden(&config, &sources);
    let has_encapsulation = text(row, "encapsulation")? != "none";
    let ours = json!({
        "datastore_type": match settings.datastore_type {
            DatastoreType::EtcdV3 => "etcdv3",
            DatastoreType::Kubernetes => "kubernetes",
        },
        "disable_node_poll": !config.needs_node_updates(has_encapsulation),
        "etcd_ca_cert_file": settings.etcd_ca_cert_file,
        "etcd_cert_file": settings.etcd_cert_file,
        "etcd_endpoints": settings.etcd_endpoints,
        "etcd_key_file": settings.etcd_key_file,
    });
    Ok(expect("result", &ours, &row["result"]))
}

fn check_environment(row: &Json) -> anyhow::Result<Outcome> {
    let entries: Vec<String> = serde_json::from_value(row["environ"].clone())?;
    let ours = from_environment(entries.iter().filter_map(|entry| entry.split_once('=')));
    Ok(expect("result", &json!(ours), &row["result"]))
}

fn check_file(row: &Json) -> anyhow::Result<Outcome> {
    let ours = from_file(text(row, "content")?).map_or(Json::Null, |texts| json!(texts));
    Ok(expect("result", &ours, &row["result"]))
}

fn check_resource(row: &Json) -> anyhow::Result<Outcome> {
    let spec = row["spec"].as_object().context("no spec")?;
    let annotations: Texts = match &row["annotations"] {
        Json::Null => Texts::new(),
        given => serde_json::from_value(given.clone())?,
    };
    let (raw, undecodable) = from_resource(spec, &annotations);
    if !undecodable.is_empty() {
        return Ok(expect("outcome", &"undecodable", &text(row, "outcome")?));
    }
    // A resource that selects nodes is recorded as nothing here: it takes another way.
    let (scope, raw) = match Scope::of(text(row, "name")?) {
        Scope::Selected => (Json::Null, Texts::new()),
        _ if raw.is_empty() => (Json::Null, raw),
        Scope::Global => (json!("global"), raw),
        Scope::Host(host) => (json!(format!("host:{host}")), raw),
    };
    let is_list_of_ports = spec.contains_key("kubeNodePortRanges");
    match compare(json!({ "outcome": "ok", "scope": scope, "raw": raw }), row) {
        Outcome::Failed(_) if is_list_of_ports && is_readable(&raw) => {
            Ok(Outcome::Differs("node-port-ranges-of-resource"))
        }
        outcome => Ok(outcome),
    }
}

/// Whether every text can be read by the parameter that it is for.
fn is_readable(raw: &Texts) -> bool {
    let texts = BTreeMap::from([(Source::DatastoreGlobal, raw.clone())]);
    Config::resolve(&texts, &HOST).1.is_empty()
}

fn json_tables(range: &TableRange) -> Json {
    json!({ "min": range.first, "max": range.last })
}

fn json_port(port: &Port) -> Json {
    match port {
        Port::Numbers { first, last } => json!({ "min": first, "max": last, "name": "" }),
        Port::Name(name) => json!({ "min": 0, "max": 0, "name": name }),
    }
}

/// The value in the notation of the recorded rows.
fn json_value(value: &Value) -> Json {
    match value {
        Value::Unset => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Duration(value) => json!(value.nanoseconds()),
        Value::Text(value) => json!(value),
        Value::Address(value) => json!(value),
        Value::Pattern(value) => json!(value.as_str()),
        Value::Patterns(value) => value.iter().map(|pattern| pattern.as_str()).collect(),
        Value::List(value) => json!(value),
        Value::Map(value) => json!(value),
        Value::Durations(value) => value.iter().map(|(k, v)| (k, v.nanoseconds())).collect(),
        Value::Cidrs(value) => value.iter().map(Cidr::to_string).collect(),
        Value::FailsafePorts(value) => value
            .iter()
            .map(|port| {
                let net = port.net.map(|net| net.to_string()).unwrap_or_default();
                json!({ "protocol": port.protocol, "port": port.port, "net": net })
            })
            .collect(),
        Value::Port(value) => json_port(value),
        Value::Ports(value) => value.iter().map(json_port).collect(),
        Value::Dscp(value) => json!({ "string": value.to_string(), "value": value.value().ok() }),
        Value::Tables(value) => json_tables(value),
        Value::TableRanges(value) => value.iter().map(json_tables).collect(),
    }
}
