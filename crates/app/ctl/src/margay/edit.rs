//! `margay edit`: one object in an editor, and back. What is refused is opened again, with the
//! reasons above it.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::OFlags;
use serde_json::Value;
use store::resources::{Name, Stored};

use super::arguments::One;
use super::failure::Failure;
use super::read_documents::{Input, files};
use super::session::{Session, kind_of, name_of, spoken};
use super::write;

/// How often the text is opened again before it is kept for another day.
const REFUSALS_MAX: usize = 20;

/// Opens the object, and writes what comes back.
pub(crate) fn run(session: &Session, one: &One) -> Result<bool, Failure> {
    let name = name_of(kind_of(&one.kind)?, one.namespace.as_deref(), &one.name);
    if chosen_editor().is_none() && !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::new("edit needs a terminal, or an editor that needs none")
            .why("EDITOR and VISUAL are not set, and vi would write on a screen that is not there")
            .help("EDITOR=PROGRAM margay edit …, or margay patch, or margay apply -f FILE"));
    }
    let mut stored = session.resources.get(&name)?;
    let mut given = text::yaml::to_string(&stored.object);
    let draft = Draft::new(&given)?;
    let mut refused: Option<String> = None;
    let mut reasons = Vec::new();
    for _ in 0..REFUSALS_MAX {
        open_editor(&draft.path)?;
        let Some(edited) = draft.read(&name)? else { return draft.cancel(&name) };
        let text = without_reasons(&edited);
        if refused.as_ref().is_some_and(|refused| *refused == text) || edited == given {
            return draft.unchanged(&name, given.starts_with('#'), &reasons);
        }
        if text.trim().is_empty() {
            return draft.cancel(&name);
        }
        let written = read_one(&draft.path, &name)
            .and_then(|object| write::replace_one(session, &name, object));
        let failure = match written {
            Ok(fine) => {
                draft.remove();
                return Ok(fine);
            }
            Err(failure) => failure,
        };
        let now = match session.resources.get(&name) {
            Err(error) if error.is_not_found() => {
                draft.write(&with_version(&text, &stored, None))?;
                let path = draft.path.display();
                return Err(Failure::from(error)
                    .why("somebody removed it while it was edited")
                    .help(format!("the text is kept: margay create -f {path}")));
            }
            now => now.ok().filter(|now| now.revision != stored.revision),
        };
        // The reasons of the last time are answered or said again.
        given = match now {
            Some(now) => {
                let text = with_version(&text, &stored, Some(&now));
                let above = moved(&name);
                reasons = vec!["somebody else changed it since it was opened".to_owned()];
                stored = now;
                refused = None;
                above + &text
            }
            None => {
                let said = failure.to_string();
                let above: String = said.lines().map(|line| format!("# {line}\n")).collect();
                reasons = said.lines().map(str::trim).map(str::to_owned).collect();
                refused = Some(text.clone());
                above + &text
            }
        };
        draft.write(&given)?;
    }
    draft.unchanged(&name, true, &reasons)
}

/// What is said above a text that somebody else's change has overtaken.
fn moved(name: &Name) -> String {
    format!(
        "# {} was changed by somebody else since it was opened; nothing was written.\n\
         # What is stored now: margay get {} {}{} -o yaml\n\
         # Remove these lines to write this text over it, or close without a change.\n",
        spoken(name),
        name.kind.plural(),
        name.name,
        if name.namespace.is_empty() { String::new() } else { format!(" -n {}", name.namespace) },
    )
}

fn without_reasons(edited: &str) -> String {
    edited.split_inclusive('\n').skip_while(|line| line.starts_with('#')).collect()
}

/// The text with the revision of what is stored now, or with none, in place of the old one.
fn with_version(text: &str, old: &Stored, now: Option<&Stored>) -> String {
    let is_old = |line: &str| {
        let value = line.trim().strip_prefix("resourceVersion:").map(str::trim);
        value.is_some_and(|value| value.trim_matches(['"', '\'']) == old.revision.to_string())
    };
    let lines = text.split_inclusive('\n').map(|line| match (is_old(line), now) {
        (false, _) => line.to_owned(),
        (true, Some(now)) => line.replace(&old.revision.to_string(), &now.revision.to_string()),
        (true, None) => String::new(),
    });
    lines.collect()
}

