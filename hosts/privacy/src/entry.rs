//! [`Entry`]: a run in the ledger, and what it may have spent.

use crate::record::{Reservation, Spending};
use fl_core::privacy::Observer;
use std::collections::{BTreeMap, BTreeSet};

/// How far a run has come.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// It works, or its process ended early. All that it may spend counts.
    Open,
    /// It stopped at a checkpoint, with this number. All that it may spend counts.
    Stopped(u64),
    /// It is done; this counts.
    Settled(Spending),
}

/// A run in the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its beginning.
    pub reservation: Reservation,
    /// How far it has come.
    pub state: State,
    /// What observers saw that has no price.
    pub(crate) seen: BTreeMap<Observer, BTreeSet<String>>,
}

impl Entry {
    /// Describes a run without a ledger.
    pub fn new(reservation: Reservation, state: State) -> Self {
        Self {
            reservation,
            state,
            seen: BTreeMap::new(),
        }
    }

    /// Returns what counts.
    pub fn spending(&self) -> &Spending {
        match &self.state {
            State::Settled(spent) => spent,
            _ => &self.reservation.most,
        }
    }

    /// Returns why nothing is guaranteed against an observer; empty if something is.
    pub fn nothing(&self, observer: Observer) -> BTreeSet<&str> {
        let mut why: BTreeSet<&str> = BTreeSet::new();
        if self.reservation.accountant.is_none() {
            why.insert("the run has no accountant");
        } else if self.reservation.data.key.is_empty() {
            why.insert("which rows it learnt from is not recorded");
        }
        let declared = self.spending().nothing.get(&observer);
        why.extend(declared.into_iter().flatten().map(String::as_str));
        let seen = self.seen.get(&observer);
        why.extend(seen.into_iter().flatten().map(String::as_str));
        why
    }

    /// Returns its name and seed.
    pub fn title(&self) -> String {
        let Reservation { name, seed, .. } = &self.reservation;
        format!("{name} (seed {seed})")
    }
}
