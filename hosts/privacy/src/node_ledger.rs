//! [`NodeLedger`]: a node's releases since it was set up, over all runs: a new run does not reset it.
//!
//! It is a [`Chain`] with one record per answer. An answer that was being recorded when the node
//! ended was never sent.

use crate::chain::{Chain, ChainFiles};
use fl_core::{PrivacyEvent, Result, hex};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Identifies the inputs of one answer; a repeated request gets the same answer, which costs
/// nothing.
pub type AnswerKey = [u8; 32];

/// Stands for all answers that had no price.
const UNPRICED: AnswerKey = [0; 32];

/// The releases of one answer.
#[derive(PartialEq, Serialize, Deserialize)]
struct Answer {
    /// In hexadecimal.
    key: String,
    events: Vec<PrivacyEvent>,
}

/// All releases by answer, as far as they have been read.
pub struct NodeLedger {
    all: BTreeMap<String, Vec<PrivacyEvent>>,
    chain: Chain,
}

impl NodeLedger {
    /// Returns a ledger that has not been read.
    pub fn new(files: ChainFiles) -> Self {
        Self {
            all: BTreeMap::new(),
            chain: Chain::new(files),
        }
    }

    /// Reads the records that other processes have written since the last read.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn catch_up(&mut self) -> Result<()> {
        for Answer { key, events } in self.chain.read_new()? {
            self.all.entry(key).or_default().extend(events);
        }
        Ok(())
    }

    /// Returns whether it has all of these answers. It has, unless its files are an older copy.
    pub fn has(&self, paid: &[AnswerKey]) -> bool {
        paid.iter().all(|key| self.all.contains_key(&hex(key)))
    }

    /// Returns the releases of all answers except these.
    pub fn beside(&self, paid: &[AnswerKey]) -> Vec<PrivacyEvent> {
        let paid = paid.iter().chain([&UNPRICED]);
        let paid: BTreeSet<String> = paid.map(|key| hex(key)).collect();
        let others = self.all.iter().filter(|(key, _)| !paid.contains(*key));
        others.flat_map(|(_, events)| events.clone()).collect()
    }

    /// Returns why the first answer without a price had none, if one left the node.
    pub fn unpriced(&self) -> Option<String> {
        let events = self.all.get(&hex(&UNPRICED))?;
        events.first().map(ToString::to_string)
    }

    /// Records that an answer has no price, if it is the first. As [`NodeLedger::charge`].
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn charge_unpriced(&mut self, why: String) -> Result<()> {
        if self.has(&[UNPRICED]) {
            Ok(())
        } else {
            self.charge(UNPRICED, vec![PrivacyEvent::Unaccounted { why }])
        }
    }

    /// Charges an answer's releases; they are on the disk before the answer is sent. The ledger
    /// must be up to date, and locked for this process.
    ///
    /// # Errors
    /// If it cannot be written; then nothing is charged.
    pub fn charge(&mut self, key: AnswerKey, events: Vec<PrivacyEvent>) -> Result<()> {
        let key = hex(&key);
        if events.is_empty() || self.all.get(&key) == Some(&events) {
            return Ok(());
        }
        let answer = Answer { key, events };
        self.chain.append(&answer)?;
        self.all
            .entry(answer.key)
            .or_default()
            .extend(answer.events);
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
        let files = ChainFiles {
            records: d.path().join("ledger"),
            head: d.path().join("ledger-head"),
            secret: [7; 32],
            advice: "The ledger of releases is lost",
        };
        files.begin().unwrap();
        let fresh = || NodeLedger::new(files.clone());
        let mut one = fresh();
        one.catch_up().unwrap();
        let mut length = 0;
        for k in 0..4 {
            let before = fs::read(&files.records).unwrap_or_default();
            one.charge([100 + k; 32], event(f64::from(k))).unwrap();
            let after = fs::read(&files.records).unwrap();
            // old records are not written again, and each costs the same
            assert!(after.starts_with(&before) && after.len() > before.len());
            assert!(k == 0 || after.len() - before.len() == length, "{k}");
            length = after.len() - before.len();
        }
        let told = |ledger: &mut NodeLedger| {
            ledger.catch_up().map_err(|e| format!("{e:#}"))?;
            Ok::<usize, String>(ledger.beside(&[[100; 32]]).len())
        };
        assert_eq!(told(&mut fresh()), Ok(3));
        // another process appends to it, and the first sees that
        let mut other = fresh();
        other.catch_up().unwrap();
        other.charge([119; 32], event(9.0)).unwrap();
        assert_eq!(told(&mut one), Ok(4));
        // ended while writing: the answer was not sent, so nothing was released
        let whole = fs::read(&files.records).unwrap();
        fs::write(&files.records, [&whole[..], &whole[..20]].concat()).unwrap();
        assert_eq!(told(&mut fresh()), Ok(4));
        one.charge([110; 32], event(10.0)).unwrap();
        assert_eq!(told(&mut fresh()), Ok(5));
        // every other change makes the ledger unusable
        let whole = fs::read(&files.records).unwrap();
        for at in (0..whole.len()).step_by(7) {
            let mut bent = whole.clone();
            bent[at] ^= 1;
            fs::write(&files.records, bent).unwrap();
            let error = told(&mut fresh()).unwrap_err();
            assert!(error.contains("The ledger of releases is lost"), "{error}");
        }
        fs::write(&files.records, &whole[..whole.len() - 1]).unwrap();
        assert!(told(&mut fresh()).is_err());
        fs::write(&files.records, &whole).unwrap();
        fs::remove_file(&files.head).unwrap();
        assert!(told(&mut fresh()).is_err());
        assert!(told(&mut one).is_err());
    }
}
