//! What a block says: who holds which of its addresses, and what is wrong with it by itself.

use std::sync::Arc;

use api::keys::ipam::{Attribute, Block};
use net::Cidr;
use serde_json::{Map, Value};

use super::Class;
use super::endpoint::Texts;
use crate::Moment;
use crate::block::settled;

const WINDOWS_HANDLE: &str = "windows-reserved-ipam-handle";
const RESERVE_PREFIX: &str = "margay-reserve.";

/// What an address is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Workload,
    /// The tunnel of a node.
    Tunnel,
    /// Windows keeps it for itself.
    Windows,
    /// The reserve of a node's agent.
    Reserve,
}

/// A time as Go prints it, to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since {
    digits: [u8; 19],
    is_utc: bool,
}

impl Since {
    /// None for a text that is too short for a time.
    fn read(text: &str) -> Option<Self> {
        let digits = text.get(..19)?.as_bytes().try_into().ok()?;
        Some(Self { digits, is_utc: text.contains("+0000") || text.ends_with('Z') })
    }

    /// As it is written, without the zone.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.digits).unwrap_or_default()
    }

    /// Whether it is so late that what belongs to it may still be on its way. A time of a zone
    /// that is not known may be a day off.
    pub(crate) fn is_fresh(&self, now: Moment, seconds: i64) -> bool {
        const DAY: i64 = 86_400;
        let margin = if self.is_utc { 0 } else { DAY };
        self.text().replacen(' ', "T", 1) + "Z" > now.text_before(seconds.saturating_add(margin))
    }
}

/// Who holds an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The handle as it is written.
    pub(crate) handle: Option<Arc<str>>,
    pub(crate) node: Option<Arc<str>>,
    /// `NAMESPACE/POD`.
    pub(crate) pod: Option<Box<str>>,
    /// When it was given.
    pub(crate) since: Option<Since>,
    pub(crate) purpose: Purpose,
    /// It was let go and rests.
    pub(crate) is_cooling: bool,
    /// A virtual machine, which takes its addresses along from container to container.
    pub(crate) is_machine: bool,
    /// It stands in the free list too.
    pub(crate) is_listed_free: bool,
}

impl Holder {
    /// The handle without what old versions appended to it by mistake.
    pub(crate) fn settled_handle(&self) -> Option<&str> {
        self.handle.as_deref().map(settled).filter(|handle| !handle.is_empty())
    }

    /// The handle that counts the address; what Windows keeps is counted by none.
    pub(crate) fn counted_handle(&self) -> Option<&str> {
        self.settled_handle().filter(|_| self.purpose != Purpose::Windows)
    }
}

/// An address of a block that is not simply free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Held(Holder),
    /// The block does not say: allocated to nobody, neither allocated nor free, or left out.
    Uncertain,
}

/// Something wrong within a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) class: Class,
    pub(crate) ordinal: Option<usize>,
    pub(crate) text: String,
}

/// What a block says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stock {
    /// The block, by its key.
    pub(crate) cidr: Cidr,
    /// The revision that last wrote it.
    pub(crate) revision: i64,
    /// Its owner (`host:NODE`).
    pub(crate) owner: Option<Arc<str>>,
    /// The addresses that are not simply free, in order.
    pub(crate) slots: Vec<(usize, Slot)>,
    pub(crate) faults: Vec<Fault>,
    /// Nothing of it can be read.
    pub(crate) is_lost: bool,
}

impl Stock {
    pub(crate) fn read(cidr: Cidr, bytes: &[u8], revision: i64, texts: &mut dyn Texts) -> Self {
        let mut stock = Self {
            cidr,
            revision,
            owner: None,
            slots: Vec::new(),
            faults: Vec::new(),
            is_lost: false,
        };
        let (block, notes) = match salvage(cidr, bytes) {
            Ok(salvaged) => salvaged,
            Err(why) => {
                stock.is_lost = true;
                stock.fault(Class::Unreadable, None, why);
                return stock;
            }
        };
        for note in notes {
            stock.fault(Class::Unreadable, None, note);
        }
        stock.owner =
            block.affinity.as_deref().filter(|it| !it.is_empty()).map(|it| texts.word(it));
        stock.look_at_fields(&block);
        stock.look_at_slots(&block, texts);
        stock
    }

