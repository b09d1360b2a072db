//! The settings that all methods of the family share, and a method's view of them.
#[cfg(doc)]
use crate::RoundRule;
use crate::slots::MODEL;
use fl_core::InitialModel;
use fl_core::prelude::*;
use fl_plugin_dp_sgd::{self as dp_sgd, Sampling};

settings! {
    /// The settings that all methods share.
    pub struct RoundSettings {
        /// Rounds.
        rounds: usize = 50, in 1..=1_000_000;
        /// A client's training in one round. FedKT's comparison uses 10 epochs, batch 32.
        local: RoundTraining = Training::epochs(10, 32).into();
        /// Each client's number of epochs in a round is drawn from this number to `local.epochs`,
        /// evenly, from its own stream (2 to 5 in FedNova's experiments). Default: all clients
        /// train `local.epochs`.
        least_epochs: Option<usize> = None, in 1..=100_000;
        /// Start every round's training with a fresh optimiser.
        fresh: bool = true;
        /// With `parts.attack`: number of times that an attacker trains from the same parameters,
        /// each time on a random half of its examples. The attack estimates by these models how
        /// much the answers of honest clients differ. At 1 it trains once, on all its examples.
        attacker_trainings: usize = 1, in 1..=1000;
        /// DP-SGD, with `parts.example-privacy`: how each of `local.steps` steps draws examples.
        sampling: Option<Sampling> = None;
        /// Start from a model that another run kept: a path from the working directory, such as
        /// `runs/fedkt-mnist-1/models/final`. FedKT-Prox is FedProx started from FedKT's final
        /// model. `fl check` refuses a model of other classes or columns, or another order or
        /// scale of them.
        initial: Option<String> = None;
        /// Whether that model was trained without private data, such as on public data only; it
        /// then costs nothing. Otherwise a run that starts from it has no guarantee.
        initial_is_public: bool = false;
        /// Groups of the model's parameters that clients receive and send; all by default. Each
        /// client keeps its own of the others: `[body]` (FedPer), `[head]` (LG-FedAvg), `[-norm]`
        /// (FedBN). A group is a layer or a tensor by its name (`fc1`), layers by their numbers
        /// (`0-3`), the last layer (`head`), all layers before it (`body`), or all that normalise
        /// (`norm`); `-` takes a group away. Clients get the whole model once, before the first
        /// round. Each client's own model is measured.
        share: Vec<String> = Vec::new();
        /// With `share`: clients train only what they share. The rest stays as it was sent to them
        /// before the first round (the head in FedBABU, or a frozen body).
        freeze_rest: bool = false;
        /// After the last round, each client trains the model on its own data (fine-tuning), and
        /// its model is measured. FedBABU: 5 epochs.
        tune: Option<Training> = None;
        /// Keep each client's own model as a result of the run, as the client has it after its last
        /// training.
        keep_clients: bool = false;
    }
}

impl RoundSettings {
    /// Draws a client's number of epochs; `None` if it is fixed.
    pub(crate) fn drawn_epochs(&self, stream: &Stream) -> Option<usize> {
        let (least, most) = (self.least_epochs?, self.local.epochs?);
        let more = most.saturating_sub(least);
        Some(least + stream.draws().below(more + 1))
    }

    /// The model that a run starts from, if it is one that another run kept.
    pub(crate) fn initial(&self) -> Option<InitialModel> {
        InitialModel::of(MODEL.name(), "initial", &self.initial)
    }

    /// Says why no number of epochs can be drawn, if `plain` says that clients train once a round.
    pub(crate) fn undrawable(&self, plain: bool, has: &dyn Fn(&str) -> bool) -> Option<Conflict> {
        let least = self.least_epochs?;
        let why = match self.local.epochs {
            _ if has(&dp_sgd::SLOT) => {
                "draws epochs, and DP-SGD takes `local.steps` steps: leave it out"
            }
            _ if !plain => {
                "does not work here: this method's training has several parts of its own length; leave it out"
            }
            None => {
                "draws epochs up to `local.epochs`: give `local.epochs` in place of `local.steps`"
            }
            Some(most) if most <= least => {
                "must be below `local.epochs`, the most epochs that a client draws"
            }
            Some(_) => return None,
        };
        Some(Conflict::at("least-epochs", why))
    }
}

/// A method's view of the family: the shared settings, and what the method changes in them.
#[derive(Clone, Copy)]
pub struct Family<'p> {
    /// The shared settings.
    pub settings: &'p RoundSettings,
    /// [`RoundRule::mu`]
    pub mu: f64,
    /// The groups of parameters that are sent; all if empty.
    pub share: &'p [String],
    /// [`RoundRule::PERSONAL`]
    pub personal: bool,
    /// [`RoundRule::BY_GRADIENTS`]
    pub by_gradients: bool,
}
