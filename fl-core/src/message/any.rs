//! Messages whose Rust type is not known where they are used.

use super::{Message, MessageType, NamedTensors, encode};
use crate::Result;
use anyhow::anyhow;
use std::any::Any;
use std::fmt::Debug;

/// A message by its kind and tensors: what a [`Message`] of any Rust type is, and what a message is
/// whose kind was declared at run time ([`MessageType::declare`]).
pub trait AnyMessage: Any + Debug + Send + Sync {
    /// The type of its kind.
    fn message_type(&self) -> &'static MessageType;

    /// What it holds, see [`Message::tensors`].
    fn content(&self) -> NamedTensors<'_>;

    /// What is sent of it, see [`Message::wire`].
    fn sent(&self) -> NamedTensors<'_>;

    /// Its own check, see [`Message::check`]. [`check`](super::check) looks for finite numbers too.
    ///
    /// # Errors
    /// When the message makes no sense.
    fn check_content(&self) -> Result<()>;

    /// How many classes it speaks about; `None` if that makes no sense.
    fn classes(&self) -> Option<usize>;

    /// A copy.
    fn copy(&self) -> Erased;

    /// Becomes `other`.
    ///
    /// # Errors
    /// When that is a message of another type; nothing has changed then.
    fn become_other(&mut self, other: Erased) -> Result<()>;
}

/// A message that owns its numbers, whatever its Rust type is. Its numbers are those of the message
/// that it was made of: nothing is copied on the way in or out.
pub type Erased = Box<dyn AnyMessage>;

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
    /// Its kind.
    pub fn kind(&self) -> &'static str {
        self.message_type().kind
    }

    /// For a downcast.
    pub fn as_any(&self) -> &dyn Any {
        self
    }

    /// For a downcast by value.
    pub fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    /// As an `M`.
    ///
    /// # Errors
    /// When it is none.
    pub fn get<M: AnyMessage>(&self) -> Result<&M> {
        let found = self.as_any().downcast_ref();
        found.ok_or_else(|| other(self.kind(), std::any::type_name::<M>()))
    }

    /// As an `M` that can be changed.
    ///
    /// # Errors
    /// When it is none.
    pub fn get_mut<M: AnyMessage>(&mut self) -> Result<&mut M> {
        let kind = self.kind();
        let found = (self as &mut dyn Any).downcast_mut();
        found.ok_or_else(|| other(kind, std::any::type_name::<M>()))
    }

    /// The `M` that it is.
    ///
    /// # Errors
    /// When it is none.
    pub fn take<M: AnyMessage>(self: Box<Self>) -> Result<M> {
        let kind = self.kind();
        let found = self.into_any().downcast::<M>();
        found
            .map(|m| *m)
            .map_err(|_| other(kind, std::any::type_name::<M>()))
    }

    /// Wire form.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Bytes of its tensors in memory.
    pub fn size(&self) -> u64 {
        let tensors = self.content();
        tensors.iter().map(|(_, view)| view.bytes() as u64).sum()
    }
}

fn other(kind: &str, due: &str) -> anyhow::Error {
    anyhow!("a {kind} message where one of Rust type {due} was due")
}
