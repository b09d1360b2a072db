//! [`AnyMessage`]: a message without its Rust type.

use super::{Message, MessageType, NamedTensors, encode};
use crate::Result;
use crate::sealed::SealedMessage;
use anyhow::anyhow;
use std::any::Any;
use std::fmt::Debug;

/// A message by its kind and tensors: a [`Message`] of any Rust type, or a message whose kind was
/// declared at run time ([`MessageType::declare`]).
pub trait AnyMessage: Any + Debug + Send + Sync + SealedMessage {
    /// Returns the type of its kind.
    fn message_type(&self) -> &'static MessageType;

    /// Returns its content, see [`Message::tensors`].
    fn content(&self) -> NamedTensors<'_>;

    /// Returns its wire form, see [`Message::wire`].
    fn sent(&self) -> NamedTensors<'_>;

    /// Runs its own check, see [`Message::check`]. [`check`](super::check) also requires finite
    /// numbers.
    ///
    /// # Errors
    /// If the message is not valid.
    fn check_content(&self) -> Result<()>;

    /// Returns its number of classes; `None` if it has none.
    fn classes(&self) -> Option<usize>;

    /// Returns a copy.
    fn copy(&self) -> Erased;

    /// Replaces its content by `other`.
    ///
    /// # Errors
    /// If that is a message of another type; nothing has changed then.
    fn become_other(&mut self, other: Erased) -> Result<()>;
}

/// A message that owns its numbers, of any Rust type. Conversions in and out copy no numbers.
pub type Erased = Box<dyn AnyMessage>;

impl<M: Message> SealedMessage for M {}

impl<M: Message> AnyMessage for M {
    fn message_type(&self) -> &'static MessageType {
        MessageType::of::<M>()
    }
    fn content(&self) -> NamedTensors<'_> {
        self.tensors()
    }
    fn sent(&self) -> NamedTensors<'_> {
        self.wire()
    }
    fn check_content(&self) -> Result<()> {
        self.check()
    }
    fn classes(&self) -> Option<usize> {
        self.class_count()
    }
    fn copy(&self) -> Erased {
        Box::new(self.clone())
    }
    fn become_other(&mut self, other: Erased) -> Result<()> {
        *self = other.take()?;
        Ok(())
    }
}

impl Clone for Erased {
    fn clone(&self) -> Self {
        (**self).copy()
    }
}

impl dyn AnyMessage {
    /// Returns its kind.
    pub fn kind(&self) -> &'static str {
        self.message_type().kind
    }

    /// Returns it for a downcast.
    pub fn as_any(&self) -> &dyn Any {
        self
    }

    /// Returns it for a downcast by value.
    pub fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    /// Returns it as an `M`.
    ///
    /// # Errors
    /// If it is no `M`.
    pub fn get<M: AnyMessage>(&self) -> Result<&M> {
        let found = self.as_any().downcast_ref();
        found.ok_or_else(|| other(self.kind(), std::any::type_name::<M>()))
    }

    /// Returns it as a mutable `M`.
    ///
    /// # Errors
    /// If it is no `M`.
    pub fn get_mut<M: AnyMessage>(&mut self) -> Result<&mut M> {
        let kind = self.kind();
        let found = (self as &mut dyn Any).downcast_mut();
        found.ok_or_else(|| other(kind, std::any::type_name::<M>()))
    }

    /// Converts it into an `M`.
    ///
    /// # Errors
    /// If it is no `M`.
    pub fn take<M: AnyMessage>(self: Box<Self>) -> Result<M> {
        let kind = self.kind();
        let found = self.into_any().downcast::<M>();
        found
            .map(|m| *m)
            .map_err(|_| other(kind, std::any::type_name::<M>()))
    }

    /// Returns its wire form.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Returns the bytes of its tensors in memory.
    pub fn size(&self) -> u64 {
        let tensors = self.content();
        tensors.iter().map(|(_, view)| view.bytes() as u64).sum()
    }
}

fn other(kind: &str, due: &str) -> anyhow::Error {
    anyhow!("a {kind} message where one of Rust type {due} was due")
}
