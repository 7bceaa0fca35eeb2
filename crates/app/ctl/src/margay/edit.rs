//! `margay edit`: one object in an editor, and back. What is refused is opened again, with the
//! reasons above it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use store::resources::Name;

use super::arguments::One;
use super::failure::Failure;
use super::read_documents::{Input, files};
use super::session::{Session, kind_of, name_of, spoken};
use super::write;

/// Opens the object, and writes what comes back.
pub(crate) fn run(session: &Session, one: &One) -> Result<bool, Failure> {
    let name = name_of(kind_of(&one.kind)?, one.namespace.as_deref(), &one.name);
    let stored = session.resources.get(&name)?;
    let mut given = text::yaml::to_string(&stored.object);
    let file = Draft::new(&given)?;
    loop {
        open_editor(&file.path)?;
        let edited = file.read()?;
        if edited == given {
            return file.unchanged(&name, given.starts_with('#'));
        }
        let written = read_one(&file.path, &name)
            .and_then(|object| write::replace_one(session, &name, object));
        let failure = match written {
            Ok(fine) => {
                let _ = fs::remove_file(&file.path);
                return Ok(fine);
            }
            Err(failure) => failure.to_string(),
        };
        // The reasons of the last time are answered or said again.
        let text: String =
            edited.split_inclusive('\n').skip_while(|line| line.starts_with('#')).collect();
        let reasons: String = failure.lines().map(|line| format!("# {line}\n")).collect();
        given = reasons + &text;
        file.write(&given)?;
    }
}

/// The text while it is edited, in a file that only its owner reads.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn new(text: &str) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("margay-edit-{}.yaml", std::process::id()));
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let written = made.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| unusable(&path, &error))?;
        Ok(Self { path })
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        fs::write(&self.path, text).map_err(|error| unusable(&self.path, &error))
    }

    fn read(&self) -> Result<String, Failure> {
        fs::read_to_string(&self.path).map_err(|error| unusable(&self.path, &error))
    }

    /// Whoever closes the editor without a change has had enough.
    fn unchanged(&self, name: &Name, was_refused: bool) -> Result<bool, Failure> {
        let path = self.path.display();
        if was_refused {
            return Err(Failure::new(format!("{} was not changed", spoken(name)))
                .why("what the editor left is refused, and was not changed again")
                .help(format!("the text is kept: margay apply -f {path}")));
        }
        let _ = fs::remove_file(&self.path);
        writeln!(io::stdout().lock(), "{} was not changed", spoken(name))?;
        Ok(true)
    }
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("the text to edit cannot be kept, {}", path.display()))
        .why(crate::documents::reason(error))
        .help("TMPDIR names another folder")
}

fn open_editor(path: &Path) -> Result<(), Failure> {
    let named = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let mut words = editor.split_whitespace();
    let status = Command::new(words.next().unwrap_or("vi")).args(words).arg(path).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        failed => {
            let _ = fs::remove_file(path);
            let why =
                failed.map_or_else(|error| crate::documents::reason(&error), |s| s.to_string());
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
