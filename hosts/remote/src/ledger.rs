//! What a node has released since it was set up, whatever run it was for: no new run sets it back.
//!
//! A file that only grows, a record an answer, and beside it a small one that says how much of it is whole and what its
//! records come to. What stands behind that was being written when the node ended, and its answer has not left.

use crate::node_state::{NodeState, last, open};
use anyhow::{Context, ensure};
use fl_core::{PrivacyEvent, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};

/// What one answer is made from; whoever is asked the same again says the same again, which costs nothing.
pub(crate) type Key = [u8; 32];

/// How much of the ledger is whole, and what it comes to: each record's checksum goes on from the one before.
#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Head {
    bytes: u64,
    sum: [u8; 32],
}

impl Head {
    /// With one more record behind it.
    fn with(self, record: &[u8]) -> Self {
        let sum = Sha256::new().chain_update(self.sum).chain_update(record);
        Self {
            bytes: self.bytes + record.len() as u64,
            sum: sum.finalize().into(),
        }
    }

    /// What only those who know the home's secret can say of it.
    fn signature(&self, home: &NodeState) -> [u8; 32] {
        let hash = Sha256::new()
            .chain_update(home.secret())
            .chain_update(b"ledger-head")
            .chain_update(self.bytes.to_le_bytes())
            .chain_update(self.sum);
        hash.finalize().into()
    }

    fn write(&self, home: &NodeState) -> Result<()> {
        let bytes = postcard::to_stdvec(&(self, self.signature(home)))?;
        last(&home.ledger_head(), &bytes)
    }

    /// # Errors
    /// When it is not there, or the home has not signed it.
    fn read(home: &NodeState) -> Result<Self> {
        let bytes = fl_sim::read_own(&home.ledger_head()).with_context(|| damaged(home))?;
        let read: Option<(Self, [u8; 32])> = postcard::from_bytes(&bytes).ok();
        let (head, signature) = read.with_context(|| damaged(home))?;
        ensure!(signature == head.signature(home), damaged(home));
        Ok(head)
    }
}

fn damaged(home: &NodeState) -> String {
    format!(
        "{} or {} is missing, damaged, or of another version of fl: the ledger of releases is lost, so the node releases nothing more; restore both files, or set the node up again with another home",
        home.ledger().display(),
        home.ledger_head().display()
    )
}

/// Writes the ledger of a home that has released nothing.
pub(crate) fn begin(home: &NodeState) -> Result<()> {
    last(&home.ledger(), &[])?;
    Head::default().write(home)
}

/// Is there a ledger, as much of it as its head says?
///
/// # Errors
/// When there is not.
pub(crate) fn check(home: &NodeState) -> Result<()> {
    let head = Head::read(home)?;
    let ledger = open(&home.ledger()).and_then(|file| file.metadata());
    let length = ledger.with_context(|| damaged(home))?.len();
    ensure!(length >= head.bytes, damaged(home));
    Ok(())
}

/// Everything that was released, by answer; as far as it has been read.
#[derive(Default)]
pub(crate) struct Ledger {
    all: BTreeMap<Key, Vec<PrivacyEvent>>,
    head: Head,
}

