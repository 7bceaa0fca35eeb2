//! The short way from the JSON text of a stored object to its decoded form.
//!
//! Nearly every stored value is as Calico or we wrote it: known fields in the order of the table,
//! of the right types. Such a text is read by its table at once, without a value in between.
//! Anything out of the ordinary ends the attempt, and [`decode`](super::decode) decides.

use std::cell::RefCell;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::{MAX_DEPTH, Mode, Slot, kept};
use crate::schema::familiar::Reading;
use crate::schema::scalar::{self, refuses_null};
use crate::schema::{Field, Keep, Object, Shape};

/// The decoded form of the text; `None` if it is anything but regular. Everything is looked at,
/// but of the `spec` only the named fields are kept, if any are named.
pub(super) fn read(
    object: &'static Object,
    text: &[u8],
    spec_fields: Option<&[&str]>,
) -> Option<Value> {
    read_part(object, text, spec_fields.map_or(Part::Whole, Part::OfSpec))
}

/// The same, passing over what is familiar.
pub(super) fn read_familiar(
    object: &'static Object,
    text: &[u8],
    reading: &Reading<'_>,
) -> Option<Value> {
    read_part(object, text, Part::Unfamiliar(reading))
}

/// Tells the texts of the fields.
pub(super) fn tell(
    object: &'static Object,
    text: &[u8],
    tell: &mut dyn FnMut(&'static str, &'static str, &str),
) -> bool {
    let tell = RefCell::new(tell);
    let tell = |parent, field, text: &str| (tell.borrow_mut())(parent, field, text);
    read_part(object, text, Part::Told(Listener { tell: &tell, parent: "", field: "" })).is_some()
}

fn read_part(object: &'static Object, text: &[u8], part: Part<'_>) -> Option<Value> {
    // Looking for broken characters once is cheaper than once for each text in it.
    let mut source = serde_json::Deserializer::from_str(std::str::from_utf8(text).ok()?);
    let reader = Reader { shape: Shape::Object(object), depth: 0, part };
    let value = reader.deserialize(&mut source).ok()?;
    source.end().ok()?;
    value
}

/// Who is told the text of a field.
#[derive(Clone, Copy)]
struct Listener<'p> {
    tell: &'p dyn Fn(&'static str, &'static str, &str),
    parent: &'static str,
    field: &'static str,
}

/// What is kept of a value.
#[derive(Clone, Copy)]
enum Part<'p> {
    Whole,
    /// Everything but the fields of its `spec` that are not named.
    OfSpec(&'p [&'p str]),
    /// The named fields.
    Fields(&'p [&'p str]),
    Nothing,
    /// Nothing, but somebody hears the texts of fields.
    Told(Listener<'p>),
    /// Everything but familiar items in lists of its `spec`.
    Unfamiliar(&'p Reading<'p>),
    /// Such a `spec`.
    UnfamiliarSpec(&'p Reading<'p>),
    /// Such a list, by its name.
    UnfamiliarItems(&'p Reading<'p>, &'static str),
}

impl<'p> Part<'p> {
    fn of_field(self, name: &'static str) -> Self {
        match self {
            Part::Unfamiliar(reading) if name == "spec" => Part::UnfamiliarSpec(reading),
            Part::UnfamiliarSpec(reading) if reading.items.has_list(name) => {
                Part::UnfamiliarItems(reading, name)
            }
            Part::Unfamiliar(_) | Part::UnfamiliarSpec(_) | Part::UnfamiliarItems(..) => {
                Part::Whole
            }
            Part::OfSpec(fields) if name == "spec" => Part::Fields(fields),
            Part::OfSpec(_) | Part::Whole => Part::Whole,
            Part::Fields(fields) if fields.contains(&name) => Part::Whole,
            Part::Fields(_) | Part::Nothing => Part::Nothing,
            Part::Told(it) => Part::Told(Listener { parent: it.field, field: name, ..it }),
        }
    }

    fn is_nothing(self) -> bool {
        matches!(self, Part::Nothing | Part::Told(_))
    }
}

/// Reads a value of a shape; `None` stands for `null`, and any value for one that is not kept.
#[derive(Clone, Copy)]
struct Reader<'p> {
    shape: Shape,
    depth: usize,
    part: Part<'p>,
}

fn irregular<E: Error>() -> E {
    E::custom("irregular")
}

impl<'p> Reader<'p> {
    fn scalar<E: Error>(self, value: Value) -> Result<Option<Value>, E> {
        let is_container = matches!(self.shape, Shape::Object(_) | Shape::List(_) | Shape::Map(_));
        if is_container {
            return Err(irregular());
        }
        if scalar::is_final(self.shape, &value) {
            return Ok(Some(value));
        }
        match scalar::read(self.shape, &value, Mode::Stored) {
            // A time long ago turns into nothing, which is not the same as not being there.
            Ok(read) if !read.is_null() => Ok(Some(read)),
            _ => Err(irregular()),
        }
    }

    /// Whether an object of nothing is one that was given so.
    fn is_whole(self) -> bool {
        !matches!(self.part, Part::Fields(_) | Part::Nothing | Part::Told(_))
    }

