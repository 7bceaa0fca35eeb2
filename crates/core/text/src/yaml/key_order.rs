//! The order in which keys are printed: natural order, with `a2` before `a10`.

use std::cmp::Ordering;

/// Compares two keys at their first difference: other characters before letters, runs of
/// digits by their number, and a prefix before the longer text.
pub(super) fn compare(left: &str, right: &str) -> Ordering {
    if left.is_ascii() && right.is_ascii() {
        let at = left.bytes().zip(right.bytes()).position(|(a, b)| a != b);
        return match at {
            None => left.len().cmp(&right.len()),
            Some(at) => {
                let (a, b) = (left.as_bytes()[at], right.as_bytes()[at]);
                if a.is_ascii_alphabetic() && b.is_ascii_alphabetic() {
                    a.cmp(&b)
                } else {
                    let wide = |text: &str| text.chars().collect::<Vec<_>>();
                    at_difference(&wide(left), &wide(right), at)
                }
            }
        };
    }
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    match left.iter().zip(&right).position(|(a, b)| a != b) {
        None => left.len().cmp(&right.len()),
        Some(at) => at_difference(&left, &right, at),
    }
}

fn at_difference(left: &[char], right: &[char], at: usize) -> Ordering {
    let (a, b) = (left[at], right[at]);
    match (a.is_alphabetic(), b.is_alphabetic()) {
        (true, true) => return a.cmp(&b),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // A zero weighs nothing at the start of a number, but shifts one that began before.
    let inside_number = (a == '0' || b == '0')
        && left[..at].iter().rev().take_while(|c| c.is_ascii_digit()).any(|c| *c != '0');
    let (a_number, a_digits) = digit_run(&left[at..], inside_number);
    let (b_number, b_digits) = digit_run(&right[at..], inside_number);
    a_number.cmp(&b_number).then(a_digits.cmp(&b_digits)).then(a.cmp(&b))
}

/// The number at the start of `text` and how many digits it has.
fn digit_run(text: &[char], inside_number: bool) -> (i64, usize) {
    let mut number = i64::from(inside_number);
    let mut count = 0;
    for digit in text.iter().map_while(|c| c.to_digit(10)) {
        // Numbers beyond 64 bits wrap around in the original too.
        number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
        count += 1;
    }
    (number, count)
}

/// Sorts by [`compare`]. A merge sort of our own, because the order has cycles for odd keys
/// and the library's sort may panic on those.
pub(super) fn sort<T>(entries: &mut Vec<(&str, T)>)
where
    T: Copy,
{
    if entries.is_sorted_by(|a, b| compare(a.0, b.0) != Ordering::Greater) {
        return;
    }
    let mut width = 1;
    while width < entries.len() {
        let mut merged = Vec::with_capacity(entries.len());
        for pair in entries.chunks(width * 2) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while let (Some(a), Some(b)) = (left.first(), right.first()) {
                if compare(b.0, a.0) == Ordering::Less {
                    merged.push(*b);
                    right = &right[1..];
                } else {
                    merged.push(*a);
                    left = &left[1..];
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        *entries = merged;
        width *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_keys_count_as_numbers() {
        let mut keys = vec![("a10", ()), ("a2", ()), ("b", ()), ("a", ()), ("_", ()), ("a01", ())];
        sort(&mut keys);
        let order: Vec<&str> = keys.iter().map(|key| key.0).collect();
        assert_eq!(order, ["_", "a", "a01", "a2", "a10", "b"]);
    }
}
