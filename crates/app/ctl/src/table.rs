//! Tables of text: columns as wide as they need to be, and boxes drawn around them.

use std::io::{self, Write};

/// Blanks between two columns, and the narrowest column.
const PADDING: usize = 3;
const NARROWEST: usize = 5;

/// Lines of cells whose columns line up, each cell followed by blanks.
///
/// A cell may hold tabs and line breaks (a selector may); they split it as if it had been
/// written as several, and a column lines up over the lines next to each other that have it.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    text: String,
    /// Where in `text` each line ends.
    lines: Vec<usize>,
}

impl Columns {
    /// Adds a cell to the current line.
    pub(crate) fn cell(&mut self, text: &str) {
        for (index, part) in text.split('\n').enumerate() {
            if index > 0 {
                self.end_line();
            }
            self.text.push_str(part);
        }
        self.text.push('\t');
    }

    /// Ends the current line.
    pub(crate) fn end_line(&mut self) {
        self.lines.push(self.text.len());
    }

    /// Writes it all.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let lines = self.split();
        let widths = widths(&lines);
        for (line, widths) in lines.iter().zip(&widths) {
            for (cell, width) in line.iter().zip(widths) {
                write!(out, "{cell}{}", blanks(cell, *width))?;
            }
            writeln!(out, "{}", line.last().copied().unwrap_or_default())?;
        }
        Ok(())
    }

    /// The cells of each line; the last of a line is not followed by a tab.
    fn split(&self) -> Vec<Vec<&str>> {
        let mut start = 0;
        let mut lines = Vec::with_capacity(self.lines.len());
        for &end in &self.lines {
            lines.push(self.text[start..end].split('\t').collect());
            start = end;
        }
        lines
    }
}

/// The width of each column on each line. Lines next to each other share it.
fn widths(lines: &[Vec<&str>]) -> Vec<Vec<usize>> {
    let mut widths: Vec<Vec<usize>> =
        lines.iter().map(|line| vec![0; line.len().saturating_sub(1)]).collect();
    let columns = widths.iter().map(Vec::len).max().unwrap_or_default();
    for column in 0..columns {
        let mut line = 0;
        while line < lines.len() {
            let end = (line..lines.len())
                .find(|&line| widths[line].len() <= column)
                .unwrap_or(lines.len());
            let widest = lines[line..end].iter().map(|cells| cells[column].chars().count()).max();
            let width = widest.map_or(0, |widest| (widest + PADDING).max(NARROWEST));
            for widths in &mut widths[line..end] {
                widths[column] = width;
            }
            line = end + 1;
        }
    }
    widths
}

/// On which side of its column a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// At the left.
    Left,
    /// At the right, as numbers do; the heading stays at the left.
    Right,
}

/// A table in a box of dashes and bars.
#[derive(Debug)]
pub(crate) struct Boxed {
    heading: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Boxed {
    /// A table with this heading.
    pub(crate) fn new(heading: &[(&'static str, Side)]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Writes it all.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let widths: Vec<usize> = (0..self.heading.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or_default();
                widest.max(self.heading[column].0.chars().count())
            })
            .collect();
        let rule: String =
            widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect();
        writeln!(out, "{rule}+")?;
        for ((name, _), width) in self.heading.iter().zip(&widths) {
            write!(out, "| {name}{} ", blanks(name, *width))?;
        }
        writeln!(out, "|\n{rule}+")?;
        for row in &self.rows {
            for ((cell, (_, side)), width) in row.iter().zip(&self.heading).zip(&widths) {
                let blanks = blanks(cell, *width);
                match side {
                    Side::Left => write!(out, "| {cell}{blanks} ")?,
                    Side::Right => write!(out, "| {blanks}{cell} ")?,
                }
            }
            writeln!(out, "|")?;
        }
        writeln!(out, "{rule}+")
    }
}

/// What a cell lacks to its width. Rust's own padding ends at 65,535 columns, with a panic.
fn blanks(cell: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(cell.chars().count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[&[&str]]) -> String {
        let mut columns = Columns::default();
        for line in lines {
            line.iter().for_each(|cell| columns.cell(cell));
            columns.end_line();
        }
        let mut out = Vec::new();
        columns.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_widest_cell_makes_the_column() {
        assert_eq!(
            text(&[&["NAME", "CIDR"], &["a-long-name", ""]]),
            concat!("NAME          CIDR   \n", "a-long-name          \n",)
        );
        assert_eq!(text(&[&["A"]]), "A    \n");
    }

    #[test]
    fn a_line_break_in_a_cell_breaks_the_column() {
        let table = text(&[&["NAME", "SELECTOR", "X"], &["p", "all()\n", "y"]]);
        assert_eq!(table, "NAME   SELECTOR   X    \np      all()\n       y    \n");
    }

    #[test]
    fn numbers_stand_at_the_right_of_their_box() {
        let mut table = Boxed::new(&[("CIDR", Side::Left), ("FREE", Side::Right)]);
        table.row(vec!["10.0.0.0/8".into(), "1".into()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            concat!(
                "+------------+------+\n",
                "| CIDR       | FREE |\n",
                "+------------+------+\n",
                "| 10.0.0.0/8 |    1 |\n",
                "+------------+------+\n",
            )
        );
    }
}
