//! Traits that this crate alone implements, so that a minor release may add to what they promise.
//! Their supertraits are here, where other crates cannot name them.

/// Supertrait of the sealed traits.
pub trait Sealed {}

/// Supertrait of [`crate::message::AnyMessage`], which every message implements.
pub trait SealedMessage {}
