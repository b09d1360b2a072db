//! What a node has released since it was set up, whatever run it was for: no new run sets it back.

use crate::home::Home;
use anyhow::{Context, ensure};
use fl_core::{PrivacyEvent, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

/// What one answer is made from; whoever is asked the same again says the same again, which costs nothing.
pub(crate) type Key = [u8; 32];

/// Everything that was released, by answer.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Ledger(BTreeMap<Key, Vec<PrivacyEvent>>);

impl Ledger {
    /// As it was written down last.
    pub fn read(home: &Home) -> Result<Self> {
        let path = home.ledger();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let (sum, body) = bytes.split_at_checked(32).unwrap_or((&[], &[]));
        ensure!(
            Sha256::digest(body).as_slice() == sum,
            "{} is damaged: nobody knows what was released, so nothing more is",
            path.display()
        );
        let ledger = postcard::from_bytes(body);
        ledger.with_context(|| format!("{} is of another version of fl", path.display()))
    }

    /// What was released by all answers but these.
    pub fn beside(&self, paid: &[Key]) -> Vec<PrivacyEvent> {
        let paid: BTreeSet<&Key> = paid.iter().collect();
        let others = self.0.iter().filter(|(key, _)| !paid.contains(key));
        others.flat_map(|(_, events)| events.clone()).collect()
    }

    /// An answer releases this; it is written down before the answer leaves.
    pub fn charge(&mut self, home: &Home, key: Key, events: Vec<PrivacyEvent>) -> Result<()> {
        if events.is_empty() || self.0.get(&key) == Some(&events) {
            return Ok(());
        }
        self.0.entry(key).or_default().extend(events);
        let mut bytes = postcard::to_extend(self, vec![0; 32])?;
        let sum = Sha256::digest(&bytes[32..]);
        bytes[..32].copy_from_slice(&sum);
        fl_sim::write(&home.ledger(), &bytes)
    }
}
