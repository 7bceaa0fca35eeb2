//! What went wrong, in the shape every error of ours has.
//!
//! `error: WHAT, WHERE`, the details one a line, `why:` where it is known, `help:` with what to do.

use std::fmt;
use std::io;

use store::resources;
use store::settings;

use super::terminal::printable_line;

/// The exit code of a difference found or of something degraded.
pub(crate) const DIFFERENT: u8 = 1;
/// The exit code of an error.
pub(crate) const BROKEN: u8 = 2;

/// An error to print before ending.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    what: String,
    details: Vec<String>,
    why: Option<String>,
    help: Option<String>,
    undo: Option<String>,
    is_closed_pipe: bool,
    is_of_store: bool,
    is_fix: bool,
}

impl Failure {
    /// What failed, and where.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    /// One of several problems, on a line of its own.
    pub(crate) fn detail(mut self, line: impl Into<String>) -> Self {
        self.details.push(line.into());
        self
    }

    /// The cause.
    pub(crate) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// What to do about it, as something that can be pasted where possible.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same, said as `fix:`: whoever looks after a node greps for it.
    pub(crate) fn fix(self, fix: impl Into<String>) -> Self {
        Self { is_fix: true, ..self.help(fix) }
    }

    /// Says `fix:` for the help that there is.
    pub(crate) fn said_as_fix(self) -> Self {
        Self { is_fix: true, ..self }
    }

    /// Adds how it came to that.
    pub(crate) fn after(mut self, circumstances: &str) -> Self {
        self.what = format!("{}; {circumstances}", self.what);
        self
    }

    /// The same, where there is something to do.
    pub(crate) fn help_if(self, help: Option<String>) -> Self {
        match help {
            Some(help) => self.help(help),
            None => self,
        }
    }

    /// Adds that nothing came of it, for commands that were to write.
    pub(crate) fn nothing_was_written(mut self) -> Self {
        self.what += "; nothing was written";
        self
    }

    /// How to take back the part that was done: a line of its own.
    pub(crate) fn undo(mut self, undo: &str) -> Self {
        self.undo = Some(undo.trim_end().to_owned()).filter(|undo| !undo.is_empty());
        self
    }

    /// Adds who chose the datastore, where the datastore is what failed and nothing is said yet.
    pub(crate) fn chosen_by(mut self, chosen_by: impl FnOnce() -> Option<String>) -> Self {
        if self.is_of_store && self.why.is_none() {
            self.why = chosen_by().map(|by| format!("this datastore was chosen by {by}"));
        }
        self
    }

    /// The same, said of a write that was made before the failure.
    pub(crate) fn after_the_write(mut self, made: &str) -> Self {
        self.what = format!("the write was made ({made}), but {}", self.what);
        self
    }

    /// What failed, alone.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Whether the reader of our output went away, which is no error of ours.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        self.is_closed_pipe
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let is_closed_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Self { is_closed_pipe, ..Self::new("the output cannot be written").why(error.to_string()) }
    }
}

impl From<resources::Error> for Failure {
    fn from(error: resources::Error) -> Self {
        match error {
            resources::Error::Store(error) => error.into(),
            error => Self::new(error.to_string()).help_if(next_step(&error)),
        }
    }
}

/// What to do about an object that was refused for what is stored, not for what stands in it.
pub(crate) fn next_step(error: &resources::Error) -> Option<String> {
    use resources::Error as E;
    match error {
        E::NotFound(name) => Some(listing(name)),
        E::AlreadyExists(_) => {
            Some("margay apply changes what exists; create --skip-exists passes over it".to_owned())
        }
        E::Conflict(name) => {
            let mut shown = format!("margay get {} {}", name.kind.plural(), name.name);
            if !name.namespace.is_empty() {
                shown += &format!(" -n {}", name.namespace);
            }
            Some(format!(
                "{shown} -o yaml shows it as it is now; a document without \
                 metadata.resourceVersion is written over it"
            ))
        }
        _ => None,
    }
}

