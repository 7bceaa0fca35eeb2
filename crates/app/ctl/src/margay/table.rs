//! Tables on the terminal.

use std::io;

use text::table::render;

use super::terminal::Terminal;

/// Whether nothing has to be cut.
pub(crate) fn fits(terminal: Terminal, headings: &[&str], rows: &[Vec<String>]) -> bool {
    let headings: Vec<String> = headings.iter().map(|name| (*name).to_owned()).collect();
    let (text, _) = render(&headings, rows, None);
    terminal.width.is_none_or(|width| text.lines().all(|line| line.chars().count() <= width))
}

/// Shows a table on the terminal.
pub(crate) fn show(terminal: Terminal, headings: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let headings: Vec<String> = headings.iter().map(|name| (*name).to_owned()).collect();
    let (text, left_out) = render(&headings, rows, terminal.width);
    terminal.page(&text)?;
    left_out.map_or(Ok(()), |line| super::get::complain(&line))
}
