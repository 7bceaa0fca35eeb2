//! `margay policy suggest`: the smallest policy that would let traffic through, as YAML.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use model::resource::Direction;
use policy::suggest::{Advice, Suggestion, Wish, suggest};
use serde_json::Value;

use super::super::arguments::{self, Structured};
use super::super::complete;
use super::super::failure::Failure;
use super::super::get::complain;
use super::super::session::Session;
use super::super::structured;
use super::super::terminal::{Terminal, printable};
use super::hops::{Hop, word};
use super::screen::what;
use super::world::World;
use super::{Answer, TrafficArguments, ask};
use policy::{Outcome, Place, RuleName};

#[derive(Args, Debug)]
pub(crate) struct SuggestArguments {
    /// Where it comes from: namespace/pod, a pod, an address, a node or a host endpoint
    #[arg(value_name = "SRC", add = ArgValueCompleter::new(complete::ends))]
    pub(crate) source: String,
    /// Where it goes
    #[arg(value_name = "DST", add = ArgValueCompleter::new(complete::ends))]
    pub(crate) destination: String,
    #[command(flatten)]
    pub(crate) traffic: TrafficArguments,
    /// json instead of yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) output: Structured,
}

/// The command. The policies go to standard output, so that they can be applied; what there is to
/// say about them goes to standard error.
pub(crate) fn run(
    terminal: Terminal,
    place: &arguments::Place,
    arguments: &SuggestArguments,
) -> Result<bool, Failure> {
    let session = Session::open(place)?;
    let world = World::read(&session)?;
    let answers = ask(&world, &arguments.source, &arguments.destination, &arguments.traffic)?;
    let Some(answer) = answers.first() else { return Ok(true) };
    let mut policies: Vec<Value> = Vec::new();
    for hop in answer.hops.iter().filter(|hop| hop.walk.outcome == Some(Outcome::Deny)) {
        let suggestion = of_hop(answer, hop)?;
        say(hop, &suggestion)?;
        policies.push(suggestion.policy);
    }
    if policies.is_empty()
        && let Some(unknown) = answer.unknown.first()
    {
        let what = format!("it is not known whether {} is allowed", what(&answer.packet));
        return Err(Failure::new(what).why(unknown.to_string()));
    }
    if policies.is_empty() {
        let typed = answer.typed();
        complain(&format!("nothing to do, it is allowed; margay explain {typed} says why"))?;
        return Ok(true);
    }
    let text: String = match arguments.output {
        Structured::Yaml => policies
            .iter()
            .map(|it| structured(Structured::Yaml, it))
            .collect::<Vec<_>>()
            .join("---\n"),
        Structured::Json if policies.len() == 1 => structured(Structured::Json, &policies[0]),
        Structured::Json => structured(Structured::Json, &Value::Array(policies)),
    };
    terminal.page(&text)?;
    Ok(true)
}

fn of_hop(answer: &Answer<'_>, hop: &Hop) -> Result<Suggestion, Failure> {
    let wish = Wish { endpoint: &hop.endpoint, direction: hop.direction, packet: &hop.packet };
    let at = format!("{} of {}", word(hop.direction), hop.name);
    if let Some(RuleName { place: Place::Guard { reason }, .. }) = &hop.walk.decided_by {
        let failure = Failure::new(format!("no policy allows it at {at}")).why(reason);
        return Err(
            failure.help("margay help field FelixConfiguration.spec.defaultEndpointToHostAction")
        );
    }
    match suggest(&answer.world.cluster, wish) {
        Advice::Policy(suggestion) => Ok(*suggestion),
        Advice::Allowed(_) => Err(Failure::new(format!("it is allowed at {at}"))),
        Advice::Impossible(why) => {
            let failure = Failure::new(format!("no policy can be suggested for {at}")).why(why);
            Err(failure.help("give the endpoint a label of its own, such as app"))
        }
    }
}

fn say(hop: &Hop, suggestion: &Suggestion) -> Result<(), Failure> {
    let Suggestion { denied_by, tier, into, .. } = suggestion;
    let by = match denied_by.place {
        Place::NoProfile => String::new(),
        _ => "denied by ".to_owned(),
    };
    let at = format!("# {} of {}: {by}{denied_by}", word(hop.direction), hop.name);
    let tier = match tier.as_str() {
        "default" => String::new(),
        tier => format!("; the policy belongs into tier {tier}, which denies it"),
    };
    complain(&printable(&format!("{at}{tier}")))?;
    if let Some(into) = into {
        let list = match hop.direction {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        };
        let place = match into.before {
            Some(rule) => format!("before rule {} of spec.{list}", rule + 1),
            None => format!("at the end of spec.{list}"),
        };
        let name = &into.policy;
        complain(&printable(&format!("# or put its rule into policy {name}, {place}")))?;
    }
    Ok(())
}
