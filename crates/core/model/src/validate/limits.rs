//! The limits that the CRD schemas put on single values: enums, patterns, ranges, lengths.
//!
//! They are asked of an object with its defaults filled in. Calico's wording is that of the
//! Kubernetes API server. A list that should be a set may repeat itself: Calico does not look.

use api::schema::{Limit, Object, Shape, has_crd, object_for};
use api::{CalicoError, Kind, Problem};
use net::Cidr;
use serde_json::Value;

use super::path::{self, Path};

mod pattern;

const MAX_DEPTH: usize = 32;

/// What the schema of the kind has against the object. Kinds without a CRD have no limits.
pub fn check_limits(kind: Kind, value: &Value) -> Vec<Problem> {
    let mut search = Search { kind: kind.name(), problems: Vec::new() };
    if has_crd(kind) {
        search.object(object_for(kind), value, &Path::of(""), MAX_DEPTH);
    }
    search.problems
}

struct Search {
    kind: &'static str,
    problems: Vec<Problem>,
}

impl Search {
    fn object(&mut self, object: &Object, value: &Value, path: &Path<'_>, depth: usize) {
        let Value::Object(fields) = value else { return };
        for field in object.fields {
            let value = path::field(fields, field.name);
            if value.is_none() && !field.required {
                continue;
            }
            let path = path.field(field.name);
            match value {
                None => self.at(&path, "is required", String::new()),
                // Calico's status of a node says explicitly that nothing is known yet.
                Some(Value::Null) if matches!(field.shape, Shape::Time) => {}
                Some(Value::Null) => {
                    let name = type_name(field.shape);
                    let reason = format!("{path} in body must be of type {name}: \"null\"");
                    self.at(&path, "must not be null", reason);
                }
                Some(value) => {
                    self.limits(field.limits, value, &path);
                    self.inside(field.shape, value, &path, depth);
                }
            }
        }
    }

    fn inside(&mut self, shape: Shape, value: &Value, path: &Path<'_>, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        match (shape, value) {
            (Shape::Object(object), value) => self.object(object, value, path, depth),
            (Shape::List(item), Value::Array(items)) => {
                for (index, value) in items.iter().enumerate() {
                    self.inside(*item, value, &path.index(index), depth);
                }
            }
            (Shape::Map(item), Value::Object(entries)) => {
                for (name, value) in entries {
                    self.inside(*item, value, &path.field(name), depth);
                }
            }
            _ => {}
        }
    }

    fn limits(&mut self, limits: &[Limit], value: &Value, path: &Path<'_>) {
        for limit in limits {
            match limit {
                Limit::Each(inner) => {
                    let items = value.as_array().map_or(&[][..], Vec::as_slice);
                    for (index, value) in items.iter().enumerate() {
                        self.limits(inner, value, &path.index(index));
                    }
                }
                Limit::AllOf(parts) => self.all_of(parts, value, path),
                Limit::Format("int32") => {
                    let fits = value.as_i64().is_none_or(|number| i32::try_from(number).is_ok());
                    if !fits {
                        let message = format!("{value} is above 2147483647");
                        let reason = "Checked value must be of type integer with format int32 in";
                        self.at_kind(path, &message, format!("{reason} {path}"));
                    }
                }
                limit => {
                    if let Some((message, reason)) = broken(*limit, value, path) {
                        self.at(path, &message, reason);
                    }
                }
            }
        }
    }

    /// The API server reports the broken parts and, at the root, that not all hold.
    fn all_of(&mut self, parts: &[Limit], value: &Value, path: &Path<'_>) {
        let faults: Vec<_> = parts.iter().filter_map(|part| broken(*part, value, path)).collect();
        let Some((message, _)) = faults.last().cloned() else { return };
        let ending = if faults.len() == parts.len() { ". None validated" } else { "" };
        for (message, reason) in &faults {
            self.at(path, message, reason.clone());
        }
        let reason = format!("\"{path}\" must validate all the schemas (allOf){ending}");
        self.at_kind(path, &message, reason);
    }

    fn at(&mut self, path: &Path<'_>, message: &str, reason: String) {
        let calico = CalicoError { field: path.to_string(), value: None, reason };
        self.problems.push(Problem::invalid(path.to_string(), message, calico));
    }

    /// For faults that Calico reports of the object as a whole.
    fn at_kind(&mut self, path: &Path<'_>, message: &str, reason: String) {
        let calico = CalicoError { field: self.kind.to_owned(), value: None, reason };
        self.problems.push(Problem::invalid(path.to_string(), message, calico));
    }
}

