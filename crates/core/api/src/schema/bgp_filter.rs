//! BGP filters.

use super::Keep::{Always, AlwaysNull, Given};
use super::Limit::{
    Each, Format, MaxItems, MaxLength, MaxProperties, Maximum, MinItems, MinProperties, Minimum,
    OneOf, Pattern,
};
use super::Shape::{self, AsNumber, List, Text};
use super::meta::{API_VERSION, KIND, METADATA, spec};
use super::{Field, Object};

/// The decimal numbers up to 65535, as a regular expression.
macro_rules! sixteen_bits {
    () => {
        "([0-9]|[1-9][0-9]{1,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
    };
}

/// The decimal numbers up to 4294967295, as a regular expression.
macro_rules! thirty_two_bits {
    () => {
        concat!(
            "([0-9]|[1-9][0-9]{1,8}|[1-3][0-9]{9}|4[0-1][0-9]{8}|42[0-8][0-9]{7}",
            "|429[0-3][0-9]{6}|4294[0-8][0-9]{5}|42949[0-5][0-9]{4}",
            "|429496[0-6][0-9]{3}|4294967[0-1][0-9]{2}|42949672[0-8][0-9]|429496729[0-5])",
        )
    };
}

/// Communities of two or three numbers.
const COMMUNITY_VALUE: &str = concat!(
    "^(",
    sixteen_bits!(),
    ":",
    sixteen_bits!(),
    "|",
    thirty_two_bits!(),
    ":",
    thirty_two_bits!(),
    ":",
    thirty_two_bits!(),
    ")$"
);

/// The kind BGPFilter.
#[rustfmt::skip]
pub(super) static BGP_FILTER: Object = Object {
    name: "BGPFilter",
    fields: &[KIND, API_VERSION, METADATA, spec(&BGP_FILTER_SPEC)],
};

#[rustfmt::skip]
static BGP_FILTER_SPEC: Object = Object {
    name: "BGPFilterSpec",
    fields: &[
        Field::new("exportV4", "ExportV4", List(&Shape::Object(&BGP_FILTER_RULE_V4))).checks("omitempty,dive").help("Rules for IPv4 routes sent to peers; the first that matches decides"),
        Field::new("importV4", "ImportV4", List(&Shape::Object(&BGP_FILTER_RULE_V4))).checks("omitempty,dive").help("Rules for IPv4 routes from peers; the first that matches decides"),
        Field::new("exportV6", "ExportV6", List(&Shape::Object(&BGP_FILTER_RULE_V6))).checks("omitempty,dive").help("Rules for IPv6 routes sent to peers; the first that matches decides"),
        Field::new("importV6", "ImportV6", List(&Shape::Object(&BGP_FILTER_RULE_V6))).checks("omitempty,dive").help("Rules for IPv6 routes from peers; the first that matches decides"),
    ],
};

#[rustfmt::skip]
static BGP_FILTER_RULE_V4: Object = Object {
    name: "BGPFilterRuleV4",
    fields: &[
        Field::new("cidr", "CIDR", Text).limits(&[MaxLength(18), Format("cidr")]).checks("omitempty,netv4").help("The prefix to compare routes with; needs matchOperator"),
        Field::new("prefixLength", "PrefixLength", Shape::Object(&BGP_FILTER_PREFIX_LENGTH_V4)).keep(Given).help("The lengths of prefixes that match"),
        Field::new("source", "Source", Text).limits(&[OneOf(&["RemotePeers"])]).checks("omitempty,oneof=RemotePeers").help("Where the route was learned"),
        Field::new("interface", "Interface", Text).limits(&[MaxLength(15)]).checks("omitempty,bgpFilterInterface").help("The interface of the route; * stands for any text"),
        Field::new("matchOperator", "MatchOperator", Text).limits(&[OneOf(&["Equal", "NotEqual", "In", "NotIn"])]).help("How the route must lie to cidr"),
        Field::new("peerType", "PeerType", Text).limits(&[OneOf(&["eBGP", "iBGP"])]).checks("omitempty,oneof=eBGP iBGP").help("Whether the peer is of another AS (eBGP) or of the same (iBGP)"),
        Field::new("communities", "Communities", Shape::Object(&BGP_FILTER_COMMUNITY_MATCH)).keep(Given).help("The community that the route must carry"),
        Field::new("asPathPrefix", "ASPathPrefix", List(&AsNumber)).limits(&[Each(&[Format("int32")])]).help("The AS numbers with which the path must start"),
        Field::new("priority", "Priority", Shape::INT).keep(Given).limits(&[Minimum(1), Maximum(2147483646)]).checks("omitempty,gte=1,lte=2147483646").help("The metric that the route must have"),
        Field::new("action", "Action", Text).keep(Always).required().limits(&[OneOf(&["Accept", "Reject"])]).checks("required").help("Whether the route passes or is dropped"),
        Field::new("operations", "Operations", List(&Shape::Object(&BGP_FILTER_OPERATION))).limits(&[MinItems(1), MaxItems(10), Each(&[MinProperties(1), MaxProperties(1)])]).checks("omitempty,dive").help("Changes to make to a route that is accepted"),
    ],
};

#[rustfmt::skip]
static BGP_FILTER_PREFIX_LENGTH_V4: Object = Object {
    name: "BGPFilterPrefixLengthV4",
    fields: &[
        Field::new("min", "Min", Shape::INT32).keep(Given).limits(&[Minimum(0), Maximum(32)]).checks("omitempty,bgpFilterPrefixLengthV4").help("The shortest prefix that matches"),
        Field::new("max", "Max", Shape::INT32).keep(Given).limits(&[Minimum(0), Maximum(32)]).checks("omitempty,bgpFilterPrefixLengthV4").help("The longest prefix that matches"),
    ],
};

