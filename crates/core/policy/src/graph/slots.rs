//! Values by small numbers that are used again when a value is gone.

use std::ops::{Index, IndexMut};

/// Values, each in a slot that keeps its number.
#[derive(Clone, Debug)]
pub(super) struct Slots<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Puts a value into a free slot.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.values[slot as usize] = Some(value);
            return slot;
        }
        let slot = u32::try_from(self.values.len()).expect("memory ends before the numbers do");
        self.values.push(Some(value));
        slot
    }

    /// Takes a value out of its slot.
    pub(super) fn remove(&mut self, slot: u32) -> T {
        let value = self.values[slot as usize].take();
        self.free.push(slot);
        value.expect("a slot is freed once")
    }

    /// The value of a slot that may not be in use.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.values.get_mut(slot as usize)?.as_mut()
    }

    /// The slots in use with their values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.values).filter_map(|(slot, value)| Some((slot, value.as_ref()?)))
    }

    /// Whether no slot is in use.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl<T> Index<u32> for Slots<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        self.values[slot as usize].as_ref().expect("the slot is in use")
    }
}

impl<T> IndexMut<u32> for Slots<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        self.values[slot as usize].as_mut().expect("the slot is in use")
    }
}
