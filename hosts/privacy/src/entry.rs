//! [`Entry`]: a run in the ledger, and what it may have spent.

use crate::record::{AccountantId, Reservation, RunId, Spending};
use crate::rows::{DataId, UserKey, user_key};
use fl_core::privacy::{Noise, Observer, Protection};
use fl_report::Run;
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

/// Why nothing is guaranteed where a run that is not done has no epsilon.
pub(crate) const UNPRICED: &str = "it has seen something without a price";

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

    /// Describes runs, each with its name, as a ledger does: by what their folders say of them. A
    /// run that is not done counts with all that it may spend.
    pub fn of_runs<'a>(runs: impl Iterator<Item = (String, &'a Run)>) -> Vec<Self> {
        let user = user_key();
        runs.map(|(name, run)| Self::of_run(name, run, &user))
            .collect()
    }

    fn of_run(name: String, run: &Run, user: &UserKey) -> Self {
        let book = run.book().and_then(|book| Reservation::of_book(book, user));
        let mut reservation = book.unwrap_or_else(|| unknown(run));
        reservation.name = name;
        reservation.seed = run.seed().parse().unwrap_or_default();
        let state = run.summary.as_ref().map_or(State::Open, |summary| {
            let releases = summary.releases.clone().map(serde_json::from_value);
            let nothing = Observer::ALL.into_iter().filter_map(|observer| {
                match summary.outcome.protection(observer)? {
                    Protection::Nothing { nothing, .. } => Some((observer, nothing)),
                    Protection::Holds(_) => None,
                }
            });
            State::Settled(Spending {
                nothing: nothing.collect(),
                releases: releases.and_then(Result::ok),
                budget: None,
            })
        });
        let mut entry = Self::new(reservation, state);
        if entry.state == State::Open {
            let exchanges = run.journal.iter().map(|exchange| &exchange.privacy);
            let costs = run.costs.iter().flatten().map(|cost| &cost.privacy);
            for (observer, epsilon) in exchanges.chain(costs).flatten().flatten() {
                if epsilon.is_none() {
                    let seen = entry.seen.entry(*observer).or_default();
                    seen.insert(UNPRICED.into());
                }
            }
        }
        entry
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
        why.extend(self.reasons(observer));
        why
    }

    /// Returns why the run itself guarantees nothing.
    fn reasons(&self, observer: Observer) -> impl Iterator<Item = &str> {
        let declared = self.spending().nothing.get(&observer);
        let seen = self.seen.get(&observer);
        let all = declared
            .into_iter()
            .flatten()
            .chain(seen.into_iter().flatten());
        all.map(String::as_str)
    }

    /// Returns whether the run's own page guarantees something against an observer, whether or not
    /// its rows are known.
    pub fn guarantees(&self, observer: Observer) -> bool {
        self.reservation.accountant.is_some() && self.reasons(observer).next().is_none()
    }

    /// Returns its name and seed.
    pub fn title(&self) -> String {
        let Reservation { name, seed, .. } = &self.reservation;
        format!("{name} (seed {seed})")
    }
}

/// Describes a run that says nothing of its rows: they may be those of any run on a set of this name,
/// and its public rows any rows.
fn unknown(run: &Run) -> Reservation {
    let outcome = run.summary.as_ref().map(|summary| &summary.outcome);
    let accounts = outcome.map_or_else(|| run.accounts(), |of| of.privacy.is_some());
    let opens = run.has_own_files()
        || run
            .spec
            .get("data")
            .is_some_and(|d| d.get("public").is_some());
    Reservation {
        id: RunId::default(),
        continues: None,
        time: run.began().into(),
        name: String::new(),
        seed: 0,
        data: DataId {
            name: run.data_name(),
            public: opens.then(String::new).into_iter().collect(),
            ..DataId::default()
        },
        accountant: accounts.then(AccountantId::default),
        noise: Noise::Seeded,
        claimed_by: Vec::new(),
        most: Spending::default(),
    }
}
