//! A user's document, all the way to its typed form: the first byte chooses the kind.

#![no_main]

use api::Kind;
use api::schema::{Mode, apply_defaults, decode, object_for};
use libfuzzer_sys::fuzz_target;
use model::resource::Resource;
use model::validate::validate;

fuzz_target!(|input: &[u8]| {
    let [choice, raw @ ..] = input else { return };
    let kind = Kind::all().nth(usize::from(*choice) % Kind::all().count()).expect("in range");
    let Ok(document) = text::yaml::parse(raw) else { return };
    for mode in [Mode::User, Mode::Stored] {
        let (mut object, problems) = decode(object_for(kind), document.clone(), mode);
        let _ = problems.iter().map(ToString::to_string).count();
        if problems.is_empty() {
            let (again, problems) = decode(object_for(kind), object.clone(), Mode::Stored);
            assert_eq!(problems, [], "{object}");
            assert_eq!(again, object);
        }
        let _ = validate(kind, &object).iter().map(ToString::to_string).count();
        let _ = Resource::read(kind, &object);
        apply_defaults(object_for(kind), &mut object);
        let _ = Resource::read(kind, &object);
    }
});
