//! Proof that everything was read once.

use crate::Inputs;

/// Proof that the datastore has delivered all there is. What looks superfluous before may belong
/// to a sandbox that was not read yet, so whatever leads to a removal asks for this. Only
/// [`Inputs::in_sync`] hands it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InSync(());

impl Inputs {
    /// Everything there is was absorbed; from now on, changes.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }

    /// The proof, once there is one.
    pub fn in_sync(&self) -> Option<InSync> {
        self.is_complete.then_some(InSync(()))
    }
}