    fn fault(&mut self, class: Class, ordinal: Option<usize>, text: impl Into<String>) {
        self.faults.push(Fault { class, ordinal, text: text.into() });
    }

    fn look_at_fields(&mut self, block: &Block) {
        if block.deleted {
            self.fault(Class::WrongField, None, "deleted: it is marked as about to go");
        }
        if let Some(text) = block.affinity_claim_time.as_deref().filter(|it| !is_time(it)) {
            self.fault(
                Class::WrongField,
                None,
                format!("affinity_claim_time: {text:?} is no time"),
            );
        }
        for (index, attribute) in block.attributes.iter().enumerate() {
            if let Some(text) = attribute.released_at.as_deref().filter(|it| !is_time(it)) {
                let text = format!("attributes[{index}].releasedAt: {text:?} is no time");
                self.fault(Class::WrongField, None, text);
            }
        }
    }

    fn look_at_slots(&mut self, block: &Block, texts: &mut dyn Texts) {
        let size = usize::try_from(block.size()).unwrap_or(usize::MAX);
        let count = block.allocations.len();
        if count != size {
            let text = format!("allocations: {count} entries for {size} addresses");
            self.fault(Class::BadIndex, None, text);
        }
        let listed = self.look_at_free_list(block, size);
        let mut used = vec![false; block.attributes.len()];
        for (ordinal, is_free) in listed.into_iter().enumerate() {
            let index = block.allocations.get(ordinal);
            match (index.copied().flatten(), block.attribute(ordinal)) {
                (Some(index), Some(attribute)) => {
                    let used = usize::try_from(index).ok().and_then(|it| used.get_mut(it));
                    used.into_iter().for_each(|is_used| *is_used = true);
                    if is_free {
                        let text = "it is allocated, and in the list of free addresses";
                        self.fault(Class::AllocatedAndFree, Some(ordinal), text);
                    }
                    self.look_at_sequence(block, ordinal, attribute);
                    self.slots.push((ordinal, Slot::Held(holder(attribute, is_free, texts))));
                }
                (Some(index), None) => {
                    let n = block.attributes.len();
                    let text = format!("it is allocated to entry {index} of {n}");
                    self.fault(Class::BadIndex, Some(ordinal), text);
                    self.slots.push((ordinal, Slot::Uncertain));
                }
                (None, _) if !is_free => {
                    let text = "it is neither allocated nor in the list of free addresses";
                    self.fault(Class::AllocatedAndFree, Some(ordinal), text);
                    self.slots.push((ordinal, Slot::Uncertain));
                }
                (None, _) => {}
            }
        }
        self.slots.shrink_to_fit();
        let unused = block.attributes.iter().zip(used).enumerate();
        for (index, (attribute, _)) in unused.filter(|(_, (_, is_used))| !is_used) {
            let handle = attribute.handle.as_deref().unwrap_or("nobody");
            let text = format!("attributes[{index}]: {handle} holds no address there");
            self.fault(Class::UnreferencedAttribute, None, text);
        }
        let numbers = block.sequence_number_for_allocation.iter();
        for (ordinal, number) in numbers {
            if !ordinal.parse().is_ok_and(|ordinal| self.slot(ordinal).is_some()) {
                let text = format!("sequenceNumberForAllocation: {ordinal} is not held");
                self.fault(Class::WrongField, None, text);
            } else if *number > block.sequence_number {
                let text = format!("sequenceNumber: it is less than that of address {ordinal}");
                self.fault(Class::WrongField, None, text);
            }
        }
    }

