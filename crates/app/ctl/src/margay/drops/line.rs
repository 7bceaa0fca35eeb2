//! A denied packet in one line, in columns that line up.

use host::drops::Denied;

use super::super::terminal::{Terminal, printable_line};
use super::{Names, News, is_sample, spoken_protocol};

/// The columns are at least so wide, and names are not cut to less than the last.
const WHO_MIN: usize = 40;
const AT_MIN: usize = 12;
const CUT_MIN: usize = 8;

/// One line; times are in UTC.
pub(super) struct Line {
    time: String,
    from: String,
    to: String,
    /// What follows on where it goes: the port and the protocol.
    what: String,
    at: String,
    why: String,
}

impl Line {
    pub(super) fn of(names: &Names, node: &str, news: &News) -> Self {
        let it = &news.drop;
        let time = api::schema::utc(i64::try_from(it.last).unwrap_or(i64::MAX));
        let time = time.get(11..19).unwrap_or(&time).to_owned();
        let port = it.packet.port.map_or(String::new(), |port| format!(":{port}"));
        let [from, to] = names.ends(it);
        let has_names = from.is_some() && to.is_some() && !it.told.is_masked;
        let version = version(&it.packet, has_names);
        let source = it.packet.source;
        let from = match from {
            Some(name) if it.told.is_masked => format!("{name} (as {source})"),
            Some(name) => name,
            None => source.to_string(),
        };
        let to = to.unwrap_or_else(|| it.packet.destination.to_string());
        let (direction, rule) = names.rule(it);
        let more = if is_sample(it) { "+" } else { "" };
        let seconds = (it.last - it.first).max(1);
        let count = match (news.count(), news.already) {
            (1, 0) => String::new(),
            (n, 0) => format!("   ×{n}{more} in {seconds} s"),
            (n, _) => format!("   ×{n}{more} more in {seconds} s"),
        };
        let what = format!("{port} {}{version}", spoken_protocol(it));
        Self { time, from, to, what, at: format!("{node} {direction}"), why: rule + &count }
    }

    /// Whether a word is in it.
    pub(super) fn names(&self, word: &str) -> bool {
        [&self.from, &self.to, &self.what, &self.at, &self.why].iter().any(|it| it.contains(word))
            || self.who().contains(word)
    }

    fn who(&self) -> String {
        format!("{} → {}{}", self.from, self.to, self.what)
    }

    /// In columns; of names that are too long for the screen the middle is left out.
    pub(super) fn text(&self, widths: &Widths) -> String {
        let mut who = self.who();
        let excess = who.chars().count().saturating_sub(widths.who);
        if excess > 0 {
            let [from, to] = [&self.from, &self.to].map(|it| it.chars().count());
            let room = (from + to).saturating_sub(excess);
            // The shorter one stays whole if it can.
            let of_to = to.min((room / 2).max(room.saturating_sub(from)));
            let (from, to) = (cut(&self.from, room - of_to), cut(&self.to, of_to));
            who = format!("{from} → {to}{}", self.what);
        }
        let Self { time, at, why, .. } = self;
        let (left, middle) = (widths.who, widths.at);
        let line = format!("{time}  {who:<left$}  {at:<middle$}  {why}");
        printable_line(&line).into_owned()
    }
}

/// Names hide which version of IP it is.
fn version(packet: &Denied, has_names: bool) -> &'static str {
    if has_names && packet.source.is_ipv6() { " IPv6" } else { "" }
}

/// A name in so many characters: its start and its end tell most.
fn cut(name: &str, room: usize) -> String {
    let n = name.chars().count();
    if n <= room || room < CUT_MIN {
        return name.to_owned();
    }
    let end = (room - 1) / 2;
    let start: String = name.chars().take(room - 1 - end).collect();
    let end: String = name.chars().skip(n - end).collect();
    format!("{start}…{end}")
}

/// How wide the columns are: lines that follow on each other line up.
pub(super) struct Widths {
    who: usize,
    at: usize,
    who_max: usize,
}

impl Widths {
    /// On a narrow screen what decided goes first: who it was can be cut, and has an end.
    pub(super) fn of(terminal: Terminal) -> Self {
        let who_max = terminal.width.map_or(usize::MAX, |width| (width / 2).max(WHO_MIN));
        Self { who: WHO_MIN, at: AT_MIN, who_max }
    }

