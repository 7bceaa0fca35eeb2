//! What a container runtime asks of a network and what it is told: the CNI protocol as Calico
//! speaks it, who a sandbox is, what it owns, and the steps of its life.
//!
//! Everything a sandbox owns is keyed by container id and interface; names of pods and of host
//! interfaces are labels. No I/O: the caller performs the steps that [`life`] names.

pub mod answer;
pub mod call;
pub mod claim;
pub mod course;
pub mod failure;
pub mod ghost;
pub mod identity;
pub mod life;
pub mod netconf;
pub mod reclaim;
pub mod records;
pub mod reserve;
pub mod upgrade;
pub mod version;
pub mod wiring;
