//! `margay help field KIND.path`: what may stand in a document, from the schema tables.

use api::Kind;
use api::schema::{self, Field, Keep, Limit, Object, Shape};

use super::failure::Failure;
use super::terminal::{Colour, Terminal};

/// The explanation of a kind (`ippool`) or of a field (`IPPool.spec.cidr`).
pub(crate) fn explain(terminal: Terminal, path: &str) -> Result<String, Failure> {
    let (kind_name, field_path) = path.split_once('.').unwrap_or((path, ""));
    let kind = Kind::from_alias(kind_name).ok_or_else(|| unknown_kind(kind_name))?;
    let whole = schema::object_for(kind);
    if field_path.is_empty() {
        let title = terminal.paint(Colour::Bold, kind.name());
        let scope = if kind.is_namespaced() { "in a namespace" } else { "for the whole cluster" };
        return Ok(format!("{title}  a resource {scope}\n{}", children(whole)));
    }
    let found = find(whole, field_path);
    let (names, field) = found.map_err(|(known, missing)| unknown_field(kind, known, &missing))?;
    let path = names.join(".");
    let default = filled_in(kind, &path).or(field.default);
    Ok(page(terminal, &format!("{}.{path}", kind.name()), field, default))
}

/// The defaults that depend on the rest of the object, and so are in no table: they are filled in
/// when it is written.
fn filled_in(kind: Kind, path: &str) -> Option<&'static str> {
    use Kind::{
        FelixConfiguration, GlobalNetworkPolicy, IpPool, KubeControllersConfiguration,
        NetworkPolicy, StagedGlobalNetworkPolicy, StagedNetworkPolicy, Tier,
    };
    let is_policy = matches!(
        kind,
        NetworkPolicy | GlobalNetworkPolicy | StagedNetworkPolicy | StagedGlobalNetworkPolicy
    );
    Some(match (kind, path) {
        (IpPool, "spec.blockSize") => "26 for IPv4, 122 for IPv6",
        (IpPool, "spec.nodeSelector") => "all()",
        (IpPool, "spec.allowedUses") => "[Workload, Tunnel]",
        (IpPool, "spec.ipipMode" | "spec.vxlanMode") => "Never",
        (IpPool, "spec.assignmentMode") => "Automatic",
        (_, "spec.types") if is_policy => {
            "[Ingress]; with egress rules only [Egress], with rules of both [Ingress, Egress]"
        }
        (_, "spec.tier") if is_policy => "default",
        (Tier, "spec.order") => "1000000",
        (Tier, "spec.defaultAction") => "Deny",
        (FelixConfiguration, "spec.floatingIPs") => "Disabled",
        (FelixConfiguration, "spec.bpfConnectTimeLoadBalancing") => "TCP",
        (FelixConfiguration, "spec.bpfHostNetworkedNATWithoutCTLB") => "Enabled",
        (KubeControllersConfiguration, "spec.prometheusMetricsPort") => "9094",
        (KubeControllersConfiguration, "spec.controllers.node.leakGracePeriod") => "15m0s",
        (kind, "metadata.namespace") if kind.is_namespaced() => "default",
        _ => return None,
    })
}

fn page(terminal: Terminal, title: &str, field: &Field, default: Option<&str>) -> String {
    let mut text = format!("{}  {}\n", terminal.paint(Colour::Bold, title), type_of(field.shape));
    if !field.help.is_empty() {
        text.push_str(&format!("  {}\n", field.help));
    }
    let default = match (default, field.required, field.keep) {
        (Some(default), ..) => default.to_owned(),
        (None, true, _) => "none; the field is required".to_owned(),
        (None, false, Keep::Always) => "written out with its zero value".to_owned(),
        (None, false, _) => "none".to_owned(),
    };
    text.push_str(&format!("  default  {default}\n"));
    let rules: Vec<String> = rules_of(field);
    if !rules.is_empty() {
        text.push_str(&format!("  rules    {}\n", rules.join("; ")));
    }
    if let Some(object) = object_of(field.shape) {
        text.push_str(&children(object));
    }
    text
}

fn rules_of(field: &Field) -> Vec<String> {
    let mut rules: Vec<String> = Vec::new();
    let mut each = "";
    for tag in field.checks.split(',') {
        match tag {
            "dive" => each = "each ",
            tag => rules.extend(rule_of_check(tag).map(|words| format!("{each}{words}"))),
        }
    }
    rules.extend(field.limits.iter().map(rule_of_limit).filter(|rule| !rule.is_empty()));
    rules.dedup();
    rules
}

