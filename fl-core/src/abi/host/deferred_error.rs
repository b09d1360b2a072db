//! Failures that come to light later, and states that could not be saved.

use super::part_handle::PartHandle;
use crate::Result;
use crate::abi::raw::{FL_LOAD, FL_SAVE};
use anyhow::{bail, ensure};
use std::sync::{Mutex, PoisonError};

/// Some operations cannot fail here, but can in a library: the next one that can, does, and says
/// why.
#[derive(Default)]
pub(super) struct DeferredError(Mutex<Option<String>>);

impl DeferredError {
    pub fn keep<T>(&self, outcome: Result<T>) -> Option<T> {
        let slot = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outcome
            .map_err(|e| slot().get_or_insert_with(|| format!("{e:#}")).len())
            .ok()
    }

    pub fn check(&self) -> Result<()> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => bail!("it failed before: {why}"),
            None => Ok(()),
        }
    }
}

/// Stands where a state should be that could not be saved.
const UNSAVED: &[u8] = b"\0fl: this state could not be saved";

impl DeferredError {
    /// The state of a part whose `save` cannot fail. If it does, a run that goes on from there must
    /// not do so silently.
    pub fn save(&self, remote: &PartHandle) -> Vec<u8> {
        match self.keep(remote.save(FL_SAVE)) {
            Some(state) => state.unwrap_or_default(),
            None => UNSAVED.to_vec(),
        }
    }
}

/// Hands a part's state back.
pub(super) fn load(remote: &PartHandle, state: &[u8]) -> Result<()> {
    ensure!(
        state != UNSAVED,
        "{}: its state could not be saved",
        remote.who()
    );
    match remote.load(FL_LOAD, state)? {
        None if !state.is_empty() => bail!("{}: it keeps no state", remote.who()),
        _ => Ok(()),
    }
}
