//! Labels that endpoints and network sets have, and those that they take from profiles.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::selector::Selector;

use crate::input::{Labels, Profile};

/// What has labels: its own, and those of profiles.
#[derive(Clone, Copy, Debug)]
pub struct Labelled<'a> {
    /// Its own labels.
    pub own: &'a Labels,
    /// The profiles it names, in order.
    pub profiles: &'a [String],
}

impl<'a> Labelled<'a> {
    /// The value of a label: its own, or that of the first of its profiles that has the label.
    /// Profiles that nobody has written have none.
    pub fn get(self, name: &str, profiles: &'a BTreeMap<String, Arc<Profile>>) -> Option<&'a str> {
        let of_profiles = || {
            let written = self.profiles.iter().filter_map(|profile| profiles.get(profile));
            written.into_iter().find_map(|profile| profile.labels.get(name))
        };
        self.own.get(name).or_else(of_profiles).map(String::as_str)
    }

    /// Whether a selector is for it.
    pub fn is_selected(
        self,
        selector: &Selector,
        profiles: &'a BTreeMap<String, Arc<Profile>>,
    ) -> bool {
        selector.matches(|name| self.get(name, profiles))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_labels_win_and_then_the_profile_that_is_named_first() {
        let labels = |list: &[(&str, &str)]| -> Labels {
            list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let profile = |list| Arc::new(Profile { labels: labels(list), ..Profile::default() });
        let profiles = BTreeMap::from([
            ("a".to_owned(), profile(&[("x", "a"), ("y", "a"), ("z", "a")])),
            ("b".to_owned(), profile(&[("x", "b"), ("y", "b")])),
        ]);
        let own = labels(&[("x", "own")]);
        let named = ["missing", "b", "a"].map(str::to_owned);
        let labelled = Labelled { own: &own, profiles: &named };
        let get = |name| labelled.get(name, &profiles);
        assert_eq!(
            [get("x"), get("y"), get("z"), get("w")],
            [Some("own"), Some("b"), Some("a"), None]
        );
        let selector: Selector = "x == 'own' && y == 'b' && !has(w)".parse().unwrap();
        assert!(labelled.is_selected(&selector, &profiles));
    }
}
