//! Traits that the core alone implements, so that a minor release may add to what they promise.
//! Their supertraits are here, where plugins do not name them.

/// Supertrait of the sealed traits.
pub trait Sealed {}

/// Supertrait of [`crate::message::AnyMessage`], which every message implements.
pub trait SealedMessage {}
