//! Builds the tree of a template from its tokens.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::lex::{self, Complaint, Kind, Token};
use super::{Error, functions, limits};

/// A piece of a template.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Text(String),
    Action(Pipeline),
    If(Branch),
    Range(Branch),
    With(Branch),
    Template { at: usize, name: String, data: Option<Pipeline> },
    Break,
    Continue,
}

/// A condition and what depends on it.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    pub(super) condition: Pipeline,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// Commands, each fed by the one before; the result may go to variables.
#[derive(Debug, Clone)]
pub(super) struct Pipeline {
    pub(super) at: usize,
    pub(super) variables: Vec<String>,
    pub(super) assigns: bool,
    pub(super) commands: Vec<Command>,
}

/// A function with its arguments, or a single value.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) at: usize,
    pub(super) operands: Vec<Operand>,
}

#[derive(Debug, Clone)]
pub(super) struct Operand {
    pub(super) at: usize,
    pub(super) kind: OperandKind,
}

#[derive(Debug, Clone)]
pub(super) enum OperandKind {
    Dot,
    Nil,
    Constant(Value),
    Quoted(String),
    Field(Vec<String>),
    Variable(String, Vec<String>),
    Function(String),
    /// Fields of the result of a pipeline in parentheses.
    Nested(Box<Pipeline>, Vec<String>),
}

fn write_fields(out: &mut fmt::Formatter<'_>, fields: &[String]) -> fmt::Result {
    fields.iter().try_for_each(|field| write!(out, ".{field}"))
}

impl fmt::Display for Operand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            OperandKind::Dot => out.write_str("."),
            OperandKind::Nil => out.write_str("nil"),
            OperandKind::Constant(value) => write!(out, "{value}"),
            OperandKind::Quoted(text) => out.write_str(&super::go_quote(text)),
            OperandKind::Field(fields) => write_fields(out, fields),
            OperandKind::Function(name) => out.write_str(name),
            OperandKind::Variable(name, fields) => {
                out.write_str(name)?;
                write_fields(out, fields)
            }
            OperandKind::Nested(pipeline, fields) => {
                write!(out, "({pipeline})")?;
                write_fields(out, fields)
            }
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, operand) in self.operands.iter().enumerate() {
            write!(out, "{}{operand}", if at > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, command) in self.commands.iter().enumerate() {
            write!(out, "{}{command}", if at > 0 { " | " } else { "" })?;
        }
        Ok(())
    }
}

/// A number in Go's syntax.
pub(super) fn number(text: &str) -> Option<Value> {
    let bare = text.replace('_', "");
    if let Some(integer) = crate::number::parse_integer(&bare) {
        return Some(Value::Number(integer));
    }
    let float = crate::number::parse_float(&bare)?;
    serde_json::Number::from_f64(float).map(Value::Number)
}

type Parsed = (Vec<Node>, BTreeMap<String, Vec<Node>>);

pub(super) fn parse(name: &str, text: &str, functions: &[&str]) -> Result<Parsed, Error> {
    let locate = |Complaint { at, message }: Complaint| {
        let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
        Error(format!("{name}:{line}: {message}"))
    };
    let tokens = lex::tokens(text).map_err(locate)?;
    let mut parser = Parser {
        tokens,
        next: 0,
        functions,
        variables: vec!["$".to_owned()],
        defined: BTreeMap::new(),
        loops: 0,
        depth: 0,
    };
    parser.document().map_err(locate).map(|main| (main, parser.defined))
}

/// What ended a list of nodes.
enum Stop {
    End,
    Else,
    Text,
}

struct Parser<'p> {
    tokens: Vec<Token>,
    next: usize,
    functions: &'p [&'p str],
    variables: Vec<String>,
    defined: BTreeMap<String, Vec<Node>>,
    loops: usize,
    depth: usize,
}

type Result<T, E = Complaint> = std::result::Result<T, E>;

