//! From one document of a file to its objects.

use api::Kind;
use api::schema::{Mode, decode, object_for};
use serde_json::Value;
use text::yaml;

use super::{
    API_VERSION, Calico, Documents, Fault, Loaded, Origin, calico_reason, is_user_kind, kind_of,
    list_of, position,
};

/// Reads a document; objects and faults go to `documents`.
pub(super) fn read(
    documents: &mut Documents,
    name: &str,
    document: &yaml::Document<'_>,
    origin: Origin,
) {
    Reader { documents, name, document }.document(origin);
}

struct Reader<'r> {
    documents: &'r mut Documents,
    name: &'r str,
    document: &'r yaml::Document<'r>,
}

impl Reader<'_> {
    fn document(&mut self, origin: Origin) {
        match &self.document.value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let within = format!("[{index}]");
                    self.resource(item, Origin { within, ..origin.clone() });
                }
            }
            value => self.resource(value, origin),
        }
    }

    fn resource(&mut self, value: &Value, origin: Origin) {
        let field = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, version) = (field("kind"), field("apiVersion"));
        if !value.is_null() && kind.is_empty() {
            return self.no_kind(value, &origin);
        }
        let known = (version == API_VERSION).then(|| (kind_of(kind), list_of(kind)));
        match known {
            Some((Some(kind), _)) => self.object(kind, value.clone(), origin),
            Some((None, Some(kind))) => self.list(kind, value, &origin),
            _ if self.documents.takes_kubectl_lists && (kind, version) == ("List", "v1") => {
                self.kubectl_list(value, &origin);
            }
            _ => self.unknown_kind(kind, version, value.is_null(), &origin),
        }
    }

    /// Objects of any kinds, each with its own version. A list in a list is nobody's.
    fn kubectl_list(&mut self, value: &Value, origin: &Origin) {
        let items = value.get("items").and_then(Value::as_array);
        if items.is_none_or(Vec::is_empty) || !origin.within.is_empty() {
            let message = "a List has its resources under items";
            return self.fault(origin, "items", None, message, message);
        }
        for (index, item) in items.into_iter().flatten().enumerate() {
            let within = format!("items[{index}]");
            self.resource(item, Origin { within, ..origin.clone() });
        }
    }

    fn list(&mut self, kind: Kind, value: &Value, origin: &Origin) {
        let items = value.get("items").unwrap_or(&Value::Null);
        let Some(items) = items.as_array() else {
            if !items.is_null() {
                let token = go_token(items);
                let list = kind.list_name();
                let reason = format!(
                    "json: cannot unmarshal {token} into Go struct field {list}.items of type \
                     []v3.{kind}"
                );
                self.fault(origin, "items", None, "items must be a list", &decoding(&reason));
            }
            return;
        };
        let known = ["apiVersion", "items", "kind", "metadata"];
        for name in value.as_object().into_iter().flat_map(|fields| fields.keys()) {
            if !known.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                let reason = format!("json: unknown field \"{name}\"");
                let message = format!("{name}: unknown field of a list");
                self.fault(origin, name, None, &message, &decoding(&reason));
            }
        }
        for (index, item) in items.iter().enumerate() {
            let mut item = item.clone();
            if let Some(fields) = item.as_object_mut() {
                fields.entry("kind").or_insert_with(|| kind.name().into());
                fields.entry("apiVersion").or_insert_with(|| API_VERSION.into());
            }
            let separator = if origin.within.is_empty() { "" } else { "." };
            let within = format!("{}{separator}items[{index}]", origin.within);
            self.object(kind, item, Origin { within, ..origin.clone() });
        }
    }

    fn object(&mut self, kind: Kind, mut value: Value, origin: Origin) {
        // Calico's reader sees the fields in the order of their names: its first fault is
        // the first in that order.
        value.sort_all_objects();
        let (object, problems) = decode(object_for(kind), value, Mode::User);
        if problems.is_empty() {
            self.documents.objects.push(Loaded { kind, object, origin });
            return;
        }
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let name = format!("{kind}({name})");
        for problem in &problems {
            let calico = decoding(&calico_reason(problem));
            self.fault(&origin, &problem.path, Some(name.clone()), &problem.to_string(), &calico);
        }
        self.documents.partial.push((Loaded { kind, object, origin }, problems));
    }

    fn no_kind(&mut self, value: &Value, origin: &Origin) {
        let message = match value {
            Value::Object(_) => "kind is missing",
            _ => "a document is a resource (with apiVersion, kind, metadata), or a list of them",
        };
        let reason = match origin.within.as_str() {
            "" => format!(
                "json: cannot unmarshal {} into Go value of type []unstructured.Unstructured",
                go_token(value)
            ),
            _ => format!("Object 'Kind' is missing in '{}'", text::json::to_string(value)),
        };
        self.fault(origin, "", None, message, &decoding(&reason));
    }

    fn unknown_kind(&mut self, kind: &str, version: &str, is_empty: bool, origin: &Origin) {
        let message = if is_empty {
            "there is no resource in this document".to_owned()
        } else if version != API_VERSION {
            let instead = match version {
                "crd.projectcalico.org/v1" => "; that is how Kubernetes keeps the same resources",
                _ => "; resources of others are for kubectl apply",
            };
            match version {
                "" => format!("apiVersion is missing; it must be {API_VERSION}"),
                _ => format!("apiVersion must be {API_VERSION}, not \"{version}\"{instead}"),
            }
        } else {
            let kinds = Kind::all().filter(|&kind| is_user_kind(kind)).map(Kind::name);
            match text::distance::nearest(kind, kinds) {
                Some(near) => format!("there is no kind \"{kind}\"; did you mean {near}?"),
                None => format!("there is no kind \"{kind}\""),
            }
        };
        let field = if version == API_VERSION { "kind" } else { "apiVersion" };
        let calico = format!("unknown resource type ({kind}) and/or version ({version})");
        self.fault(origin, field, None, &message, &calico);
    }

    fn fault(
        &mut self,
        origin: &Origin,
        field: &str,
        object: Option<String>,
        message: &str,
        calico: &str,
    ) {
        self.documents.faults.push(Fault {
            file: self.name.to_owned(),
            position: Some(position(self.document, &origin.within, field)),
            object,
            message: message.to_owned(),
            calico: Calico::Unreadable(calico.to_owned()),
        });
    }
}

fn decoding(reason: &str) -> String {
    format!("error unmarshaling JSON: while decoding JSON: {reason}")
}

/// What Go's reader calls a JSON value.
fn go_token(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
