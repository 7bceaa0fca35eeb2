//! Templates and what Go makes of them: rows recorded from Go 1.26, without those on
//! which we differ: ranges over whole floats, numbers compared or printed across int and float, and
//! the message for a malformed character constant.

use serde_json::{Value, json};

use super::*;

fn data() -> Value {
    json!({
        "name": "pool", "n": 5, "f": 1.5, "big": 1_000_000.5, "b": true,
        "list": ["a", "b", "c"],
        "objs": [{"name": "x", "v": 1}, {"name": "y", "v": 2}],
        "m": {"k2": "v2", "k1": "v1", "k10": "z"},
        "nil": null, "empty": [], "es": "",
        "nested": {"a": {"b": {"c": "deep"}}},
        "html": "<a href='x'>&\"</a>",
    })
}

fn exact<'v>(value: &'v Value, name: &str) -> Field<'v> {
    match value {
        Value::Object(fields) => fields.get(name).map_or(Field::Unset, Field::Value),
        _ => Field::Unknown,
    }
}

fn run(text: &str) -> Result<String, String> {
    let root_type = "map[string]interface {}";
    let context = Context { field: &exact, root_type, ..Context::default() };
    let template = Template::parse("get", text, &[]).map_err(|error| error.to_string())?;
    template.execute(&data(), &context).map_err(|failure| failure.error.to_string())
}

