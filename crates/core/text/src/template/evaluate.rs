//! Runs a template.

use std::borrow::Cow;

use serde_json::Value;

use super::format::plain;
use super::functions::{self, Trouble, is_true};
use super::parse::{Branch, Command, Node, Operand, OperandKind, Pipeline};
use super::{Context, Error, Field, Template, limits};

/// A template that stopped half way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Failure {
    /// What it had written until then.
    pub written: String,
    /// Why it stopped.
    pub error: Error,
}

type Datum<'v> = Cow<'v, Value>;

/// How a list of nodes ended.
#[derive(PartialEq)]
enum Flow {
    Done,
    Break,
    Continue,
}

pub(super) fn execute(
    template: &Template,
    data: &Value,
    context: &Context<'_>,
) -> Result<String, Failure> {
    let mut run = Run {
        template,
        context,
        root: data,
        name: &template.name,
        variables: vec![("$".to_owned(), Cow::Borrowed(data))],
        out: String::new(),
        steps: 0,
        depth: 0,
        levels: 0,
    };
    match run.list(&template.main, &Cow::Borrowed(data)) {
        Ok(_) => Ok(run.out),
        Err(error) => Err(Failure { written: run.out, error }),
    }
}

struct Run<'v, 't> {
    template: &'t Template,
    context: &'t Context<'t>,
    root: &'v Value,
    name: &'t str,
    variables: Vec<(String, Datum<'v>)>,
    out: String,
    steps: usize,
    /// Templates within each other.
    depth: usize,
    /// Bodies within each other, of templates and of control structures.
    levels: usize,
}

impl<'v, 't> Run<'v, 't> {
    /// An error at a place, with the piece of template there.
    fn fail<T>(&self, at: usize, piece: &str, message: impl Into<String>) -> Result<T, Error> {
        let before = self.template.text.get(..at).unwrap_or(&self.template.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rfind('\n').map_or(before.len(), |nl| before.len() - nl - 1);
        let piece = match piece.char_indices().nth(20) {
            Some((end, _)) => format!("{}...", &piece[..end]),
            None => piece.to_owned(),
        };
        let (template, name) = (&self.template.name, super::go_quote(self.name));
        let message = message.into();
        Err(Error(format!("{template}:{line}:{column}: executing {name} at <{piece}>: {message}")))
    }

    fn step(&mut self, at: usize) -> Result<(), Error> {
        self.steps += 1;
        if self.steps > limits::STEPS {
            return self.fail(
                at,
                "",
                format!("the template takes more than {} steps", limits::STEPS),
            );
        }
        if self.out.len() > limits::OUTPUT {
            let most = limits::OUTPUT;
            return self.fail(at, "", format!("the template writes more than {most} bytes"));
        }
        Ok(())
    }

    /// Values of one's own cost by their size: they are built, and copied at each use.
    fn charge(&mut self, at: usize, value: &Datum<'_>) -> Result<(), Error> {
        if let Cow::Owned(value) = value {
            self.steps += match value {
                Value::String(text) => text.len() / 16,
                Value::Array(items) => items.len(),
                Value::Object(fields) => fields.len(),
                _ => 0,
            };
        }
        self.step(at)
    }

    fn list(&mut self, nodes: &'t [Node], dot: &Datum<'v>) -> Result<Flow, Error> {
        if self.levels >= limits::LEVELS {
            let most = limits::LEVELS;
            return self.fail(0, "", format!("the template nests more than {most} levels deep"));
        }
        self.levels += 1;
        let flow = self.nodes(nodes, dot);
        self.levels -= 1;
        flow
    }

    fn nodes(&mut self, nodes: &'t [Node], dot: &Datum<'v>) -> Result<Flow, Error> {
        for node in nodes {
            self.step(0)?;
            let flow = match node {
                Node::Text(text) => {
                    self.out.push_str(text);
                    Flow::Done
                }
                Node::Action(pipeline) => {
                    let value = self.pipeline(pipeline, dot)?;
                    if pipeline.variables.is_empty() {
                        self.print(value.as_deref());
                    }
                    Flow::Done
                }
                Node::If(branch) => self.scoped(|run| {
                    let value = run.pipeline(&branch.condition, dot)?;
                    let truth = value.as_deref().is_some_and(is_true);
                    run.list(if truth { &branch.body } else { &branch.otherwise }, dot)
                })?,
                Node::With(branch) => self.scoped(|run| {
                    let value = run.pipeline(&branch.condition, dot)?;
                    match value.filter(|value| is_true(value)) {
                        Some(value) => run.list(&branch.body, &value),
                        None => run.list(&branch.otherwise, dot),
                    }
                })?,
                Node::Range(branch) => self.scoped(|run| run.range(branch, dot))?,
                Node::Template { at, name, data } => {
                    self.invoke(*at, name, data.as_ref(), dot)?;
                    Flow::Done
                }
                Node::Break => Flow::Break,
                Node::Continue => Flow::Continue,
            };
            if flow != Flow::Done {
                return Ok(flow);
            }
        }
        Ok(Flow::Done)
    }

    /// Runs something whose variables end with it.
    fn scoped<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let variables = self.variables.len();
        let result = run(self);
        self.variables.truncate(variables);
        result
    }

