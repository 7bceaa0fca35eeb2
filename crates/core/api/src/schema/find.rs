//! Finding fields: by JSON path and by Go path.

use super::{Field, Object, Shape, object_for};
use crate::Kind;

/// The field at a JSON path without indexes (`spec.ingress.source.nets`), in any letter case.
pub fn lookup(kind: Kind, path: &str) -> Option<&'static Field> {
    lookup_in(object_for(kind), path)
}

/// The field at a JSON path within an object.
pub fn lookup_in(object: &'static Object, path: &str) -> Option<&'static Field> {
    let mut steps = path.split('.');
    let mut field = object.field(steps.next()?)?;
    for step in steps {
        field = field.shape.object()?.field(step)?;
    }
    Some(field)
}

/// The JSON names on a path of Go field names (`Spec`, `NATOutgoing`), as templates use them.
///
/// The metadata is embedded in the Go structs, so that its fields also stand at the top
/// (`Name` is `metadata`, `name`).
pub fn go_path(kind: Kind, path: &[&str]) -> Option<Vec<&'static str>> {
    let object = object_for(kind);
    match path {
        ["TypeMeta", rest @ ..] => go_path_in(object, rest),
        _ => go_path_in(object, path).or_else(|| {
            let metadata = object.field("metadata")?;
            let mut names = vec![metadata.name];
            names.extend(go_path_in(metadata.shape.object()?, path)?);
            Some(names)
        }),
    }
}

fn go_path_in(mut object: &'static Object, path: &[&str]) -> Option<Vec<&'static str>> {
    let mut names = Vec::new();
    for (index, step) in path.iter().enumerate() {
        let field = object.fields.iter().find(|field| field.go_name == *step)?;
        names.push(field.name);
        match field.shape.object() {
            Some(inner) => object = inner,
            None if index + 1 == path.len() => {}
            None => return None,
        }
    }
    Some(names)
}

impl Object {
    /// The field of that JSON name, in any letter case.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        let exact = self.fields.iter().find(|field| field.name == name);
        exact.or_else(|| self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)))
    }
}

impl Shape {
    /// The object inside, through lists and maps.
    pub fn object(&self) -> Option<&'static Object> {
        match self {
            Self::Object(object) => Some(object),
            Self::List(item) | Self::Map(item) => item.object(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_steps_through_lists() {
        let field = lookup(Kind::GlobalNetworkPolicy, "spec.ingress.source.nets").unwrap();
        assert_eq!(field.go_name, "Nets");
        assert!(lookup(Kind::GlobalNetworkPolicy, "spec.ingress.bogus").is_none());
        assert!(lookup(Kind::IpPool, "spec.cidr.more").is_none());
    }

    #[test]
    fn go_names_lead_to_json_names() {
        let path = go_path(Kind::IpPool, &["Spec", "NATOutgoing"]);
        assert_eq!(path, Some(vec!["spec", "natOutgoing"]));
        assert_eq!(go_path(Kind::IpPool, &["Name"]), Some(vec!["metadata", "name"]));
        assert_eq!(go_path(Kind::IpPool, &["ObjectMeta", "Name"]), Some(vec!["metadata", "name"]));
        assert_eq!(go_path(Kind::IpPool, &["TypeMeta", "Kind"]), Some(vec!["kind"]));
        assert_eq!(go_path(Kind::IpPool, &["Spec", "Bogus"]), None);
    }
}
