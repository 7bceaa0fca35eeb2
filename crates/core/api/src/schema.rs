//! The shape of every resource, as data.
//!
//! A [`Field`] carries everything anybody needs to know of a field: its JSON name, its type,
//! when Calico writes it out, its default, the limits of its schema and the checks of Calico's
//! validator, and a line of help. Field order in an [`Object`] is the order Calico writes.
//! Reading ([`decode`]), defaults ([`apply_defaults`]) and lookup ([`lookup`]) derive from them.

mod bgp;
mod bgp_filter;
mod controllers;
mod decode;
mod defaults;
mod endpoint;
mod familiar;
mod felix;
mod find;
mod go_words;
mod kubernetes;
mod meta;
mod node;
mod policy;
mod pool;
mod scalar;
mod tables;
mod time;

pub use decode::{Mode, decode, decode_familiar, decode_regular, tell_regular};
pub use defaults::{apply_defaults, lacks_default};
pub use familiar::{FamiliarItems, Met};
pub use find::{go_path, lookup, lookup_in};
pub use meta::OBJECT_META;
pub use pool::STORED_BLOCK_AFFINITY;
pub use tables::{has_crd, object_for};
pub(crate) use time::in_utc;
pub use time::utc;

/// A JSON object with known fields.
#[derive(Debug)]
pub struct Object {
    /// Calico's name of the type (`IPPoolSpec`).
    pub name: &'static str,
    /// The fields in the order in which Calico writes them.
    pub fields: &'static [Field],
}

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Text. YAML numbers and booleans given by a user become text.
    Text,
    /// Text in an embedded Go struct, where YAML numbers and booleans stay what they are.
    StrictText,
    /// `true` or `false`.
    Bool,
    /// A whole number within the inclusive range of its Go type.
    Int {
        /// The smallest value of the type.
        min: i64,
        /// The largest value of the type.
        max: u64,
    },
    /// A floating-point number.
    Float,
    /// A number, or text naming one: `80`, `"80:90"`, `"http"`.
    Port,
    /// A protocol by number or by name.
    Protocol,
    /// An AS number: a number, or text, plain or dotted.
    AsNumber,
    /// A DSCP value by number or by name.
    Dscp,
    /// A Go duration (`15m0s`); rewritten in Go's own form.
    Duration,
    /// An RFC 3339 time.
    Time,
    /// A whole number or text (Kubernetes' `IntOrString`).
    IntOrText,
    /// A nested object.
    Object(&'static Object),
    /// A list.
    List(&'static Shape),
    /// An object with free keys.
    Map(&'static Shape),
    /// Anything; kept as it is.
    Any,
}

impl Shape {
    /// Go's `int` and `int64`.
    pub const INT: Self = Self::Int { min: i64::MIN, max: i64::MAX as u64 };
    /// Go's `int32`.
    pub const INT32: Self = Self::Int { min: i32::MIN as i64, max: i32::MAX as u64 };
    /// Go's `uint8`.
    pub const UINT8: Self = Self::Int { min: 0, max: u8::MAX as u64 };
    /// Go's `uint16`.
    pub const UINT16: Self = Self::Int { min: 0, max: u16::MAX as u64 };
    /// Go's `uint32`.
    pub const UINT32: Self = Self::Int { min: 0, max: u32::MAX as u64 };
    /// Go's `uint64`.
    pub const UINT64: Self = Self::Int { min: 0, max: u64::MAX };
}

/// When Calico writes a field out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// When it is not the zero value: a plain Go field with `omitempty`.
    NonZero,
    /// When it was given, zero or not: a pointer with `omitempty`.
    Given,
    /// Always, with the zero value if it was not given: a plain field without `omitempty`.
    Always,
    /// Always, with `null` if it was not given: a pointer, list or map without `omitempty`.
    AlwaysNull,
}

/// A limit that the CRD schema of a kind puts on a field.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// One of these numbers.
    OneOfNumbers(&'static [i64]),
    /// A regular expression.
    Pattern(&'static str),
    /// A number at least this.
    Minimum(i64),
    /// A number at most this.
    Maximum(i64),
    /// A text of at least so many characters.
    MinLength(u32),
    /// A text of at most so many characters.
    MaxLength(u32),
    /// A list of at least so many items.
    MinItems(u32),
    /// A list of at most so many items.
    MaxItems(u32),
    /// An object of at least so many fields.
    MinProperties(u32),
    /// An object of at most so many fields.
    MaxProperties(u32),
    /// An OpenAPI format (`cidr`, `ipv4`, `int32`, `date-time`…).
    Format(&'static str),
    /// The same for each item of the list.
    Each(&'static [Limit]),
    /// All of these, which Calico also reports together when one is broken.
    AllOf(&'static [Limit]),
}

/// A field of an object.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The JSON name.
    pub name: &'static str,
    /// Calico's name in error messages (the Go field: `CIDR`, `NotNets`).
    pub go_name: &'static str,
    /// The type of its value.
    pub shape: Shape,
    /// When it is written out.
    pub keep: Keep,
    /// Whether the schema refuses an object without it.
    pub required: bool,
    /// The schema's default, as JSON text.
    pub default: Option<&'static str>,
    /// Limits of the schema.
    pub limits: &'static [Limit],
    /// Checks of Calico's validator, in the notation of its tags (`omitempty,dive,net`).
    pub checks: &'static str,
    /// What it is for, in a sentence.
    pub help: &'static str,
}

impl Field {
    /// A field that is left out when zero.
    pub const fn new(name: &'static str, go_name: &'static str, shape: Shape) -> Self {
        Self {
            name,
            go_name,
            shape,
            keep: Keep::NonZero,
            required: false,
            default: None,
            limits: &[],
            checks: "",
            help: "",
        }
    }

    /// Sets when it is written out.
    pub const fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// The schema refuses an object without it.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// The schema's default, as JSON text.
    pub const fn default(mut self, json: &'static str) -> Self {
        self.default = Some(json);
        self
    }

    /// Limits of the schema.
    pub const fn limits(mut self, limits: &'static [Limit]) -> Self {
        self.limits = limits;
        self
    }

    /// Checks of Calico's validator, in the notation of its tags.
    pub const fn checks(mut self, checks: &'static str) -> Self {
        self.checks = checks;
        self
    }

    /// What it is for, in a sentence of our own.
    pub const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }
}
