//! Texts that repeat, each kept once for as long as something uses it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::slots::Slots;

/// The number of a text.
pub(super) type TextId = u32;

/// All texts in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    ids: BTreeMap<Arc<str>, TextId>,
    texts: Slots<Text>,
}

#[derive(Clone, Debug)]
struct Text {
    text: Arc<str>,
    n_uses: u32,
}

impl Texts {
    /// The number of a text, which is in use once more.
    pub(super) fn acquire(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.ids.get(text) {
            self.texts[id].n_uses += 1;
            return id;
        }
        let text: Arc<str> = text.into();
        let id = self.texts.insert(Text { text: Arc::clone(&text), n_uses: 1 });
        self.ids.insert(text, id);
        id
    }

    /// The number of a text, which is in use once more, if it is `likely` without a search.
    pub(super) fn acquire_like(&mut self, text: &str, likely: TextId) -> TextId {
        match self.texts.get_mut(likely).filter(|it| *it.text == *text) {
            Some(it) => {
                it.n_uses += 1;
                likely
            }
            None => self.acquire(text),
        }
    }

    /// One use has ended.
    pub(super) fn release(&mut self, id: TextId) {
        self.texts[id].n_uses -= 1;
        if self.texts[id].n_uses == 0 {
            let text = self.texts.remove(id);
            self.ids.remove(&text.text);
        }
    }

    /// The number of a text that is in use.
    pub(super) fn find(&self, text: &str) -> Option<TextId> {
        self.ids.get(text).copied()
    }

    /// The text of a number.
    pub(super) fn text(&self, id: TextId) -> &str {
        &self.texts[id].text
    }

    /// Whether no text is in use.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}
