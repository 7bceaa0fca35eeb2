//! The command `version`.

use std::io::Write as _;

use api::Kind;
use serde_json::Value;
use store::resources::Name;

use super::session::Session;
use super::stop::Stop;
use api::EMULATED_CALICO_VERSION;

/// Prints the versions of the program and of the cluster; with `--poll` whenever they change.
pub(crate) fn run(session: &mut Session<'_>) -> Result<(), Stop> {
    let poll = match session.parsed.text("poll") {
        None => None,
        Some(text) => Some(
            text.parse::<net::Duration>()
                .ok()
                .and_then(net::Duration::to_std)
                .ok_or_else(|| Stop::Error(format!("invalid poll duration specified: {text}")))?,
        ),
    };
    let poll = poll.filter(|poll| !poll.is_zero());
    writeln!(session.out, "Client Version:    {EMULATED_CALICO_VERSION}")?;
    writeln!(session.out, "Git commit:        margay-{}", env!("CARGO_PKG_VERSION"))?;
    if session.parsed.is_set("client") {
        return Ok(());
    }
    let mut before = (String::new(), String::new());
    loop {
        let result = cluster(session, &mut before);
        let Some(poll) = poll else { return result };
        match result {
            Err(Stop::Error(words)) => {
                session.out.flush()?;
                writeln!(std::io::stderr(), "{words}")?;
                before = (String::new(), String::new());
            }
            Err(stop) => return Err(stop),
            Ok(()) => {}
        }
        session.out.flush()?;
        std::thread::sleep(poll);
    }
}

fn cluster(session: &mut Session<'_>, before: &mut (String, String)) -> Result<(), Stop> {
    let name = Name::cluster(Kind::ClusterInformation, "default");
    let stored = session.datastore.open()?.get(&name).map_err(|error| {
        let words = error.calico();
        Stop::Error(format!("unable to retrieve Cluster Version or Type: {words}"))
    })?;
    let field = |pointer: &str| {
        let text = stored.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
    };
    let (version, kind) = (field("/spec/calicoVersion"), field("/spec/clusterType"));
    if before.0 != version {
        writeln!(session.out, "Cluster Version:   {version}")?;
    }
    if before.1 != kind {
        writeln!(session.out, "Cluster Type:      {kind}")?;
    }
    *before = (version, kind);
    Ok(())
}
