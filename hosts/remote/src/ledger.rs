//! [`Ledger`]: a node's releases since it was set up, over all runs: a new run does not reset it.
//!
//! It is a file that only grows, with one record per answer, and a small head file with the length
//! and checksum of the complete part. Data after that were being written when the node ended, and
//! their answer was never sent.

use crate::private_file::{last, open};
use anyhow::{Context, ensure};
use fl_core::{PrivacyEvent, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// Identifies the inputs of one answer; a repeated request gets the same answer, which costs
/// nothing.
pub(crate) type Key = [u8; 32];

/// The files of a ledger, and the secret that signs its head.
pub(crate) struct LedgerFiles {
    /// All releases.
    pub records: PathBuf,
    /// The length of the complete part, and its checksum.
    pub head: PathBuf,
    pub secret: [u8; 32],
}

/// The length of the complete part, and its checksum: each record extends that of the one before.
#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Head {
    bytes: u64,
    sum: [u8; 32],
}

impl Head {
    /// Returns the head after one more record.
    fn with(self, record: &[u8]) -> Self {
        let sum = Sha256::new().chain_update(self.sum).chain_update(record);
        Self {
            bytes: self.bytes + record.len() as u64,
            sum: sum.finalize().into(),
        }
    }

    /// Returns a signature that only holders of the secret can make.
    fn signature(&self, files: &LedgerFiles) -> [u8; 32] {
        let hash = Sha256::new()
            .chain_update(files.secret)
            .chain_update(b"ledger-head")
            .chain_update(self.bytes.to_le_bytes())
            .chain_update(self.sum);
        hash.finalize().into()
    }

    fn write(&self, files: &LedgerFiles) -> Result<()> {
        let bytes = postcard::to_stdvec(&(self, self.signature(files)))?;
        last(&files.head, &bytes)
    }

    /// # Errors
    /// If it is missing, or its signature is wrong.
    fn read(files: &LedgerFiles) -> Result<Self> {
        let damaged = || files.damaged();
        let bytes = fl_sim::read_own(&files.head).with_context(damaged)?;
        let read: Option<(Self, [u8; 32])> = postcard::from_bytes(&bytes).ok();
        let (head, signature) = read.with_context(damaged)?;
        ensure!(signature == head.signature(files), damaged());
        Ok(head)
    }
}

impl LedgerFiles {
    fn damaged(&self) -> String {
        format!(
            "{} or {} is missing, damaged, or of another version of fl: the ledger of releases is lost, so the node releases nothing more; restore both files, or set the node up again with another home",
            self.records.display(),
            self.head.display()
        )
    }

    /// Writes the ledger of a node without releases.
    pub fn begin(&self) -> Result<()> {
        last(&self.records, &[])?;
        Head::default().write(self)
    }

    /// Checks that the ledger has the length in its head.
    ///
    /// # Errors
    /// If it has not.
    pub fn check(&self) -> Result<()> {
        let damaged = || self.damaged();
        let head = Head::read(self)?;
        let records = open(&self.records).and_then(|file| file.metadata());
        let length = records.with_context(damaged)?.len();
        ensure!(length >= head.bytes, damaged());
        Ok(())
    }
}

/// All releases by answer, as far as they have been read.
#[derive(Default)]
pub(crate) struct Ledger {
    all: BTreeMap<Key, Vec<PrivacyEvent>>,
    head: Head,
}

impl Ledger {
    /// Reads the records that other processes have written since the last read.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn catch_up(&mut self, files: &LedgerFiles) -> Result<()> {
        let damaged = || files.damaged();
        let due = Head::read(files)?;
        if due == self.head {
            return Ok(());
        }
        let more = due
            .bytes
            .checked_sub(self.head.bytes)
            .with_context(damaged)?;
        let mut bytes = Vec::new();
        let mut file = open(&files.records).with_context(damaged)?;
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

    /// Returns the releases of all answers except these.
    pub fn beside(&self, paid: &[Key]) -> Vec<PrivacyEvent> {
        let paid: BTreeSet<&Key> = paid.iter().collect();
        let others = self.all.iter().filter(|(key, _)| !paid.contains(key));
        others.flat_map(|(_, events)| events.clone()).collect()
    }

    /// Charges an answer's releases; they are on the disk before the answer is sent. The ledger
    /// must be up to date, and locked for this process.
    pub fn charge(
        &mut self,
        files: &LedgerFiles,
        key: Key,
        events: Vec<PrivacyEvent>,
    ) -> Result<()> {
        if events.is_empty() || self.all.get(&key) == Some(&events) {
            return Ok(());
        }
        let mut record = postcard::to_extend(&(key, &events), vec![0; 4])?;
        let length = u32::try_from(record.len() - 4).context("what one answer releases")?;
        record[..4].copy_from_slice(&length.to_le_bytes());
        let path = &files.records;
        let what = || format!("writing {}", path.display());
        let mut file = fl_sim::open_own(path, OpenOptions::new().write(true)).with_context(what)?;
        // of an answer that was never sent
        file.set_len(self.head.bytes).with_context(what)?;
        file.seek(SeekFrom::End(0)).with_context(what)?;
        file.write_all(&record).with_context(what)?;
        file.sync_all().with_context(what)?;
        let now = self.head.with(&record);
        now.write(files)?;
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
        let home = crate::NodeState::open(d.path()).unwrap().ledger();
        let mut one = Ledger::default();
        one.catch_up(&home).unwrap();
        let mut length = 0;
        for k in 0..4 {
            let before = fs::read(&home.records).unwrap_or_default();
            one.charge(&home, [k; 32], event(f64::from(k))).unwrap();
            let after = fs::read(&home.records).unwrap();
            // old records are not written again, and each costs the same
            assert!(after.starts_with(&before) && after.len() > before.len());
            assert!(k == 0 || after.len() - before.len() == length);
            length = after.len() - before.len();
        }
        let told = |ledger: &mut Ledger| {
            ledger.catch_up(&home).map_err(|e| format!("{e:#}"))?;
            Ok::<usize, String>(ledger.beside(&[[0; 32]]).len())
        };
        assert_eq!(told(&mut Ledger::default()), Ok(3));
        // another process appends to it, and the first sees that
        let mut other = Ledger::default();
        other.catch_up(&home).unwrap();
        other.charge(&home, [9; 32], event(9.0)).unwrap();
        assert_eq!(told(&mut one), Ok(4));
        // ended while writing: the answer was not sent, so nothing was released
        let whole = fs::read(&home.records).unwrap();
        fs::write(&home.records, [&whole[..], &whole[..20]].concat()).unwrap();
        assert_eq!(told(&mut Ledger::default()), Ok(4));
        one.charge(&home, [10; 32], event(10.0)).unwrap();
        assert_eq!(told(&mut Ledger::default()), Ok(5));
        // every other change makes the ledger unusable
        let whole = fs::read(&home.records).unwrap();
        for at in (0..whole.len()).step_by(7) {
            let mut bent = whole.clone();
            bent[at] ^= 1;
            fs::write(&home.records, bent).unwrap();
            let error = told(&mut Ledger::default()).unwrap_err();
            assert!(error.contains("the ledger of releases is lost"), "{error}");
        }
        fs::write(&home.records, &whole[..whole.len() - 1]).unwrap();
        assert!(told(&mut Ledger::default()).is_err());
        fs::write(&home.records, &whole).unwrap();
        fs::remove_file(&home.head).unwrap();
        assert!(told(&mut Ledger::default()).is_err());
        assert!(told(&mut one).is_err());
    }
}