impl Parser<'_> {
    fn peek(&self) -> &Kind {
        self.tokens.get(self.next).map_or(&Kind::End, |token| &token.kind)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |token| token.at)
    }

    fn take(&mut self) -> Kind {
        let kind = self.peek().clone();
        self.next += 1;
        kind
    }

    fn skip_space(&mut self) {
        while *self.peek() == Kind::Space {
            self.next += 1;
        }
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Complaint { at: self.at(), message: message.into() })
    }

    fn unexpected<T>(&self, context: &str) -> Result<T> {
        let found = match self.peek() {
            Kind::End => "EOF".to_owned(),
            Kind::Word(word) => format!("<{word}>"),
            Kind::Close => "\"}}\"".to_owned(),
            Kind::Field(name) => format!("<.{name}>"),
            Kind::Variable(name) | Kind::Number(name) => super::go_quote(name),
            Kind::Quoted(text) => super::go_quote(&super::go_quote(text)),
            Kind::Pipe => "\"|\"".to_owned(),
            Kind::Comma => "\",\"".to_owned(),
            Kind::Declare => "\":=\"".to_owned(),
            Kind::Assign => "\"=\"".to_owned(),
            Kind::ParenOpen => "\"(\"".to_owned(),
            Kind::ParenClose => "\")\"".to_owned(),
            Kind::Dot => "<.>".to_owned(),
            _ => "token".to_owned(),
        };
        self.fail(format!("unexpected {found} in {context}"))
    }

    fn document(&mut self) -> Result<Vec<Node>> {
        match self.list()? {
            (nodes, Stop::Text) => Ok(nodes),
            (_, Stop::End) => self.fail("unexpected {{end}}"),
            (_, Stop::Else) => self.fail("unexpected {{else}}"),
        }
    }

    /// Nodes up to the end of the text, `{{end}}` or `{{else`.
    fn list(&mut self) -> Result<(Vec<Node>, Stop)> {
        self.depth += 1;
        if self.depth > limits::DEPTH {
            return self.fail(format!("control structures nest more than {} deep", limits::DEPTH));
        }
        let mut nodes = Vec::new();
        let stop = loop {
            match self.take() {
                Kind::Text(text) => nodes.push(Node::Text(text)),
                Kind::Open => {
                    self.skip_space();
                    match self.peek() {
                        Kind::Word(word) if word == "end" => {
                            self.next += 1;
                            self.close("end")?;
                            break Stop::End;
                        }
                        Kind::Word(word) if word == "else" => {
                            self.next += 1;
                            break Stop::Else;
                        }
                        _ => nodes.extend(self.action()?),
                    }
                }
                _ => break Stop::Text,
            }
        };
        self.depth -= 1;
        Ok((nodes, stop))
    }

    fn close(&mut self, context: &str) -> Result<()> {
        self.skip_space();
        match self.peek() {
            Kind::Close => {
                self.next += 1;
                Ok(())
            }
            _ => self.unexpected(context),
        }
    }

    fn action(&mut self) -> Result<Option<Node>> {
        let word = match self.peek() {
            Kind::Word(word) => word.clone(),
            _ => String::new(),
        };
        if matches!(
            word.as_str(),
            "if" | "range" | "with" | "template" | "block" | "define" | "break" | "continue"
        ) {
            self.next += 1;
        }
        Ok(Some(match word.as_str() {
            "if" => Node::If(self.branch("if")?),
            "with" => Node::With(self.branch("with")?),
            "range" => Node::Range(self.branch("range")?),
            "break" | "continue" => {
                self.close(&word)?;
                if self.loops == 0 {
                    return self.fail(format!("{{{{{word}}}}} outside {{{{range}}}}"));
                }
                if word == "break" { Node::Break } else { Node::Continue }
            }
            "define" => {
                let name = self.template_name("define clause")?;
                self.close("define clause")?;
                self.definition(name)?;
                return Ok(None);
            }
            "template" => {
                self.skip_space();
                let at = self.at();
                let name = self.template_name("template clause")?;
                self.skip_space();
                let data = match self.peek() {
                    Kind::Close => None,
                    _ => Some(self.pipeline("template clause")?),
                };
                self.close("template clause")?;
                Node::Template { at, name, data }
            }
            "block" => {
                self.skip_space();
                let at = self.at();
                let name = self.template_name("block clause")?;
                let data = self.pipeline("block clause")?;
                self.close("block clause")?;
                self.definition(name.clone())?;
                Node::Template { at, name, data: Some(data) }
            }
            _ => {
                let pipeline = self.pipeline("command")?;
                self.close("command")?;
                Node::Action(pipeline)
            }
        }))
    }

    fn template_name(&mut self, context: &str) -> Result<String> {
        self.skip_space();
        match self.peek().clone() {
            Kind::Quoted(name) => {
                self.next += 1;
                Ok(name)
            }
            _ => self.unexpected(context),
        }
    }

    /// The body of a template of its own, which sees none of the variables around it.
    fn definition(&mut self, name: String) -> Result<()> {
        let outer = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let loops = std::mem::take(&mut self.loops);
        let (body, stop) = self.list()?;
        if !matches!(stop, Stop::End) {
            return self.unexpected("define clause");
        }
        self.variables = outer;
        self.loops = loops;
        self.defined.insert(name, body);
        Ok(())
    }

    fn branch(&mut self, kind: &str) -> Result<Branch> {
        let variables = self.variables.len();
        let condition = self.pipeline(kind)?;
        self.close(kind)?;
        self.loops += usize::from(kind == "range");
        let (body, stop) = self.list()?;
        self.loops -= usize::from(kind == "range");
        let otherwise = match stop {
            Stop::End => Vec::new(),
            Stop::Text => return self.fail("unexpected EOF"),
            Stop::Else => self.otherwise(kind)?,
        };
        self.variables.truncate(variables);
        Ok(Branch { condition, body, otherwise })
    }

    /// What follows `{{else`: the rest of the action, and the nodes up to `{{end}}`.
    fn otherwise(&mut self, kind: &str) -> Result<Vec<Node>> {
        self.skip_space();
        match self.peek() {
            Kind::Word(word) if word == kind && kind != "range" => {
                self.next += 1;
                self.depth += 1;
                if self.depth > limits::DEPTH {
                    return self.fail(format!("more than {} else {kind}", limits::DEPTH));
                }
                let branch = self.branch(kind)?;
                self.depth -= 1;
                Ok(vec![if kind == "if" { Node::If(branch) } else { Node::With(branch) }])
            }
            _ => {
                self.close("else")?;
                match self.list()? {
                    (nodes, Stop::End) => Ok(nodes),
                    (_, Stop::Else) => self.fail("expected end; found {{else}}"),
                    (_, Stop::Text) => self.fail("unexpected EOF"),
                }
            }
        }
    }

    fn pipeline(&mut self, context: &str) -> Result<Pipeline> {
        self.depth += 1;
        if self.depth > limits::DEPTH {
            return self.fail(format!("parentheses nest more than {} deep", limits::DEPTH));
        }
        self.skip_space();
        let at = self.at();
        let (variables, assigns) = self.declarations(context)?;
        let mut commands = Vec::new();
        loop {
            self.skip_space();
            let command = self.command(context)?;
            let first = command.operands.first().map(|operand| &operand.kind);
            let constant = matches!(
                first,
                Some(
                    OperandKind::Constant(_)
                        | OperandKind::Quoted(_)
                        | OperandKind::Nil
                        | OperandKind::Dot
                )
            );
            if constant && !commands.is_empty() {
                let stage = commands.len() + 1;
                return self.fail(format!("non executable command in pipeline stage {stage}"));
            }
            commands.push(command);
            self.skip_space();
            match self.peek() {
                Kind::Pipe => self.next += 1,
                Kind::Close | Kind::ParenClose => break,
                _ => return self.unexpected(context),
            }
        }
        if !assigns {
            self.variables.extend(variables.iter().cloned());
        }
        self.depth -= 1;
        Ok(Pipeline { at, variables, assigns, commands })
    }

    /// `$x :=`, `$x =` or `$i, $x :=` at the start of a pipeline.
    fn declarations(&mut self, context: &str) -> Result<(Vec<String>, bool)> {
        let start = self.next;
        let mut names = Vec::new();
        loop {
            self.skip_space();
            let Kind::Variable(name) = self.peek().clone() else { break };
            self.next += 1;
            self.skip_space();
            names.push(name);
            match self.peek() {
                Kind::Declare => {
                    self.next += 1;
                    return Ok((names, false));
                }
                Kind::Assign => {
                    self.next += 1;
                    for name in &names {
                        self.known(name)?;
                    }
                    return Ok((names, true));
                }
                Kind::Comma if context == "range" && names.len() < 2 => self.next += 1,
                Kind::Comma => return self.fail(format!("too many declarations in {context}")),
                _ => break,
            }
        }
        self.next = start;
        Ok((Vec::new(), false))
    }

    fn known(&self, variable: &str) -> Result<()> {
        if self.variables.iter().any(|name| name == variable) {
            return Ok(());
        }
        self.fail(format!("undefined variable {}", super::go_quote(variable)))
    }

    fn command(&mut self, context: &str) -> Result<Command> {
        let at = self.at();
        let mut operands = Vec::new();
        while let Some(operand) = self.operand()? {
            operands.push(operand);
            match self.peek() {
                Kind::Space => self.skip_space(),
                Kind::Pipe | Kind::Close | Kind::ParenClose => {}
                _ => return self.unexpected("operand"),
            }
        }
        if operands.is_empty() {
            return match self.peek() {
                Kind::Close | Kind::ParenClose | Kind::Pipe => {
                    self.fail(format!("missing value for {context}"))
                }
                _ => self.unexpected(context),
            };
        }
        Ok(Command { at, operands })
    }

    fn operand(&mut self) -> Result<Option<Operand>> {
        let mut at = self.at();
        let kind = match self.peek().clone() {
            Kind::Dot => OperandKind::Dot,
            Kind::Field(name) => OperandKind::Field(vec![name]),
            Kind::Variable(name) => {
                self.known(&name)?;
                OperandKind::Variable(name, Vec::new())
            }
            Kind::Number(text) => OperandKind::Constant(number(&text).unwrap_or(Value::Null)),
            Kind::Char(c) => OperandKind::Constant(Value::from(u32::from(c))),
            Kind::Quoted(text) => OperandKind::Quoted(text),
            Kind::Word(word) => self.word(word)?,
            Kind::ParenOpen => {
                self.next += 1;
                let pipeline = self.pipeline("parenthesized pipeline")?;
                if *self.peek() != Kind::ParenClose {
                    return self.unexpected("parenthesized pipeline");
                }
                OperandKind::Nested(Box::new(pipeline), Vec::new())
            }
            _ => return Ok(None),
        };
        self.next += 1;
        let mut kind = kind;
        let mut chained = false;
        while let Kind::Field(name) = self.peek().clone() {
            if !chained {
                at = self.at();
                chained = true;
            }
            match &mut kind {
                OperandKind::Field(fields)
                | OperandKind::Variable(_, fields)
                | OperandKind::Nested(_, fields) => fields.push(name),
                _ => {
                    return self
                        .fail(format!("unexpected . after term {}", super::go_quote(&name)));
                }
            }
            self.next += 1;
        }
        Ok(Some(Operand { at, kind }))
    }

    fn word(&self, word: String) -> Result<OperandKind> {
        Ok(match word.as_str() {
            "true" => OperandKind::Constant(Value::Bool(true)),
            "false" => OperandKind::Constant(Value::Bool(false)),
            "nil" => OperandKind::Nil,
            name if functions::is_built_in(name) || self.functions.contains(&name) => {
                OperandKind::Function(word)
            }
            name => {
                let name = super::go_quote(name);
                return self.fail(format!("function {name} not defined"));
            }
        })
    }
}
