//! What may go wrong in a made-up cluster.

/// How large the cluster is and how often what goes wrong. Rates are chances in a thousand, each
/// time there is occasion.
#[derive(Clone, Debug)]
pub struct Options {
    /// Our nodes, at most.
    pub nodes: usize,
    /// Our nodes in a crowd, at most; there are a third as many at least.
    pub crowd: usize,
    /// One of so many seeds makes a crowd; 0 for none.
    pub crowd_every: u64,
    /// Nodes that run Calico beside them.
    pub calico_nodes: usize,
    /// Names of pods; each has one sandbox after the other.
    pub pods: usize,
    /// How many things happen before the faults stop.
    pub steps: usize,
    /// The prefix length of the pool of 10.0.0.0; that of fd00:: has as many addresses.
    pub pool: u8,
    /// The length of its blocks.
    pub block: u8,
    /// How many addresses of each family each node holds for outages.
    pub reserve: usize,
    /// A container gets a second interface.
    pub second_interface: u32,
    /// A container is no pod.
    pub plain: u32,
    /// An agent is killed.
    pub crash: u32,
    /// A machine starts anew: everything in its kernel is gone.
    pub reboot: u32,
    /// A node is deleted from the cluster, and comes back under the same name.
    pub replace: u32,
    /// A node loses the datastore, or gets it back.
    pub partition: u32,
    /// The answer to a transaction is lost, and with it perhaps the request, or it comes late.
    pub lost_answer: u32,
    /// The watch of a node has to start anew.
    pub compaction: u32,
    /// An ADD comes twice.
    pub double_add: u32,
    /// A DEL comes twice.
    pub double_del: u32,
    /// A container dies and nobody says so.
    pub missing_del: u32,
    /// A DEL comes late: the next sandbox of the pod is there already.
    pub late_del: u32,
    /// Whoever asked does not wait for the answer.
    pub hang_up: u32,
    /// An operator removes a record.
    pub edit: u32,
    /// The journal is lost while sandboxes live. Not by default: what has no record is left alone
    /// as long as its interface stands, but nobody vouches for it, so that what others remove of
    /// it in the datastore is not written back.
    pub journal_lost: u32,
    /// A record of the journal cannot be read after a start; not by default, for the same reason.
    pub record_spoilt: u32,
    /// An error put into the code, to show that it is found.
    pub bug: Option<Bug>,
}

impl Options {
    /// The same with sizes and rates of its own for each run: what is rare together in one cluster
    /// is common in another.
    pub(crate) fn drawn(&self, seed: u64, chance: &mut fastrand::Rng) -> Self {
        let mut drawn = self.clone();
        drawn.nodes = chance.usize(1..=self.nodes.max(1));
        drawn.pods = chance.usize(2..=self.pods.max(2));
        drawn.block = chance.u8(self.block..=30);
        drawn.pool = chance.u8(self.pool..drawn.block);
        let rates = [
            &mut drawn.second_interface,
            &mut drawn.plain,
            &mut drawn.crash,
            &mut drawn.reboot,
            &mut drawn.replace,
            &mut drawn.partition,
            &mut drawn.lost_answer,
            &mut drawn.compaction,
            &mut drawn.double_add,
            &mut drawn.double_del,
            &mut drawn.missing_del,
            &mut drawn.late_del,
            &mut drawn.hang_up,
            &mut drawn.edit,
            &mut drawn.journal_lost,
            &mut drawn.record_spoilt,
        ];
        for rate in rates {
            *rate *= [0, 1, 1, 4][chance.usize(0..4)];
        }
        if self.crowd_every > 0 && seed % self.crowd_every == self.crowd_every / 2 {
            drawn.nodes = chance.usize(self.crowd / 3..=self.crowd).max(1);
            drawn.pods = drawn.nodes;
            drawn.steps = drawn.nodes * STEPS_IN_A_CROWD;
            // Room for a block or two for each, so that some have to borrow.
            (drawn.pool, drawn.block) = (chance.u8(20..=21), 29);
        }
        drawn
    }
}

impl Options {
    /// The same with an error put in, in a cluster where there is more occasion for it to show.
    #[must_use]
    pub fn with(self, bug: Bug) -> Self {
        let (bug, crowd_every) = (Some(bug), 0);
        let plain = Self { bug, crowd_every, ..self };
        match bug {
            Some(Bug::ReleaseWithoutSequence) => Self { pods: 3, pool: 28, ..plain },
            Some(Bug::GhostWithoutJournal) => Self { replace: 25, nodes: 2, ..plain },
            Some(Bug::DeadAtFirstLook) => Self { missing_del: 250, nodes: 2, ..plain },
            _ => plain,
        }
    }
}

/// How many things happen for each node of a crowd.
const STEPS_IN_A_CROWD: usize = 20;

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 5,
            crowd: 300,
            crowd_every: 500,
            calico_nodes: 1,
            pods: 12,
            steps: 500,
            pool: 22,
            block: 29,
            reserve: 4,
            second_interface: 200,
            plain: 150,
            crash: 8,
            reboot: 2,
            replace: 2,
            partition: 50,
            lost_answer: 40,
            compaction: 3,
            double_add: 20,
            double_del: 50,
            missing_del: 50,
            late_del: 100,
            hang_up: 30,
            edit: 20,
            journal_lost: 0,
            record_spoilt: 0,
            bug: None,
        }
    }
}

/// Errors that somebody could make, or has made elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Addresses are held under the name of the pod.
    NameKeyedHandle,
    /// A release does not say which assignment it is about.
    ReleaseWithoutSequence,
    /// What looks superfluous is taken away before everything was read.
    ReleaseBeforeInSync,
    /// A DEL removes the interface of that name, whoever has it.
    DelByInterfaceName,
    /// A transaction does not rest on what it read.
    WithoutCompareAndSwap,
    /// After a restart the reserve does not know what it gave away.
    ReserveTwice,
    /// An endpoint without interface and sandbox goes without another look at the journal.
    GhostWithoutJournal,
    /// A sandbox that looked dead is taken down without another look.
    DeadAtFirstLook,
    /// A transaction whose answer was lost is taken for applied.
    LostAnswerIsYes,
    /// A release by handle takes what other interfaces of the container hold.
    HandleOfOneInterface,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::NameKeyedHandle,
        Self::ReleaseWithoutSequence,
        Self::ReleaseBeforeInSync,
        Self::DelByInterfaceName,
        Self::WithoutCompareAndSwap,
        Self::ReserveTwice,
        Self::GhostWithoutJournal,
        Self::DeadAtFirstLook,
        Self::LostAnswerIsYes,
        Self::HandleOfOneInterface,
    ];
}