impl Ledger {
    /// Reads what other processes have written since it was read last.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub fn catch_up(&mut self, home: &NodeState) -> Result<()> {
        let damaged = || damaged(home);
        let due = Head::read(home)?;
        if due == self.head {
            return Ok(());
        }
        let more = due
            .bytes
            .checked_sub(self.head.bytes)
            .with_context(damaged)?;
        let mut bytes = Vec::new();
        let mut file = open(&home.ledger()).with_context(damaged)?;
        file.seek(SeekFrom::Start(self.head.bytes))
            .with_context(damaged)?;
        file.take(more)
            .read_to_end(&mut bytes)
            .with_context(damaged)?;
        ensure!(bytes.len() as u64 == more, damaged());
        let (mut rest, mut now, mut all) = (&bytes[..], self.head, Vec::new());
        while let Some((length, behind)) = rest.split_first_chunk() {
            let record = 4 + u32::from_le_bytes(*length) as usize;
            let (record, behind) = rest
                .split_at_checked(record)
                .map(|(r, _)| (r, behind))
                .with_context(damaged)?;
            now = now.with(record);
            let one: (Key, Vec<PrivacyEvent>) = postcard::from_bytes(&behind[..record.len() - 4])
                .ok()
                .with_context(damaged)?;
            all.push(one);
            rest = &rest[record.len()..];
        }
        ensure!(rest.is_empty() && now == due, damaged());
        for (key, events) in all {
            self.all.entry(key).or_default().extend(events);
        }
        self.head = now;
        Ok(())
    }

    /// What was released by all answers but these.
    pub fn beside(&self, paid: &[Key]) -> Vec<PrivacyEvent> {
        let paid: BTreeSet<&Key> = paid.iter().collect();
        let others = self.all.iter().filter(|(key, _)| !paid.contains(key));
        others.flat_map(|(_, events)| events.clone()).collect()
    }

    /// An answer releases this; it is written down before the answer leaves. The ledger has been caught up with, and nobody
    /// else writes to it.
    pub fn charge(&mut self, home: &NodeState, key: Key, events: Vec<PrivacyEvent>) -> Result<()> {
        if events.is_empty() || self.all.get(&key) == Some(&events) {
            return Ok(());
        }
        let mut record = postcard::to_extend(&(key, &events), vec![0; 4])?;
        let length = u32::try_from(record.len() - 4).context("what one answer releases")?;
        record[..4].copy_from_slice(&length.to_le_bytes());
        let path = home.ledger();
        let what = || format!("writing {}", path.display());
        let mut file =
            fl_sim::open_own(&path, OpenOptions::new().write(true)).with_context(what)?;
        // of an answer that has not left
        file.set_len(self.head.bytes).with_context(what)?;
        file.seek(SeekFrom::End(0)).with_context(what)?;
        file.write_all(&record).with_context(what)?;
        file.sync_all().with_context(what)?;
        let now = self.head.with(&record);
        now.write(home)?;
        self.head = now;
        self.all.entry(key).or_default().extend(events);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn event(scale: f64) -> Vec<PrivacyEvent> {
        vec![PrivacyEvent::Laplace {
            sensitivity: 1.0,
            scale,
            unit: fl_core::privacy::Unit::Example,
        }]
    }

    #[test]
    fn a_ledger_grows_at_its_end_and_what_is_damaged_is_not_used() {
        let d = tempfile::tempdir().unwrap();
        let home = NodeState::open(d.path()).unwrap();
        let mut one = Ledger::default();
        one.catch_up(&home).unwrap();
        let mut length = 0;
        for k in 0..4 {
            let before = fs::read(home.ledger()).unwrap_or_default();
            one.charge(&home, [k; 32], event(f64::from(k))).unwrap();
            let after = fs::read(home.ledger()).unwrap();
            // what was there is not written again, and each costs the same
            assert!(after.starts_with(&before) && after.len() > before.len());
            assert!(k == 0 || after.len() - before.len() == length);
            length = after.len() - before.len();
        }
        let told = |ledger: &mut Ledger| {
            ledger.catch_up(&home).map_err(|e| format!("{e:#}"))?;
            Ok::<usize, String>(ledger.beside(&[[0; 32]]).len())
        };
        assert_eq!(told(&mut Ledger::default()), Ok(3));
        // another process goes on with it, which the first finds
        let mut other = Ledger::default();
        other.catch_up(&home).unwrap();
        other.charge(&home, [9; 32], event(9.0)).unwrap();
        assert_eq!(told(&mut one), Ok(4));
        // ended while it was writing: the answer has not left, so nothing was released
        let whole = fs::read(home.ledger()).unwrap();
        fs::write(home.ledger(), [&whole[..], &whole[..20]].concat()).unwrap();
        assert_eq!(told(&mut Ledger::default()), Ok(4));
        one.charge(&home, [10; 32], event(10.0)).unwrap();
        assert_eq!(told(&mut Ledger::default()), Ok(5));
        // every other change is one that nobody goes on with
        let whole = fs::read(home.ledger()).unwrap();
        for at in (0..whole.len()).step_by(7) {
            let mut bent = whole.clone();
            bent[at] ^= 1;
            fs::write(home.ledger(), bent).unwrap();
            let error = told(&mut Ledger::default()).unwrap_err();
            assert!(error.contains("the ledger of releases is lost"), "{error}");
        }
        fs::write(home.ledger(), &whole[..whole.len() - 1]).unwrap();
        assert!(told(&mut Ledger::default()).is_err());
        fs::write(home.ledger(), &whole).unwrap();
        fs::remove_file(home.ledger_head()).unwrap();
        assert!(told(&mut Ledger::default()).is_err());
        assert!(told(&mut one).is_err());
    }
}
