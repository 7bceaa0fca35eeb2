//! A call of the plugin: environment, network configuration, what another address manager answers
//! and the files that it keeps. What is understood has names that the kernel and the datastore
//! take, or is refused.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use sandbox::answer;
use sandbox::call::Call;
use sandbox::identity::{Identity, Workload};
use sandbox::netconf::NetConf;
use sandbox::upgrade::{self, Endpoints, Found};
use sandbox::version::Version;

fuzz_target!(|input: &[u8]| {
    let (variables, configuration) = fuzz::halves(input);
    read_answer(configuration);
    let variables = String::from_utf8_lossy(variables);
    read_file(&variables, configuration);
    let environment: BTreeMap<String, String> = variables
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let Ok(call) = Call::read(&environment, configuration) else { return };
    if let Ok(conf) = NetConf::read(&call.configuration) {
        let _ = (conf.unsupported(), conf.needs_kubernetes(), conf.labels());
    }
    let (identity, workload) = (Identity::of(&call), Workload::of(&call));
    let _ = workload.endpoint_name("node", &identity);
    assert!(identity.spare_host_interface().len() <= 15);
    assert!(workload.host_interface(&identity).len() <= 15);
    if !call.container.is_empty() && !call.interface.is_empty() {
        assert_eq!(Identity::from_alias(&identity.alias()), Some(identity));
    }
});

/// What is read is written in every version's form, and reads the same where that has room.
fn read_answer(configuration: &[u8]) {
    let Ok(value) = text::json::parse(configuration) else { return };
    let Some(read) = answer::read(&value) else { return };
    for version in Version::ALL {
        let written = answer::read(&read.to_json(version)).expect("written answers can be read");
        if version >= Version::V0_3_0 {
            assert_eq!(written, read);
        }
    }
}

/// A file of host-local is understood, or named with what to do about it.
fn read_file(name: &str, contents: &[u8]) {
    let mut endpoints = Endpoints::default();
    endpoints.add(contents);
    let object = text::json::parse(contents).unwrap_or_default();
    let _ = upgrade::names_host_local("net", &object);
    match upgrade::read("/folder", name, || Ok(contents.to_vec())) {
        Ok(Found::Given(given)) => {
            assert!(!given.container.is_empty() && !given.container.contains(['/', '\n', ' ']));
            let files = [given];
            let (claims, problems) = upgrade::intend("n", "net", &files, &endpoints, Some(&object));
            let n_files = claims.iter().filter(|claim| claim.file.is_some()).count();
            assert_eq!(n_files + problems.len(), 1);
        }
        Ok(Found::Mark | Found::Lock) => {}
        Err(problem) => assert!(!problem.what.is_empty() && !problem.fix.is_empty()),
    }
}