    fn print(&mut self, value: Option<&Value>) {
        match value {
            None | Some(Value::Null) => self.out.push_str("<no value>"),
            Some(Value::String(text)) => self.out.push_str(text),
            Some(value) => self.out.push_str(&plain(value)),
        }
    }

    fn invoke(
        &mut self,
        at: usize,
        name: &'t str,
        data: Option<&'t Pipeline>,
        dot: &Datum<'v>,
    ) -> Result<(), Error> {
        let Some(nodes) = self.template.defined.get(name) else {
            let quoted = super::go_quote(name);
            let piece = format!("{{{{template {quoted}}}}}");
            return self.fail(at, &piece, format!("template {quoted} not defined"));
        };
        if self.depth >= limits::DEPTH {
            let most = limits::DEPTH;
            return self.fail(at, name, format!("exceeded maximum template depth ({most})"));
        }
        let data = match data {
            Some(data) => self.pipeline(data, dot)?.unwrap_or(Cow::Owned(Value::Null)),
            None => Cow::Owned(Value::Null),
        };
        let variables = std::mem::replace(&mut self.variables, vec![("$".into(), data.clone())]);
        let caller = std::mem::replace(&mut self.name, name);
        self.depth += 1;
        self.list(nodes, &data)?;
        self.depth -= 1;
        self.name = caller;
        self.variables = variables;
        Ok(())
    }

    fn range(&mut self, branch: &'t Branch, dot: &Datum<'v>) -> Result<Flow, Error> {
        let pipeline = &branch.condition;
        let value = self.commands(pipeline, dot)?.unwrap_or(Cow::Owned(Value::Null));
        let shown =
            if value.is_string() || value.is_boolean() { plain(&value) } else { "value".into() };
        let Some(entries) = entries(value) else {
            let message = format!("range can't iterate over {shown}");
            return self.fail(pipeline.at, &pipeline.to_string(), message);
        };
        let mut entries = entries.peekable();
        if entries.peek().is_none() {
            return self.list(&branch.otherwise, dot);
        }
        let mark = self.variables.len();
        for (key, item) in entries {
            self.step(pipeline.at)?;
            match pipeline.variables.as_slice() {
                [] => {}
                [one] => self.set(one, item.clone(), pipeline.assigns),
                [first, second, ..] => {
                    self.set(first, Cow::Owned(key), pipeline.assigns);
                    self.set(second, item.clone(), pipeline.assigns);
                }
            }
            let flow = self.list(&branch.body, &item)?;
            self.variables.truncate(mark);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Done)
    }

    fn set(&mut self, name: &str, value: Datum<'v>, assigns: bool) {
        let found = self.variables.iter_mut().rev().find(|(known, _)| known == name);
        match found {
            Some((_, slot)) if assigns => *slot = value,
            _ => self.variables.push((name.to_owned(), value)),
        }
    }

    /// The value of a pipeline, which also goes to its variables. `None`: no value.
    fn pipeline(
        &mut self,
        pipeline: &'t Pipeline,
        dot: &Datum<'v>,
    ) -> Result<Option<Datum<'v>>, Error> {
        let value = self.commands(pipeline, dot)?;
        for name in &pipeline.variables {
            let value = value.clone().unwrap_or(Cow::Owned(Value::Null));
            self.set(name, value, pipeline.assigns);
        }
        Ok(value)
    }

