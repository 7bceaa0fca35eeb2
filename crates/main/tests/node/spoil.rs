//! Every way in which one field of an object can be wrong.

use serde_json::{Map, Value, json};

use crate::samples::{ADDRESS, BLOCK, BLOCK_IN_KEY, NUMBER, Sample};

/// A value that somebody put straight into the datastore.
#[derive(Clone, Debug)]
pub(crate) struct Spoilt {
    /// The name of its sample, the place and what is wrong there.
    pub(crate) what: String,
    pub(crate) key: String,
    pub(crate) bytes: Vec<u8>,
}

/// A value can be spoilt in fewer ways than this.
const SORTS_MAX: usize = 40;

/// A field is deeper than any reader should go.
const DEEP: usize = 60;

/// Corruptions of one field of an object, and what is no object at all. One in so many is made,
/// from the given one on: of every field some, and of every sort some.
pub(crate) fn spoilt(sample: &Sample, (first, stride): (usize, usize)) -> Vec<Spoilt> {
    let mut all = Vec::new();
    let make = |place: &str, how: &str, bytes: Vec<u8>| {
        let what = format!("{} {place}: {how}", sample.name);
        Spoilt { what, key: sample.key.clone(), bytes }
    };
    let mut places = Vec::new();
    walk(&sample.value, &mut String::new(), &mut places);
    let is_due = |place: usize, sort: usize| (place * SORTS_MAX + sort) % stride == first % stride;
    for (number, place) in places.iter().enumerate() {
        if !(0..SORTS_MAX).any(|sort| is_due(number, sort)) {
            continue;
        }
        let sorts = damages(sample.value.pointer(place).unwrap()).into_iter().enumerate();
        for (_, (how, bad)) in sorts.filter(|(sort, _)| is_due(number, *sort)) {
            let mut value = sample.value.clone();
            match bad {
                Some(bad) => *value.pointer_mut(place).unwrap() = bad,
                None if place.is_empty() => continue,
                None => remove(&mut value, place),
            }
            all.push(make(place, how, value.to_string().into_bytes()));
        }
    }
    let whole = wholes(sample.value.to_string().as_bytes()).into_iter().enumerate();
    let whole = whole.filter(|(sort, _)| is_due(places.len(), *sort));
    all.extend(whole.map(|(_, (how, bytes))| make("", how, bytes)));
    all
}

/// What may stand in the place of an object as a whole.
fn wholes(text: &[u8]) -> [(&'static str, Vec<u8>); 7] {
    [
        ("cut off in the middle", text[..text.len() / 2].to_vec()),
        ("cut off at its end", text[..text.len() - 1].to_vec()),
        ("something behind it", [text, b"}"].concat()),
        ("no JSON", b"not: json".to_vec()),
        ("no text", [text, b"\xff\xfe"].concat()),
        ("nothing", Vec::new()),
        ("a hundred thousand brackets", "[".repeat(100_000).into_bytes()),
    ]
}

/// The same for an object of its own name and addresses.
pub(crate) fn numbered(spoilt: &Spoilt, number: usize) -> Spoilt {
    let place = format!("10.{}.{}", 128 + number / 1024 % 64, number / 4 % 256);
    let block = format!("{place}.{}", number % 4 * 64);
    let address = format!("10.{}.{}.{}", 66 + number / 65536, number / 256 % 256, number % 256);
    let tokens = [
        (NUMBER, format!("{number:05}")),
        (ADDRESS, address),
        (BLOCK, format!("{block}/26")),
        (BLOCK_IN_KEY, format!("{block}-26")),
    ];
    let mut spoilt = spoilt.clone();
    for (token, text) in tokens {
        spoilt.key = spoilt.key.replace(token, &text);
        spoilt.bytes = replaced(&spoilt.bytes, token.as_bytes(), text.as_bytes());
    }
    spoilt
}

/// Bytes, because not all of it is text.
fn replaced(bytes: &[u8], token: &[u8], text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        match rest.strip_prefix(token) {
            Some(after) => {
                out.extend_from_slice(text);
                rest = after;
            }
            None => {
                out.push(*first);
                rest = &rest[1..];
            }
        }
    }
    out
}

