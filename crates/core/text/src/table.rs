//! Tables that fit the width of a terminal; without one, they are as wide as they need to be.

/// Two blanks between columns.
const GAP: usize = 2;
/// A column that would become narrower than this is left out instead.
const READABLE: usize = 8;
/// A column is not made narrower than this, however narrow the terminal.
const NARROWEST: usize = 6;

/// Renders rows under headings, and says in a line what did not fit. With a width, the widest
/// columns give way first and what is cut ends in `…`; where that would leave no more than
/// stubs, the last columns are left out whole.
pub fn render(
    headings: &[String],
    rows: &[Vec<String>],
    width: Option<usize>,
) -> (String, Option<String>) {
    let mut layout = Layout::new(headings, width);
    layout.fit(rows);
    let mut text = String::new();
    layout.write(&mut text, headings);
    rows.iter().for_each(|row| layout.write(&mut text, row));
    (text, layout.left_out(headings))
}

/// The widths of columns, for rows that come one after the other.
#[derive(Debug)]
pub struct Layout {
    /// None for a column that is left out.
    widths: Vec<Option<usize>>,
    /// Columns that say which object a row is about, or when: a part of them says nothing.
    is_name: Vec<bool>,
    width: Option<usize>,
    is_settled: bool,
}

impl Layout {
    /// Columns as wide as their headings.
    pub fn new(headings: &[String], width: Option<usize>) -> Self {
        let mut is_name: Vec<bool> =
            headings.iter().map(|name| ["NAME", "NAMESPACE", "TIME"].contains(&&**name)).collect();
        if let Some(first) = is_name.first_mut() {
            *first = true;
        }
        let widths = headings.iter().map(|cell| Some(columns_of(cell))).collect();
        Self { widths, is_name, width, is_settled: false }
    }

    /// Makes room for the rows, as far as the width allows. Which columns there are is settled
    /// by the first rows: the headings above do not change any more.
    pub fn fit(&mut self, rows: &[Vec<String>]) {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = width.map(|width| width.max(columns_of(cell)));
            }
        }
        let Some(width) = self.width else { return };
        if !std::mem::replace(&mut self.is_settled, true) {
            self.leave_out(width);
        }
        // Names are cut last: they are what the next command is about.
        for (names_too, narrowest) in [(false, READABLE), (true, READABLE), (true, NARROWEST)] {
            self.narrow(width, names_too, narrowest);
        }
    }

    /// Leaves out the last columns until the rest can be read.
    fn leave_out(&mut self, width: usize) {
        loop {
            let columns = self.widths.iter().zip(&self.is_name);
            let least = columns.filter_map(|(width, is_name)| match is_name {
                true => *width,
                false => width.map(|width| width.min(READABLE)),
            });
            let (count, sum) = least.fold((0, 0), |(count, sum), one| (count + 1, sum + one));
            if sum + GAP * usize::saturating_sub(count, 1) <= width {
                return;
            }
            let columns = self.widths.iter_mut().zip(&self.is_name).rev();
            let mut spare = columns.filter(|(width, is_name)| width.is_some() && !**is_name);
            let Some((last, _)) = spare.next() else { return };
            *last = None;
        }
    }

    /// Takes from the widest columns until the row fits, or nothing is left to take.
    fn narrow(&mut self, width: usize, names_too: bool, narrowest: usize) {
        let shown = self.widths.iter().flatten();
        let (count, sum) = shown.fold((0, 0), |(count, sum), one| (count + 1, sum + one));
        let gaps = GAP * usize::saturating_sub(count, 1);
        for _ in 0..(sum + gaps).saturating_sub(width) {
            let columns = self.widths.iter_mut().zip(&self.is_name);
            let open = columns.filter(|(_, is_name)| names_too || !**is_name);
            let open = open.filter_map(|(width, _)| width.as_mut());
            let Some(widest) = open.filter(|width| **width > narrowest).max() else { return };
            *widest -= 1;
        }
    }

    /// The line that names the columns left out.
    pub fn left_out(&self, headings: &[String]) -> Option<String> {
        let missing = self.widths.iter().zip(headings).filter(|(width, _)| width.is_none());
        let missing: Vec<&str> = missing.map(|(_, heading)| heading.as_str()).collect();
        let width = self.width.filter(|_| !missing.is_empty())?;
        let names = missing.join(", ");
        Some(format!("left out to fit {width} columns: {names}   (a pipe shows all: | less -S)"))
    }

    /// Adds one row to a text.
    pub fn write(&self, text: &mut String, row: &[String]) {
        write_row(text, row, &self.widths);
    }
}

fn write_row(text: &mut String, cells: &[String], widths: &[Option<usize>]) {
    let start = text.len();
    let shown = widths.iter().enumerate().filter_map(|(at, width)| Some((at, (*width)?)));
    for (at, width) in shown {
        let cell = cells.get(at).map_or("", String::as_str);
        let columns = columns_of(cell);
        match columns <= width {
            true => text.push_str(cell),
            false => text.push_str(&cut(cell, width)),
        }
        text.extend(std::iter::repeat_n(' ', width.saturating_sub(columns) + GAP));
    }
    let end = text[start..].trim_end().len();
    text.truncate(start + end);
    text.push('\n');
}

/// The text in at most so many columns; what is cut ends in `…`.
pub fn cut(cell: &str, width: usize) -> String {
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
        .0
    }

    #[test]
    fn piped_it_is_as_wide_as_it_needs_to_be() {
        assert_eq!(table(None), "NAME       SELECTOR\na          app == \"web\"\nlong-name\n");
    }

    #[test]
    fn on_a_narrow_terminal_the_widest_column_gives_way_with_an_ellipsis() {
        assert_eq!(table(Some(19)), "NAME       SELECTOR\na          app == …\nlong-name\n");
    }

    #[test]
    fn where_only_stubs_would_be_left_the_last_columns_go_and_names_stay() {
        let headings = ["NAMESPACE", "NAME", "TIER", "SELECTOR"].map(String::from);
        let row = ["shop", "a-rather-long-name", "default", "app == \"web\""].map(String::from);
        let shown = |width| render(&headings, &[row.to_vec()], Some(width));
        let (text, left_out) = shown(38);
        assert_eq!(
            text,
            "NAMESPACE  NAME                TIER\nshop       a-rather-long-name  default\n"
        );
        assert!(left_out.unwrap().starts_with("left out to fit 38 columns: SELECTOR "));
        let (text, left_out) = shown(20);
        assert_eq!(text, "NAMESPACE  NAME\nshop       a-rather…\n");
        assert!(left_out.unwrap().contains(": TIER, SELECTOR "));
    }
}
