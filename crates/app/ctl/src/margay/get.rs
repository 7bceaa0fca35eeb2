//! `margay get`: tables that fit, and documents that can be applied again.

use std::io::{self, Write};
use std::ops::ControlFlow;

use api::{Kind, Problem, Stage};
use serde_json::Value;
use store::Store;
use store::resources::{Error, Name, Quarantined, Stored};

use super::arguments::Get;
use super::failure::{Failure, next_step};
use super::follow::follow;
use super::read_documents::{Input, files, once_each};
use super::realised::Reached;
use super::selection::Selection;
use super::session::{Session, kind_of, name_of, spoken};
use super::terminal::{Mark, Terminal, printable, printable_line};
use super::wait::is_any_policy;
use crate::columns::{self, Column};
use crate::output::{self, Format, Headings, ListWriter, Shown};

/// Runs the command; true when everything asked for was there and readable.
pub(crate) fn run(session: &Session, get: &Get) -> Result<bool, Failure> {
    let is_fine = show(session, get)?;
    let foreign = session.store.foreign_keys();
    for key in &foreign {
        let mark = session.terminal.mark(Mark::Broken);
        complain(&format!("{mark} {key} is stored but cannot be used: the key is not UTF-8"))?;
    }
    Ok(is_fine && foreign.is_empty())
}

fn show(session: &Session, get: &Get) -> Result<bool, Failure> {
    let with_namespace = get.all_namespaces || get.meant.namespace.is_some();
    let format = Format::parse(&get.output, with_namespace).map_err(unknown_format)?;
    let Some(typed) = &get.meant.kind else {
        let input = Input::read(&files(
            &get.meant.filename,
            get.meant.recursive,
            get.meant.namespace.as_deref(),
        ))?;
        let names = input.objects.iter().map(|given| given.name.clone());
        return show_named(session, get, &format, names.collect());
    };
    let kind = kind_of(typed)?;
    let namespace = namespace_of(kind, get);
    let selection = Selection::read(get.selector.as_deref())?;
    if get.watch {
        return follow(session, get, &Asked { kind, namespace, selection });
    }
    if !get.meant.names.is_empty() {
        let names = if get.all_namespaces && kind.is_namespaced() {
            names_anywhere(session, kind, &get.meant.names)?
        } else {
            let namespace = get.meant.namespace.as_deref();
            get.meant.names.iter().map(|name| name_of(kind, namespace, name)).collect()
        };
        return show_named(session, get, &format, names);
    }
    say_if_absent(session, &format)?;
    let asked = Asked { kind, namespace, selection };
    match &format {
        Format::Table(headings) => {
            let is_fine = show_table(session, &asked, headings)?;
            if is_any_policy(typed) {
                say_of_global(session)?;
            }
            Ok(is_fine)
        }
        _ => stream(session, get, &asked, &format),
    }
}

/// Who asks for policies may mean those of all namespaces too.
fn say_of_global(session: &Session) -> Result<(), Failure> {
    let mut n = 0;
    let listed = session.resources.each_part(Kind::GlobalNetworkPolicy, None, Some(&[]), |_| {
        n += 1;
        ControlFlow::Continue(())
    });
    listed.map_err(Failure::from)?;
    if n > 0 {
        let are = if n == 1 { "policy is" } else { "policies are" };
        complain(&format!("note: {n} more {are} global: margay get gnp -o wide"))?;
    }
    Ok(())
}

/// An empty table has two meanings; the other one is that nothing was ever written.
fn say_if_absent(session: &Session, format: &Format) -> Result<(), Failure> {
    match &session.store {
        Store::Sqlite(store) if store.is_absent() && matches!(format, Format::Table(_)) => {
            Ok(complain(&format!("there is no store yet at {}", store.path().display()))?)
        }
        _ => Ok(()),
    }
}

/// Which objects of a kind are asked for.
pub(super) struct Asked<'g> {
    pub(super) kind: Kind,
    pub(super) namespace: Option<&'g str>,
    pub(super) selection: Selection,
}