    /// Of every place, whether it is listed as free.
    fn look_at_free_list(&mut self, block: &Block, size: usize) -> Vec<bool> {
        let mut listed = vec![false; size];
        for entry in &block.unallocated {
            let ordinal = usize::try_from(*entry).ok();
            match ordinal.and_then(|ordinal| Some((ordinal, listed.get_mut(ordinal)?))) {
                None => {
                    let text = format!("unallocated: it has no address {entry}");
                    self.fault(Class::BadIndex, None, text);
                }
                Some((ordinal, true)) => {
                    let text = "it is in the list of free addresses twice";
                    self.fault(Class::AllocatedAndFree, Some(ordinal), text);
                }
                Some((_, is_listed)) => *is_listed = true,
            }
        }
        listed
    }

    /// Blocks of very old versions have no numbers at all.
    fn look_at_sequence(&mut self, block: &Block, ordinal: usize, attribute: &Attribute) {
        let numbers = &block.sequence_number_for_allocation;
        let is_old = block.sequence_number == 0 && numbers.is_empty();
        let is_windows = purpose(attribute) == Purpose::Windows;
        if !is_old && !is_windows && block.sequence_of(ordinal).is_none() {
            let text = "it is held without a sequence number";
            self.fault(Class::WrongField, Some(ordinal), text);
        }
    }

    /// What it says of an address; none for one that is simply free.
    pub(crate) fn slot(&self, ordinal: usize) -> Option<&Slot> {
        let at = self.slots.binary_search_by_key(&ordinal, |(place, _)| *place).ok()?;
        self.slots.get(at).map(|(_, slot)| slot)
    }

    /// Whether no block has as many addresses.
    pub(crate) fn is_too_large(cidr: Cidr) -> bool {
        Block::new(cidr).is_none()
    }

    /// The node that owns the block, if it is one.
    pub(crate) fn node(&self) -> Option<&str> {
        self.owner.as_deref()?.strip_prefix("host:").filter(|node| !node.is_empty())
    }

    /// Whether what holds its addresses is no workload of a node: nobody here knows what lives.
    pub(crate) fn is_virtual(&self) -> bool {
        self.owner.as_deref().is_some_and(|owner| owner.starts_with("virtual:"))
    }
}

fn holder(attribute: &Attribute, is_listed_free: bool, texts: &mut dyn Texts) -> Holder {
    let owner = &attribute.active_owner;
    let part = |name: &str| owner.get(name).map(String::as_str);
    let pod = match (part("namespace"), part("pod")) {
        (None, None) => None,
        (namespace, pod) => {
            Some(format!("{}/{}", namespace.unwrap_or_default(), pod.unwrap_or_default()))
        }
    };
    Holder {
        handle: attribute.handle.as_deref().map(|it| texts.handle(it)),
        node: part("node").filter(|it| !it.is_empty()).map(|it| texts.word(it)),
        pod: pod.map(Into::into),
        since: part("timestamp").and_then(Since::read),
        purpose: purpose(attribute),
        is_cooling: attribute.released_at.is_some(),
        is_machine: owner.contains_key("vmi-name"),
        is_listed_free,
    }
}

fn purpose(attribute: &Attribute) -> Purpose {
    let handle = attribute.handle.as_deref().unwrap_or_default();
    let kind = attribute.active_owner.get("type").map(String::as_str).unwrap_or_default();
    if handle.eq_ignore_ascii_case(WINDOWS_HANDLE) {
        Purpose::Windows
    } else if handle.starts_with(RESERVE_PREFIX) {
        Purpose::Reserve
    } else if kind.ends_with("TunnelAddress") || handle.contains("-tunnel-addr-") {
        Purpose::Tunnel
    } else {
        Purpose::Workload
    }
}

/// Whether it looks like RFC 3339.
pub(crate) fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let form = b"0000-00-00T00:00:00";
    bytes.len() > form.len()
        && form.iter().zip(bytes).all(|(form, byte)| match form {
            b'0' => byte.is_ascii_digit(),
            form => form == byte,
        })
}

