use super::*;

const SET: &str = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata:\n  name: ";

fn read(text: &str) -> Documents {
    Documents::from_text("x.yaml", text.as_bytes())
}

fn names(documents: &Documents) -> Vec<&str> {
    let name = |loaded: &'_ Loaded| loaded.object.pointer("/metadata/name").cloned();
    assert!(documents.objects.iter().all(|loaded| name(loaded).is_some()));
    documents
        .objects
        .iter()
        .map(|loaded| loaded.object["metadata"]["name"].as_str().unwrap())
        .collect()
}

fn first(documents: &Documents) -> &Calico {
    &documents.faults.first().unwrap().calico
}

#[test]
fn documents_lists_and_arrays_give_their_objects_in_order() {
    assert_eq!(names(&read(&format!("{SET}a\n---\n{SET}b\n"))), ["a", "b"]);
    let list = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSetList\nitems:\n\
                - metadata:\n    name: a\n- metadata:\n    name: b\n";
    let list = read(list);
    assert_eq!(names(&list), ["a", "b"]);
    assert_eq!(list.objects[1].kind, Kind::GlobalNetworkSet);
    assert_eq!(list.position(&list.objects[1].origin, "metadata.name").unwrap().line, 7);
    let array = format!("[{{apiVersion: {API_VERSION}, kind: Tier, metadata: {{name: t}}}}]");
    assert_eq!(names(&read(&array)), ["t"]);
}

#[test]
fn what_is_no_resource_is_refused() {
    for (text, what) in [("{}", "object"), ("garbage", "string"), ("42", "number")] {
        let words = format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {what} into \
             Go value of type []unstructured.Unstructured"
        );
        assert_eq!(first(&read(text)), &Calico::Unreadable(words), "{text}");
    }
}

#[test]
fn kinds_that_are_not_ours_are_named() {
    for (text, words) in [
        ("# nothing\n", "unknown resource type () and/or version ()"),
        ("kind: IPPool\n", "unknown resource type (IPPool) and/or version ()"),
        (
            "apiVersion: projectcalico.org/v3\nkind: BlockAffinity\n",
            "unknown resource type (BlockAffinity) and/or version (projectcalico.org/v3)",
        ),
    ] {
        let documents = read(text);
        assert_eq!(first(&documents), &Calico::Unreadable(words.to_owned()), "{text}");
    }
    let near = read("apiVersion: projectcalico.org/v3\nkind: IPPol\n");
    assert_eq!(
        near.faults[0].to_string(),
        "x.yaml:2:1: there is no kind \"IPPol\"; did you mean IPPool?"
    );
}

#[test]
fn every_fault_has_its_place() {
    let documents = read(&format!("{SET}a\n  nope: 1\nmore: 2\n---\n{SET}b\n"));
    assert_eq!(names(&documents), ["b"]);
    let places: Vec<usize> =
        documents.faults.iter().map(|fault| fault.position.unwrap().line).collect();
    assert_eq!(places, [5, 6]);
    let unknown = "error unmarshaling JSON: while decoding JSON: json: unknown field \"nope\"";
    assert_eq!(first(&documents), &Calico::Unreadable(unknown.to_owned()));
}

#[test]
fn a_file_with_nothing_in_it_is_a_fault() {
    assert_eq!(first(&read("")), &Calico::Empty("no resources specified in file x.yaml".into()));
    assert_eq!(first(&read("[]")), &Calico::Empty("no resources specified in file x.yaml".into()));
}

#[test]
fn folders_give_their_documents_in_order_of_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("sub")).unwrap();
    for (file, name) in [("2.json", "b"), ("1.yaml", "a"), ("4.YML", "d"), ("sub/5.yaml", "e")] {
        fs::write(path.join(file), format!("{SET}{name}\n")).unwrap();
    }
    fs::write(path.join("3.txt"), "not: [yaml").unwrap();
    let name = path.to_str().unwrap();
    assert_eq!(names(&Documents::read(name, false)), ["a", "b", "d"]);
    assert_eq!(names(&Documents::read(name, true)), ["a", "b", "d", "e"]);
}

#[test]
fn a_missing_file_is_a_fault() {
    let documents = Documents::read("/no/such/file", false);
    let words = "open /no/such/file: no such file or directory";
    assert_eq!(first(&documents), &Calico::Unreadable(words.to_owned()));
}
