//! Rounds of parameters: the shared settings of the family, and the loop.
use crate::local::Extra;
use crate::personal;
use crate::slots::{AGGREGATOR, ATTACK, COHORT, LABELS, MODEL, PRIVACY, TRAIN};
use fl_core::prelude::*;
use fl_core::settings::{Joined, Settings};
use fl_core::{Examples, InitialModel, TaskKind};
use fl_plugin_dp_sgd::{self as dp_sgd, Sampling};
use serde::{Serialize, de::DeserializeOwned};

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

/// Where the rates of a pass by round stand.
const RATE: &str = "local.rate.by-round";

impl RoundSettings {
    /// Draws a client's number of epochs; `None` if it is fixed.
    pub(crate) fn drawn_epochs(&self, stream: &Stream) -> Option<usize> {
        let (least, most) = (self.least_epochs?, self.local.epochs?);
        let more = most.saturating_sub(least);
        Some(least + stream.draws().below(more + 1))
    }

    /// Says why no number of epochs can be drawn, if `plain` says that clients train once a round.
    fn undrawable(&self, plain: bool, has: &dyn Fn(&str) -> bool) -> Option<Conflict> {
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

const LOSS: Exchange<Params, Scalar> = Exchange::new("loss of the global model");

/// A method's view of the family: the shared settings, and what the method changes in them.
#[derive(Clone, Copy)]
pub struct Family<'p> {
    /// The shared settings.
    pub settings: &'p RoundSettings,
    /// [`RoundRule::mu`]
    pub mu: f64,
    /// The groups of parameters that are sent; all if empty.
    pub share: &'p [String],
    /// [`RoundRule::personal`]
    pub personal: bool,
    /// [`RoundRule::by_gradients`]
    pub by_gradients: bool,
}

/// Runs one round of FedAvg.
pub(crate) fn average(server: &mut Server<'_>, round: &Round, model: &mut Params) -> Result<()> {
    *model = server.run(round, &TRAIN, |_| &*model)?;
    Ok(())
}

/// A method of the family. `plugin!(protocol "name" => Shared<Rule> as Rounds<Rule>)` registers it.
pub trait RoundRule: Settings + Send + Sync + 'static {
    /// The server's state between rounds besides the model.
    type State: Default + Serialize + DeserializeOwned;

    /// Adds the exchanges of a round, and the slots that they do not name. Defaults to FedAvg's.
    fn declare<'p>(&'p self, family: Family<'p>, all: Declaration<'p>) -> Declaration<'p> {
        all.exchange(family.trains(self))
    }

    /// Trains a client on these examples from the server's parameters, and returns what it sends.
    /// Defaults to FedAvg's training.
    ///
    /// # Errors
    /// Those of the trainer.
    fn train(
        &self,
        family: Family<'_>,
        client: &mut Client,
        examples: &Examples,
        global: &Params,
    ) -> Result<Params> {
        let trained = family.train(client, examples, global, Extra::default())?;
        Ok(trained.params)
    }

    /// Runs one round with at least one client: `model` becomes the next one. Defaults to FedAvg's
    /// round.
    ///
    /// # Errors
    /// Those of the exchanges.
    fn round(
        &self,
        _family: Family<'_>,
        server: &mut Server<'_>,
        round: &Round,
        model: &mut Params,
        _state: &mut Self::State,
    ) -> Result<()> {
        average(server, round, model)
    }

    /// Runs a round for which a Poisson draw picked no client.
    ///
    /// # Errors
    /// As [`RoundRule::round`].
    fn empty_round(
        &self,
        _family: Family<'_>,
        _server: &mut Server<'_>,
        _round: &Round,
        _model: &mut Params,
        _state: &mut Self::State,
    ) -> Result<()> {
        Ok(())
    }

    /// Adds requirements on the model.
    fn model(&self, slot: SlotSpec) -> SlotSpec {
        slot
    }

    /// FedProx: the weight of `|w - w_server|^2 / 2` in the local loss.
    fn mu(&self) -> f64 {
        0.0
    }

    /// Returns the groups of parameters that are sent if the spec names none; all if empty.
    fn share(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns whether each client keeps a personal model, as its model between requests. It begins
    /// as the server's first model, and is measured beside the server's.
    fn personal(&self) -> bool {
        false
    }

    /// Returns whether clients take their steps by gradients alone: they clip none, and have no
    /// training loss to report.
    fn by_gradients(&self) -> bool {
        false
    }

    /// Returns whether the server uses the clients' whole models, so that nothing can stay at them.
    fn uses_whole_models(&self) -> bool {
        false
    }

    /// Returns whether clients learn from more than the gradients of their own examples, such as
    /// control variates.
    fn corrects(&self) -> bool {
        false
    }

    /// See [`Protocol::conflicts`].
    fn conflicts(&self, _family: Family<'_>, _has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        Vec::new()
    }

    /// As [`Protocol::suits`], for a task whose outputs are no scores of classes of whole inputs.
    ///
    /// # Errors
    /// The obstacle.
    fn suits_without_classes(&self) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// The settings of a method: the family's, and its own.
pub type Shared<R> = Joined<RoundSettings, R>;

/// A method of the family as a protocol.
pub struct Rounds<R> {
    settings: Shared<R>,
    share: Vec<String>,
}

impl<R: RoundRule> From<Shared<R>> for Rounds<R> {
    fn from(settings: Shared<R>) -> Self {
        let share = match &settings.shared.share[..] {
            [] => settings.own.share().iter().map(|g| (*g).into()).collect(),
            named => named.to_vec(),
        };
        Self { settings, share }
    }
}

impl<R: RoundRule> Rounds<R> {
    fn family(&self) -> Family<'_> {
        Family {
            settings: &self.settings.shared,
            mu: self.settings.own.mu(),
            share: &self.share,
            personal: self.settings.own.personal(),
            by_gradients: self.settings.own.by_gradients(),
        }
    }
}

