//! Numbers in the words of people, and words for a shell.

/// An age: the largest unit that it has two of.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// One or several, with the number.
pub fn count(n: usize, word: &str) -> String {
    match n {
        1 => format!("1 {word}"),
        n if word.ends_with("ss") || word.ends_with('x') => format!("{n} {word}es"),
        n => format!("{n} {word}s"),
    }
}

/// A word as a shell reads it: in quotes where it has to be.
pub fn shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        assert_eq!([age(5), age(300), age(7200), age(200_000)], ["5 s", "5 min", "2 h", "2 d"]);
    }

    #[test]
    fn words_reach_a_shell_as_they_are() {
        let words = ["/var/lib/a-b.json", "a b", "a'; rm b", ""];
        assert_eq!(words.map(shell), ["/var/lib/a-b.json", "'a b'", r"'a'\''; rm b'", "''"]);
    }

    #[test]
    fn words_are_counted() {
        let counted = [count(1, "process"), count(2, "process"), count(0, "pod"), count(3, "box")];
        assert_eq!(counted, ["1 process", "2 processes", "0 pods", "3 boxes"]);
    }
}
