//! Prints objects: tables, YAML, JSON and templates.
//!
//! A list of one kind is printed object by object as it is read ([`ListWriter`]), so that its
//! size costs time, not memory. Byte for byte the output is that of calicoctl.

use std::io::{self, Write};

use api::Kind;
use serde_json::{Value, json};

use crate::columns::{self, Column};
use crate::documents::API_VERSION;
use crate::table::Columns;
use host::bounded;

/// How to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML.
    Yaml,
    /// JSON, indented.
    Json,
    /// Tables.
    Table(Headings),
    /// A Go template over the list of results.
    Template(String),
    /// The same, from a file.
    TemplateFile(String),
}

/// Which columns tables have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Headings {
    /// Those of the kind.
    Default {
        /// All of them, not just the first few.
        wide: bool,
        /// The namespace in front, for kinds that have it.
        namespace: bool,
    },
    /// These.
    Custom(Vec<String>),
}

impl Format {
    /// Reads the value of `-o`.
    pub fn parse(text: &str, namespace: bool) -> Result<Self, String> {
        let table = |wide| Self::Table(Headings::Default { wide, namespace });
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let given = |what: &str| match value {
            "" => Err(format!("need to specify {what}")),
            value => Ok(value.to_owned()),
        };
        match (text, name) {
            ("yaml" | "yml", _) => Ok(Self::Yaml),
            ("json", _) => Ok(Self::Json),
            ("ps", _) => Ok(table(false)),
            ("wide", _) => Ok(table(true)),
            (_, "go-template") => given("a template").map(Self::Template),
            (_, "go-template-file") => given("a template file").map(Self::TemplateFile),
            (_, "custom-columns") => {
                let headings = given("at least one column")?;
                let headings = headings.split(',').map(str::to_owned).collect();
                Ok(Self::Table(Headings::Custom(headings)))
            }
            _ => Err(format!("unrecognized output format '{text}'")),
        }
    }
}

/// Something to print.
#[derive(Clone, Debug)]
pub enum Shown {
    /// An object.
    Object(Kind, Value),
    /// All objects of a kind, and the store's revision when they were read.
    List(Kind, Vec<Value>, i64),
}

impl Shown {
    fn kind(&self) -> Kind {
        match self {
            Self::Object(kind, _) | Self::List(kind, ..) => *kind,
        }
    }

    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Object(_, object) => object.clone(),
            Self::List(kind, objects, revision) => json!({
                "kind": kind.list_name(),
                "apiVersion": API_VERSION,
                "metadata": {"resourceVersion": revision.to_string()},
                "items": objects,
            }),
        }
    }
}

/// Why something could not be printed.
#[derive(Debug)]
pub enum Error {
    /// The output is gone.
    Write(io::Error),
    /// The format asks for something that there is not; Calico's words.
    Format(String),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// Gives the AS number of the cluster, when a column or template asks for it.
pub type AsNumber<'a> = &'a mut dyn FnMut() -> String;

/// Prints results, one object by itself, several as a list of them.
pub fn print(
    format: &Format,
    results: &[Shown],
    as_number: AsNumber<'_>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    match format {
        Format::Yaml => Ok(out.write_all(text::yaml::to_string(&whole(results)).as_bytes())?),
        Format::Json => {
            Ok(out.write_all(text::json::to_string_indented(&whole(results)).as_bytes())?)
        }
        Format::Table(headings) => {
            for shown in results {
                let mut table = Table::new(headings, shown.kind())?;
                match shown {
                    Shown::Object(_, object) => table.row(object, as_number),
                    Shown::List(_, objects, _) => {
                        objects.iter().for_each(|object| table.row(object, as_number));
                    }
                }
                table.write(out)?;
            }
            Ok(())
        }
        Format::Template(template) => crate::templates::print(template, results, as_number, out),
        Format::TemplateFile(file) => {
            let template = read_template(file).map_err(|error| {
                Error::Format(format!("open {file}: {}", text::plain_reason(&error)))
            })?;
            crate::templates::print(&template, results, as_number, out)
        }
    }
}

fn read_template(file: &str) -> io::Result<String> {
    let bytes = bounded::read_file(file.as_ref(), bounded::SETTINGS_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("the text is not UTF-8"))
}

