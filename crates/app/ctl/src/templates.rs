//! Go templates over results, as `get -o go-template=…` takes them.

use std::io::Write;

use serde_json::Value;
use text::template::{Context, Template};

use crate::output::{AsNumber, Error, Shown};

/// The function that gives a setting of the cluster.
const CONFIG: &str = "config";

/// Prints results by a template. It sees a list of them, whatever their number.
pub(crate) fn print(
    text: &str,
    results: &[Shown],
    as_number: AsNumber<'_>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let functions = [CONFIG];
    let words = |error: &dyn std::fmt::Display| Error::Format(error.to_string());
    let template = Template::parse("get", text, &functions).map_err(|error| words(&error))?;
    // Asking costs a request, so only a template with the function's name in it asks.
    let as_number = if text.contains(CONFIG) { as_number() } else { String::new() };
    let call = move |name: &str, arguments: &[Value]| match (name, arguments) {
        (CONFIG, [Value::String(name)]) if name.eq_ignore_ascii_case("asnumber") => {
            Ok(Value::from(as_number.clone()))
        }
        (CONFIG, _) => Err("the only setting is asnumber".to_owned()),
        _ => Err(format!("there is no function {name}")),
    };
    let context = Context { functions: &functions, call: &call, ..Context::default() };
    let data: Value = results.iter().map(Shown::value).collect();
    let written = template.execute(&data, &context).map_err(|failure| words(&failure.error))?;
    Ok(out.write_all(written.as_bytes())?)
}