/// The objects of these names in all namespaces; a name found nowhere stays one of `default`.
fn names_anywhere(session: &Session, kind: Kind, names: &[String]) -> Result<Vec<Name>, Failure> {
    let mut found = Vec::new();
    let listed = session.resources.each(kind, None, |one| {
        let name = one.map_or_else(|bad| bad.name, |stored| Some(stored.name));
        found.extend(name.filter(|name| names.contains(&name.name)));
        ControlFlow::Continue(())
    });
    listed.map_err(Failure::from)?;
    let missing = names.iter().filter(|name| !found.iter().any(|known| known.name == **name));
    let missing: Vec<Name> = missing.map(|name| name_of(kind, None, name)).collect();
    found.extend(missing);
    Ok(found)
}

fn namespace_of(kind: Kind, get: &Get) -> Option<&str> {
    let one = get.meant.namespace.as_deref().unwrap_or(super::session::DEFAULT_NAMESPACE);
    (kind.is_namespaced() && !get.all_namespaces).then_some(one)
}

fn show_named(
    session: &Session,
    get: &Get,
    format: &Format,
    names: Vec<Name>,
) -> Result<bool, Failure> {
    let mut shown = Vec::new();
    let mut missing = Vec::new();
    let mut quarantined = Vec::new();
    let n_asked = names.len();
    for name in names {
        match session.resources.get(&name) {
            Ok(stored) => {
                // Somebody who asks for it by name wants to see what is wrong with it.
                quarantined.extend(stored.clone().judged().err());
                let kind = stored.name.kind;
                shown.push(Shown::Object(kind, exported(stored, get.export)));
            }
            Err(error @ Error::Store(_)) => return Err(error.into()),
            Err(Error::Unreadable(bad)) => quarantined.push(bad),
            Err(error) => missing.push(error),
        }
    }
    let mut as_number = || session.as_number();
    let mut out = Vec::new();
    let mut left_out = Vec::new();
    if let (Format::Table(headings), Some(Shown::Object(kind, _))) = (format, shown.first()) {
        let mut table = Table::of_now(session, *kind, headings)?;
        for one in &shown {
            let Shown::Object(kind, object) = one else { continue };
            if *kind != table.kind {
                let (text, line) = table.render(session.terminal);
                out.extend(text.into_bytes());
                left_out.extend(line);
                table = Table::of_now(session, *kind, headings)?;
            }
            table.add(object, &mut as_number);
        }
        let (text, line) = table.render(session.terminal);
        out.extend(text.into_bytes());
        left_out.extend(line);
    } else if !shown.is_empty() {
        output::print(format, &shown, &mut as_number, &mut out).map_err(unprintable)?;
        out.extend_from_slice(line_end(format));
    }
    session.terminal.page(&String::from_utf8_lossy(&out))?;
    left_out.iter().try_for_each(|line| complain(line))?;
    let is_fine = name_quarantined(session, &quarantined)?;
    if missing.is_empty() {
        return Ok(is_fine);
    }
    if n_asked == 1
        && let Some(only) = missing.pop()
    {
        return Err(only.into());
    }
    let help = missing.first().and_then(next_step);
    let first = Failure::new(format!("{} of {n_asked} are not there", missing.len())).help_if(help);
    Err(missing.iter().map(ToString::to_string).fold(first, Failure::detail))
}

/// The object, without what only this cluster knows where that is asked for.
pub(super) fn exported(stored: Stored, export: bool) -> Value {
    let mut object = stored.object;
    if export && let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            metadata.shift_remove(field);
        }
    }
    object
}

/// A table of ours: the same columns as calicoctl's, in a form that fits.
pub(super) struct Table {
    kind: Kind,
    columns: Vec<&'static Column>,
    pub(super) rows: Vec<Vec<String>>,
    /// How far the nodes have come, where that is a column.
    reached: Option<Reached>,
}

impl Table {
    pub(super) fn new(kind: Kind, headings: &Headings) -> Result<Self, Failure> {
        let chosen = match headings {
            Headings::Default { wide, namespace } => {
                columns::choose(kind, columns::default_headings(kind, *wide), *namespace)
            }
            Headings::Custom(headings) => {
                let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
                columns::choose(kind, &headings, false)
            }
        };
        let columns = chosen.map_err(|unknown| unknown_column(&unknown.0))?;
        Ok(Self { kind, columns, rows: Vec::new(), reached: None })
    }