impl RoundSettings {
    /// The model that a run starts from, if it is one that another run kept.
    fn initial(&self) -> Option<InitialModel> {
        InitialModel::of(MODEL.name(), "initial", &self.initial)
    }
}

impl<R: RoundRule> Protocol for Rounds<R> {
    fn declare(&self) -> Declaration<'_> {
        let (family, rule) = (self.family(), &self.settings.own);
        let RoundSettings { fresh, rounds, .. } = *family.settings;
        let model = MODEL.spec().lasting_if(!fresh || family.keeps());
        let model = model.published_if(family.keeps());
        let model = model.trained_by("local", &family.settings.local, (fresh, rounds));
        let model = family.settings.local.needs(model);
        let tune = family.settings.tune.iter();
        let model = tune.fold(model, |model, training| training.needs(model));
        let model = model.needs_if(rule.mu() > 0.0, Ability::GradientTerms);
        let sampled = family.settings.sampling.is_some();
        let model = model.needs_if(sampled, Ability::ExampleGradients);
        let loss = if family.begins() {
            LOSS.answered_by(move |client, sent| family.own_loss(client, sent))
        } else {
            LOSS.is_loss_of(&MODEL)
        };
        let all = Declaration::new()
            .rounds(rounds)
            .grows_by("rounds")
            .loads(family.settings.initial(), family.settings.initial_is_public)
            // with a fresh optimiser, a client begins with the server's parameters only
            .slot(rule.model(model.shared_parameters().at_server()))
            .slot(&AGGREGATOR)
            .slot(&COHORT)
            .slot(&PRIVACY)
            .slot(&dp_sgd::SLOT)
            .slot(ATTACK.spec().for_some())
            .slot(LABELS.spec().for_some())
            .exchange_if(family.begins(), personal::begin)
            .exchange_if(family.settings.tune.is_some(), || family.tunes())
            .exchange(
                loss.shares(family.share)
                    .each_round()
                    .if_requested_by(&COHORT),
            )
            .measures(family.share.is_empty().then(|| Measurement::server(&MODEL)))
            .measures(family.keeps().then(|| Measurement::clients(&MODEL)))
            .measures([Measurement::each("attack.shift").if_filled(&ATTACK)]);
        rule.declare(family, all)
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let (family, rule) = (self.family(), &self.settings.own);
        for who in [server.who(&ATTACK), server.who(&LABELS)].concat() {
            server.warn(&format!("attackers: {who}"));
        }
        let first = family.shared(server.parametric(&MODEL)?)?;
        let mut state = (first, R::State::default());
        if let Some(initial) = family.settings.initial() {
            server.once("initial model", &mut state, |server, (model, _), _| {
                initial.load(server)?;
                *model = family.shared(server.parametric(&MODEL)?)?;
                Ok(())
            })?;
        }
        if family.begins() {
            server.once("first model", &mut state, |server, _, round| {
                family.send_first(server, round)
            })?;
        }
        server.rounds(&mut state, |server, (model, state), round| {
            let cohort = server.cohort_by_loss(round, &LOSS, model)?;
            if cohort.is_empty() {
                rule.empty_round(family, server, round, model, state)?;
            } else {
                rule.round(family, server, round, model, state)?;
            }
            family.install(server.parametric(&MODEL)?, model)?;
            family.evaluate(server, round, model)
        })?;
        if family.settings.tune.is_some() {
            server.once("fine-tuning", &mut state, |server, (model, _), round| {
                family.tune(server, round, model)
            })?;
        }
        if family.settings.keep_clients {
            server.keep_clients(&MODEL)?;
        }
        server.keep_model(&MODEL)
    }

    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let (family, rule) = (self.family(), &self.settings.own);
        let settings = family.settings;
        let initial = settings.initial();
        let initial = initial.and_then(|initial| initial.conflict());
        let looks = Conflict::at(
            "attacker-trainings",
            "has no effect without an attacker: fill `parts.attack`, or leave it out",
        );
        let bare = Conflict::at(
            "attacker-trainings",
            "lets an attack see trainings that `parts.privacy` has not released: leave it at 1, or leave `parts.privacy` out",
        );
        let beside = Conflict::between(
            "`example-privacy` protects the gradients of each step and nothing else: use `fedavg` or `feddf`, and leave out `attacker-trainings` and the other mechanisms and attacks",
        );
        let more = ["privacy", "attack", "labels"];
        let more = more.iter().any(|slot| has(slot));
        let more = more || rule.corrects() || family.mu > 0.0 || settings.attacker_trainings > 1;
        let shared = [
            initial,
            looks.when(settings.attacker_trainings > 1 && !has(&ATTACK)),
            bare.when(settings.attacker_trainings > 1 && has(&ATTACK) && has(&PRIVACY)),
            beside.when(more && has(&dp_sgd::SLOT)),
            dp_sgd::conflict(has, settings.sampling.as_ref(), &settings.local),
            settings.local.conflict(RATE, settings.rounds),
            settings.undrawable(!family.personal && !family.by_gradients, has),
        ];
        let mut all = rule.conflicts(family, has);
        all.extend(shared.into_iter().flatten());
        all.extend(family.misfits(rule.uses_whole_models(), has));
        all
    }

    fn suits(&self, kind: TaskKind, has: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        if kind.scores_classes() {
            return Ok(());
        } else {
            self.settings.own.suits_without_classes()?
        }
        if has(&LABELS) {
            Err("parts.labels changes the class of a whole input; leave it empty".into())
        } else {
            Ok(())
        }
    }
}
