//! Writes that are taken back unless somebody confirms them in time.
//!
//! Such a write has a file beside its entry. Whoever removes the file decides: to confirm the write
//! or, when the time is up, to take it back; no two can.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{History, NUMBER_MAX};

const EXTENSION: &str = "unconfirmed";

impl History {
    /// Notes that a write is to be confirmed until then, for people.
    pub(crate) fn await_confirmation(&self, number: u64, until: &str) -> io::Result<()> {
        let path = path(&self.dir()?, number);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{until}")
    }

    /// Until when a write is to be confirmed; none if nobody waits for that.
    pub(crate) fn unconfirmed_until(&self, number: u64) -> Option<String> {
        let text = fs::read_to_string(path(&self.dir().ok()?, number)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The writes that are to be confirmed, oldest first.
    pub(crate) fn unconfirmed(&self) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(self.dir()?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut numbers = Vec::new();
        for entry in entries {
            let name = PathBuf::from(entry?.file_name());
            let is_one = name.extension().is_some_and(|extension| extension == EXTENSION);
            let number = name.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            numbers.extend(number.filter(|number| is_one && *number < NUMBER_MAX));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Ends the waiting: true for the one who decides about the write.
    pub(crate) fn decide(&self, number: u64) -> io::Result<bool> {
        match fs::remove_file(path(&self.dir()?, number)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:06}.{EXTENSION}"))
}
