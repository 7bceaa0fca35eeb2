//! Facts about the table and the merge that the recorded rows do not state.

use proptest::prelude::*;

use super::*;

const HOST: Host<'_> = Host {
    name: "node-1",
    exists: &|path| path == "/etc",
    find_executable: &|name| (name == "driver").then(|| "/bin/driver".to_owned()),
};

fn sources(texts: &[(Source, &str, &str)]) -> Sources {
    let mut sources = Sources::new();
    for (source, name, text) in texts {
        sources.entry(*source).or_default().insert((*name).to_owned(), (*text).to_owned());
    }
    sources
}

#[test]
fn the_table_is_sorted_so_that_names_are_found() {
    for parameter in PARAMETERS {
        let found = Parameter::named(&parameter.name.to_uppercase());
        assert_eq!(found.map(|found| found.name), Some(parameter.name));
    }
    assert!(Parameter::named("NoSuchParameter").is_none());
}

#[test]
fn every_default_can_be_read() {
    for parameter in PARAMETERS {
        if !parameter.default_text.is_empty() && parameter.kind != Kind::Executable {
            let value = parameter.parse(parameter.default_text, &HOST);
            assert_eq!(value, Ok(parameter.default()), "{}", parameter.name);
        }
    }
}

#[test]
fn fields_of_the_resource_are_named_once() {
    let mut names: Vec<&str> = PARAMETERS.iter().filter_map(|p| Some(p.field?.name)).collect();
    let n_fields = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), n_fields);
}

#[test]
fn every_problem_is_reported_with_what_would_be_right() {
    let (config, problems) = Config::resolve(
        &sources(&[
            (Source::ConfigFile, "VXLANPort", "x"),
            (Source::DatastoreGlobal, "EtcdAddr", "h:1"),
            (Source::Environment, "chaininsertmode", "none"),
        ]),
        &HOST,
    );
    let texts: Vec<String> = problems.iter().map(Problem::to_string).collect();
    assert_eq!(
        texts,
        [
            "ChainInsertMode = \"none\" from environment variable: cannot be none, need one of \
             insert, append",
            "VXLANPort = \"x\" from config file: need an integer",
            "EtcdAddr = \"h:1\" from datastore (global): can only be set on the host, by \
             environment or file",
        ]
    );
    let consequences: Vec<Consequence> = problems.iter().map(|p| p.consequence).collect();
    assert_eq!(consequences, [Consequence::Refused, Consequence::Defaulted, Consequence::Ignored]);
    assert_eq!(config.get("VXLANPort"), Some(&Value::Int(4789)));
}

#[test]
fn a_program_is_found_on_the_host() {
    let (config, problems) =
        Config::resolve(&sources(&[(Source::ConfigFile, "DataplaneDriver", "driver")]), &HOST);
    assert_eq!((config.text("DataplaneDriver"), problems), ("/bin/driver", vec![]));
    let (_, problems) =
        Config::resolve(&sources(&[(Source::ConfigFile, "DataplaneDriver", "other")]), &HOST);
    assert_eq!(problems.len(), 1);
}

#[test]
fn the_host_name_is_the_default_of_its_parameter() {
    let (config, _) = Config::resolve(&Sources::new(), &HOST);
    assert_eq!(config.text("FelixHostname"), "node-1");
    assert_eq!(config.source_of("felixhostname"), Some(Source::Default));
}

#[test]
fn broken_brackets_in_failsafe_ports_are_refused() {
    for text in ["[", "]", "[]", "tcp:[fd00::1]22", "]:[", "[é]:", "é]:["] {
        let (_, problems) = Config::resolve(
            &sources(&[(Source::ConfigFile, "FailsafeInboundHostPorts", text)]),
            &HOST,
        );
        assert_eq!(problems.len(), 1, "{text}");
    }
}

#[test]
fn changes_name_the_parameters_that_differ() {
    let (before, _) = Config::resolve(&Sources::new(), &HOST);
    let (after, _) = Config::resolve(
        &sources(&[
            (Source::ConfigFile, "VXLANPort", "1"),
            (Source::ConfigFile, "VXLANVNI", "4096"),
        ]),
        &HOST,
    );
    assert_eq!(after.changes_from(&before), ["VXLANPort"]);
}

#[test]
fn the_last_section_with_a_key_gives_its_value() {
    let read = |text: &str| from_file(text).map(|texts| texts.get("A").cloned());
    assert_eq!(read("[x]\nA=1\n[y]\nA=2\n[x]\nA=3\n"), Ok(Some("2".into())));
    assert_eq!(read("A=1\\\n  2\\\n3\nB=4"), Ok(Some("123".into())));
    assert_eq!(read("'A' = 1"), Ok(None));
    assert_eq!(read("\"A\" = 'x y' # z"), Ok(Some("x y".into())));
    let error = UnreadableFile { line: 2, message: "neither = nor : after the key" };
    assert_eq!(read("A=1\nB\n"), Err(error));
}

proptest! {
    #[test]
    fn any_text_is_a_value_or_a_problem(
        text in "[0-9a-z:/,=\\[\\]()._+é\n -]{0,12}|\\PC{0,12}",
    ) {
        for parameter in PARAMETERS {
            let _ = parameter.parse(&text, &HOST);
        }
    }

    #[test]
    fn any_text_is_a_file_or_not(text in "([A=:\\[\\]\"`'#; \n\\\\é]|\"\"\"){0,24}") {
        if let Err(error) = from_file(&text) {
            prop_assert!(error.line <= text.split('\n').count());
        }
    }
}
