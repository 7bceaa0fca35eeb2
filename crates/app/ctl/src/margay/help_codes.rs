//! `margay help MG-FILTER-003` and `margay help codes`: what the codes of findings mean.

use std::fmt::Write as _;

use host::codes::{CODES, find};

use super::failure::Failure;

/// One code.
pub(crate) fn explain(code: &str) -> Result<String, Failure> {
    let Some(it) = find(code) else {
        let unknown = Failure::new(format!("there is no code {code}"));
        let near =
            text::distance::nearest(&code.to_ascii_uppercase(), CODES.iter().map(|it| it.code));
        return Err(unknown.help(match near {
            Some(near) => format!("did you mean {near}?"),
            None => "margay help codes lists them all".to_owned(),
        }));
    };
    let mut said = format!("{}: {}\n", it.code, it.means);
    if !it.because.is_empty() {
        let _ = writeln!(said, "why:  {}", it.because);
    }
    let _ = writeln!(said, "help: {}", it.remedy);
    Ok(said)
}

/// All codes, one a line.
pub(crate) fn list() -> String {
    CODES.iter().map(|it| format!("{:<14} {}\n", it.code, it.means)).collect()
}
