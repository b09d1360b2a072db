//! What FedProto and FedGH share: rounds in which clients train models of their own and send their
//! mean features, the layers that they begin with, and those that stay as they are.
use crate::prototypes::FeatureMeans;
use fl_core::prelude::*;
use fl_core::settings::Joined;
use fl_core::{InitialModel, parameters_in};
use serde::{Serialize, de::DeserializeOwned};

settings! {
    /// What FedProto and FedGH share.
    pub struct FeatureRounds {
        /// Rounds.
        rounds: usize = 100, in 1..=1_000_000;
        /// A client's training in one round.
        local: RoundTraining = Training::epochs(1, 10).into();
        /// Start every round's training with a fresh optimiser.
        fresh: bool = true;
        /// Start from a model that another run kept: a path from the working directory, such as
        /// `runs/public-1/models/model`. Each client gets it once, before the first round: the
        /// layers in `freeze`, or the whole model if that is empty.
        initial: Option<String> = None;
        /// Whether that model was trained without private data, such as on public data only; it
        /// then costs nothing. Otherwise a run that starts from it has no guarantee.
        initial_is_public: bool = false;
        /// Groups of a client's parameters that stay as they begin, such as `[body]`: all layers
        /// before the last one. Groups are those of `share` in `fedavg`.
        freeze: Vec<String> = Vec::new();
        /// Keep the clients' models as results of the run.
        keep_clients: bool = false;
    }
}

/// A method of such rounds as a protocol.
pub struct FeatureMethod<S> {
    pub(crate) rounds: FeatureRounds,
    pub(crate) own: S,
}

impl<S> From<Joined<FeatureRounds, S>> for FeatureMethod<S> {
    fn from(settings: Joined<FeatureRounds, S>) -> Self {
        Self {
            rounds: settings.shared,
            own: settings.own,
        }
    }
}

/// The slot of the clients' models.
const MODEL: &str = "model";

pub(crate) const COHORT: SelectorSlot<Roster> =
    SelectorSlot::new("cohort", "Picks the clients of a round; everyone if empty.");
pub(crate) const PRIVACY: MechanismSlot<FeatureMeans> =
    MechanismSlot::new("privacy", "Noise on a client's mean features.");

/// The layers that clients begin with.
const BEGIN: Exchange<Params, Nothing> = Exchange::new("first model");

impl FeatureRounds {
    fn initial(&self) -> Option<InitialModel> {
        InitialModel::of(MODEL, "initial", &self.initial)
    }

    /// Declares the rounds of models in the slot `model`.
    pub(crate) fn declare<'p>(&self, model: SlotSpec) -> Declaration<'p> {
        let model = model.lasting().published_if(true).alike_features();
        let model = model.trained_by("local", &self.local, (self.fresh, self.rounds));
        let mut model = self.local.rated(model);
        // frozen parameters are put back after each step
        model = model.needs_if(!self.freeze.is_empty(), Ability::ByStep);
        if self.initial.is_some() {
            model = model.shared_parameters().at_server();
        } else if !self.freeze.is_empty() {
            model = model.needs(Ability::Parameters);
        }
        let begin = BEGIN.answered_by(|client, first| {
            let model = client.parametric(MODEL)?;
            model.set_params(&model.params().with(first)?)?;
            Ok(Nothing)
        });
        Declaration::new()
            .rounds(self.rounds)
            .grows_by("rounds")
            .loads(self.initial(), self.initial_is_public)
            .slot(model)
            .slot(&COHORT)
            .exchange_if(self.initial.is_some(), || begin.shares(&self.freeze))
    }

    /// Sends clients the layers that they begin with, if the spec names a model. `loaded` sees that
    /// model at the server.
    pub(crate) fn begin<S: Serialize + DeserializeOwned>(
        &self,
        server: &mut Server<'_>,
        state: &mut S,
        mut loaded: impl FnMut(&mut Server<'_>, &mut S) -> Result<()>,
    ) -> Result<()> {
        let Some(initial) = self.initial() else {
            return Ok(());
        };
        server.once("first model", state, |server, state, round| {
            initial.load(server)?;
            loaded(server, state)?;
            let model = server.parametric(MODEL)?;
            let first = match &self.freeze[..] {
                [] => model.params(),
                groups => model.params().only(&parameters_in(groups, model)?),
            };
            server.collect(round, &BEGIN, |_| &first).map(drop)
        })
    }

    /// The training pass of a round.
    pub(crate) fn pass(&self, client: &Client) -> FitOptions<'static> {
        FitOptions {
            fresh: self.fresh,
            ..self
                .local
                .pass(client.task().kind.loss(), client.round_number())
        }
    }

    /// Trains a client on its own examples, but for its frozen layers, and returns the mean
    /// features of the trained model.
    pub(crate) fn train(&self, client: &mut Client, pass: &FitOptions<'_>) -> Result<FeatureMeans> {
        match &self.freeze[..] {
            [] => client.fit_own(MODEL, pass)?,
            groups => {
                let frozen = parameters_in(groups, client.parametric(MODEL)?)?;
                let own = client.own().clone();
                client.fit_others(MODEL, &own, pass, &frozen)?
            }
        };
        FeatureMeans::of(client, MODEL)
    }

    /// Keeps the clients' models, if the spec says so.
    pub(crate) fn end(&self, server: &mut Server<'_>) -> Result<()> {
        if self.keep_clients {
            server.keep_clients(MODEL)
        } else {
            Ok(())
        }
    }

    pub(crate) fn conflicts(&self) -> Vec<Conflict> {
        let rate = self.local.conflict("local.rate.by-round", self.rounds);
        let clip = Conflict::at(
            "local.clip",
            "would count the gradients of what `freeze` keeps as it is: leave it out",
        )
        .when(!self.freeze.is_empty() && self.local.clip.is_some());
        let initial = self.initial();
        let initial = InitialModel::conflict(initial.as_ref(), self.initial_is_public);
        let all = [rate, clip, initial];
        all.into_iter().flatten().collect()
    }
}
