//! Bare `margay`: what runs here, which store would be used and why, and what to do next.

use store::etcd::Config;

use super::arguments::Place;
use super::session::{say_waiting, with_surroundings};
use super::status;
use super::terminal::{Colour, Mark, Terminal};
use store::settings::{Choice, Datastore, without_secrets};

/// The text of the overview, and whether the datastore can be used. It opens nothing that is not
/// there: looking must not leave traces.
pub(crate) fn text(terminal: Terminal, place: &Place) -> (String, bool) {
    let version = env!("CARGO_PKG_VERSION");
    let title = format!("margay {version}: a network for Kubernetes and plain Linux hosts\n");
    let label = |name: &str| terminal.paint(Colour::Bold, &format!("{name:6}"));
    let (store, is_fine) = with_surroundings(place, |surroundings| match surroundings.choose() {
        Ok(choice) => describe(terminal, &choice),
        Err(error) => (format!("{} {error}", terminal.mark(Mark::Broken)), false),
    });
    let agent = status::line(terminal);
    let next = match (is_fine, &agent) {
        (true, Some(_)) => "margay status · margay get nodes · margay help",
        (true, None) => "margay lab up · margay get nodes · margay apply -f FILE · margay help",
        (false, _) => "margay version says more · margay --store FILE uses a store in a file",
    };
    let agent = agent.unwrap_or_else(|| "none runs here      (margay setup --plan)".to_owned());
    let text = format!(
        "{title}{}  {store}\n{}  {agent}\n{}  {next}\n",
        label("store"),
        label("agent"),
        label("next")
    );
    (text, is_fine)
}

fn describe(terminal: Terminal, choice: &Choice) -> (String, bool) {
    let why = &choice.why;
    match &choice.datastore {
        Datastore::Embedded(path) => {
            let read = choice.datastore.open().and_then(|store| match &store {
                store::Store::Sqlite(file) if file.is_absent() => Ok(None),
                store => store.get("/calico/").map(|(_, revision)| Some(revision)),
            });
            match read {
                Ok(None) => (format!("{}  ({why}, made by the first write)", path.display()), true),
                Ok(Some(_)) => (format!("{}  ({why})", path.display()), true),
                // The error names the file.
                Err(error) => (format!("{} {error}  ({why})", terminal.mark(Mark::Broken)), false),
            }
        }
        Datastore::Etcd(settings) => {
            let adjust = |config: &mut Config| config.waiting = Some(say_waiting);
            let reached = choice
                .datastore
                .open_with(None, adjust)
                .and_then(|store| store.get("/calico/").map(|(_, revision)| revision));
            let place = match settings.endpoints.as_str() {
                "" => settings.discovery_srv.clone(),
                endpoints => without_secrets(endpoints),
            };
            match reached {
                Ok(revision) => {
                    let mark = terminal.mark(Mark::Fine);
                    (format!("etcd {place}  {mark} revision {revision}  ({why})"), true)
                }
                Err(error) => {
                    let mark = terminal.mark(Mark::Broken);
                    (format!("etcd {place}  {mark} {error}  ({why})"), false)
                }
            }
        }
    }
}
