//! [`Object`]: a part as the C interface sees it.

use super::call_context::{Host, Input};
use crate::Result;
use crate::message::View;
use anyhow::Context;

/// A part as the C interface sees it; `false`: no such operation.
pub(super) trait Object: Send {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool>;
}

impl Host<'_> {
    /// Gives the host a new part.
    pub(super) fn part(&self, part: Box<dyn Object>) -> Result<()> {
        let f = self.0.part.context("the host takes no parts")?;
        let part = Box::into_raw(Box::new(part));
        // SAFETY: the host's own function and its context; it gives the part back to `drop_part`.
        unsafe { f(self.0.context, part.cast()) };
        Ok(())
    }

    /// Gives the host a state, unless it is empty.
    pub(super) fn state(&self, state: &[u8]) -> Result<()> {
        match state.is_empty() {
            true => Ok(()),
            false => self.tensors(&vec![("state".into(), View::U8(state.into()))]),
        }
    }
}
