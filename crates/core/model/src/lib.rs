//! What the configuration of a cluster means: label selectors, what makes an object acceptable,
//! what happens to it on its way into the datastore and out of it, and typed forms that cannot
//! hold a bad value.

pub mod felix;
pub mod prepare;
pub mod present;
pub mod resource;
pub mod selector;
pub mod validate;
