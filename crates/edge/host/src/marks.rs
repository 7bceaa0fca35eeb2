//! The marks by which what we made is told from what others made: in the kernel, in files, and in
//! programs. Ownership is read from the thing itself, never from a list of ours.

/// The name of our nftables tables.
pub const TABLE: &str = "margay";

/// The names of all nftables tables that we make: the second is in force while the first is made
/// anew.
pub const TABLES: [&str; 2] = [TABLE, "margay-meanwhile"];

/// The protocol number of our routes, in the range that is free for programs to use.
pub const ROUTE_PROTOCOL: u8 = 77;

/// The group of listeners that our rules hand denied packets to.
pub const DENIALS_GROUP: u16 = 19_783;

/// How many packets of a source that one rule denies are told of at once; more come one by one.
pub const DENIALS_AT_ONCE: u32 = 20;

/// Stands in every text file that setting up a host makes.
pub const TEXT: &str = "made by margay setup; margay remove takes it away";

/// Stands in every build of this program, and in nothing else.
pub const PROGRAM: &[u8] = b"margay program 5f0c1d6e-8e0b-4f57-9f0a-3c8f1f4a2b77";
