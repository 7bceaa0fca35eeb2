//! Raw parameters from the environment.

use std::collections::BTreeMap;

const PREFIX: &str = "felix_";

/// The parameters among the variables: `FELIX_FOO=bar`, in any case, is `foo` → `bar`.
pub fn from_environment<'a>(
    variables: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<String, String> {
    variables
        .into_iter()
        .filter_map(|(name, value)| {
            let name = name.to_lowercase();
            Some((name.strip_prefix(PREFIX)?.to_owned(), value.to_owned()))
        })
        .collect()
}