/// The command that shows what there is where an object is not.
pub(crate) fn listing(name: &resources::Name) -> String {
    let command = format!("margay get {}", name.kind.plural());
    match name.namespace.as_str() {
        "" => command,
        _ => format!("{command} -A shows those of all namespaces"),
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        let failure = Self { is_of_store: true, ..Self::new(error.to_string()) };
        match error {
            store::Error::Unreachable(outages) => {
                match outages.iter().find(|it| speaks_plain(it)) {
                    Some(outage) => {
                        failure.why("what listens there does not seem to speak TLS").help(format!(
                            "ETCD_ENDPOINTS={}",
                            outage.endpoint.replacen("https://", "http://", 1)
                        ))
                    }
                    None => failure.help(
                        "start etcd, or choose another datastore: --store FILE, --config FILE, \
                     ETCD_ENDPOINTS=URL",
                    ),
                }
            }
            store::Error::Damaged { .. } => failure
                .help("move the file away or restore a copy of it; --store FILE uses another"),
            store::Error::Newer { .. } => {
                failure.help("use the version that wrote it, or another store: --store FILE")
            }
            store::Error::File { reason, .. } if reason.starts_with("permission denied") => failure
                .help("run it as the user whose store it is (sudo), or use another: --store FILE"),
            store::Error::File { .. } => {
                failure.help("name a file that can be read and written: --store FILE")
            }
            store::Error::Denied(_) => failure.help("see ETCD_USERNAME and ETCD_PASSWORD"),
            store::Error::DiskFull(_) | store::Error::NotRecorded(_) => {
                failure.help("make room, and run the command again")
            }
            store::Error::Busy(_) => failure.help("run the command again when that one has ended"),
            _ => failure,
        }
    }
}

/// Whether what answered a greeting in TLS did so in something else.
fn speaks_plain(outage: &store::Outage) -> bool {
    // Who does not understand a greeting answers in plain text, or hangs up; which of it arrives
    // first is chance.
    let signs = ["InvalidContentType", "tls handshake eof", "Connection reset", "Broken pipe"];
    outage.endpoint.starts_with("https://") && signs.iter().any(|sign| outage.reason.contains(sign))
}

impl From<settings::Error> for Failure {
    fn from(error: settings::Error) -> Self {
        use settings::Error as E;
        let ours = "for a store in a file: margay --store FILE, or DATASTORE_TYPE=embedded";
        match error {
            E::NoFile(path, why) => {
                Self::new(format!("the connection settings cannot be read, {}", path.display()))
                    .why(why)
                    .help("name another file with --config FILE, or make this one readable")
            }
            E::Syntax(path, why) => {
                Self::new(format!("the connection settings cannot be used, {}", path.display()))
                    .why(why)
                    .help("apiVersion: projectcalico.org/v3, kind: CalicoAPIConfig, spec: {…}")
            }
            E::UnknownField { path, field, known } => {
                let what = format!("unknown field spec.{field}, {}", path.display());
                let near = text::distance::nearest(&field, known.iter().copied());
                Self::new(what).help(match near {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("there are: {}", known.join(", ")),
                })
            }
            E::UnknownType { name, why } => {
                Self::new(format!("there is no datastore type \"{name}\", {why}"))
                    .help(format!("for etcd: etcdv3; {ours}"))
            }
            E::NoEndpoints { why } => Self::new(format!("no etcd endpoints, {why}")).help(format!(
                "ETCD_ENDPOINTS=http://127.0.0.1:2379 (in a file: spec.etcdEndpoints); {ours}"
            )),
            E::NotText(name) => Self::new(format!("the value is not UTF-8, variable {name}"))
                .help(format!("unset {name}, or set it again")),
            E::Kubernetes(why) => {
                Self::new(format!("the Kubernetes datastore is not part of this version, {why}"))
                    .help(format!("for etcd: ETCD_ENDPOINTS=URL; {ours}"))
            }
            E::NoHome => Self::new("no datastore was chosen, and there is no HOME to keep one in")
                .help("MARGAY_STORE=FILE, or ETCD_ENDPOINTS=URL"),
            E::NoFolder(folder) => {
                let folder = folder.display();
                Self::new(format!("there is no folder {folder} to keep a store in, --store"))
                    .help(format!("mkdir -p {folder}, or another --store FILE"))
            }
            E::Contradiction(why) => Self::new("two settings exclude each other").why(why),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "error: {}", self.what)?;
        for line in &self.details {
            writeln!(formatter, "  {}", printable_line(line))?;
        }
        if let Some(why) = &self.why {
            writeln!(formatter, "why: {why}")?;
        }
        if let Some(undo) = &self.undo {
            writeln!(formatter, "{undo}")?;
        }
        if let Some(help) = &self.help {
            let label = if self.is_fix { "fix" } else { "help" };
            writeln!(formatter, "{label}: {help}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_spelled_out_and_cut() {
        let failure =
            Failure::new("refused").detail("Tier \u{1b}[31ma\nb").detail("x".repeat(1000));
        let shown = failure.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[..2], ["error: refused", "  Tier \\u{1b}[31ma\\nb"]);
        assert_eq!(lines[2].chars().count(), 2 + 400 + 1);
        assert_eq!(lines.len(), 3);
    }
}
