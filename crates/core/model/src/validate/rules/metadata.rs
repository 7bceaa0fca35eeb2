//! Names, labels and annotations.

use super::{Faults, Place};

/// The longest name of a Kubernetes object.
const NAME_LENGTH_MAX: usize = 253;
/// The longest label value, and the longest name part of a label or annotation key.
pub(super) const LABEL_LENGTH_MAX: usize = 63;
/// The most that all annotations of an object may take, in bytes.
const ANNOTATIONS_SIZE_MAX: usize = 256 << 10;

/// The label under which the backend keeps an object's namespace.
const NAMESPACE_LABEL: &str = "projectcalico.org/namespace";

const DNS_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// Names of objects are lower-case DNS names.
pub(super) fn name(place: &Place<'_>, faults: &mut Faults) {
    let name = place.text("name");
    too_long(place, name, NAME_LENGTH_MAX, faults);
    if !is_dns_name(name) {
        let message = format!(
            "\"{name}\" is not a name of lower-case letters, digits, \"-\" and \".\" that starts \
             and ends with a letter or digit"
        );
        let reason = format!(
            "name must consist of lower case alphanumeric characters, '-' or '.' (regex: \
             {DNS_LABEL}(\\.{DNS_LABEL})*)"
        );
        faults.note(place.path_of("name"), message, named(name), reason);
    }
}

/// A namespace is one part of a datastore key. Calico finds out when it reads the object back.
pub(super) fn namespace(place: &Place<'_>, faults: &mut Faults) {
    let namespace = place.text("namespace");
    if namespace.contains('/') {
        let message = format!("\"{namespace}\" is not the name of a namespace, which has no \"/\"");
        let reason = "namespace must not contain '/'".to_owned();
        let value = ("Metadata.Namespace", namespace.to_owned());
        faults.note(place.path_of("namespace"), message, value, reason);
    }
}

/// Notes a name that is longer than `most`.
pub(super) fn too_long(place: &Place<'_>, name: &str, most: usize, faults: &mut Faults) {
    if let Some(excess @ 1..) = name.len().checked_sub(most) {
        let message = format!("a name may have {most} characters, this one has {}", name.len());
        let reason = format!("name is too long by {excess} bytes");
        faults.note(place.path_of("name"), message, named(name), reason);
    }
}

/// Notes a name that is not a DNS label (or a name made of labels, as `form` says).
pub(super) fn not_a_label(place: &Place<'_>, name: &str, form: &str, faults: &mut Faults) {
    let message = format!("\"{name}\" is not {form}");
    let reason = format!(
        "name must consist of lower case alphanumeric characters or '-' (regex: {DNS_LABEL})"
    );
    faults.note(place.path_of("name"), message, named(name), reason);
}

/// Notes that a rule of the CRD asks for the name of an object without one.
pub(super) fn unnamed(object: &Place<'_>, faults: &mut Faults) {
    faults.schema(object, "metadata.name", "the object has no name", "no such key: name");
}

fn named(name: &str) -> (&'static str, String) {
    ("Metadata.Name", name.to_owned())
}

/// Whether the text is one DNS label.
pub(super) fn is_dns_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether the text is DNS labels joined by dots.
pub(super) fn is_dns_name(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

/// Label keys and values have the forms that Kubernetes allows.
pub(super) fn labels(place: &Place<'_>, faults: &mut Faults) {
    let Some(labels) = place.at("labels") else { return };
    let entries = labels.value.as_object().into_iter().flatten();
    for (key, value) in entries {
        let path = labels.path_of(key);
        for reason in key_faults(key) {
            let message = format!("\"{key}\" is not a label name");
            faults.note(&path, message, ("Metadata.Labels (label)", key.clone()), reason);
        }
        let value = value.as_str().unwrap_or_default();
        for reason in label_value_faults(value) {
            let message = format!("\"{value}\" is not a label value");
            faults.note(&path, message, ("Metadata.Labels (value)", value.to_owned()), reason);
        }
    }
}

/// Annotation keys have the form that Kubernetes allows, and all of them fit in 256 KiB.
pub(super) fn annotations(place: &Place<'_>, faults: &mut Faults) {
    const FIELD: &str = "Metadata.Annotations (key)";
    let Some(annotations) = place.at("annotations") else { return };
    let mut size = 0;
    for (key, value) in annotations.value.as_object().into_iter().flatten() {
        for reason in key_faults(&key.to_lowercase()) {
            let message = format!("\"{key}\" is not an annotation name");
            faults.note(annotations.path_of(key), message, (FIELD, key.clone()), reason);
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if let Some(excess @ 1..) = size.checked_sub(ANNOTATIONS_SIZE_MAX) {
        let message =
            format!("annotations may take {ANNOTATIONS_SIZE_MAX} bytes, these take {size}");
        let reason = format!("total size of annotations is too large by {excess} bytes");
        faults.note(&annotations.path, message, (FIELD, annotations.printed_map()), reason);
    }
}

/// The namespace label belongs to the backend.
pub(super) fn no_namespace_label(place: &Place<'_>, faults: &mut Faults) {
    let Some(labels) = place.at("metadata").and_then(|metadata| metadata.at("labels")) else {
        return;
    };
    if labels.has(NAMESPACE_LABEL) {
        faults.note(
            labels.path_of(NAMESPACE_LABEL),
            format!("the label {NAMESPACE_LABEL} is reserved; remove it"),
            ("Metadata.Labels (label)", NAMESPACE_LABEL.to_owned()),
            format!("{NAMESPACE_LABEL} is not a valid label name"),
        );
    }
}

const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and \
     must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
     '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Whether Kubernetes takes the key and the value as a label.
pub(crate) fn is_label(key: &str, value: &str) -> bool {
    key_faults(key).is_empty() && label_value_faults(value).is_empty()
}

/// What is wrong with `[prefix/]name`, in the words of Kubernetes.
fn key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some(("", name)) if !name.contains('/') => {
            faults.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) if !name.contains('/') => {
            faults.extend(prefix_faults(prefix));
            name
        }
        Some(_) => {
            let form = NAME_PART.trim_start_matches("name part must");
            return vec![format!(
                "a qualified name must{} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')",
                form
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LENGTH_MAX {
        faults.push(format!("name part must be no more than {LABEL_LENGTH_MAX} bytes"));
    }
    if !is_word(name) {
        faults.push(NAME_PART.to_owned());
    }
    faults
}

fn prefix_faults(prefix: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if prefix.len() > NAME_LENGTH_MAX {
        faults.push(format!("prefix part must be no more than {NAME_LENGTH_MAX} bytes"));
    }
    if !is_dns_name(prefix) {
        faults.push(format!(
            "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
             characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
             'example.com', regex used for validation is '{DNS_LABEL}(\\.{DNS_LABEL})*')"
        ));
    }
    faults
}

fn label_value_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > LABEL_LENGTH_MAX {
        faults.push(format!("must be no more than {LABEL_LENGTH_MAX} bytes"));
    }
    if !value.is_empty() && !is_word(value) {
        faults.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  \
             or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    faults
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_word(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}