fn walk(value: &Value, path: &mut String, places: &mut Vec<String>) {
    places.push(path.clone());
    let length = path.len();
    let mut go = |name: &str, inner: &Value| {
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        walk(inner, path, places);
        path.truncate(length);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, inner)| go(name, inner)),
        // Long lists are alike after a few.
        Value::Array(items) => {
            let items = items.iter().enumerate().take(8);
            items.for_each(|(number, inner)| go(&number.to_string(), inner));
        }
        _ => {}
    }
}

fn remove(value: &mut Value, place: &str) {
    let (parent, last) = place.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Object(fields) => {
            fields.shift_remove(&last.replace("~1", "/").replace("~0", "~")).unwrap();
        }
        Value::Array(items) => {
            items.remove(last.parse().unwrap());
        }
        other => panic!("{other}"),
    }
}

/// What may stand in the place of a value; none is nothing at all.
fn damages(good: &Value) -> Vec<(&'static str, Option<Value>)> {
    let deep = (0..DEEP).fold(json!(1), |inner, _| json!([inner]));
    let mut all = vec![
        ("removed", None),
        ("null", Some(Value::Null)),
        ("an empty object", Some(json!({}))),
        ("an empty list", Some(json!([]))),
        ("a boolean", Some(json!(true))),
        ("a negative number", Some(json!(-1))),
        ("a fraction", Some(json!(1.5))),
        ("a number beyond all types", Some(json!(1e300))),
        ("an empty text", Some(json!(""))),
        ("a word", Some(json!("nonsense"))),
        ("nested deeply", Some(deep)),
        ("a list of lists", Some(json!([[]]))),
        ("a list of nothing", Some(json!([null]))),
        ("an object of nothing", Some(json!({ "": null }))),
    ];
    match good {
        Value::String(_) => all.extend(texts().map(|(how, text)| (how, Some(json!(text))))),
        Value::Number(_) => {
            let numbers: [(&str, Value); 6] = [
                ("zero", json!(0)),
                ("one beyond a port", json!(65536)),
                ("one beyond 32 bits", json!(4_294_967_296_u64)),
                ("the largest number", json!(u64::MAX)),
                ("the smallest number", json!(i64::MIN)),
                ("a number in a text", json!("12")),
            ];
            all.extend(numbers.map(|(how, number)| (how, Some(number))));
        }
        Value::Array(items) => {
            let twice = [items.as_slice(), items.as_slice()].concat();
            let by_number: Map<String, Value> =
                items.iter().enumerate().map(|(at, item)| (at.to_string(), item.clone())).collect();
            all.push(("twice the items", Some(twice.into())));
            all.push(("a list as an object", Some(by_number.into())));
            if let Some(first) = items.first() {
                let many = vec![first.clone(); 300];
                all.push(("one item many times", Some(many.into())));
            }
        }
        Value::Object(fields) => {
            let mut more = fields.clone();
            more.insert("unheardOf".to_owned(), json!({ "x": [1] }));
            all.push(("one field more", Some(more.into())));
            all.push(("an object in a list", Some(json!([fields]))));
        }
        _ => all.push(("the opposite", Some(json!(false)))),
    }
    all.retain(|(_, bad)| bad.as_ref() != Some(good));
    assert!(all.len() <= SORTS_MAX);
    all
}

fn texts() -> [(&'static str, String); 22] {
    [
        ("a long text", "x".repeat(5000)),
        ("a number", "70000".to_owned()),
        ("a negative number in a text", "-1".to_owned()),
        ("a prefix that is too long", "10.0.0.0/99".to_owned()),
        ("an address out of range", "999.0.0.1".to_owned()),
        ("an address of the other family", "fd00::9/64".to_owned()),
        ("everything", "0.0.0.0/0".to_owned()),
        ("a multicast address", "224.0.0.1/32".to_owned()),
        ("no IPv6 address", "::1::".to_owned()),
        ("half a selector", "a == ".to_owned()),
        ("open brackets", "(".repeat(2000)),
        ("a selector with many parts", "has(a) && ".repeat(200) + "has(b)"),
        ("ports upside down", "90:80".to_owned()),
        ("a negative time", "-5s".to_owned()),
        ("a time without a unit", "5".to_owned()),
        ("an action that is none", "Jump".to_owned()),
        ("a path", "../../etc".to_owned()),
        ("a star", "*".to_owned()),
        ("a zero byte", "a\0b".to_owned()),
        ("a line feed", "a\nb".to_owned()),
        ("letters from right to left", "\u{202e}ä\u{fffd}".to_owned()),
        ("a blank", " ".to_owned()),
    ]
}