    fn commands(
        &mut self,
        pipeline: &'t Pipeline,
        dot: &Datum<'v>,
    ) -> Result<Option<Datum<'v>>, Error> {
        let mut value = None;
        for (stage, command) in pipeline.commands.iter().enumerate() {
            let piped = (stage > 0).then(|| value.take().unwrap_or(Cow::Owned(Value::Null)));
            value = self.command(command, dot, piped)?;
        }
        Ok(value)
    }

    fn command(
        &mut self,
        command: &'t Command,
        dot: &Datum<'v>,
        piped: Option<Datum<'v>>,
    ) -> Result<Option<Datum<'v>>, Error> {
        self.step(command.at)?;
        let Some((first, arguments)) = command.operands.split_first() else { return Ok(None) };
        if let OperandKind::Function(name) = &first.kind {
            return self.call(command, name, arguments, dot, piped).map(Some);
        }
        if let OperandKind::Nil = first.kind {
            return self.fail(first.at, "nil", "nil is not a command");
        }
        if !arguments.is_empty() || piped.is_some() {
            let piece = first.to_string();
            let message = match &first.kind {
                OperandKind::Field(fields) | OperandKind::Variable(_, fields)
                    if !fields.is_empty() =>
                {
                    let last = fields.last().map_or("", String::as_str);
                    format!("{last} is not a method but has arguments")
                }
                _ => format!("can't give argument to non-function {piece}"),
            };
            return self.fail(first.at, &piece, message);
        }
        self.operand(first, dot)
    }

    fn call(
        &mut self,
        command: &'t Command,
        name: &str,
        arguments: &'t [Operand],
        dot: &Datum<'v>,
        piped: Option<Datum<'v>>,
    ) -> Result<Datum<'v>, Error> {
        if matches!(name, "and" | "or") {
            let mut last = None;
            for argument in arguments {
                let value = self.operand(argument, dot)?.unwrap_or(Cow::Owned(Value::Null));
                if is_true(&value) == (name == "or") {
                    return Ok(value);
                }
                last = Some(value);
            }
            return match piped.or(last) {
                Some(value) => Ok(value),
                None => {
                    let message = format!("wrong number of args for {name}: want at least 1 got 0");
                    self.fail(command.at, &command.to_string(), message)
                }
            };
        }
        let mut values = Vec::with_capacity(arguments.len() + 1);
        for argument in arguments {
            values.push(self.operand(argument, dot)?.unwrap_or(Cow::Owned(Value::Null)));
        }
        values.extend(piped);
        let result = if functions::is_built_in(name) {
            functions::call(name, &values.iter().map(|value| &**value).collect::<Vec<_>>())
        } else {
            let values: Vec<Value> = values.into_iter().map(Cow::into_owned).collect();
            (self.context.call)(name, &values).map_err(Trouble::Refused)
        };
        match result {
            Ok(value) => {
                let value = Cow::Owned(value);
                self.charge(command.at, &value)?;
                Ok(value)
            }
            Err(Trouble::Call(message)) => self.fail(command.at, name, message),
            Err(Trouble::Refused(message)) => {
                let message = format!("error calling {name}: {message}");
                self.fail(command.at, &command.to_string(), message)
            }
        }
    }

    fn operand(
        &mut self,
        operand: &'t Operand,
        dot: &Datum<'v>,
    ) -> Result<Option<Datum<'v>>, Error> {
        self.step(operand.at)?;
        match &operand.kind {
            OperandKind::Dot => {
                self.charge(operand.at, dot)?;
                Ok(Some(dot.clone()))
            }
            OperandKind::Nil => Ok(None),
            OperandKind::Constant(value) => Ok(Some(Cow::Owned(value.clone()))),
            OperandKind::Quoted(text) => {
                let value = Cow::Owned(Value::String(text.clone()));
                self.charge(operand.at, &value)?;
                Ok(Some(value))
            }
            OperandKind::Field(fields) => self.fields(operand, dot.clone(), fields),
            OperandKind::Variable(name, fields) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                match found.map(|(_, value)| value.clone()) {
                    Some(value) => {
                        self.charge(operand.at, &value)?;
                        self.fields(operand, value, fields)
                    }
                    None => self.fail(operand.at, name, format!("undefined variable: {name}")),
                }
            }
            OperandKind::Function(name) => {
                let command = Command { at: operand.at, operands: Vec::new() };
                self.call_without_arguments(&command, name)
            }
            OperandKind::Nested(pipeline, fields) => {
                let value = self.pipeline(pipeline, dot)?.unwrap_or(Cow::Owned(Value::Null));
                self.fields(operand, value, fields)
            }
        }
    }

    /// A function as an argument of another is called with nothing.
    fn call_without_arguments(
        &self,
        command: &Command,
        name: &str,
    ) -> Result<Option<Datum<'v>>, Error> {
        let result = if functions::is_built_in(name) {
            functions::call(name, &[])
        } else {
            (self.context.call)(name, &[]).map_err(Trouble::Refused)
        };
        match result {
            Ok(value) => Ok(Some(Cow::Owned(value))),
            Err(Trouble::Call(message) | Trouble::Refused(message)) => {
                self.fail(command.at, name, message)
            }
        }
    }

    fn fields(
        &self,
        operand: &Operand,
        value: Datum<'v>,
        names: &[String],
    ) -> Result<Option<Datum<'v>>, Error> {
        let mut value = value;
        for name in names {
            if value.is_null() {
                return Ok(None);
            }
            let found = match &value {
                Cow::Borrowed(whole) => match (self.context.field)(whole, name) {
                    Field::Value(part) => Some(Cow::Borrowed(part)),
                    Field::Unset => None,
                    Field::Unknown => return self.unknown(operand, name, whole),
                },
                Cow::Owned(whole) => match (self.context.field)(whole, name) {
                    Field::Value(part) => Some(Cow::Owned(part.clone())),
                    Field::Unset => None,
                    Field::Unknown => return self.unknown(operand, name, whole),
                },
            };
            match found {
                Some(part) => value = part,
                None => return Ok(None),
            }
        }
        Ok(Some(value))
    }

    fn unknown<T>(&self, operand: &Operand, name: &str, whole: &Value) -> Result<T, Error> {
        let type_name =
            if std::ptr::eq(whole, self.root) { self.context.root_type } else { "interface {}" };
        let message = format!("can't evaluate field {name} in type {type_name}");
        self.fail(operand.at, &operand.to_string(), message)
    }
}