    fn inner(self, shape: Shape, part: Part<'p>) -> Self {
        Self { shape, depth: self.depth + 1, part }
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Option<Value>, D::Error> {
        match self.shape {
            _ if self.depth > MAX_DEPTH => Err(irregular()),
            Shape::Any => serde::Deserialize::deserialize(source).map(Some),
            _ => source.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Option<Value>;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a value of the schema")
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Option<Value>, E> {
        self.scalar(Value::Bool(flag))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<Value>, E> {
        self.scalar(Value::Number(number.into()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Option<Value>, E> {
        self.scalar(Value::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Option<Value>, E> {
        self.scalar(Value::Number(Number::from_f64(number).ok_or_else(irregular)?))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<Value>, E> {
        match self.shape {
            Shape::Text | Shape::StrictText if self.part.is_nothing() => {
                if let Part::Told(Listener { tell, parent, field }) = self.part {
                    tell(parent, field, text);
                }
                Ok(Some(Value::Null))
            }
            _ => self.scalar(Value::String(text.to_owned())),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Option<Value>, A::Error> {
        let Shape::List(item) = self.shape else { return Err(irregular()) };
        if let Part::UnfamiliarItems(reading, name) = self.part {
            return self.unfamiliar(*item, (reading, name), list);
        }
        let mut items = Vec::new();
        while let Some(value) = list.next_element_seed(self.inner(*item, self.part))? {
            let value = value.ok_or_else(irregular)?;
            if !self.part.is_nothing() {
                items.push(value);
            }
        }
        Ok(Some(Value::Array(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<Value>, A::Error> {
        match self.shape {
            Shape::Object(object) => self.object(object, map),
            Shape::Map(item) => self.map(*item, map),
            _ => Err(irregular()),
        }
    }
}

impl Reader<'_> {
    fn unfamiliar<'de, A: SeqAccess<'de>>(
        self,
        item: Shape,
        (reading, name): (&Reading<'_>, &'static str),
        mut list: A,
    ) -> Result<Option<Value>, A::Error> {
        let mut items = Vec::new();
        while let Some(text) = list.next_element::<&RawValue>()? {
            if !reading.meet(name, items.len(), text.get()) {
                items.push(Value::Null);
                continue;
            }
            let mut source = serde_json::Deserializer::from_str(text.get());
            let value = self.inner(item, Part::Whole).deserialize(&mut source);
            items.push(value.ok().flatten().ok_or_else(irregular)?);
        }
        Ok(Some(Value::Array(items)))
    }

    fn map<'de, A>(self, item: Shape, mut map: A) -> Result<Option<Value>, A::Error>
    where
        A: MapAccess<'de>,
    {
        if self.part.is_nothing() {
            while map.next_key::<IgnoredAny>()?.is_some() {
                map.next_value_seed(self.inner(item, Part::Nothing))?.ok_or_else(irregular)?;
            }
            return Ok(Some(Value::Null));
        }
        let mut written = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(self.inner(item, self.part))?.ok_or_else(irregular)?;
            written.insert(name, value);
        }
        written.sort_keys();
        Ok(Some(Value::Object(written)))
    }

    fn object<'de, A>(self, object: &'static Object, mut map: A) -> Result<Option<Value>, A::Error>
    where
        A: MapAccess<'de>,
    {
        let mut written = Map::new();
        let mut put = |field: &Field, slot: Slot| {
            if self.part.of_field(field.name).is_nothing() {
                return;
            }
            if let Some(value) = kept(field, slot) {
                written.insert(field.name.to_owned(), value);
            }
        };
        let mut rest = object.fields;
        while let Some(skipped) = map.next_key_seed(FieldName(rest))? {
            let (before, from) = rest.split_at(skipped);
            let Some((field, after)) = from.split_first() else { return Err(irregular()) };
            before.iter().for_each(|field| put(field, Slot::Absent));
            let inner = self.inner(field.shape, self.part.of_field(field.name));
            let slot = match map.next_value_seed(inner)? {
                None if refuses_null(field) => return Err(irregular()),
                None => Slot::Absent,
                Some(value) if inner.is_whole() && is_left_out(field, &value) => Slot::Absent,
                Some(value) => Slot::Given(value),
            };
            put(field, slot);
            rest = after;
        }
        let is_untouched = rest.len() == object.fields.len();
        rest.iter().for_each(|field| put(field, Slot::Absent));
        // Whether Go would leave such an object out depends on what made it empty.
        if self.is_whole() && written.is_empty() && !is_untouched {
            return Err(irregular());
        }
        Ok(Some(Value::Object(written)))
    }
}

/// Whether Go leaves out the empty object that was given.
fn is_left_out(field: &Field, value: &Value) -> bool {
    field.keep == Keep::NonZero
        && matches!(field.shape, Shape::Object(_))
        && value.as_object().is_some_and(Map::is_empty)
}

/// Finds a name among the fields that are still to come; gives how many it skips.
struct FieldName(&'static [Field]);

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<usize, D::Error> {
        source.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = usize;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        self.0.iter().position(|field| field.name == name).ok_or_else(irregular)
    }
}