#[rustfmt::skip]
const WRITTEN: &[(&str, &str)] = &[
    ("plain", "plain"),
    ("{{.name}}", "pool"),
    ("{{.nope}}", "<no value>"),
    ("{{.nested.a.b.c}}", "deep"),
    ("{{.nope.x}}", "<no value>"),
    ("{{range .list}}{{.}},{{end}}", "a,b,c,"),
    ("{{range $i, $e := .list}}{{$i}}={{$e}} {{end}}", "0=a 1=b 2=c "),
    ("{{range .empty}}x{{else}}none{{end}}", "none"),
    ("{{range $k, $v := .m}}{{$k}}:{{$v}};{{end}}", "k1:v1;k10:z;k2:v2;"),
    ("{{if .b}}yes{{else}}no{{end}}", "yes"),
    ("{{if .es}}yes{{else if .n}}n{{else}}no{{end}}", "n"),
    ("{{with .nested.a}}{{.b.c}}{{end}}", "deep"),
    ("{{with .es}}x{{else}}e{{end}}", "e"),
    ("{{with .es}}x{{else with .name}}w{{.}}{{end}}", "wpool"),
    ("{{len .list}} {{len .name}} {{len .m}}", "3 4 3"),
    ("{{index .list 1}}", "b"),
    (r#"{{index .m "k1"}}"#, "v1"),
    (r#"{{index .objs 0 "name"}}"#, "x"),
    ("{{(index .objs 1).name}}", "y"),
    ("{{slice .name 1 3}}", "oo"),
    ("{{slice .list 1}}", "[b c]"),
    (r#"{{eq .name "pool"}} {{ne .name "x"}} {{lt 1 2}} {{ge .name "a"}}"#, "true true true true"),
    (r#"{{eq .name "a" "b" "pool"}}"#, "true"),
    (r#"{{and .b .name}} {{or .es "d"}} {{not .b}}"#, "pool d false"),
    (r#"{{print .name 1 2 "x" 3}}|{{println 1 2}}|"#, "pool1 2x3|1 2\n|"),
    (r#"{{printf "%s %v %d %q %t %x %5d|%-5s|%05d" .name .list 42 "hi" true 255 7 "ab" 42}}"#, r#"pool [a b c] 42 "hi" true ff     7|ab   |00042"#),
    (r#"{{printf "%d" "x"}} {{printf "%d"}} {{printf "x" 1}}"#, "%!d(string=x) %!d(MISSING) x%!(EXTRA int=1)"),
    (r#"{{printf "%.2f %8.3f %e %g" 3.14159 2.5 1234.5678 1e6}}"#, "3.14    2.500 1.234568e+03 1e+06"),
    (r#"{{html .html}} {{js .html}} {{urlquery "a b&c"}}"#, r#"&lt;a href=&#39;x&#39;&gt;&amp;&#34;&lt;/a&gt; \u003Ca href\u003D\'x\'\u003E\u0026\"\u003C/a\u003E a+b%26c"#),
    (r#"{{.name | printf "%s-%s" "a"}}"#, "a-pool"),
    ("{{.list}} {{.m}} {{.f}} {{.big}} {{.objs}}", "[a b c] map[k1:v1 k10:z k2:v2] 1.5 1.0000005e+06 [map[name:x v:1] map[name:y v:2]]"),
    ("{{/* c */}}x{{- /* c */ -}} y", "xy"),
    ("a {{- .name -}} b", "apoolb"),
    ("a {{ .name }} b", "a pool b"),
    ("{{$x := 1}}{{$x}}{{$x = 2}}{{$x}}", "12"),
    ("{{$x := 1}}{{if true}}{{$x = 5}}{{$y := 3}}{{end}}{{$x}}", "5"),
    (r#"{{range $i, $e := .list}}{{if eq $e "b"}}{{continue}}{{end}}{{$e}}{{end}}"#, "ac"),
    (r#"{{range .list}}{{if eq . "b"}}{{break}}{{end}}{{.}}{{end}}"#, "a"),
    (r#"{{define "t"}}[{{.}}]{{end}}{{template "t" .name}}{{template "t"}}"#, "[pool][<no value>]"),
    (r#"{{block "b" .name}}B{{.}}{{end}}"#, "Bpool"),
    ("{{$.name}} {{$}}", r#"pool map[b:true big:1.0000005e+06 empty:[] es: f:1.5 html:<a href='x'>&"</a> list:[a b c] m:map[k1:v1 k10:z k2:v2] n:5 name:pool nested:map[a:map[b:map[c:deep]]] nil:<nil> objs:[map[name:x v:1] map[name:y v:2]]]"#),
    ("{{range .objs}}{{$.name}}{{.name}}{{end}}", "poolxpooly"),
    (r#"{{"a\n\t\u0041"}} {{`raw\n`}} {{'a'}}"#, "a\n\tA raw\\n 97"),
    ("{{1}} {{1.5}} {{0x1F}} {{1_000}} {{1e3}} {{-3}} {{true}}", "1 1.5 31 1000 1000 -3 true"),
    ("{{range 3}}{{.}}{{end}}", "012"),
    ("{{range $i := 3}}{{$i}}{{end}}", "012"),
    ("a\n  {{ .nested.a.q.z }}", "a\n  <no value>"),
    (r#"{{printf "%v" .nil}} {{.nil}}"#, "<nil> <no value>"),
    (r#"{{printf "%T %T %T %T" .name .b .list .m}}"#, "string bool []interface {} map[string]interface {}"),
    (r#"{{printf "%v %s" .m .list}}"#, "map[k1:v1 k10:z k2:v2] [a b c]"),
    (r#"{{printf "%6.2f|%+d|% d|%x|%X|%c|%U" 3.14159 5 5 "hi" "hi" 65 65}}"#, "  3.14|+5| 5|6869|6869|A|U+0041"),
    (r#"{{printf "%q" .list}}"#, r#"["a" "b" "c"]"#),
    (r#"{{printf "%%|%z" 1}}"#, "%|%!z(int=1)"),
    (r#"{{join .list ","}}"#, "a,b,c"),
    (r#"{{(printf "%s" .name) | len}}"#, "4"),
    ("{{or .es .nil}}", "<no value>"),
    ("{{with $x := .name}}{{$x}}{{end}}", "pool"),
    ("{{if $x := .n}}{{$x}}{{end}}", "5"),
    (r#"{{if and .b (eq .name "pool")}}ok{{end}}"#, "ok"),
    ("{{range .objs}}{{.name}}:{{.v}}\n{{end}}", "x:1\ny:2\n"),
    ("{{- range .objs }}\n- {{ .name }}\n{{- end }}\n", "\n- x\n- y\n"),
    ("{{eq .f 1.5}}", "true"),
    ("{{gt .f 1.0}}", "true"),
    (r#"{{printf "%03d|%-6.2f|%6s|%-6s|" 7 1.5 "a" "b"}}"#, "007|1.50  |     a|b     |"),
    ("{{print nil}}", "<nil>"),
    ("{{print .f .n .b .name .list}}", "1.5 5 truepool[a b c]"),
    ("{{ .name }}{{ `x` }}", "poolx"),
    ("{{with .nested}}{{with .a}}{{.b}}{{$.name}}{{end}}{{end}}", "map[c:deep]pool"),
    ("{{$x := .nested}}{{$x.a.b.c}}{{$x.q}}", "deep<no value>"),
    (r#"{{printf "%5t|%-7t|" true false}}"#, " true|false  |"),
    (r#"{{printf "%.1s|%.3v" "héllo" "abcdef"}}"#, "h|abc"),
    (r#"{{printf "%x" "é"}}"#, "c3a9"),
    (r#"{{html 1 "<" 2}}"#, "1&lt;2"),
];

#[rustfmt::skip]
const REFUSED: &[(&str, &str)] = &[
    ("{{.name.x}}", r#"template: get:1:7: executing "get" at <.name.x>: can't evaluate field x in type interface {}"#),
    ("{{index .list 9}}", r#"template: get:1:2: executing "get" at <index .list 9>: error calling index: index out of range: 9"#),
    (r#"{{eq 1 "a"}}"#, r#"template: get:1:2: executing "get" at <eq 1 "a">: error calling eq: incompatible types for comparison: int and string"#),
    (r#"{{template "zz"}}"#, r#"template: get:1:11: executing "get" at <{{template "zz"}}>: template "zz" not defined"#),
    ("{{", "template: get:1: unclosed action"),
    ("{{}}", "template: get:1: missing value for command"),
    ("{{.name", "template: get:1: unclosed action"),
    ("{{if}}x{{end}}", "template: get:1: missing value for if"),
    ("{{if .b}}x", "template: get:1: unexpected EOF"),
    ("{{end}}", "template: get:1: unexpected {{end}}"),
    ("{{else}}", "template: get:1: unexpected {{else}}"),
    ("{{foo}}", r#"template: get:1: function "foo" not defined"#),
    ("{{$z}}", r#"template: get:1: undefined variable "$z""#),
    ("{{.a | 1}}", "template: get:1: non executable command in pipeline stage 2"),
    ("{{nil}}", r#"template: get:1:2: executing "get" at <nil>: nil is not a command"#),
    ("{{1 2}}", r#"template: get:1:2: executing "get" at <1>: can't give argument to non-function 1"#),
    ("{{.name 1}}", r#"template: get:1:2: executing "get" at <.name>: name is not a method but has arguments"#),
    ("{{printf}}", r#"template: get:1:2: executing "get" at <printf>: wrong number of args for printf: want at least 1 got 0"#),
    ("{{len}}", r#"template: get:1:2: executing "get" at <len>: wrong number of args for len: want 1 got 0"#),
    ("{{len 1}}", r#"template: get:1:2: executing "get" at <len 1>: error calling len: len of type int"#),
    ("{{index}}", r#"template: get:1:2: executing "get" at <index>: wrong number of args for index: want at least 1 got 0"#),
    (r#"{{lt 1 "a"}}"#, r#"template: get:1:2: executing "get" at <lt 1 "a">: error calling lt: incompatible types for comparison: int and string"#),
    ("{{range .name}}x{{end}}", r#"template: get:1:8: executing "get" at <.name>: range can't iterate over pool"#),
    ("{{break}}", "template: get:1: {{break}} outside {{range}}"),
    ("a\n{{.name.x}}", r#"template: get:2:7: executing "get" at <.name.x>: can't evaluate field x in type interface {}"#),
    ("{{and}}", r#"template: get:1:2: executing "get" at <and>: wrong number of args for and: want at least 1 got 0"#),
    ("{{.name}}{{/* unclosed", "template: get:1: unclosed comment"),
    (r#"{{"abc}}"#, "template: get:1: unterminated quoted string"),
    ("{{`abc}}", "template: get:1: unterminated raw quoted string"),
    ("{{(.name}}", "template: get:1: unclosed left paren"),
    ("{{.name)}}", "template: get:1: unexpected right paren"),
    ("{{#}}", r##"template: get:1: unexpected "#" in command"##),
    ("{{.name | nope}}", r#"template: get:1: function "nope" not defined"#),
    ("{{template}}", r#"template: get:1: unexpected "}}" in template clause"#),
    ("{{define}}", r#"template: get:1: unexpected "}}" in define clause"#),
    ("{{index .nil 1}}", r#"template: get:1:2: executing "get" at <index .nil 1>: error calling index: index of untyped nil"#),
    ("{{len .nil}}", r#"template: get:1:2: executing "get" at <len .nil>: error calling len: len of nil pointer"#),
    ("{{slice .list 2 1}}", r#"template: get:1:2: executing "get" at <slice .list 2 1>: error calling slice: invalid slice index: 2 > 1"#),
    ("{{range $a, $b, $c := .list}}{{end}}", "template: get:1: too many declarations in range"),
    ("{{if .b}}{{else}}{{else}}{{end}}", "template: get:1: expected end; found {{else}}"),
    ("{{eq .list .list}}", r#"template: get:1:2: executing "get" at <eq .list .list>: error calling eq: non-comparable type [a b c]: []interface {}"#),
    ("{{.nested.a.b.c.d}}", r#"template: get:1:9: executing "get" at <.nested.a.b.c.d>: can't evaluate field d in type interface {}"#),
    ("{{not 1 2}}", r#"template: get:1:2: executing "get" at <not>: wrong number of args for not: want 1 got 2"#),
    ("{{eq 1}}", r#"template: get:1:2: executing "get" at <eq 1>: error calling eq: missing argument for comparison"#),
    ("{{ne 1}}", r#"template: get:1:2: executing "get" at <ne>: wrong number of args for ne: want 2 got 1"#),
];

#[test]
fn writes_what_go_writes() {
    for (template, written) in WRITTEN {
        assert_eq!(run(template).as_deref(), Ok(*written), "{template}");
    }
}

#[test]
fn refuses_in_the_words_of_go() {
    for (template, message) in REFUSED {
        assert_eq!(run(template), Err((*message).to_owned()), "{template}");
    }
}

#[test]
fn go_names_find_fields_of_kubernetes_objects() {
    let data =
        json!([{"kind": "IPPool", "metadata": {"name": "a"}, "spec": {"cidr": "10.0.0.0/8"}}]);
    let text = "{{range .}}{{.Kind}} {{.ObjectMeta.Name}} {{.Name}} {{.TypeMeta.Kind}} \
                {{.Spec.CIDR}} {{.Spec.Nope}}{{end}}";
    let template = Template::parse("get", text, &[]).unwrap();
    let written = template.execute(&data, &Context::default()).unwrap();
    assert_eq!(written, "IPPool a a IPPool 10.0.0.0/8 <no value>");
}

#[test]
fn further_functions_are_called() {
    let template = Template::parse("get", r#"{{config "asnumber"}}"#, &["config"]).unwrap();
    let call = |name: &str, arguments: &[Value]| Ok(json!(format!("{name}{arguments:?}")));
    let context = Context { functions: &["config"], call: &call, ..Context::default() };
    let written = template.execute(&Value::Null, &context).unwrap();
    assert_eq!(written, r#"config[String("asnumber")]"#);
}

#[test]
fn a_failure_keeps_what_was_written() {
    let template = Template::parse("get", "before {{index .list 9}}", &[]).unwrap();
    let failure = template.execute(&data(), &Context::default()).unwrap_err();
    assert_eq!(failure.written, "before ");
}

#[test]
fn hostile_templates_stop() {
    let doubling = r#"{{$x := "xxxxxxxxxxxxxxxx"}}{{range 60}}{{$x = print $x $x}}{{end}}"#;
    let recursive = r#"{{define "t"}}{{template "t"}}{{end}}{{template "t"}}"#;
    let endless = "{{range 1000000000}}{{end}}";
    let wide = r#"{{range 1000000}}{{$x := printf "%1000000d" 1}}{{end}}"#;
    for text in [doubling, recursive, endless, wide] {
        assert!(run(text).is_err(), "{text}");
    }
    let deep = format!("{}1{}", "{{if 1}}".repeat(5000), "{{end}}".repeat(5000));
    assert!(run(&deep).is_err());
    let parentheses = format!("{{{{{}1{}}}}}", "(".repeat(5000), ")".repeat(5000));
    assert!(run(&parentheses).is_err());
    let chain = format!("{{{{if 0}}}}{}{{{{end}}}}", "{{else if 0}}".repeat(5000));
    assert!(run(&chain).is_err());
}

#[test]
fn wide_and_precise_numbers_are_padded_as_far_as_go_goes() {
    for (text, length) in [
        ("{{printf \"%.70000f\" 1.5}}", 70_002),
        ("{{printf \"%.70000e\" 1.5}}", 70_006),
        ("{{printf \"%.70000d\" 7}}", 70_000),
        ("{{printf \"%70000d\" 7}}", 70_000),
        ("{{printf \"%.70000g\" 1.5}}", 3),
    ] {
        assert_eq!(run(text).map(|written| written.len()), Ok(length), "{text}");
    }
    let few: String = (0..300).map(|_| " .list").collect();
    let text = format!("{{{{printf \"{}\"{few}}}}}", "%1000000v".repeat(300));
    assert!(run(&text).unwrap_err().contains("more than 268435456 bytes"));
}

#[test]
fn templates_that_call_themselves_from_deep_inside_are_stopped() {
    let (open, close) = ("{{if true}}".repeat(90), "{{end}}".repeat(90));
    let text = format!("{{{{define \"t\"}}}}{open}{{{{template \"t\" .}}}}{close}{{{{end}}}}");
    let refused = run(&(text + "{{template \"t\" .}}")).unwrap_err();
    assert!(refused.contains("nests more than 400 levels deep"), "{refused}");
}
