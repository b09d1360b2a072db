//! [`Measurement`] and [`Measured`]: what a run measures, as far as it is known before.

use crate::settings::nearest;
use crate::{Protocol, Role, TaskKind, metrics};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The mean loss of a client's training, which every run without an accountant records.
pub const TRAINING_LOSS: &str = "training-loss";

/// What is measured besides the mean over clients if clients test with rows of their own: the mean
/// over rows, the mean of the worst tenth of the clients (rounded up), and the best client.
pub(crate) const OWN_STATISTICS: [&str; 3] = ["over-rows", "worst-tenth", "best"];

/// What a measurement is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasurementOf {
    /// The server's model: its score, and the plugins' measures.
    Server,
    /// The clients' models, or the server's models for the clients.
    Clients,
    /// A number of the protocol's own.
    Number,
    /// A number that each client has; its mean and deviation are recorded.
    Each,
}

/// A measurement that a protocol records. [`crate::Declaration::measures`] declares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measurement {
    /// What it is of.
    pub of: MeasurementOf,
    /// The slot of the model, or the name of the number.
    pub name: String,
    /// It is recorded only if this slot is filled.
    #[serde(default)]
    pub if_filled: Option<String>,
}

impl Measurement {
    /// The score of the server's model in `slot` ([`crate::Server::evaluate`]), if that is filled.
    pub fn server(slot: &str) -> Self {
        Self {
            of: MeasurementOf::Server,
            name: slot.into(),
            if_filled: Some(slot.into()),
        }
    }

    /// The scores of the clients' models in `slot` ([`crate::Server::evaluate_clients`],
    /// [`crate::Server::evaluate_for_clients`]).
    pub fn clients(slot: &str) -> Self {
        Self {
            of: MeasurementOf::Clients,
            name: slot.into(),
            if_filled: None,
        }
    }

    /// A number called `name` ([`crate::Server::record`]).
    pub fn number(name: impl Into<String>) -> Self {
        Self {
            of: MeasurementOf::Number,
            name: name.into(),
            if_filled: None,
        }
    }

    /// A number called `name` of each client ([`crate::Server::record_each`],
    /// [`crate::Client::measure`]).
    pub fn each(name: impl Into<String>) -> Self {
        Self {
            of: MeasurementOf::Each,
            ..Self::number(name)
        }
    }

    /// It is recorded only if `slot` is filled.
    pub fn if_filled(self, slot: &str) -> Self {
        Self {
            if_filled: Some(slot.into()),
            ..self
        }
    }
}

/// Whether a run measures something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It does.
    Yes,
    /// Nothing declares it, but a part may record it.
    Perhaps,
    /// It does not.
    No,
}

/// What a run measures, as far as it is known before.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    names: BTreeSet<String>,
    /// The names of those that have a deviation over clients too.
    of_each: BTreeSet<String>,
    /// The slots whose parts may record numbers, `SLOT.name`.
    slots: Vec<String>,
    /// Whether the protocol may record anything, because it declares no measurements.
    open: bool,
}

impl Measured {
    /// Returns what a run of this protocol measures. `has` tells which slots are filled, and `kind`
    /// is that of the task, if it is known.
    pub fn of(protocol: &dyn Protocol, has: &dyn Fn(&str) -> bool, kind: Option<TaskKind>) -> Self {
        let declared = protocol.declare();
        let mut all = Self::default();
        let scores = metrics::names(kind);
        match &declared.measures {
            Some(measures) => {
                let filled = |m: &&Measurement| m.if_filled.as_deref().is_none_or(has);
                measures
                    .iter()
                    .filter(filled)
                    .for_each(|m| all.add(m.of, &m.name, &scores));
            }
            // it may evaluate any model
            None => {
                all.open = true;
                all.add(MeasurementOf::Server, "", &scores);
                all.add(MeasurementOf::Clients, "", &scores);
            }
        }
        if declared.specs().any(|exchange| exchange.trains) && !has("accountant") {
            all.add(MeasurementOf::Each, TRAINING_LOSS, &scores);
        }
        // trainers, generators and accountants have no log
        let logs = [
            Role::Aggregator,
            Role::Selector,
            Role::Privacy,
            Role::Attack,
        ];
        let slots = declared.into_slots().into_iter();
        let slots = slots.filter(|slot| logs.contains(&slot.role) && has(slot.name));
        all.slots = slots.map(|slot| slot.name.into()).collect();
        all
    }

    /// Adds what is measured if each client has test rows of its own: `own.SCORE` of the server's
    /// model, and further statistics of it and of the clients' models.
    pub fn on_own_rows(mut self) -> Self {
        for name in self.names.clone() {
            let (of, score) = name.split_once('.').unwrap_or(("own", &name));
            if !metrics::is_score(score) || !["own", "clients"].contains(&of) || score.contains('.')
            {
                continue;
            }
            self.of_each.insert(format!("{of}.{score}"));
            let further = OWN_STATISTICS.map(|name| format!("{of}.{name}.{score}"));
            self.names.extend(further);
        }
        self.names.extend(self.of_each.iter().cloned());
        self
    }

    fn add(&mut self, of: MeasurementOf, name: &str, scores: &BTreeSet<String>) {
        match of {
            MeasurementOf::Server => self.names.extend(scores.iter().cloned()),
            MeasurementOf::Number => _ = self.names.insert(name.into()),
            MeasurementOf::Clients => {
                let scores = scores.iter().map(|score| format!("clients.{score}"));
                self.of_each.extend(scores);
            }
            MeasurementOf::Each => _ = self.of_each.insert(name.into()),
        }
        self.names.extend(self.of_each.iter().cloned());
    }

    /// Returns whether the run measures `name`.
    pub fn has(&self, name: &str) -> Certainty {
        let of_part = |slot: &String| {
            let rest = name.strip_prefix(&**slot);
            rest.is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
        };
        let may = self.open || name == TRAINING_LOSS || self.slots.iter().any(of_part);
        match self.names.contains(name) {
            true => Certainty::Yes,
            false if may => Certainty::Perhaps,
            false => Certainty::No,
        }
    }

    /// As [`Measured::has`]; `NAME.std` is the deviation of a measurement of each client.
    pub fn has_number(&self, name: &str) -> Certainty {
        match name.strip_suffix(".std") {
            Some(of) if self.of_each.contains(of) => Certainty::Yes,
            Some(of) if self.has(of) == Certainty::Perhaps => Certainty::Perhaps,
            Some(_) => Certainty::No,
            None => self.has(name),
        }
    }

    /// Returns the names of all measurements that are declared, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns the text for a name that is not measured.
    pub fn lacks(&self, name: &str) -> String {
        let near = match nearest(name, self.names()) {
            Some(near) => format!("; did you mean `{near}`?"),
            None => ";".into(),
        };
        let all: Vec<&str> = self.names().collect();
        format!(
            "nothing in this run measures `{name}`{near} it measures: {}",
            all.join(", ")
        )
    }
}
