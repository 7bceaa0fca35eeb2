//! How fast an object becomes a value that can be worked with.

use std::hint::black_box;

use api::Kind;
use api::schema::{Mode, decode, decode_regular, object_for};
use model::resource::Resource;
use model::validate::validate;
use serde_json::Value;

use crate::process::cpu_seconds;
use crate::report::Figure;
use crate::samples;

const COUNT: usize = 2000;
const REPEAT: usize = 7;
const KIND: Kind = Kind::GlobalNetworkPolicy;

pub(crate) fn measure() -> anyhow::Result<Vec<Figure>> {
    let values: Vec<Value> = (0..COUNT).map(samples::policy).collect();
    let jsons: Vec<String> = values.iter().map(text::json::to_string).collect();
    let yamls: Vec<String> = values.iter().map(text::yaml::to_string).collect();
    let table = object_for(KIND);
    let decoded: Vec<Value> =
        values.iter().map(|value| decode(table, value.clone(), Mode::Stored).0).collect();
    // As they are stored: in the order of the table.
    let stored: Vec<String> = decoded.iter().map(text::json::to_string).collect();
    for text in &stored {
        let short = decode_regular(table, text.as_bytes(), None);
        anyhow::ensure!(short.is_some(), "the sample takes the long way: {text}");
    }
    for value in &decoded {
        let read = Resource::read(KIND, value);
        anyhow::ensure!(read.is_ok(), "the sample is not valid: {:?}", read.err());
    }
    let mut figures = Vec::new();
    let mut rate = |what: &str, work: &mut dyn FnMut(usize)| {
        let seconds = cpu_seconds(REPEAT, || (0..COUNT).for_each(&mut *work));
        figures.push(Figure::more(what, "per CPU s", COUNT as f64 / seconds));
    };
    rate("policy read from JSON", &mut |at| {
        let _ = black_box(text::json::parse(jsons[at].as_bytes()));
    });
    rate("policy read from YAML", &mut |at| {
        let _ = black_box(text::yaml::parse(yamls[at].as_bytes()));
    });
    rate("stored policy decoded", &mut |at| {
        black_box(decode_regular(table, stored[at].as_bytes(), None));
    });
    rate("stored policy judged, its name kept", &mut |at| {
        black_box(decode_regular(table, stored[at].as_bytes(), Some(&[])));
    });
    rate("policy from JSON in any order decoded", &mut |at| {
        let value = text::json::parse(jsons[at].as_bytes()).unwrap_or_default();
        black_box(decode(table, value, Mode::Stored));
    });
    rate("policy validated", &mut |at| {
        black_box(validate(KIND, &decoded[at]));
    });
    rate("policy from JSON decoded, validated, typed", &mut |at| {
        let value = text::json::parse(jsons[at].as_bytes()).unwrap_or_default();
        let _ = black_box(Resource::read(KIND, &decode(table, value, Mode::Stored).0));
    });
    rate("policy written as YAML", &mut |at| {
        black_box(text::yaml::to_string(&decoded[at]));
    });
    rate("policy written as JSON", &mut |at| {
        black_box(text::json::to_string_indented(&decoded[at]));
    });
    Ok(figures)
}
