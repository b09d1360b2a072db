//! Who leads a run: what tells its requests from those of any other run, and from those of itself before it was stopped.

use crate::wire::{Id, RunId, random};
use anyhow::Context;
use fl_core::Result;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;

/// A leader: its run, and which time it leads it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Leader {
    id: Id,
    life: u64,
}

impl Leader {
    /// Begins to lead the run whose leader stands in `file`, or a new run if there is none; that it does is written down
    /// before anybody is asked anything, so that nobody takes a request from before a stop for one of after it.
    ///
    /// # Errors
    /// When the file is there and damaged, or cannot be written.
    pub fn begin(file: &Path) -> Result<Self> {
        let what = || format!("the leader's name in {}", file.display());
        let mut leader = match std::fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(what)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let id = random()?;
                Self { id, life: 0 }
            }
            Err(error) => return Err(error).with_context(what),
        };
        leader.life += 1;
        fl_sim::write(file, &serde_json::to_vec(&leader)?)?;
        Ok(leader)
    }

    /// The run that it leads by this spec.
    pub(crate) fn run(&self, spec: [u8; 32]) -> RunId {
        let Self { id, life } = *self;
        RunId { id, life, spec }
    }
}
