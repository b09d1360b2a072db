//! Messages: the data that may cross between a client and the server.
//!
//! A message *is* a short list of named tensors ([`Message::tensors`]). Its wire form, byte count,
//! digest and checks follow from that list; a part never writes any of them.
//!
//! Each message has its own file. A crate registers its messages ([`messages!`](crate::messages!)),
//! so that [`message_type`] finds the [`MessageType`] of a name. A library may declare a kind
//! without a Rust type ([`MessageType::declare`]). `MESSAGES.md`, beside the README of `fl-core`,
//! lists the tensors of each ([`table()`]).

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
mod params_list;
mod sample_shape;
mod scalar;
mod soft_labels;
mod table;
mod tensor_fields;
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
pub use composite::{put_under, split_fields};
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
pub use params_list::ParamsList;
pub use sample_shape::SampleShape;
pub use scalar::Scalar;
pub use soft_labels::{SoftLabels, softmax};
pub use table::table;
pub use tensor_fields::TensorField;
pub use tensors::{Bits, Dtype, NamedTensors, Tensor, TensorMap, View};
#[doc(hidden)]
pub use types::ExpectedBytes;
#[doc(hidden)]
pub use types::RegisteredMessages;
pub use types::{
    MessageType, SensitivityNorm, check_linked, known_kinds, message_type, message_types, pair,
};
pub use votes::Votes;
pub use wire::{OwnedTensors, decode, encode, read_any};

/// The sizes of an exchange that are known before it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExchangeShape {
    /// Number of parameters of the model whose parameters are sent.
    pub params: usize,
    /// Number of samples of the request.
    pub rows: usize,
    /// Number of values in one input.
    pub inputs: usize,
    /// Number of model outputs.
    pub outputs: usize,
    /// Number of classes or labels. Equal to `outputs`, unless every pixel has a class.
    pub classes: usize,
    /// Bytes of that model in its own format, if training does not change the size.
    pub model: Option<u64>,
}

/// Documentation of one tensor of a message.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name; `*` stands for any name, and for any number of tensors.
    pub name: &'static str,
    /// The type of its numbers.
    pub dtype: Dtype,
    /// Its shape: `rows x classes`, `4`, or `any`.
    pub shape: &'static str,
    /// Its content.
    pub doc: &'static str,
}

impl Column {
    /// Returns one entry of [`Message::COLUMNS`].
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

/// A value that a client and the server exchange.
pub trait Message: Clone + Debug + Send + Sync + 'static {
    /// The name in specs, errors and the journal.
    const KIND: &'static str;

    /// A description in one line, for the table of messages.
    const DOC: &'static str = "";

    /// The tensors of [`Message::tensors`], for readers and for tools that make messages from text.
    /// May be empty for a message that only its own protocol makes.
    const COLUMNS: &'static [Column] = &[];

    /// What one unit of data can change in it.
    const REACH: SensitivityNorm = SensitivityNorm::Any;

    /// Name and kind of each message in it: [`message!`](crate::message!) lists them.
    const FIELDS: &'static [(&'static str, &'static str)] = &[];

    /// Returns its content. A tensor called `rows` holds sample ids and makes the message
    /// row-keyed: senders may send different samples, and only the other tensors' trailing
    /// dimensions must agree.
    fn tensors(&self) -> NamedTensors<'_>;

    /// Returns the form to send: the content, unless it can be packed. The receiver knows a tensor
    /// whose name begins with a dot from the spec; it travels for convenience and is not counted.
    fn wire(&self) -> NamedTensors<'_> {
        self.tensors()
    }

    /// Inverts [`Message::tensors`] and [`Message::wire`].
    ///
    /// # Errors
    /// If the tensors are not those of such a message.
    fn from_tensors(parcel: TensorMap) -> Result<Self>;

    /// Returns the largest bytes of one such message; `None` if that is unknown before.
    fn expected(_: &ExchangeShape) -> Option<u64> {
        None
    }

    /// Checks more than finite numbers, such as labels below the number of classes.
    ///
    /// # Errors
    /// If the message is not valid.
    fn check(&self) -> Result<()> {
        Ok(())
    }
    /// Returns its number of classes; `None` if it has none.
    fn class_count(&self) -> Option<usize> {
        None
    }

    /// Returns a valid sample message, for tests of parts; `None` if the type has no sample.
    fn sample(_: &mut SampleShape<'_>) -> Option<Self> {
        None
    }
}
