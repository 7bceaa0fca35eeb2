//! What every resource has: kind and version, and Kubernetes' metadata.

use super::Keep::{self, Always, Given};
use super::Limit::{MaxLength, MinLength, Minimum, OneOf, Pattern};
use super::Shape::{self, Any, Bool, List, Map, StrictText, Text, Time};
use super::{Field, Object};

/// Kubernetes' `ObjectMeta`.
pub static OBJECT_META: Object = Object {
    name: "ObjectMeta",
    fields: &[
        Field::new("name", "Name", Text).help("The name, unique among its kind and namespace"),
        Field::new("generateName", "GenerateName", Text).help("A prefix to make a name from"),
        Field::new("namespace", "Namespace", Text).help("The namespace it lives in"),
        Field::new("selfLink", "SelfLink", Text).help("Not used any more"),
        Field::new("uid", "UID", Text).help("An identifier that is never used again"),
        Field::new("resourceVersion", "ResourceVersion", Text)
            .help("The revision that was read; a write with an older one is refused"),
        Field::new("generation", "Generation", Shape::INT).help("Counts changes of the spec"),
        Field::new("creationTimestamp", "CreationTimestamp", Time).help("When it was created"),
        Field::new("deletionTimestamp", "DeletionTimestamp", Time)
            .keep(Given)
            .help("When it was asked to go away"),
        Field::new("deletionGracePeriodSeconds", "DeletionGracePeriodSeconds", Shape::INT)
            .keep(Given)
            .help("How long it may take to go away, in seconds"),
        Field::new("labels", "Labels", Map(&Text)).help("Keys and values that selectors match"),
        Field::new("annotations", "Annotations", Map(&Text))
            .help("Keys and values that nothing selects by"),
        Field::new("ownerReferences", "OwnerReferences", List(&Shape::Object(&OWNER_REFERENCE)))
            .help("The objects whose removal removes this one"),
        Field::new("finalizers", "Finalizers", List(&Text))
            .help("Who must agree before it goes away"),
        Field::new("managedFields", "ManagedFields", List(&Shape::Object(&MANAGED_FIELDS)))
            .help("Which program set which field"),
    ],
};

static OWNER_REFERENCE: Object = Object {
    name: "OwnerReference",
    fields: &[
        Field::new("apiVersion", "APIVersion", Text).keep(Always).help("The owner's API version"),
        Field::new("kind", "Kind", Text).keep(Always).help("The owner's kind"),
        Field::new("name", "Name", Text).keep(Always).help("The owner's name"),
        Field::new("uid", "UID", Text).keep(Always).help("The owner's identifier"),
        Field::new("controller", "Controller", Bool)
            .keep(Given)
            .help("Whether the owner controls this object"),
        Field::new("blockOwnerDeletion", "BlockOwnerDeletion", Bool)
            .keep(Given)
            .help("Whether the owner waits for this object to go first"),
    ],
};

static MANAGED_FIELDS: Object = Object {
    name: "ManagedFieldsEntry",
    fields: &[
        Field::new("manager", "Manager", Text).help("The program"),
        Field::new("operation", "Operation", Text).help("Apply or Update"),
        Field::new("apiVersion", "APIVersion", Text).help("The version of the fields"),
        Field::new("time", "Time", Time).keep(Given).help("When it last changed them"),
        Field::new("fieldsType", "FieldsType", Text).help("The form of the list of fields"),
        Field::new("fieldsV1", "FieldsV1", Any).keep(Given).help("The fields"),
        Field::new("subresource", "Subresource", Text).help("The part of the object"),
    ],
};

/// The first three fields of every resource.
pub(super) const KIND: Field = Field::new("kind", "Kind", StrictText).help("The kind of resource");
pub(super) const API_VERSION: Field =
    Field::new("apiVersion", "APIVersion", StrictText).help("projectcalico.org/v3");
pub(super) const METADATA: Field =
    Field::new("metadata", "ObjectMeta", Shape::Object(&OBJECT_META))
        .keep(Always)
        .help("Name, namespace, labels and bookkeeping");

/// The spec of a resource, which Calico always writes.
pub(super) const fn spec(object: &'static Object) -> Field {
    Field::new("spec", "Spec", Shape::Object(object)).keep(Always).help("What is wanted")
}

/// The status of a resource.
pub(super) const fn status(object: &'static Object, keep: Keep) -> Field {
    Field::new("status", "Status", Shape::Object(object)).keep(keep).help("What was found")
}

const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// Kubernetes' `Condition`, in the status of some kinds.
#[rustfmt::skip]
pub(super) static CONDITION: Object = Object {
    name: "Condition",
    fields: &[
        Field::new("type", "Type", Text).keep(Always).required().limits(&[Pattern(CONDITION_TYPE), MaxLength(316)]).help("What is said to be so or not"),
        Field::new("status", "Status", Text).keep(Always).required().limits(&[OneOf(&["True", "False", "Unknown"])]).help("True, False or Unknown"),
        Field::new("observedGeneration", "ObservedGeneration", Shape::INT).limits(&[Minimum(0)]).help("The generation that was looked at"),
        Field::new("lastTransitionTime", "LastTransitionTime", Time).keep(Always).required().help("When it last changed"),
        Field::new("reason", "Reason", Text).keep(Always).required().limits(&[Pattern(CONDITION_REASON), MinLength(1), MaxLength(1024)]).help("Why, in one word"),
        Field::new("message", "Message", Text).keep(Always).required().limits(&[MaxLength(32768)]).help("Why, in a sentence"),
    ],
};
