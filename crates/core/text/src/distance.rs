//! The nearest known name to one that is not known, for "did you mean".

/// The known name that `name` was most likely meant to be.
///
/// Letter case does not count. A third of the letters may be wrong, at least one; swapping two
/// neighbours is one mistake. Of equally near names the first wins.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let name: Vec<char> = name.chars().take(MAX_LETTERS + 1).flat_map(char::to_lowercase).collect();
    if name.is_empty() || name.len() > MAX_LETTERS {
        return None;
    }
    let allowed = (name.len() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let letters: Vec<char> = candidate.chars().flat_map(char::to_lowercase).collect();
        if letters.len().abs_diff(name.len()) > allowed {
            continue;
        }
        let mistakes = distance(&name, &letters);
        if mistakes <= allowed && best.is_none_or(|(least, _)| mistakes < least) {
            best = Some((mistakes, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Longer names are not worth the comparison.
const MAX_LETTERS: usize = 100;

/// Letters to add, drop, replace or swap with their neighbour.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let mut least = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_name_that_was_meant() {
        let known = ["selector", "serviceAccountSelector", "order", "ingress", "egress", "types"];
        for (typed, meant) in [
            ("selctor", Some("selector")),
            ("SELECTOR", Some("selector")),
            ("odrer", Some("order")),
            ("egres", Some("egress")),
            ("tpyes", Some("types")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }
}
