//! The figures of a run, as a table or as JSON.

use serde_json::{Value, json};

/// Which way a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
}

/// One number of the report.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// What was done (`table of 10,000 policies, etcd`).
    pub(crate) what: String,
    /// What was counted (`CPU ms`).
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    pub(crate) better: Better,
    /// The number to reach.
    pub(crate) aim: Option<f64>,
    /// The number of the real calicoctl in the same run.
    pub(crate) calicoctl: Option<f64>,
}

impl Figure {
    pub(crate) fn less(what: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { what: what.into(), unit, value, better: Better::Less, aim: None, calicoctl: None }
    }

    pub(crate) fn more(what: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { better: Better::More, ..Self::less(what, unit, value) }
    }

    pub(crate) fn aim(self, aim: impl Into<Option<f64>>) -> Self {
        Self { aim: aim.into(), ..self }
    }

    pub(crate) fn beside(self, calicoctl: Option<f64>) -> Self {
        Self { calicoctl, ..self }
    }

    fn is_met(&self) -> Option<bool> {
        self.aim.map(|aim| match self.better {
            Better::Less => self.value <= aim,
            Better::More => self.value >= aim,
        })
    }

    fn cells(&self) -> [String; 7] {
        let or_nothing = |number: Option<f64>| number.map(number_text).unwrap_or_default();
        let met = match self.is_met() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let ratio = self.calicoctl.map(|theirs| format!("1/{:.1}", theirs / self.value));
        [
            self.what.clone(),
            self.unit.to_owned(),
            number_text(self.value),
            or_nothing(self.aim),
            met.to_owned(),
            or_nothing(self.calicoctl),
            ratio.unwrap_or_default(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "what": self.what, "unit": self.unit, "value": self.value, "aim": self.aim,
            "met": self.is_met(), "calicoctl": self.calicoctl,
        })
    }
}

/// Three figures are enough of a number; large ones get separators.
pub(crate) fn number_text(number: f64) -> String {
    let digits = match number.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{number:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && digit != '-' && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

const HEADINGS: [&str; 7] = ["what", "figure", "here", "aim", "met", "calicoctl", "ratio"];

/// The figures as a Markdown table whose columns line up. Columns that say nothing are left out.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(figures.iter().map(Figure::cells));
    let is_said = |column: usize| rows[1..].iter().any(|row| !row[column].is_empty());
    let said: Vec<usize> = (0..HEADINGS.len()).filter(|column| is_said(*column)).collect();
    let kept = rows.iter().map(|row| said.iter().map(|column| row[*column].clone()).collect());
    aligned(kept.collect(), &[0, 1, 4])
}

/// Rows as a Markdown table whose columns line up, those of texts to the left. What the first
/// column repeats is left out.
pub(crate) fn aligned(mut rows: Vec<Vec<String>>, texts: &[usize]) -> String {
    let mut last = String::new();
    for row in &mut rows[1..] {
        if row[0] == last {
            row[0].clear();
        } else {
            last.clone_from(&row[0]);
        }
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match texts
            .contains(&column)
        {
            true => format!(" {cell:<width$} "),
            false => format!(" {cell:>width$} "),
        });
        format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    let mut text = line(&rows[0]);
    text += &format!("|{}|\n", rule.join("|"));
    rows[1..].iter().for_each(|row| text += &line(row));
    text
}

/// Figures that have a table of their own.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    pub(crate) title: &'static str,
    /// The table in Markdown.
    pub(crate) table: String,
    pub(crate) figures: Vec<Figure>,
}

/// Everything for people: one table of the figures, and the sheets.
pub(crate) fn tables(figures: &[Figure], sheets: &[Sheet]) -> String {
    let mut text = if figures.is_empty() { String::new() } else { table(figures) };
    for sheet in sheets {
        let gap = if text.is_empty() { "" } else { "\n" };
        text += &format!("{gap}{}:\n\n{}", sheet.title, sheet.table);
    }
    text
}

/// The figures as a JSON list.
pub(crate) fn json<'f>(figures: impl Iterator<Item = &'f Figure>) -> String {
    let all = figures.map(Figure::json).collect();
    text::json::to_string_indented(&Value::Array(all)) + "\n"
}

/// The middle of the numbers.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    percentile(numbers, 50.0)
}

/// The number below which so many per cent of them lie.
pub(crate) fn percentile(numbers: impl IntoIterator<Item = f64>, percent: f64) -> f64 {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    let place = (numbers.len().saturating_sub(1)) as f64 * percent / 100.0;
    #[expect(clippy::cast_possible_truncation, reason = "a place in a list in memory")]
    numbers.get(place.round() as usize).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number_text(1_234_567.8), "1,234,568");
        assert_eq!(number_text(12.345), "12.3");
        assert_eq!(number_text(0.5), "0.50");
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(percentile((0..=100).map(f64::from), 99.0), 99.0);
    }

    #[test]
    fn an_aim_is_met_from_the_right_side() {
        assert_eq!(Figure::less("", "ms", 1.0).aim(2.0).is_met(), Some(true));
        assert_eq!(Figure::more("", "per s", 1.0).aim(2.0).is_met(), Some(false));
    }
}
