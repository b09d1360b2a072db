//! What may cross between a client and the server.
//!
//! A message *is* a short list of named tensors ([`Message::tensors`]). From that one description follow its wire
//! form, its byte count, its digest and its checks; a part never writes any of them.
//!
//! Each message has a file of its own. A crate registers its messages
//! ([`messages!`](crate::messages!)), so that [`message_type`] finds the [`MessageType`] of a name. A
//! library may declare a kind that has no Rust type ([`MessageType::declare`]).
#![doc = include_str!("../../MESSAGES.md")]

use crate::Result;
use std::fmt::Debug;

mod any;
mod bits;
mod checks;
mod class_means;
mod composite;
mod counts;
mod declared;
mod gradient_sum;
mod ids;
mod json;
mod logits;
mod mask;
mod models;
mod nothing;
mod params;
mod sample_shape;
mod scalar;
mod soft_labels;
mod table;
mod tensors;
#[cfg(test)]
mod tests;
mod types;
mod votes;
mod wire;

pub use any::{AnyMessage, Erased};
pub use checks::{Bytes, alike, alike_to, bytes, check, check_rows, digest, hex};
pub use class_means::{ClassMeans, class_means};
#[doc(hidden)]
pub use composite::{put_under, take_apart};
pub use counts::{Counts, VoteSensitivity};
pub use declared::{ColumnDecl, Declared, MessageDecl};
pub use gradient_sum::GradientSum;
pub use ids::Ids;
pub use json::{from_json, to_json};
pub use logits::{Grid, Logits};
pub use mask::Mask;
pub use models::Models;
pub use nothing::Nothing;
pub use params::Params;
pub use sample_shape::SampleShape;
pub use scalar::Scalar;
pub use soft_labels::{SoftLabels, softmax};
pub use table::table;
pub use tensors::{Bits, Dtype, NamedTensors, Tensor, TensorMap, View};
#[doc(hidden)]
pub use types::RegisteredMessages;
pub use types::{
    MessageType, SensitivityNorm, check_linked, known_kinds, message_type, message_types, pair,
};
pub use votes::Votes;
pub use wire::{decode, encode};

/// What is known of an exchange before it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeShape {
    /// Parameters of the model whose parameters travel.
    pub params: usize,
    /// Samples that the question is about.
    pub rows: usize,
    /// Numbers of one input.
    pub inputs: usize,
    /// Model outputs.
    pub outputs: usize,
    /// Classes, or labels: as many as outputs, but where every pixel has a class.
    pub classes: usize,
    /// Bytes of that model in its own format, if training does not change them.
    pub model: Option<u64>,
}

/// What users read about one tensor of a message.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name; `*` stands for any name, and for any number of tensors.
    pub name: &'static str,
    /// What its numbers are.
    pub dtype: Dtype,
    /// Its shape: `rows x classes`, `4`, or `any`.
    pub shape: &'static str,
    /// What it holds.
    pub doc: &'static str,
}

impl Column {
    /// One of [`Message::COLUMNS`].
    pub const fn new(
        name: &'static str,
        dtype: Dtype,
        shape: &'static str,
        doc: &'static str,
    ) -> Self {
        Self {
            name,
            dtype,
            shape,
            doc,
        }
    }
}

/// Ids of samples, as most messages have them.
const ROWS: Column = Column::new("rows", Dtype::U32, "rows", "ids of the samples");

/// Anything a client and the server exchange.
pub trait Message: Clone + Debug + Send + Sync + 'static {
    /// The name users see in specs, errors and the journal.
    const KIND: &'static str;

    /// What it is, in one line for the table of messages.
    const DOC: &'static str = "";

    /// What [`Message::tensors`] lists, for readers and for tools that make messages from text. May be empty for a
    /// message that only its own protocol makes.
    const COLUMNS: &'static [Column] = &[];

    /// What one unit of data can change in it.
    const REACH: SensitivityNorm = SensitivityNorm::Any;

    /// Its content. A tensor called `rows` holds sample ids and makes the message row-keyed: senders may speak about
    /// different samples, and only the other tensors' trailing dimensions must agree.
    fn tensors(&self) -> NamedTensors<'_>;

    /// What is sent: the content, unless it can be packed. A tensor whose name begins with a dot is known to the
    /// receiver from the spec; it travels for convenience and is not counted.
    fn wire(&self) -> NamedTensors<'_> {
        self.tensors()
    }

    /// The inverse of [`Message::tensors`], and of [`Message::wire`].
    ///
    /// # Errors
    /// When the tensors are not those of such a message.
    fn from_tensors(parcel: TensorMap) -> Result<Self>;

    /// How many bytes one such message takes at most; `None` if that cannot be known before.
    fn expected(_: &ExchangeShape) -> Option<u64> {
        None
    }

    /// Checks beyond finite numbers, such as labels below the number of classes.
    ///
    /// # Errors
    /// When the message makes no sense.
    fn check(&self) -> Result<()> {
        Ok(())
    }
    /// How many classes it speaks about; `None` if that makes no sense.
    fn class_count(&self) -> Option<usize> {
        None
    }

    /// A legal message that somebody could send, for tests of parts; `None` if nobody has said how to make one up.
    fn sample(_: &mut SampleShape<'_>) -> Option<Self> {
        None
    }
}