    /// The same, with how many nodes have carried a policy out, where nodes tell and room is asked
    /// for.
    fn of_now(session: &Session, kind: Kind, headings: &Headings) -> Result<Self, Failure> {
        let table = Self::new(kind, headings)?;
        let is_policy = matches!(kind, Kind::NetworkPolicy | Kind::GlobalNetworkPolicy);
        let is_wide = matches!(headings, Headings::Default { wide: true, .. });
        let reached = (is_policy && is_wide).then(|| Reached::now(session)).transpose()?;
        Ok(Self { reached: reached.filter(Reached::is_told), ..table })
    }

    pub(super) fn add(&mut self, object: &Value, as_number: &mut dyn FnMut() -> String) {
        let cells = self.columns.iter().map(|column| match column.cell(object, as_number) {
            // Calico prints Go's word for nothing; a dash is nothing in any language.
            cell if cell == "<nil>" => "-".to_owned(),
            // Nor do people write a million as 1e+06.
            cell if cell.contains("e+") && cell.parse::<f64>().is_ok() => {
                cell.parse::<f64>().map_or(cell, |number| number.to_string())
            }
            cell => printable(&cell).into_owned(),
        });
        let reached = self.reached.as_ref().map(|reached| reached.cell(self.kind, object));
        let cells = cells.chain(reached).collect();
        self.rows.push(cells);
    }

    pub(super) fn headings(&self) -> Vec<String> {
        let reached = self.reached.as_ref().map(|_| "REALISED");
        self.columns.iter().map(|column| column.heading).chain(reached).map(str::to_owned).collect()
    }

    fn render(&self, terminal: Terminal) -> (String, Option<String>) {
        text::table::render(&self.headings(), &self.rows, terminal.width)
    }
}

fn show_table(session: &Session, asked: &Asked<'_>, headings: &Headings) -> Result<bool, Failure> {
    let &Asked { kind, namespace, ref selection } = asked;
    let mut table = Table::of_now(session, kind, headings)?;
    let mut quarantined = Vec::new();
    let mut as_number = || session.as_number();
    let fields: Vec<&str> = table.columns.iter().flat_map(|it| it.spec_fields()).collect();
    let listed = session.resources.each_judged(kind, namespace, Some(&fields), |one| {
        match one {
            Ok(stored) if !selection.takes(&stored.object) => {}
            Ok(stored) => table.add(&stored.object, &mut as_number),
            Err(bad) => quarantined.push(bad),
        }
        ControlFlow::Continue(())
    });
    listed.map_err(Failure::from)?;
    if table.rows.is_empty() && quarantined.is_empty() {
        let place = namespace.map_or(String::new(), |name| format!(" in namespace {name}"));
        let others = if namespace.is_some() { "; -A shows those of all" } else { "" };
        complain(&format!("no {}{place}{selection}{others}", kind.plural()))?;
        return Ok(true);
    }
    let (text, left_out) = table.render(session.terminal);
    session.terminal.page(&text)?;
    left_out.map_or(Ok(()), |line| complain(&line))?;
    name_quarantined(session, &quarantined)
}

fn stream(
    session: &Session,
    get: &Get,
    asked: &Asked<'_>,
    format: &Format,
) -> Result<bool, Failure> {
    let quarantined = if session.terminal.width.is_some() {
        // A person reads it: whether it needs a pager shows when it is complete.
        let mut text = Vec::new();
        let quarantined = write_list(session, get, asked, format, &mut text)?;
        session.terminal.page(&String::from_utf8_lossy(&text))?;
        quarantined
    } else {
        let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let quarantined = write_list(session, get, asked, format, &mut out)?;
        out.flush()?;
        quarantined
    };
    name_quarantined(session, &quarantined)
}

