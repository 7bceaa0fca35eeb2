//! What may go wrong in a made-up cluster.

/// How large the cluster is and how often what goes wrong. Rates are chances in a thousand, each
/// time there is occasion.
#[derive(Clone, Debug)]
pub struct Options {
    /// Our nodes.
    pub nodes: usize,
    /// Nodes that run Calico beside them.
    pub calico_nodes: usize,
    /// Names of pods; each has one sandbox after the other.
    pub pods: usize,
    /// How many things happen before the faults stop.
    pub steps: usize,
    /// The pool's prefix length, of 10.0.0.0.
    pub pool: u8,
    /// The length of its blocks.
    pub block: u8,
    /// How many addresses each node holds for outages.
    pub reserve: usize,
    /// An agent is killed.
    pub crash: u32,
    /// A machine starts anew: everything in its kernel is gone.
    pub reboot: u32,
    /// A node is deleted from the cluster, and comes back under the same name.
    pub replace: u32,
    /// A node loses the datastore, or gets it back.
    pub partition: u32,
    /// The answer to a transaction is lost.
    pub lost_answer: u32,
    /// The watch of a node has to start anew.
    pub compaction: u32,
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
    /// An error put into the code, to show that it is found.
    pub bug: Option<Bug>,
}

impl Options {
    /// The same with sizes and rates of its own for each run: what is rare together in one cluster
    /// is common in another.
    pub(crate) fn drawn(&self, chance: &mut fastrand::Rng) -> Self {
        let mut drawn = self.clone();
        drawn.nodes = chance.usize(1..=self.nodes.max(1));
        drawn.pods = chance.usize(2..=self.pods.max(2));
        drawn.block = chance.u8(self.block..=30);
        drawn.pool = chance.u8(self.pool..drawn.block);
        let rates = [
            &mut drawn.crash,
            &mut drawn.reboot,
            &mut drawn.replace,
            &mut drawn.partition,
            &mut drawn.lost_answer,
            &mut drawn.compaction,
            &mut drawn.double_del,
            &mut drawn.missing_del,
            &mut drawn.late_del,
            &mut drawn.hang_up,
            &mut drawn.edit,
        ];
        for rate in rates {
            *rate *= [0, 1, 1, 4][chance.usize(0..4)];
        }
        drawn
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 5,
            calico_nodes: 1,
            pods: 12,
            steps: 500,
            pool: 24,
            block: 29,
            reserve: 4,
            crash: 8,
            reboot: 1,
            replace: 1,
            partition: 50,
            lost_answer: 40,
            compaction: 3,
            double_del: 50,
            missing_del: 50,
            late_del: 100,
            hang_up: 30,
            edit: 3,
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
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::NameKeyedHandle,
        Self::ReleaseWithoutSequence,
        Self::ReleaseBeforeInSync,
        Self::DelByInterfaceName,
        Self::WithoutCompareAndSwap,
        Self::ReserveTwice,
    ];
}
