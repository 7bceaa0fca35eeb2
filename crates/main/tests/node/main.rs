//! A node through the shipped binary: real namespaces, real CNI calls, a real agent that is killed.

mod bad_calls;
mod churn;
mod crash_points;
mod hostile;
mod node;
