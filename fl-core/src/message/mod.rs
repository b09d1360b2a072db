//! What may cross between a client and the server.
//!
//! A message *is* a short list of named tensors ([`Message::tensors`]). From that one description follow its wire
//! form, its byte count, its digest and its checks; a part never writes any of them. Each message has a file of its own.

use crate::Result;
use std::fmt::Debug;

mod bits;
mod checks;
mod class_means;
mod counts;
mod ids;
mod logits;
mod mask;
mod models;
mod nothing;
mod params;
mod scalar;
mod soft_labels;
mod tensors;
#[cfg(test)]
mod tests;
mod votes;
mod wire;

pub use checks::{Bytes, alike, bytes, check, check_rows, digest, hex};
pub use class_means::{ClassMeans, class_means};
pub use counts::{Counts, VoteSensitivity};
pub use ids::Ids;
pub use logits::{Grid, Logits};
pub use mask::Mask;
pub use models::Models;
pub use nothing::Nothing;
pub use params::Params;
pub use scalar::Scalar;
pub use soft_labels::{SoftLabels, softmax};
pub use tensors::{Named, Parcel, Tensor, View};
pub use votes::Votes;
pub use wire::{decode, encode};

/// What is known of an exchange before it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Parameters of the model whose parameters travel.
    pub params: usize,
    /// Samples that the question is about.
    pub rows: usize,
    /// Model outputs.
    pub outputs: usize,
    /// Bytes of that model in its own format, if training does not change them.
    pub model: Option<u64>,
}

/// Anything a client and the server exchange.
pub trait Message: Clone + Debug + Send + Sync + 'static {
    /// The name users see in specs, errors and the journal.
    const KIND: &'static str;

    /// Its content. A tensor called `rows` holds sample ids and makes the message row-keyed: senders may speak about
    /// different samples, and only the other tensors' trailing dimensions must agree.
    fn tensors(&self) -> Named<'_>;

    /// What is sent: the content, unless it can be packed. A tensor whose name begins with a dot is known to the
    /// receiver from the spec; it travels for convenience and is not counted.
    fn wire(&self) -> Named<'_> {
        self.tensors()
    }

    /// The inverse of [`Message::tensors`], and of [`Message::wire`].
    ///
    /// # Errors
    /// When the tensors are not those of such a message.
    fn from_tensors(parcel: Parcel) -> Result<Self>;

    /// How many bytes one such message takes at most; `None` if that cannot be known before.
    fn expected(_: &Facts) -> Option<u64> {
        None
    }

    /// Checks beyond finite numbers, such as labels below the number of classes.
    ///
    /// # Errors
    /// When the message makes no sense.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}
