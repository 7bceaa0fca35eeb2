//! Raw parameters from the configuration file: `key = value` lines in sections.
//!
//! The names of sections do not matter, only their order: the last section that has a key
//! gives its value. Values lose a comment and quotes; a backslash at the end of a line joins
//! the next line; three double quotes or a back quote open a value of several lines.

use std::collections::BTreeMap;
use std::fmt;

/// Why a configuration file could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableFile {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub message: &'static str,
}

impl fmt::Display for UnreadableFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for UnreadableFile {}

/// The parameters in the text of the file.
pub fn from_file(text: &str) -> Result<BTreeMap<String, String>, UnreadableFile> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Lines { rest: text, n_read: 0 };
    // A section may be opened again; its place is where it was opened first.
    let mut sections: Vec<(&str, BTreeMap<String, String>)> = vec![("DEFAULT", BTreeMap::new())];
    let mut current = 0;
    while let Some(line) = lines.next() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let end = header.rfind(']').ok_or_else(|| lines.error("section has no ]"))?;
            let name = header.get(..end).unwrap_or("");
            if name.is_empty() {
                return Err(lines.error("section has no name"));
            }
            let known = sections.iter().position(|(section, _)| *section == name);
            current = known.unwrap_or(sections.len());
            if known.is_none() {
                sections.push((name, BTreeMap::new()));
            }
            continue;
        }
        let (key, rest) = split_key(line).map_err(|message| lines.error(message))?;
        let value = lines.value(rest)?;
        if let Some((_, keys)) = sections.get_mut(current) {
            keys.insert(key.to_owned(), value);
        }
    }
    Ok(sections.into_iter().flat_map(|(_, keys)| keys).collect())
}

/// The key, perhaps in quotes, and what follows its `=` or `:`.
fn split_key(line: &str) -> Result<(&str, &str), &'static str> {
    const NO_DELIMITER: &str = "neither = nor : after the key";
    let quote = ["\"\"\"", "\"", "`"].into_iter().find(|quote| line.starts_with(quote));
    let (key, rest) = match quote {
        Some(quote) => {
            let quoted = line.get(quote.len()..).unwrap_or("");
            let (key, after) = quoted.split_once(quote).ok_or("quoted key has no end")?;
            (key, after.split_once(['=', ':']).ok_or(NO_DELIMITER)?.1)
        }
        None => line.split_once(['=', ':']).ok_or(NO_DELIMITER)?,
    };
    if quote.is_none() && key.is_empty() {
        return Err("empty key");
    }
    Ok((key.trim(), rest))
}

struct Lines<'a> {
    rest: &'a str,
    n_read: usize,
}

impl<'a> Lines<'a> {
    /// The next line with its end.
    fn next(&mut self) -> Option<&'a str> {
        let line = self.rest.split_inclusive('\n').next()?;
        self.rest = self.rest.get(line.len()..).unwrap_or("");
        self.n_read += 1;
        Some(line)
    }

    fn error(&self, message: &'static str) -> UnreadableFile {
        UnreadableFile { line: self.n_read, message }
    }

    fn value(&mut self, after_key: &'a str) -> Result<String, UnreadableFile> {
        let text = after_key.trim_start();
        for quote in ["\"\"\"", "`"] {
            if let Some(quoted) = text.strip_prefix(quote).filter(|rest| !rest.is_empty()) {
                return self.quoted(quoted, quote);
            }
        }
        let text = text.trim_end();
        if let Some(first) = text.strip_suffix('\\') {
            return Ok(self.joined(first));
        }
        let text = match text.find(['#', ';']) {
            Some(comment) => text.get(..comment).unwrap_or("").trim_end(),
            None => text,
        };
        let unquoted = ['\'', '"'].into_iter().find_map(|quote| {
            let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
            (!inner.contains(quote)).then_some(inner)
        });
        Ok(unquoted.unwrap_or(text).to_owned())
    }

    /// What is left of a value in quotes, over as many lines as it takes.
    fn quoted(&mut self, first: &'a str, quote: &str) -> Result<String, UnreadableFile> {
        if let Some((value, _)) = first.rsplit_once(quote) {
            return Ok(value.to_owned());
        }
        let mut value = first.to_owned();
        loop {
            let line = self.next().ok_or_else(|| self.error("quoted value has no end"))?;
            if let Some((last, _)) = line.rsplit_once(quote) {
                value.push_str(last);
                return Ok(value);
            }
            value.push_str(line);
        }
    }

    /// A value whose lines end in backslashes.
    fn joined(&mut self, first: &str) -> String {
        let mut value = first.to_owned();
        while let Some(line) = self.next().map(str::trim).filter(|line| !line.is_empty()) {
            match line.strip_suffix('\\') {
                Some(part) => value.push_str(part),
                None => {
                    value.push_str(line);
                    break;
                }
            }
        }
        value
    }
}