/// Reads as much of a block as can be, and says what had to be left out. The key says which
/// addresses it has.
pub(crate) fn salvage(cidr: Cidr, bytes: &[u8]) -> Result<(Block, Vec<String>), String> {
    if Stock::is_too_large(cidr) {
        return Err(format!("no block has as many addresses as {cidr}"));
    }
    let mut notes = Vec::new();
    let mut block = match Block::read(bytes) {
        Ok(block) => block,
        Err(_) => {
            let json = text::json::parse(bytes).map_err(|error| error.to_string())?;
            let Value::Object(mut fields) = json else { return Err("not an object".to_owned()) };
            sanitize(cidr, &mut fields, &mut notes);
            Block::decode(&Value::Object(fields))
                .map_err(|problems| problems.first().map(ToString::to_string).unwrap_or_default())?
        }
    };
    if block.cidr != cidr {
        notes.push(format!("cidr: {} under the key of {cidr}", block.cidr));
        block.cidr = cidr;
    }
    Ok((block, notes))
}

/// Leaves out what has the wrong type, where it stands.
fn sanitize(cidr: Cidr, fields: &mut Map<String, Value>, notes: &mut Vec<String>) {
    if fields.get("cidr").and_then(Value::as_str).is_none_or(|it| it.parse::<Cidr>().is_err()) {
        notes.push("cidr: expected the network of the block".to_owned());
        fields.insert("cidr".to_owned(), cidr.to_string().into());
    }
    for name in ["affinity", "affinity_claim_time", "hostAffinity"] {
        keep(fields, name, "text", notes, Value::is_string);
    }
    keep(fields, "deleted", "true or false", notes, Value::is_boolean);
    keep(fields, "sequenceNumber", "a whole number", notes, Value::is_u64);
    for name in ["allocations", "unallocated", "attributes"] {
        keep(fields, name, "a list", notes, Value::is_array);
    }
    let numbers = "sequenceNumberForAllocation";
    keep(fields, numbers, "an object", notes, Value::is_object);
    if let Some(Value::Object(numbers)) = fields.get_mut(numbers) {
        keep_entries(numbers, "sequenceNumberForAllocation", notes, Value::is_u64);
    }
    if let Some(Value::Array(entries)) = fields.get_mut("unallocated") {
        entries.retain(|entry| {
            if !entry.is_i64() {
                notes.push("unallocated: an entry is no whole number".to_owned());
            }
            entry.is_i64()
        });
    }
    for (index, entry) in list(fields, "allocations").enumerate() {
        if !entry.is_i64() && !entry.is_null() {
            notes.push(format!("allocations[{index}]: expected a whole number"));
            *entry = Value::from(-1);
        }
    }
    for (index, entry) in list(fields, "attributes").enumerate() {
        sanitize_attribute(index, entry, notes);
    }
}

fn sanitize_attribute(index: usize, entry: &mut Value, notes: &mut Vec<String>) {
    let Value::Object(attribute) = entry else {
        notes.push(format!("attributes[{index}]: expected an object"));
        *entry = Value::Object(Map::new());
        return;
    };
    let mut own = Vec::new();
    for name in ["handle_id", "releasedAt"] {
        keep(attribute, name, "text", &mut own, Value::is_string);
    }
    for name in ["secondary", "alternateOwnerAttrs"] {
        keep(attribute, name, "an object", &mut own, Value::is_object);
        if let Some(Value::Object(inner)) = attribute.get_mut(name) {
            keep_entries(inner, name, &mut own, Value::is_string);
        }
    }
    notes.extend(own.into_iter().map(|note| format!("attributes[{index}].{note}")));
}

fn list<'v>(
    fields: &'v mut Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'v mut Value> + use<'v> {
    fields.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

fn keep(
    fields: &mut Map<String, Value>,
    name: &str,
    expected: &str,
    notes: &mut Vec<String>,
    is_good: fn(&Value) -> bool,
) {
    if fields.get(name).is_some_and(|value| !value.is_null() && !is_good(value)) {
        notes.push(format!("{name}: expected {expected}"));
        fields.shift_remove(name);
    }
}

fn keep_entries(
    fields: &mut Map<String, Value>,
    name: &str,
    notes: &mut Vec<String>,
    is_good: fn(&Value) -> bool,
) {
    fields.retain(|entry, value| {
        if !is_good(value) {
            notes.push(format!("{name}[{entry}]: has the wrong type"));
        }
        is_good(value)
    });
}