/// Writes the objects asked for as they come, and returns those that cannot be used.
fn write_list(
    session: &Session,
    get: &Get,
    asked: &Asked<'_>,
    format: &Format,
    out: &mut dyn Write,
) -> Result<Vec<Quarantined>, Failure> {
    let &Asked { kind, namespace, ref selection } = asked;
    let mut as_number = || session.as_number();
    let mut quarantined = Vec::new();
    let writer = ListWriter::new(format, kind, &mut *out).map_err(unprintable)?;
    let Some(mut writer) = writer else {
        let listing = session.resources.list(kind, namespace);
        let listing = listing.map_err(Failure::from)?;
        quarantined.extend(listing.quarantined);
        let judged = listing.objects.into_iter().map(Stored::judged);
        let good = judged.filter_map(|one| one.map_err(|bad| quarantined.push(bad)).ok());
        let good = good.filter(|stored| selection.takes(&stored.object));
        let objects = good.map(|stored| exported(stored, get.export)).collect();
        let shown = [Shown::List(kind, objects, listing.revision)];
        output::print(format, &shown, &mut as_number, out).map_err(unprintable)?;
        return Ok(quarantined);
    };
    let mut written = Ok(());
    let fields = writer.spec_fields();
    let listed = session.resources.each_judged(kind, namespace, fields.as_deref(), |one| {
        match one {
            Ok(stored) if !selection.takes(&stored.object) => {}
            Ok(stored) => {
                written = writer.item(exported(stored, get.export), &mut as_number);
            }
            Err(bad) => quarantined.push(bad),
        }
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    written?;
    let revision = listed.map_err(Failure::from)?;
    writer.finish(revision)?;
    out.write_all(line_end(format))?;
    Ok(quarantined)
}

/// Bad objects never hide the good ones, and are never hidden themselves.
fn name_quarantined(session: &Session, quarantined: &[Quarantined]) -> Result<bool, Failure> {
    for bad in quarantined {
        complain(&quarantine_line(session.terminal, bad))?;
    }
    Ok(quarantined.is_empty())
}

pub(super) fn quarantine_line(terminal: Terminal, bad: &Quarantined) -> String {
    let name = bad.name.as_ref().map_or_else(|| bad.key.clone(), spoken);
    let problems: Vec<String> =
        once_each(&bad.problems).into_iter().map(ToString::to_string).collect();
    let mark = terminal.mark(Mark::Broken);
    let problems = problems.join("; ");
    let (spoken, problems) = (printable_line(&name), printable_line(&problems));
    let line = format!("{mark} {spoken} is stored but cannot be used: {problems}");
    match &bad.name {
        Some(name) => format!("{line}\n  fix: {}", fix(name, &bad.problems)),
        None => line,
    }
}

/// A word that a shell takes as it is, whatever somebody wrote into the datastore.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:".contains(&byte);
    match word.bytes().all(is_plain) && !word.starts_with('-') {
        true => word.to_owned(),
        false => format!("'{}'", printable_line(word).replace('\'', "'\\''")),
    }
}

/// An object that breaks a rule can be put right; one that cannot even be read must go.
fn fix(name: &Name, problems: &[Problem]) -> String {
    let mut words = format!("{} {}", name.kind.plural(), quoted(&name.name));
    if !name.namespace.is_empty() {
        words += &format!(" -n {}", quoted(&name.namespace));
    }
    match problems.iter().any(|problem| problem.stage == Stage::Decode) {
        true => format!("margay delete {words}"),
        false => {
            format!("margay get {words} -o yaml >bad.yaml, correct it, margay apply -f bad.yaml")
        }
    }
}

pub(crate) fn complain(line: &str) -> io::Result<()> {
    writeln!(io::stderr().lock(), "{line}")
}

/// calicoctl ends JSON without a line end, and the prompt then sticks to it.
fn line_end(format: &Format) -> &'static [u8] {
    if matches!(format, Format::Json) { b"\n" } else { b"" }
}

pub(super) fn unknown_format(why: String) -> Failure {
    let help = match why.split('\'').nth(1).unwrap_or_default() {
        "name" => "-o custom-columns=NAME",
        typed if typed.starts_with("jsonpath") => {
            "-o json | jq .spec, or -o go-template='{{range .}}{{.Spec}}{{end}}'"
        }
        _ => "-o ps, wide, yaml, json, custom-columns=A,B, go-template=…",
    };
    Failure::new(format!("{why}, -o")).help(help)
}

pub(super) fn unprintable(error: output::Error) -> Failure {
    match error {
        output::Error::Write(error) => error.into(),
        output::Error::Format(why) if why.starts_with("unknown heading") => unknown_column(&why),
        output::Error::Format(why) => {
            Failure::new("the template cannot be used, -o go-template").why(why).help(
                "-o go-template='{{range .}}{{range .Items}}{{.ObjectMeta.Name}} {{end}}{{end}}'",
            )
        }
    }
}

/// Calico's sentence, as an error of ours.
fn unknown_column(sentence: &str) -> Failure {
    let (what, known) = sentence.split_once(", valid values are: ").unwrap_or((sentence, ""));
    let failure = Failure::new(format!("{what}, -o custom-columns"));
    if known.is_empty() { failure } else { failure.help(format!("there are: {known}")) }
}
