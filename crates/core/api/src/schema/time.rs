//! RFC 3339 times, as Kubernetes reads and writes them.

/// The time in UTC and whole seconds, or `None` when the text is no RFC 3339 time.
pub(crate) fn in_utc(text: &str) -> Option<String> {
    let number =
        |from: usize, to: usize| -> Option<i64> { net::parse_decimal(text.get(from..to)?) };
    let separators = [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")];
    if separators.iter().any(|(at, mark)| text.get(*at..at + 1) != Some(mark)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let in_range = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !in_range {
        return None;
    }
    // As Kubernetes writes them, which is how nearly all are stored.
    if text.get(19..) == Some("Z") {
        return Some(text.to_owned());
    }
    let offset = offset_seconds(after_fraction(text.get(19..)?)?)?;
    let of_day = hour * 3600 + minute * 60 + second;
    Some(write(days_from_year_zero(year, month, day) * 86_400 + of_day - offset))
}

/// What follows the fraction of the seconds, which counts for nothing.
fn after_fraction(text: &str) -> Option<&str> {
    let Some(fraction) = text.strip_prefix(['.', ',']) else { return Some(text) };
    let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < fraction.len()).then_some(rest)
}

fn offset_seconds(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let hours: i64 = net::parse_decimal(zone.get(1..3)?)?;
    let minutes: i64 = net::parse_decimal(zone.get(4..)?)?;
    let fits = zone.len() == 6 && zone.get(3..4) == Some(":") && hours <= 24 && minutes < 60;
    fits.then_some(sign * (hours * 3600 + minutes * 60))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_before_year(year: i64) -> i64 {
    let past = year - 1;
    365 * year + past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400)
}

fn days_from_year_zero(year: i64, month: i64, day: i64) -> i64 {
    let months: i64 = (1..month).map(|month| days_in_month(year, month)).sum();
    days_before_year(year) + months + day - 1
}

/// The time that many seconds after the start of 1970, in UTC.
pub fn utc(unix_seconds: i64) -> String {
    // Far beyond the year 9999, and far from overflow.
    let seconds = unix_seconds.clamp(-62_135_596_800, 253_402_300_799);
    write(days_from_year_zero(1970, 1, 1) * 86_400 + seconds)
}

fn write(seconds: i64) -> String {
    let (mut days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The estimate is never too late, and at most a year or two too early.
    let mut year = days.div_euclid(366);
    while days_before_year(year + 1) <= days {
        year += 1;
    }
    days -= days_before_year(year);
    let mut month = 1;
    while days >= days_in_month(year, month) {
        days -= days_in_month(year, month);
        month += 1;
    }
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::{in_utc, utc};

    #[test]
    fn seconds_count_from_1970() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(1_794_770_996), "2026-11-15T19:29:56Z");
        assert_eq!(utc(-1), "1969-12-31T23:59:59Z");
        assert_eq!(utc(i64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn times_are_written_in_utc_and_whole_seconds() {
        let utc = |text| in_utc(text);
        assert_eq!(utc("2024-02-29T23:59:59Z").as_deref(), Some("2024-02-29T23:59:59Z"));
        assert_eq!(utc("2024-02-29T23:30:00.75-01:00").as_deref(), Some("2024-03-01T00:30:00Z"));
        assert_eq!(utc("2000-01-01T00:00:00+00:01").as_deref(), Some("1999-12-31T23:59:00Z"));
        assert_eq!(utc("0001-01-01T00:00:00Z").as_deref(), Some("0001-01-01T00:00:00Z"));
        assert_eq!(utc("9999-12-31T23:59:59Z").as_deref(), Some("9999-12-31T23:59:59Z"));
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in ["", "2024-02-30T00:00:00Z", "2024-01-01 00:00:00Z", "2024-01-01T00:00Z"] {
            assert_eq!(in_utc(text), None, "{text}");
        }
        for text in ["2024-01-01T00:00:00", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00.Z"] {
            assert_eq!(in_utc(text), None, "{text}");
        }
    }
}
