//! Rounds of parameters: the shared settings of the family, and the loop.
use crate::slots::{AGGREGATOR, ATTACK, COHORT, LABELS, MODEL, PRIVACY, TRAIN};
use fl_core::TaskKind;
use fl_core::prelude::*;
use fl_core::settings::{Joined, Settings};
use fl_plugin_dp_sgd::{self as dp_sgd, Sampling};
use serde::{Serialize, de::DeserializeOwned};

settings! {
    /// The settings that all methods share.
    pub struct RoundSettings {
        /// Rounds.
        rounds: usize = 50, in 1..=1_000_000;
        /// A client's training in one round. FedKT's comparison uses 10 epochs, batch 32.
        local: RoundTraining = Training::epochs(10, 32).into();
        /// Start every round's training with a fresh optimiser.
        fresh: bool = true;
        /// With `parts.attack`: number of trainings of an attacker from the same parameters, each
        /// on a random half of its examples. They estimate how much honest answers differ. 1: one
        /// training, on all of them.
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
    }
}

/// Where the rates of a pass by round stand.
const RATE: &str = "local.rate.by-round";

const LOSS: Exchange<Params, Scalar> = Exchange::new("loss of the global model");

/// A method's view of the family: the shared settings, and the weight of FedProx's term.
#[derive(Clone, Copy)]
pub struct Family<'p> {
    /// The shared settings.
    pub settings: &'p RoundSettings,
    /// [`RoundRule::mu`]
    pub mu: f64,
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
        all.exchange(family.trains_plainly())
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

    /// Returns whether clients learn from more than the gradients of their own examples, such as
    /// control variates.
    fn corrects(&self) -> bool {
        false
    }

    /// See [`Protocol::conflicts`].
    fn conflicts(&self, _family: Family<'_>, _has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        Vec::new()
    }

    /// As [`Protocol::suits`], for a dense task.
    ///
    /// # Errors
    /// The obstacle.
    fn suits_dense(&self) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// The settings of a method: the family's, and its own.
pub type Shared<R> = Joined<RoundSettings, R>;

/// A method of the family as a protocol.
pub struct Rounds<R>(Shared<R>);

impl<R> From<Shared<R>> for Rounds<R> {
    fn from(settings: Shared<R>) -> Self {
        Self(settings)
    }
}

impl<R: RoundRule> Rounds<R> {
    fn family(&self) -> Family<'_> {
        Family {
            settings: &self.0.shared,
            mu: self.0.own.mu(),
        }
    }
}

/// Loads the model that a run starts from.
fn load_initial(server: &mut Server<'_>, path: &str) -> Result<Params> {
    let bytes = std::fs::read(path).with_context(|| format!("protocol.initial: {path}"))?;
    server
        .model(&MODEL)?
        .load(&bytes)
        .with_context(|| format!("protocol.initial: {path} does not fit parts.model"))?;
    Ok(server.parametric(&MODEL)?.params())
}

impl<R: RoundRule> Protocol for Rounds<R> {
    fn declare(&self) -> Declaration<'_> {
        let (family, rule) = (self.family(), &self.0.own);
        let unpriced = family.settings.initial.is_some() && !family.settings.initial_is_public;
        let RoundSettings { fresh, rounds, .. } = *family.settings;
        let model = MODEL.spec().lasting_if(!fresh);
        let model = model.trained_by("local", &family.settings.local, (fresh, rounds));
        let model = family.settings.local.needs(model);
        let model = match family.settings.sampling {
            Some(_) => model.needs(Ability::ExampleGradients),
            None => model,
        };
        let loss = LOSS.is_loss_of(&MODEL);
        let all = Declaration::new()
            .rounds(rounds)
            .grows_by("rounds")
            .begins_with(unpriced.then(|| "the run starts from a model that another run kept (`initial`), whose training data have no price here".into()))
            .loads(&MODEL, "initial", family.settings.initial.as_deref())
            // with a fresh optimiser, a client begins with the server's parameters only
            .slot(rule.model(model.shared_parameters().at_server()))
            .slot(&AGGREGATOR)
            .slot(&COHORT)
            .slot(&PRIVACY)
            .slot(&dp_sgd::SLOT)
            .slot(ATTACK.spec().for_some())
            .slot(LABELS.spec().for_some())
            .exchange(loss.each_round().if_requested_by(&COHORT))
            .measures([
                Measurement::server(&MODEL),
                Measurement::each("attack.shift").if_filled(&ATTACK),
            ]);
        rule.declare(family, all)
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let (family, rule) = (self.family(), &self.0.own);
        for who in [server.who(&ATTACK), server.who(&LABELS)].concat() {
            server.warn(&format!("attackers: {who}"));
        }
        let mut state = (server.parametric(&MODEL)?.params(), R::State::default());
        if let Some(path) = &family.settings.initial {
            server.once("initial model", &mut state, |server, (model, _), _| {
                *model = load_initial(server, path)?;
                Ok(())
            })?;
        }
        server.rounds(&mut state, |server, (model, state), round| {
            let cohort = server.cohort_by_loss(round, &LOSS, model)?;
            if cohort.is_empty() {
                rule.empty_round(family, server, round, model, state)?;
            } else {
                rule.round(family, server, round, model, state)?;
            }
            server.parametric(&MODEL)?.set_params(model)?;
            server.evaluate(round, &MODEL)
        })?;
        server.keep_model(&MODEL)
    }

    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let (family, rule) = (self.family(), &self.0.own);
        let settings = family.settings;
        let initial = settings.initial.as_ref().and_then(|path| {
            let why = match std::fs::metadata(path) {
                Ok(found) if found.is_file() => return None,
                Ok(_) => "it is no file".into(),
                Err(error) => error.to_string(),
            };
            Some(Conflict::at("initial", format_args!("names a model that another run kept, a path from the working directory, and {path} cannot be read: {why}")))
        });
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
        ];
        let mut all = rule.conflicts(family, has);
        all.extend(shared.into_iter().flatten());
        all
    }

    fn suits(&self, kind: TaskKind, has: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        match kind.is_dense() {
            false => return Ok(()),
            true => self.0.own.suits_dense()?,
        }
        match has(&LABELS) {
            true => Err("parts.labels changes the class of a whole input; leave it empty".into()),
            false => Ok(()),
        }
    }
}