fn type_name(shape: Shape) -> &'static str {
    match shape {
        Shape::List(_) => "array",
        Shape::Object(_) | Shape::Map(_) => "object",
        Shape::Bool => "boolean",
        Shape::Int { .. } | Shape::AsNumber => "integer",
        Shape::Float => "number",
        _ => "string",
    }
}

/// Our message and the API server's reason when the value breaks the limit.
fn broken(limit: Limit, value: &Value, path: &Path<'_>) -> Option<(String, String)> {
    match limit {
        Limit::OneOf(allowed) => {
            let text = value.as_str().filter(|text| !allowed.contains(text))?;
            Some(not_one_of(&format!("\"{text}\""), allowed.iter().copied()))
        }
        Limit::OneOfNumbers(allowed) => {
            let number = value.as_i64().filter(|number| !allowed.contains(number))?;
            let names: Vec<String> = allowed.iter().map(i64::to_string).collect();
            Some(not_one_of(&number.to_string(), names.iter().map(String::as_str)))
        }
        Limit::Pattern(pattern) => {
            let text = value.as_str().filter(|text| !pattern::matches(pattern, text))?;
            let message = match pattern::words(pattern) {
                Some(words) => format!("\"{text}\" is not one of {}", words.join(", ")),
                None => format!("\"{text}\" does not match {pattern}"),
            };
            Some((message, format!("{path} in body should match '{pattern}'")))
        }
        Limit::Minimum(least) => {
            let number = value.as_number().filter(|number| number.as_i64() < Some(least))?;
            (!number.is_u64() || least > 0).then(|| {
                let reason = format!("{path} in body should be greater than or equal to {least}");
                (format!("{number} is below {least}"), reason)
            })
        }
        Limit::Maximum(most) => {
            let number = value.as_number()?;
            let is_above = number.as_i64().map_or(number.is_u64(), |number| number > most);
            is_above.then(|| {
                let reason = format!("{path} in body should be less than or equal to {most}");
                (format!("{number} is above {most}"), reason)
            })
        }
        Limit::Format(format) => malformed(format, value.as_str()?, path),
        limit => wrong_size(limit, value, path),
    }
}

fn not_one_of<'a>(value: &str, allowed: impl Iterator<Item = &'a str> + Clone) -> (String, String) {
    let plain: Vec<&str> = allowed.clone().collect();
    let quoted: Vec<String> = allowed.map(|name| format!("\"{name}\"")).collect();
    let message = format!("{value} is not one of {}", plain.join(", "));
    (message, format!("supported values: {}", quoted.join(", ")))
}

fn wrong_size(limit: Limit, value: &Value, path: &Path<'_>) -> Option<(String, String)> {
    let count = match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => return None,
    };
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let is_broken = match limit {
        Limit::MinLength(least) | Limit::MinItems(least) | Limit::MinProperties(least) => {
            count < least
        }
        Limit::MaxLength(most) | Limit::MaxItems(most) | Limit::MaxProperties(most) => count > most,
        _ => false,
    };
    if !is_broken {
        return None;
    }
    let plural = |most: u32| if most == 1 { "" } else { "s" };
    Some(match limit {
        Limit::MinLength(least) => (
            format!("has {count} characters, at least {least} are needed"),
            format!("{path} in body should be at least {least} chars long"),
        ),
        Limit::MaxLength(most) => (
            format!("has {count} characters, at most {most} are allowed"),
            format!("may not be more than {most} bytes"),
        ),
        Limit::MinItems(least) => (
            format!("has {count} items, at least {least} are needed"),
            format!("{path} in body should have at least {least} items"),
        ),
        Limit::MinProperties(least) => (
            format!("has {count} fields, at least {least} are needed"),
            format!("{path} in body should have at least {least} properties"),
        ),
        Limit::MaxItems(most) => (
            format!("has {count} items, at most {most} are allowed"),
            format!("must have at most {most} item{}", plural(most)),
        ),
        Limit::MaxProperties(most) => (
            format!("has {count} fields, at most {most} are allowed"),
            format!("must have at most {most} item{}", plural(most)),
        ),
        _ => return None,
    })
}

