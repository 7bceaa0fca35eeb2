//! Tables that fit the width of the terminal; piped, they are as wide as they need to be.

/// Two blanks between columns.
const GAP: usize = 2;
/// A column is not made narrower than this, however narrow the terminal.
const NARROWEST: usize = 6;

/// Renders rows under headings. With a width, the widest columns give way first and what is cut
/// ends in `…`.
pub(crate) fn render(headings: &[String], rows: &[Vec<String>], width: Option<usize>) -> String {
    let mut layout = Layout::new(headings, width);
    layout.fit(rows);
    let mut text = String::new();
    layout.write(&mut text, headings);
    rows.iter().for_each(|row| layout.write(&mut text, row));
    text
}

/// The widths of columns, for rows that come one after the other.
pub(crate) struct Layout {
    widths: Vec<usize>,
    width: Option<usize>,
}

impl Layout {
    /// Columns as wide as their headings.
    pub(crate) fn new(headings: &[String], width: Option<usize>) -> Self {
        Self { widths: headings.iter().map(|cell| columns_of(cell)).collect(), width }
    }

    /// Makes room for the rows, as far as the width allows.
    pub(crate) fn fit(&mut self, rows: &[Vec<String>]) {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(columns_of(cell));
            }
        }
        if let Some(width) = self.width {
            narrow(&mut self.widths, width);
        }
    }

    /// Adds one row to a text.
    pub(crate) fn write(&self, text: &mut String, row: &[String]) {
        write_row(text, row, &self.widths);
    }
}

/// Takes columns from the widest until the row fits, or nothing is left to take.
fn narrow(widths: &mut [usize], width: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
    while excess > 0 {
        let Some(widest) = widths.iter_mut().filter(|width| **width > NARROWEST).max() else {
            return;
        };
        *widest -= 1;
        excess -= 1;
    }
}

fn write_row(text: &mut String, cells: &[String], widths: &[usize]) {
    let start = text.len();
    for (at, width) in widths.iter().enumerate() {
        let cell = cells.get(at).map_or("", String::as_str);
        let shown = cut(cell, *width);
        text.push_str(&shown);
        let padding = width.saturating_sub(columns_of(&shown)) + GAP;
        text.extend(std::iter::repeat_n(' ', padding));
    }
    let end = text[start..].trim_end().len();
    text.truncate(start + end);
    text.push('\n');
}

fn cut(cell: &str, width: usize) -> String {
    if columns_of(cell) <= width {
        return cell.to_owned();
    }
    let mut shown: String = cell.chars().take(width.saturating_sub(1)).collect();
    shown.push('…');
    shown
}

/// Names and addresses are nearly always ASCII; for the rest a character is a column.
fn columns_of(cell: &str) -> usize {
    cell.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Option<usize>) -> String {
        let row = |cells: [&str; 2]| cells.map(String::from).to_vec();
        render(
            &row(["NAME", "SELECTOR"]),
            &[row(["a", "app == \"web\""]), row(["long-name", ""])],
            width,
        )
    }

    #[test]
    fn piped_it_is_as_wide_as_it_needs_to_be() {
        assert_eq!(table(None), "NAME       SELECTOR\na          app == \"web\"\nlong-name\n");
    }

    #[test]
    fn on_a_narrow_terminal_the_widest_column_gives_way_with_an_ellipsis() {
        assert_eq!(table(Some(19)), "NAME       SELECTOR\na          app == …\nlong-name\n");
    }
}
