//! Cuts a file into documents at lines that start with `---`.
//!
//! The rest of a separator line is dropped, and a separator in the first line belongs to the
//! first document, as in calicoctl. A separator at the very end opens no further document.

use super::document::Document;
use super::error::{Error, Problem};
use super::{limits, read};

/// The documents of a file, read one at a time.
///
/// After an error the iterator goes on with the next document.
#[derive(Debug, Clone)]
pub struct Documents<'t> {
    file: &'t [u8],
    /// Where the next document starts.
    from: usize,
    line: usize,
}

/// The documents in `file`, in order; none if the file is empty.
pub fn documents(file: &[u8]) -> Documents<'_> {
    Documents { file, from: 0, line: 1 }
}

impl<'t> Iterator for Documents<'t> {
    type Item = Result<Document<'t>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.file.get(self.from..).filter(|rest| !rest.is_empty())?;
        let (first_line, offset) = (self.line, self.from);
        let (text, after) = cut(rest);
        let consumed = &rest[..rest.len() - after.len()];
        self.line += consumed.iter().filter(|byte| **byte == b'\n').count();
        self.from += consumed.len();
        Some(read_one(text, offset, first_line))
    }
}

fn read_one(text: &[u8], offset: usize, first_line: usize) -> Result<Document<'_>, Error> {
    if text.len() > limits::DOCUMENT_BYTES {
        return Err(Error::new(first_line, 1, Problem::TooLong));
    }
    let end = offset + text.len();
    let text = read::checked_text(text, first_line)?;
    let value = read::value(text, first_line)?;
    Ok(Document::new(value, text, end - text.len(), first_line))
}

/// Splits at the first separator line; the separator belongs to neither part.
fn cut(file: &[u8]) -> (&[u8], &[u8]) {
    let mut from = 0;
    while let Some(at) = file[from..].iter().position(|byte| *byte == b'\n') {
        let end = from + at;
        from = end + 1;
        if file[from..].starts_with(b"---") {
            let line_end = file[from..].iter().position(|byte| *byte == b'\n');
            let rest = line_end.map_or(file.len(), |at| from + at + 1);
            return (&file[..end], &file[rest..]);
        }
    }
    (file, &[])
}