/// One result is printed by itself, none as nothing, several as a list.
fn whole(results: &[Shown]) -> Value {
    match results {
        [] => Value::Null,
        [only] => only.value(),
        several => several.iter().map(Shown::value).collect(),
    }
}

/// A table that is being filled.
struct Table {
    columns: Vec<&'static Column>,
    text: Columns,
}

impl Table {
    fn new(headings: &Headings, kind: Kind) -> Result<Self, Error> {
        let columns = match headings {
            Headings::Default { wide, namespace } => {
                columns::choose(kind, columns::default_headings(kind, *wide), *namespace)
            }
            Headings::Custom(headings) => {
                let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
                columns::choose(kind, &headings, false)
            }
        };
        let columns = columns.map_err(|unknown| Error::Format(unknown.0))?;
        let mut text = Columns::default();
        columns.iter().for_each(|column| text.cell(column.heading));
        text.end_line();
        Ok(Self { columns, text })
    }

    fn row(&mut self, object: &Value, as_number: AsNumber<'_>) {
        for column in &self.columns {
            self.text.cell(&column.cell(object, as_number));
        }
        self.text.end_line();
    }

    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        self.text.write(out)?;
        writeln!(out)
    }
}

/// Prints the list of one kind as its objects come in.
pub struct ListWriter<'w> {
    kind: Kind,
    out: &'w mut dyn Write,
    form: Form,
    count: usize,
    buffer: String,
}

enum Form {
    Yaml,
    /// In JSON the revision stands before the items, and is known after them.
    Json(String),
    Table(Table),
}

impl<'w> ListWriter<'w> {
    /// Starts a list; `None` for formats that need all objects at once.
    pub fn new(format: &Format, kind: Kind, out: &'w mut dyn Write) -> Result<Option<Self>, Error> {
        let form = match format {
            Format::Yaml => Form::Yaml,
            Format::Json => Form::Json(String::new()),
            Format::Table(headings) => Form::Table(Table::new(headings, kind)?),
            Format::Template(_) | Format::TemplateFile(_) => return Ok(None),
        };
        Ok(Some(Self { kind, out, form, count: 0, buffer: String::new() }))
    }

    /// The fields of the spec that are printed; `None` for all.
    pub fn spec_fields(&self) -> Option<Vec<&'static str>> {
        let Form::Table(table) = &self.form else { return None };
        Some(table.columns.iter().flat_map(|column| column.spec_fields()).collect())
    }

    /// Adds an object.
    pub fn item(&mut self, object: Value, as_number: AsNumber<'_>) -> io::Result<()> {
        self.count += 1;
        match &mut self.form {
            Form::Yaml => {
                if self.count == 1 {
                    writeln!(self.out, "apiVersion: {API_VERSION}\nitems:")?;
                }
                self.buffer.clear();
                text::yaml::write(&mut self.buffer, &Value::Array(vec![object]));
                self.out.write_all(self.buffer.as_bytes())
            }
            Form::Json(items) => {
                self.buffer.clear();
                text::json::write_indented(&mut self.buffer, &object);
                items.push_str(if self.count == 1 { "" } else { "," });
                for line in self.buffer.lines() {
                    items.push_str("\n    ");
                    items.push_str(line);
                }
                Ok(())
            }
            Form::Table(table) => {
                table.row(&object, as_number);
                Ok(())
            }
        }
    }

    /// Ends the list.
    pub fn finish(self, revision: i64) -> io::Result<()> {
        let kind = self.kind.list_name();
        match self.form {
            Form::Yaml => {
                if self.count == 0 {
                    writeln!(self.out, "apiVersion: {API_VERSION}\nitems: []")?;
                }
                writeln!(self.out, "kind: {kind}\nmetadata:\n  resourceVersion: \"{revision}\"")
            }
            Form::Json(items) => {
                write!(
                    self.out,
                    "{{\n  \"kind\": \"{kind}\",\n  \"apiVersion\": \"{API_VERSION}\",\n  \
                     \"metadata\": {{\n    \"resourceVersion\": \"{revision}\"\n  }},\n  \
                     \"items\": [{items}{}]\n}}",
                    if items.is_empty() { "" } else { "\n  " }
                )
            }
            Form::Table(table) => table.write(self.out),
        }
    }
}

#[cfg(test)]
mod tests;