fn rule_of_limit(limit: &Limit) -> String {
    match limit {
        Limit::OneOf(values) => format!("one of {}", values.join(", ")),
        Limit::Pattern(pattern) => format!("matches {pattern}"),
        Limit::Minimum(least) => format!("at least {least}"),
        Limit::Maximum(most) => format!("at most {most}"),
        Limit::MinLength(least) => format!("at least {least} characters"),
        Limit::MaxLength(most) => format!("at most {most} characters"),
        Limit::MinItems(least) => format!("at least {least} items"),
        Limit::MaxItems(most) => format!("at most {most} items"),
        Limit::Format(format) => format!("a {format}"),
        Limit::Each(limits) => {
            let rules: Vec<String> = limits.iter().map(rule_of_limit).collect();
            format!("each {}", rules.join(", "))
        }
        Limit::OneOfNumbers(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            format!("one of {}", numbers.join(", "))
        }
        Limit::MinProperties(least) => format!("at least {least} keys"),
        Limit::MaxProperties(most) => format!("at most {most} keys"),
        Limit::AllOf(limits) => limits.iter().map(rule_of_limit).collect::<Vec<_>>().join(", "),
    }
}

fn rule_of_check(tag: &str) -> Option<&'static str> {
    Some(match tag {
        "selector" => "a selector, such as app == \"web\"",
        "net" => "a CIDR without host bits, or an IP address",
        "netv4" => "an IPv4 CIDR without host bits",
        "netv6" => "an IPv6 CIDR without host bits",
        "cidr" | "cidrs" => "a CIDR or an IP address",
        "cidrv4" => "an IPv4 CIDR or address",
        "cidrv6" => "an IPv6 CIDR or address",
        "ip" => "an IP address",
        "ipv4" => "an IPv4 address",
        "ipv6" => "an IPv6 address",
        "interface" => "an interface name of at most 15 characters, or *",
        "name" => "lower-case letters, digits, - and .",
        "mac" => "a MAC address",
        "regexp" => "a regular expression",
        "labels" => "labels as Kubernetes has them",
        "IP:port" => "an address, with a port if need be: 10.0.0.1:1179, [fd00::1]:1179",
        "portName" => "a port name as Kubernetes has them",
        "keyValueList" => "name=value pairs, separated by commas",
        _ => return None,
    })
}

fn type_of(shape: Shape) -> String {
    match shape {
        Shape::Text => "text".into(),
        Shape::Bool => "true or false".into(),
        Shape::Int { .. } => "a whole number".into(),
        Shape::Float => "a number".into(),
        Shape::Port => "a port: 80, \"80:90\" or a name".into(),
        Shape::Protocol => "a protocol: TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite or a number".into(),
        Shape::AsNumber => "an AS number: 64512 or \"1.10\"".into(),
        Shape::Dscp => "a DSCP value: 0 to 63 or a name such as AF11".into(),
        Shape::Duration => "a duration: 90s, 15m, 1h30m".into(),
        Shape::Time => "a time: 2026-01-31T12:00:00Z".into(),
        Shape::IntOrText => "a whole number or text".into(),
        Shape::Object(_) => "an object".into(),
        Shape::List(item) => format!("a list, each {}", type_of(*item)),
        Shape::Map(item) => format!("keys with values, each {}", type_of(*item)),
        Shape::StrictText => "text".into(),
        Shape::Any => "anything".into(),
    }
}

fn children(object: &Object) -> String {
    let width = object.fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
    let rows = object.fields.iter().map(|field| {
        let (name, help) = (field.name, field.help);
        let said = if help.is_empty() { type_of(field.shape) } else { help.to_owned() };
        format!("    {name:width$}  {said}\n")
    });
    std::iter::once("  fields\n".to_owned()).chain(rows).collect()
}

fn object_of(shape: Shape) -> Option<&'static Object> {
    match shape {
        Shape::Object(object) => Some(object),
        Shape::List(item) | Shape::Map(item) => object_of(*item),
        _ => None,
    }
}

type Found = (Vec<&'static str>, &'static Field);

/// The field with the proper names on the way to it, or the object reached and the name it does
/// not have. Indexes are passed over.
fn find(object: &'static Object, path: &str) -> Result<Found, (&'static Object, String)> {
    let mut object = object;
    let mut found: Option<&'static Field> = None;
    let mut names = Vec::new();
    for step in path.split('.') {
        let name = step.split('[').next().unwrap_or(step);
        if let Some(field) = found {
            object = object_of(field.shape).ok_or_else(|| (object, name.to_owned()))?;
        }
        let matching = object.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        let field = matching.ok_or_else(|| (object, name.to_owned()))?;
        names.push(field.name);
        found = Some(field);
    }
    found.map(|field| (names, field)).ok_or_else(|| (object, path.to_owned()))
}

