//! [`Leader`]: the identity of a run's leader, which distinguishes its requests from those of other
//! runs, and from its own before a stop.

use crate::wire::{Id, RunId, random};
use anyhow::Context;
use fl_core::Result;
use fl_core::regular_file::{MOST_TEXT, read_regular};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A leader: its run, and its life.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Leader {
    id: Id,
    life: u64,
}

impl Leader {
    /// Begins to lead the run of the leader in `file`, or a new run without one. The new life is on
    /// the disk before the first request, so that requests from before a stop differ from those
    /// after it.
    ///
    /// # Errors
    /// If the file is damaged, or cannot be written.
    pub fn begin(file: &Path) -> Result<Self> {
        let what = || format!("the leader's name in {}", file.display());
        let known = fl_files::present(read_regular(file, MOST_TEXT)).with_context(what)?;
        let mut leader = match known {
            Some(bytes) => serde_json::from_slice(&bytes).with_context(what)?,
            None => Self {
                id: random()?,
                life: 0,
            },
        };
        // a copy of the run's folder begins another life, although as many were before it
        let drawn = u32::from_le_bytes(random()?);
        leader.life = ((leader.life >> 32) + 1) << 32 | u64::from(drawn);
        fl_files::write_unlinked(file, &serde_json::to_vec(&leader)?)?;
        Ok(leader)
    }

    /// Returns the identity of its run with this spec.
    pub(crate) fn run(&self, spec: [u8; 32]) -> RunId {
        let Self { id, life } = *self;
        RunId { id, life, spec }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_life_is_above_the_last_and_a_copy_has_another() {
        let folder = tempfile::tempdir().unwrap();
        let [file, copy] = ["leader", "copy"].map(|name| folder.path().join(name));
        let first = Leader::begin(&file).unwrap();
        std::fs::copy(&file, &copy).unwrap();
        let [second, other] = [&file, &copy].map(|file| Leader::begin(file).unwrap());
        assert!(first.id == second.id && first.id == other.id);
        assert!(second.life > first.life && other.life > first.life);
        assert_ne!(second.life, other.life);
        assert!(Leader::begin(&copy).unwrap().life > second.life);
    }
}