type Entries<'v> = Box<dyn Iterator<Item = (Value, Datum<'v>)> + 'v>;

/// What a `range` goes through: keys and items. `None` if there is nothing to go through.
fn entries<'v>(value: Datum<'v>) -> Option<Entries<'v>> {
    let numbered = |(at, item): (usize, Datum<'v>)| (Value::from(at), item);
    let named = |(name, item): (String, Datum<'v>)| (Value::String(name), item);
    Some(match value {
        Cow::Borrowed(Value::Array(items)) => {
            Box::new(items.iter().map(Cow::Borrowed).enumerate().map(numbered))
        }
        Cow::Borrowed(Value::Object(fields)) => {
            let mut fields: Vec<(String, Datum<'v>)> =
                fields.iter().map(|(name, item)| (name.clone(), Cow::Borrowed(item))).collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Box::new(fields.into_iter().map(named))
        }
        other => match other.into_owned() {
            Value::Null => Box::new(std::iter::empty()),
            Value::Array(items) => {
                Box::new(items.into_iter().map(Cow::Owned).enumerate().map(numbered))
            }
            Value::Object(fields) => {
                let mut fields: Vec<(String, Datum<'v>)> =
                    fields.into_iter().map(|(name, item)| (name, Cow::Owned(item))).collect();
                fields.sort_by(|a, b| a.0.cmp(&b.0));
                Box::new(fields.into_iter().map(named))
            }
            Value::Number(number) => {
                let count = crate::number::as_integer(&number)?.max(0);
                let count = u64::try_from(count).ok()?;
                Box::new((0..count).map(|at| (Value::from(at), Cow::Owned(Value::from(at)))))
            }
            _ => return None,
        },
    })
}