/// As much of the path of a problem as there are fields of that name.
pub(crate) fn known_part(kind: Kind, path: &str) -> String {
    let mut object = Some(schema::object_for(kind));
    let mut names = Vec::new();
    // Keys of labels may hold points: what stands in brackets is no step.
    for step in path.split('[').next().unwrap_or(path).split('.') {
        let fields = object.into_iter().flat_map(|object| object.fields);
        let Some(field) = fields.into_iter().find(|field| field.name == step) else { break };
        names.push(field.name);
        object = object_of(field.shape);
    }
    names.join(".")
}

fn unknown_field(kind: Kind, object: &Object, name: &str) -> Failure {
    let names = object.fields.iter().map(|field| field.name);
    let failure = Failure::new(format!("{} has no field {name} there", kind.name()));
    match text::distance::nearest(name, names.clone()) {
        Some(near) => failure.help(format!("did you mean {near}?")),
        None => failure.help(format!("there are: {}", names.collect::<Vec<_>>().join(", "))),
    }
}

/// What to use for a kind that is only in Kubernetes.
fn of_kubernetes(typed: &str) -> Option<&'static str> {
    Some(match typed {
        "pod" | "pods" | "po" => {
            "margay get workloadendpoints -A shows the interfaces of pods; for the pods \
             themselves: kubectl get pods -A"
        }
        "namespace" | "namespaces" | "ns" => {
            "margay get profiles shows kns.NAME for each; or kubectl get namespaces"
        }
        "service" | "services" | "svc" | "endpoints" | "endpointslices" => {
            "kubectl get services -A"
        }
        "deployment" | "deployments" | "deploy" | "daemonsets" | "ds" | "statefulsets" | "sts" => {
            "kubectl get deployments,daemonsets,statefulsets -A"
        }
        _ => return None,
    })
}

/// The paths that what was typed may become: kinds, or the fields of the object before the last
/// point.
pub(crate) fn paths(typed: &str) -> Vec<String> {
    let Some((before, _)) = typed.rsplit_once('.') else {
        return Kind::all().map(|kind| kind.name().to_owned()).collect();
    };
    let (kind, path) = before.split_once('.').unwrap_or((before, ""));
    let Some(whole) = Kind::from_alias(kind).map(schema::object_for) else { return Vec::new() };
    let object = match path {
        "" => Some(whole),
        path => find(whole, path).ok().and_then(|(_, field)| object_of(field.shape)),
    };
    let fields = object.into_iter().flat_map(|object| object.fields);
    fields.map(|field| format!("{before}.{}", field.name)).collect()
}

fn is_kind(typed: &str) -> bool {
    Kind::from_alias(typed).is_some()
}

/// `gns` for a GlobalNetworkSet.
fn initials(kind: Kind) -> String {
    let capitals = kind.name().chars().filter(char::is_ascii_uppercase);
    capitals.collect::<String>().to_ascii_lowercase()
}

/// There is no such kind; the nearest one is offered.
pub(crate) fn unknown_kind(name: &str) -> Failure {
    let typed = name.to_ascii_lowercase();
    let plurals = Kind::all().map(Kind::plural);
    let aliases = Kind::all().flat_map(|kind| kind.aliases().iter().copied());
    let failure = Failure::new(format!("there is no kind \"{name}\""));
    if let Some(instead) = of_kubernetes(&typed) {
        return failure.why(format!("{name} are kept by Kubernetes")).help(instead);
    }
    if let Some((kind, object)) = typed.split_once('/').filter(|it| is_kind(it.0)) {
        return failure.help(format!("kind and name are two words: {kind} {object}"));
    }
    if let Some((first, rest)) = typed.split_once(',').filter(|it| is_kind(it.0)) {
        return failure.help(format!("one kind at a time: {first}, then {rest}"));
    }
    // What is short for one kind is not a slip of the pen for another.
    if let Some(kind) = Kind::all().find(|kind| initials(*kind) == typed) {
        return failure.help(format!("did you mean {}?", kind.plural()));
    }
    match text::distance::nearest(&typed, plurals.chain(aliases)) {
        Some(near) => failure.help(format!("did you mean {near}?")),
        None => failure.help(format!(
            "there are: {}",
            Kind::all().map(Kind::plural).collect::<Vec<_>>().join(", ")
        )),
    }
}