fn malformed(format: &str, text: &str, path: &Path<'_>) -> Option<(String, String)> {
    let is_right = match format {
        "cidr" => Cidr::parse_strict(&without_leading_zeros(text)).is_some(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        _ => true,
    };
    let example = if format == "cidr" { "a CIDR, such as 10.0.0.0/8" } else { "an IP address" };
    (!is_right).then(|| {
        let reason = format!("{path} in body must be of type {format}: {text:?}");
        (format!("\"{text}\" is not {example}"), reason)
    })
}

/// The API server reads `010.0.0.0/08` as `10.0.0.0/8`.
fn without_leading_zeros(text: &str) -> String {
    if text.contains(':') {
        return text.to_owned();
    }
    let trim = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let octets: Vec<String> = address.split('.').map(trim).collect();
    format!("{}/{}", octets.join("."), trim(length))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(kind: Kind, value: &Value) -> Vec<String> {
        check_limits(kind, value)
            .into_iter()
            .map(|problem| {
                let CalicoError { field, reason, .. } = &problem.calico;
                format!("{problem} | {field}: {reason}")
            })
            .collect()
    }

    #[test]
    fn enums_name_what_is_allowed() {
        let policy = json!({"spec": {"ingress": [{"action": "Foo", "ipVersion": 5}]}});
        let expected = [
            "spec.ingress[0].action: \"Foo\" is not one of Allow, Deny, Log, Pass | \
             spec.ingress[0].action: supported values: \"Allow\", \"Deny\", \"Log\", \"Pass\"",
            "spec.ingress[0].ipVersion: 5 is not one of 4, 6 | \
             spec.ingress[0].ipVersion: supported values: \"4\", \"6\"",
        ];
        assert_eq!(found(Kind::GlobalNetworkPolicy, &policy), expected);
    }

    #[test]
    fn ranges_and_sizes_are_inclusive() {
        let pool = |size: i64| json!({"spec": {"cidr": "10.0.0.0/8", "blockSize": size}});
        assert_eq!(found(Kind::IpPool, &pool(128)), [""; 0]);
        let expected = "spec.blockSize: 129 is above 128 | \
                        spec.blockSize: spec.blockSize in body should be less than or equal to 128";
        assert_eq!(found(Kind::IpPool, &pool(129)), [expected]);
    }

    #[test]
    fn numbers_beyond_the_format_are_faults_of_the_whole() {
        let peer = json!({"spec": {"asNumber": 4_294_967_295_u32}});
        let expected = "spec.asNumber: 4294967295 is above 2147483647 | BGPPeer: Checked value \
                        must be of type integer with format int32 in spec.asNumber";
        assert_eq!(found(Kind::BgpPeer, &peer), [expected]);
    }

    #[test]
    fn cidrs_may_have_leading_zeros_but_need_a_length() {
        let reservation = |cidr: &str| json!({"spec": {"reservedCIDRs": [cidr]}});
        assert_eq!(found(Kind::IpReservation, &reservation("010.0.0.0/08")), [""; 0]);
        assert_eq!(found(Kind::IpReservation, &reservation("fd00::/8")), [""; 0]);
        assert_eq!(found(Kind::IpReservation, &reservation("10.0.0.1")).len(), 1);
    }
}
