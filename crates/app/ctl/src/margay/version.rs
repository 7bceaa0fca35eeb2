//! `margay version`.

use serde_json::json;

use super::arguments::{Format, Place};
use super::failure::Failure;
use super::session::{Session, name_of};
use super::structured;
use super::terminal::Terminal;
use api::EMULATED_CALICO_VERSION;

/// Shows the versions of this program and, unless told not to, of the cluster.
pub(crate) fn run(
    terminal: Terminal,
    place: &Place,
    client: bool,
    format: Format,
) -> Result<bool, Failure> {
    let own = env!("CARGO_PKG_VERSION");
    let mut answer = json!({"margay": own, "calico": EMULATED_CALICO_VERSION});
    let mut text = format!("margay   {own}, formats of Calico {EMULATED_CALICO_VERSION}\n");
    if !client {
        let session = Session::open(place)?;
        let name = name_of(api::Kind::ClusterInformation, None, "default");
        let line = match session.resources.get(&name) {
            Ok(stored) => {
                let spec = &stored.object["spec"];
                let of = |field: &str| spec[field].as_str().unwrap_or("").to_owned();
                answer["cluster"] = spec.clone();
                let version = Some(of("calicoVersion")).filter(|version| !version.is_empty());
                let version = version.unwrap_or_else(|| "of no version".to_owned());
                let kind = of("clusterType");
                let kind = if kind.is_empty() { kind } else { format!(", {kind}") };
                format!("{version}{kind} (guid {})", of("clusterGUID"))
            }
            Err(error) if error.is_not_found() => {
                format!("{} is empty: nothing was ever written", session.store.describe())
            }
            Err(error) => return Err(error.into()),
        };
        text += &format!("cluster  {line}\n");
    }
    let shown = format.output.map_or(text, |format| structured(format, &answer));
    terminal.page(&shown)?;
    Ok(true)
}
