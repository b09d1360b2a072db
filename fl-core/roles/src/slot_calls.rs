//! What [`Server`](crate::Server) and [`Client`](crate::Client) ask of their host alike.
#![expect(missing_docs, reason = "`Server` and `Client` say what each does")]

use crate::{Generator, Public, Result, Task, Trainer};
use std::sync::Arc;

/// The slots and the public data of one side.
pub trait SlotCalls {
    fn has(&self, slot: &str) -> bool;
    fn task(&self) -> &Task;
    fn public(&self) -> Result<Option<Arc<Public>>>;
    fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer>;
    fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator>;
}