/// The text while it is edited, in a file that only its owner reads.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn new(text: &str) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("margay-edit-{}.yaml", std::process::id()));
        new_file(&path, text).map_err(|error| unusable(&path, &error))?;
        Ok(Self { path })
    }

    /// Takes the place of whatever the editor left there: a link is replaced, not followed.
    fn write(&self, text: &str) -> Result<(), Failure> {
        let unfinished = self.path.with_extension("new");
        let written = new_file(&unfinished, text).and_then(|()| {
            fs::rename(&unfinished, &self.path).inspect_err(|_| {
                let _ = fs::remove_file(&unfinished);
            })
        });
        written.map_err(|error| unusable(&self.path, &error))
    }

    /// What the editor left; none if it left nothing.
    fn read(&self, name: &Name) -> Result<Option<String>, Failure> {
        let path = self.path.display();
        let not_changed = |why: &str| {
            Failure::new(format!("{} was not changed", spoken(name)))
                .why(format!("what the editor left {why}, {path}"))
        };
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut bytes = Vec::new();
        let opened = File::options().read(true).custom_flags(flags).open(&self.path);
        let read = opened.and_then(|mut file| match file.metadata()?.is_file() {
            true => file.read_to_end(&mut bytes),
            false => Err(io::Error::other("not a regular file")),
        });
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let reason = text::plain_reason(&error);
                return Err(not_changed(&format!("cannot be read ({reason})")));
            }
        }
        String::from_utf8(bytes).map(Some).map_err(|_| not_changed("is not UTF-8"))
    }

    fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// An empty text, or none, is how people say that they changed their mind.
    fn cancel(&self, name: &Name) -> Result<bool, Failure> {
        self.remove();
        writeln!(io::stdout().lock(), "{} was not changed", spoken(name))?;
        Ok(true)
    }

    /// Whoever closes the editor without a change has had enough.
    fn unchanged(
        &self,
        name: &Name,
        was_refused: bool,
        reasons: &[String],
    ) -> Result<bool, Failure> {
        let path = self.path.display();
        if was_refused {
            let failure = Failure::new(format!("{} was not changed", spoken(name)));
            let said = reasons.iter().filter(|line| !line.starts_with("help: "));
            let said = said.map(|line| line.trim_start_matches("error: ").to_owned());
            return Err(said
                .fold(failure, Failure::detail)
                .why("what the editor left is refused")
                .help(format!("the text is kept: margay apply -f {path}")));
        }
        self.cancel(name)
    }
}

fn new_file(path: &Path, text: &str) -> io::Result<()> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(path);
    made.and_then(|mut file| file.write_all(text.as_bytes()))
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("the text to edit cannot be kept, {}", path.display()))
        .why(text::plain_reason(error))
        .help("TMPDIR names another folder")
}

/// The editor that the user named.
fn chosen_editor() -> Option<String> {
    let named = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    named("VISUAL").or_else(|| named("EDITOR"))
}

fn open_editor(path: &Path) -> Result<(), Failure> {
    let editor = chosen_editor().unwrap_or_else(|| "vi".to_owned());
    let mut words = editor.split_whitespace();
    let status = Command::new(words.next().unwrap_or("vi")).args(words).arg(path).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        failed => {
            let _ = fs::remove_file(path);
            let why = failed.map_or_else(|error| text::plain_reason(&error), |s| s.to_string());
            Err(Failure::new(format!("the editor did not end well, {editor}; nothing was written"))
                .why(why)
                .help("EDITOR=nano margay edit …"))
        }
    }
}

/// The object in the file, which is still the same one.
fn read_one(path: &Path, name: &Name) -> Result<Value, Failure> {
    let input = Input::read(&files(&[path], false, None))?;
    match input.objects.as_slice() {
        [given] if given.name == *name => Ok(given.object.clone()),
        _ => Err(Failure::new(format!("the text must hold {} and nothing else", spoken(name)))
            .help("margay create for a new object, margay delete for the old one")),
    }
}
