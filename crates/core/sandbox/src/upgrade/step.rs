//! The steps of the way, in their order. A run that ends between any two is resumed by the next.

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take a lock off the records that somebody left behind; only when asked to.
    Unlock,
    /// Ask the datastore whether its records may be changed.
    Reach,
    /// Take host-local's lock: from here on its files stand still.
    Lock,
    /// Read the files, the endpoints, and who holds the addresses now.
    Read,
    /// Write the journal, before anything is claimed.
    Begin,
    /// Claim the addresses of one block, in one transaction.
    Claim,
    /// Write into the journal what was claimed.
    Note,
    /// Read back who holds the addresses.
    Verify,
    /// Write into the journal that files are removed from now on.
    Turn,
    /// Remove one file.
    Remove,
    /// Remove the folder.
    Fold,
    /// Remove the journal.
    End,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Unlock,
        Self::Reach,
        Self::Lock,
        Self::Read,
        Self::Begin,
        Self::Claim,
        Self::Note,
        Self::Verify,
        Self::Turn,
        Self::Remove,
        Self::Fold,
        Self::End,
    ];

    /// Its name, in messages and as a place where a test ends the process.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unlock => "unlock",
            Self::Reach => "reach",
            Self::Lock => "lock",
            Self::Read => "read",
            Self::Begin => "begin",
            Self::Claim => "claim",
            Self::Note => "note",
            Self::Verify => "verify",
            Self::Turn => "turn",
            Self::Remove => "remove",
            Self::Fold => "fold",
            Self::End => "end",
        }
    }
}
