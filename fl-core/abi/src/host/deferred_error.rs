//! Failures that come to light later.

use anyhow::bail;
use fl_roles::Result;
use std::sync::{Mutex, PoisonError};

/// Some operations cannot fail here, but can in a library: the next one that can, does, and says
/// why.
#[derive(Default)]
pub(super) struct DeferredError(Mutex<Option<String>>);

impl DeferredError {
    pub fn keep(&self, error: &anyhow::Error) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| format!("{error:#}"));
    }

    pub fn check(&self) -> Result<()> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => bail!("it failed before: {why}"),
            None => Ok(()),
        }
    }
}