#[rustfmt::skip]
static BGP_FILTER_COMMUNITY_MATCH: Object = Object {
    name: "BGPFilterCommunityMatch",
    fields: &[
        Field::new("values", "Values", List(&Text)).keep(AlwaysNull).required().limits(&[MinItems(1), MaxItems(1), Each(&[Pattern(COMMUNITY_VALUE), MaxLength(32)])]).checks("required").help("The community, as aa:nn or aa:nn:mm"),
    ],
};

#[rustfmt::skip]
static BGP_FILTER_OPERATION: Object = Object {
    name: "BGPFilterOperation",
    fields: &[
        Field::new("addCommunity", "AddCommunity", Shape::Object(&BGP_FILTER_ADD_COMMUNITY)).keep(Given).help("Adds a community"),
        Field::new("prependASPath", "PrependASPath", Shape::Object(&BGP_FILTER_PREPEND_AS_PATH)).keep(Given).help("Puts AS numbers in front of the path"),
        Field::new("setPriority", "SetPriority", Shape::Object(&BGP_FILTER_SET_PRIORITY)).keep(Given).help("Sets the metric"),
    ],
};

#[rustfmt::skip]
static BGP_FILTER_ADD_COMMUNITY: Object = Object {
    name: "BGPFilterAddCommunity",
    fields: &[
        Field::new("value", "Value", Text).keep(AlwaysNull).required().limits(&[Pattern(COMMUNITY_VALUE), MaxLength(32)]).checks("required").help("The community, as aa:nn or aa:nn:mm"),
    ],
};

#[rustfmt::skip]
static BGP_FILTER_PREPEND_AS_PATH: Object = Object {
    name: "BGPFilterPrependASPath",
    fields: &[
        Field::new("prefix", "Prefix", List(&AsNumber)).keep(AlwaysNull).required().limits(&[MinItems(1), MaxItems(10), Each(&[Format("int32")])]).checks("required").help("The AS numbers, the first one outermost"),
    ],
};

#[rustfmt::skip]
static BGP_FILTER_SET_PRIORITY: Object = Object {
    name: "BGPFilterSetPriority",
    fields: &[
        Field::new("value", "Value", Shape::INT).keep(AlwaysNull).required().limits(&[Minimum(1), Maximum(2147483646)]).checks("required,gte=1,lte=2147483646").help("The metric"),
    ],
};

#[rustfmt::skip]
static BGP_FILTER_RULE_V6: Object = Object {
    name: "BGPFilterRuleV6",
    fields: &[
        Field::new("cidr", "CIDR", Text).limits(&[MaxLength(43), Format("cidr")]).checks("omitempty,netv6").help("The prefix to compare routes with; needs matchOperator"),
        Field::new("prefixLength", "PrefixLength", Shape::Object(&BGP_FILTER_PREFIX_LENGTH_V6)).keep(Given).help("The lengths of prefixes that match"),
        Field::new("source", "Source", Text).limits(&[OneOf(&["RemotePeers"])]).checks("omitempty,oneof=RemotePeers").help("Where the route was learned"),
        Field::new("interface", "Interface", Text).limits(&[MaxLength(15)]).checks("omitempty,bgpFilterInterface").help("The interface of the route; * stands for any text"),
        Field::new("matchOperator", "MatchOperator", Text).limits(&[OneOf(&["Equal", "NotEqual", "In", "NotIn"])]).help("How the route must lie to cidr"),
        Field::new("peerType", "PeerType", Text).limits(&[OneOf(&["eBGP", "iBGP"])]).checks("omitempty,oneof=eBGP iBGP").help("Whether the peer is of another AS (eBGP) or of the same (iBGP)"),
        Field::new("communities", "Communities", Shape::Object(&BGP_FILTER_COMMUNITY_MATCH)).keep(Given).help("The community that the route must carry"),
        Field::new("asPathPrefix", "ASPathPrefix", List(&AsNumber)).limits(&[Each(&[Format("int32")])]).help("The AS numbers with which the path must start"),
        Field::new("priority", "Priority", Shape::INT).keep(Given).limits(&[Minimum(1), Maximum(2147483646)]).checks("omitempty,gte=1,lte=2147483646").help("The metric that the route must have"),
        Field::new("action", "Action", Text).keep(Always).required().limits(&[OneOf(&["Accept", "Reject"])]).checks("required").help("Whether the route passes or is dropped"),
        Field::new("operations", "Operations", List(&Shape::Object(&BGP_FILTER_OPERATION))).limits(&[MinItems(1), MaxItems(10), Each(&[MinProperties(1), MaxProperties(1)])]).checks("omitempty,dive").help("Changes to make to a route that is accepted"),
    ],
};

#[rustfmt::skip]
static BGP_FILTER_PREFIX_LENGTH_V6: Object = Object {
    name: "BGPFilterPrefixLengthV6",
    fields: &[
        Field::new("min", "Min", Shape::INT32).keep(Given).limits(&[Minimum(0), Maximum(128)]).checks("omitempty,bgpFilterPrefixLengthV6").help("The shortest prefix that matches"),
        Field::new("max", "Max", Shape::INT32).keep(Given).limits(&[Minimum(0), Maximum(128)]).checks("omitempty,bgpFilterPrefixLengthV6").help("The longest prefix that matches"),
    ],
};