    pub(super) fn fit(&mut self, line: &Line) {
        self.who = self.who.max(line.who().chars().count()).min(self.who_max);
        self.at = self.at.max(line.at.chars().count());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use host::drops::{Drop, Told};
    use policy::intent::Intent;

    use super::*;

    fn names() -> Names {
        let (intent, as_of) = (Intent::default(), Instant::now());
        Names { world: None, intent, node: "n2".to_owned(), as_of }
    }

    #[test]
    fn a_line_says_who_spoke_to_whom_and_what_denied_it() {
        let names = names();
        let packet = Denied {
            rule: "i:np:1:shop/db".to_owned(),
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol: 6,
            port: Some(5432),
            icmp: None,
            input: None,
            output: None,
        };
        let told = Told::default();
        let it = Drop { number: 1, first: 50_592, last: 50_602, count: 14, packet, told };
        let mut news = News::from(it);
        let line = |names: &Names, node: &str, news: &News| {
            let line = Line::of(names, node, news);
            let mut widths = Widths { who: WHO_MIN, at: AT_MIN, who_max: usize::MAX };
            widths.fit(&line);
            line.text(&widths)
        };
        let said = line(&names, "n2", &news);
        assert!(said.starts_with("14:03:22  10.0.0.1 → 10.0.0.2:5432 tcp "), "{said}");
        assert!(
            said.ends_with("n2 ingress    policy shop/db, ingress rule 2   ×14 in 10 s"),
            "{said}"
        );
        news.drop.packet.rule = "e:end:default".to_owned();
        news.drop.count = 20;
        assert!(line(&names, "n2", &news).ends_with("end of tier default   ×20+ in 10 s"));
        news.drop.count = 1;
        assert!(line(&names, "n2", &news).ends_with("n2 egress     end of tier default"));
        news.drop.told.decided = Some("end of tier default (policies a, b)".to_owned());
        news.drop.told.endpoint = Some("shop/n2-k8s-web-eth0".to_owned());
        let said = line(&names, "n2", &news);
        assert!(said.contains("  shop/n2-k8s-web-eth0 → 10.0.0.2:5432 tcp "), "{said}");
        assert!(said.ends_with("n2 egress     end of tier default (policies a, b)"), "{said}");
        news.drop.told = Told::default();
        news.drop.packet.rule = "\u{1b}[31m".to_owned();
        assert!(!line(&names, "n2", &news).contains('\u{1b}'));
    }

    #[test]
    fn whoever_lies_about_its_address_is_named_and_names_hide_no_family() {
        let packet = Denied {
            rule: "e:guard:source".to_owned(),
            source: [10, 9, 9, 9].into(),
            destination: [10, 0, 0, 2].into(),
            protocol: 6,
            port: Some(80),
            icmp: None,
            input: Some("cali1".to_owned()),
            output: None,
        };
        let told = Told { decided: None, endpoint: Some("shop/web-1".to_owned()), is_masked: true };
        let it = Drop { number: 1, first: 1, last: 1, count: 1, packet, told };
        let line = |it: &Drop| Line::of(&names(), "n2", &News::from(it.clone()));
        assert_eq!(line(&it).who(), "shop/web-1 (as 10.9.9.9) → 10.0.0.2:80 tcp");
        assert!(line(&it).names("web-1") && !line(&it).names("10.9.9.9 → 10"));
        let mut packet = it.packet;
        assert_eq!(version(&packet, true), "");
        packet.source = std::net::Ipv6Addr::LOCALHOST.into();
        assert_eq!((version(&packet, true), version(&packet, false)), (" IPv6", ""));
    }

    #[test]
    fn columns_line_up_and_long_names_are_cut_in_the_middle() {
        let line = |from: &str, to: &str| Line {
            time: "14:03:22".to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            what: ":80 tcp".to_owned(),
            at: "n2 ingress".to_owned(),
            why: "end of tier default".to_owned(),
        };
        let long = "shop/a-pod-with-a-very-long-name-7d4b9c6f5-x2k9p";
        let lines = [line("shop/web-1", "shop/db-0"), line(long, "shop/db-0"), line(long, long)];
        let shown = |who_max| -> Vec<String> {
            let mut widths = Widths { who: WHO_MIN, at: AT_MIN, who_max };
            lines.iter().for_each(|line| widths.fit(line));
            lines.iter().map(|line| line.text(&widths)).collect()
        };
        for who_max in [usize::MAX, 60] {
            let shown = shown(who_max);
            let places: Vec<Option<usize>> = shown
                .iter()
                .map(|line| line.find("n2 ingress").map(|at| line[..at].chars().count()))
                .collect();
            assert!(places.iter().all(|it| it.is_some() && *it == places[0]), "{shown:?}");
        }
        let shown = shown(60);
        assert!(
            shown[1].contains("a-pod-with-a-ve…name-7d4b9c6f5-x2k9p → shop/db-0:80 tcp"),
            "{shown:?}"
        );
        assert!(shown[2].contains("…"), "{shown:?}");
    }
}
