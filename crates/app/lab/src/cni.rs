//! CNI calls, as a container runtime makes them: the plugin is run on the node, with the network
//! configuration on its standard input.

use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::agents;
use crate::failure::Failure;
use crate::lab::Lab;
use crate::processes;
use crate::state::Pod;

/// How long a call may take: the plugin waits 20 s for an agent that restarts, and 60 s for one
/// that has heard it.
pub(crate) const CALL_WAIT: Duration = Duration::from_secs(65);
/// The code of an answer that says that no agent answered.
const TRY_AGAIN_LATER: u64 = 11;
/// The interface inside a pod.
const INTERFACE: &str = "eth0";

/// What an ADD gave a pod.
pub(crate) struct Given {
    pub(crate) interface: String,
    pub(crate) addresses: Vec<IpAddr>,
}

/// Connects a pod.
pub(crate) fn add(lab: &Lab, pod: &Pod) -> Result<Given, Failure> {
    let result = call(lab, pod, "ADD")?;
    let list = |name: &str| result[name].as_array().cloned().unwrap_or_default();
    let addresses = list("ips").iter().filter_map(|ip| address(&ip["address"])).collect();
    // The node's side of the cable is the one that is in no sandbox.
    let is_host = |interface: &Value| interface["sandbox"].as_str().unwrap_or("").is_empty();
    let interfaces = list("interfaces");
    let named = |interface: &Value| interface["name"].as_str().map(str::to_owned);
    let interface = interfaces.iter().find(|one| is_host(one)).and_then(named);
    Ok(Given { interface: interface.unwrap_or_default(), addresses })
}

/// Disconnects a pod.
pub(crate) fn del(lab: &Lab, pod: &Pod) -> Result<(), Failure> {
    call(lab, pod, "DEL").map(|_| ())
}

fn address(value: &Value) -> Option<IpAddr> {
    value.as_str()?.parse::<IpNet>().ok().map(|net| net.addr())
}

fn configuration(lab: &Lab, pod: &Pod) -> Value {
    let mut ipam = json!({"type": "calico-ipam"});
    if lab.state.ipv6 {
        ipam["assign_ipv4"] = "true".into();
        ipam["assign_ipv6"] = "true".into();
    }
    json!({
        "cniVersion": "1.0.0",
        "name": "lab",
        "type": "calico",
        "nodename": pod.node,
        "nodename_file_optional": true,
        "agent_socket": lab.place.node(&pod.node, "run").join("agent.sock"),
        "ipam": ipam,
        "args": { "org.apache.mesos": { "network_info": { "labels": { "labels": [
            { "key": "app", "value": pod.role() },
        ] } } } },
    })
}

fn call(lab: &Lab, pod: &Pod, verb: &str) -> Result<Value, Failure> {
    let programs = lab.place.programs();
    let mut command = processes::command(&lab.place, programs.join("calico"), "cni");
    lab.surround(&mut command);
    command
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", &pod.container)
        .env("CNI_NETNS", lab.place.namespace(&pod.name))
        .env("CNI_IFNAME", INTERFACE)
        .env("CNI_PATH", &programs)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let failed =
        |why: String| Failure::new(format!("CNI {verb} of {} on {}", pod.name, pod.node)).why(why);
    let mut child = processes::spawn_in(&lab.netns(&pod.node)?, &mut command)?;
    let input = text::json::to_string(&configuration(lab, pod));
    // A plugin that does not read has a reason, which its answer gives.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let status = processes::wait(&mut child, CALL_WAIT)
        .map_err(|error| failed(error.to_string()))?
        .ok_or_else(|| {
            let why = format!("no answer within {} s", CALL_WAIT.as_secs());
            agents::explain_silence(lab, &pod.node, failed(why))
        })?;
    let mut said = Vec::new();
    let _ = child.stdout.take().map(|mut out| out.read_to_end(&mut said));
    if status.success() {
        if verb == "DEL" {
            return Ok(Value::Null);
        }
        return text::json::parse(&said).map_err(|error| failed(error.to_string()));
    }
    let answer = text::json::parse(&said).unwrap_or_default();
    let why = match answer["msg"].as_str() {
        Some(message) => format!("{message} (code {})", answer["code"]),
        None => format!("it ended with {status} {}", processes::complaint(&mut child)),
    };
    let mut failure = failed(why);
    if answer["code"] == TRY_AGAIN_LATER {
        failure = agents::explain_silence(lab, &pod.node, failure);
    }
    Err(match answer["details"].as_str().filter(|text| !text.is_empty()) {
        Some(details) => failure.detail(details),
        None => failure,
    })
}
