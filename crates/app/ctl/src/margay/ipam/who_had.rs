//! `margay ipam who-had`: who used an address when, from the events of this node's agent.

use std::net::IpAddr;

use host::events::{self, Event, Wanted};
use host::protocol::Inquiry;
use host::report::Events;
use serde_json::json;

use super::super::arguments::WhoHadArguments;
use super::super::failure::Failure;
use super::super::session::Session;
use super::super::{get, structured, table};

/// One who had the address.
#[derive(Debug, PartialEq, Eq)]
struct Stay {
    who: String,
    from: Option<String>,
    until: Option<String>,
}

/// The command. Ends with 1 if nobody is known to have had it.
pub(crate) fn run(session: &Session, arguments: &WhoHadArguments) -> Result<bool, Failure> {
    let address = net::parse_ip(&arguments.ip).ok_or_else(|| {
        Failure::new(format!("\"{}\" is not an IP address", arguments.ip))
            .help("margay ipam who-had 10.65.0.7 --at 2026-11-16T07:00:00Z")
    })?;
    let at = arguments.at.as_deref().map(moment).transpose()?;
    let wanted = Wanted { about: Some(address.to_string()), ..Wanted::default() };
    let asked = arguments.agent.ask::<Events>(&Inquiry::Events(wanted.clone()));
    let events = match asked {
        Ok(answer) => answer.events,
        Err(_) => events::read(&arguments.state_dir.join("events.jsonl"), &wanted),
    };
    let mut stays = stays(&events, address);
    if let Some(at) = &at {
        stays.retain(|stay| {
            stay.from.as_ref().is_none_or(|from| from <= at)
                && stay.until.as_ref().is_none_or(|until| at < until)
        });
    }
    // A block that cannot be read says nothing about the past.
    let holder = match at {
        Some(_) => None,
        None => session.resources.ipam_holder(address).unwrap_or_default(),
    };
    let handle = holder.and_then(|holder| holder.handle);
    if let Some(format) = arguments.format.output {
        let stays: Vec<_> = stays
            .iter()
            .map(|it| json!({"who": it.who, "from": it.from, "until": it.until}))
            .collect();
        let answer = json!({"address": address.to_string(), "had": stays, "handle": handle});
        session.terminal.page(&structured(format, &answer))?;
        return Ok(true);
    }
    if let Some(handle) = &handle {
        session.terminal.page(&format!("{address} is held by {handle} now\n"))?;
    }
    if stays.is_empty() {
        get::complain(&format!("no event of this node names who had {address}"))?;
        return Ok(handle.is_some());
    }
    let shown = |time: &Option<String>| time.clone().unwrap_or_else(|| "?".to_owned());
    let rows: Vec<Vec<String>> = stays
        .iter()
        .map(|it| {
            let until = it.until.clone().unwrap_or_else(|| "now".to_owned());
            vec![shown(&it.from), until, it.who.clone()]
        })
        .collect();
    table::show(session.terminal, &["FROM", "UNTIL", "WHO"], &rows)?;
    Ok(true)
}

fn moment(text: &str) -> Result<String, Failure> {
    let time: jiff::Timestamp = text.parse().map_err(|_| {
        Failure::new(format!("\"{text}\" is not a time, --at")).help("such as 2026-11-16T07:00:00Z")
    })?;
    Ok(api::schema::utc(time.as_second()))
}

/// Who had an address from when until when; the events are in order.
fn stays(events: &[Event], address: IpAddr) -> Vec<Stay> {
    let mut stays: Vec<Stay> = Vec::new();
    for event in events.iter().filter(|event| names(&event.text, address)) {
        let who = event.text.split(", ").next().unwrap_or_default().to_owned();
        let is_open = |stay: &&mut Stay| stay.until.is_none() && stay.who == who;
        let time = Some(event.time.clone());
        match event.sort.as_str() {
            "added" => stays.push(Stay { who, from: time, until: None }),
            "removed" => match stays.iter_mut().rev().find(is_open) {
                Some(stay) => stay.until = time,
                None => stays.push(Stay { who, from: None, until: time }),
            },
            _ => {}
        }
    }
    stays
}

/// Whether a text names exactly this address.
fn names(text: &str, address: IpAddr) -> bool {
    text.split([',', ' ']).any(|word| net::parse_ip(word) == Some(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: &str, sort: &str, text: &str) -> Event {
        Event { number: 0, time: time.into(), sort: sort.into(), text: text.into() }
    }

    #[test]
    fn an_address_goes_from_hand_to_hand() {
        let one = "container c1 eth0, 10.0.0.1, fd00::1 on cali1, network net";
        let two = "pod shop/web (c2 eth0), 10.0.0.1 on cali2, network net";
        let near = "container c3 eth0, 10.0.0.10 on cali3, network net";
        let events = [
            event("1", "added", one),
            event("2", "added", near),
            event("3", "removed", one),
            event("4", "added", two),
        ];
        let stay = |who: &str, from: &str, until: Option<&str>| Stay {
            who: who.to_owned(),
            from: Some(from.to_owned()),
            until: until.map(str::to_owned),
        };
        let address = "10.0.0.1".parse().unwrap();
        let expected =
            [stay("container c1 eth0", "1", Some("3")), stay("pod shop/web (c2 eth0)", "4", None)];
        assert_eq!(stays(&events, address), expected);
    }
}
