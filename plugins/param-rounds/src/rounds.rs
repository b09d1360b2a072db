//! Rounds of parameters: the shared settings of the family, and the loop.
pub use crate::family::{Family, RoundSettings};
use crate::learnt::learnt;
use crate::local::Extra;
pub use crate::local::Start;
use crate::personal;
use crate::slots::{AGGREGATOR, ATTACK, COHORT, LABELS, MODEL, PRIVACY, TRAIN};
use fl_core::prelude::*;
use fl_core::settings::{Joined, Settings};
use fl_core::{InitialModel, TaskKind};
use fl_plugin_dp_sgd as dp_sgd;
use serde::{Serialize, de::DeserializeOwned};

/// Where the rates of a pass by round stand.
const RATE: &str = "local.rate.by-round";

const LOSS: Exchange<Params, Scalar> = Exchange::new("loss of the global model");

/// One round of a run.
pub struct InRound<'a, 's, S> {
    /// The server.
    pub server: &'a mut Server<'s>,
    /// The round.
    pub round: &'a Round,
    /// The server's parameters, and then the next ones.
    pub model: &'a mut Params,
    /// The method's state.
    pub state: &'a mut S,
}

impl<'p> Family<'p> {
    /// Declares FedAvg's exchange, with the training of `rule`. A mechanism releases the change by
    /// training, or each of its steps.
    pub fn trains<R: RoundRule>(self, rule: &'p R) -> Declared<'p, Params, Params> {
        let settings = self.settings;
        let trained = TRAIN.answered_by(move |client, global| {
            if client.has(&dp_sgd::SLOT) {
                client.parametric(&MODEL)?.set_params(global)?;
                let rate = settings.local.rate(client.round_number());
                let sampling = settings.sampling.as_ref();
                dp_sgd::train(client, &MODEL, sampling, (&settings.local, rate))?;
                return Ok(client.parametric(&MODEL)?.params());
            }
            let examples = &learnt(client)?;
            rule.train(client, self.start(examples, global))
        });
        let trained = trained.to(&COHORT).each_round().into(&AGGREGATOR);
        let trained = trained.shares(self.share);
        let hidden = match dp_sgd::lots(settings.sampling.as_ref(), &settings.local) {
            Some(lots) => trained.releases_steps(&dp_sgd::SLOT, lots),
            None if self.by_gradients => trained.releases_difference(&PRIVACY),
            None => trained.trains().releases_difference(&PRIVACY),
        };
        hidden.forged_by(&ATTACK, move |client, global, honest| {
            self.forged(client, global, honest, |client, examples| {
                rule.train(client, self.start(examples, global))
            })
        })
    }
}

/// A method of the family. `plugin!(protocol "name" => Shared<Rule> as Rounds<Rule>)` registers it.
pub trait RoundRule: Settings + Send + Sync + 'static {
    /// The server's state between rounds besides the model.
    type State: Default + Serialize + DeserializeOwned;

    /// The groups of parameters that are sent if the spec names none; all if empty.
    const SHARE: &'static [&'static str] = &[];

    /// Whether each client keeps a personal model, as its model between requests. It begins as
    /// the server's first model, and is measured beside the server's.
    const PERSONAL: bool = false;

    /// Whether clients take their steps by gradients alone: they clip none, and have no training
    /// loss to report.
    const BY_GRADIENTS: bool = false;

    /// Whether clients train groups of parameters in turn, each with the others as they are.
    const TURNS: bool = false;

    /// Whether clients take all steps by learning rates of the method, so that the optimiser of a
    /// model has an effect in `tune` only.
    const OWN_RATES: bool = false;

    /// Whether the server uses the clients' whole models, so that nothing can stay at them.
    const USES_WHOLE_MODELS: bool = false;

    /// Whether clients learn from more than the gradients of their own examples, such as control
    /// variates.
    const CORRECTS: bool = false;

    /// Adds the exchanges of a round, and the slots that they do not name. Defaults to FedAvg's.
    fn declare<'p>(&'p self, family: Family<'p>, all: Declaration<'p>) -> Declaration<'p> {
        all.exchange(family.trains(self))
    }

    /// Whether the server has a round too for which a Poisson draw picked no client.
    const EMPTY_ROUNDS: bool = false;

    /// Trains a client from the server's parameters, and returns what it sends.
    /// Defaults to FedAvg's training.
    ///
    /// # Errors
    /// Those of the trainer.
    fn train(&self, client: &mut Client, start: Start<'_>) -> Result<Params> {
        Ok(start.train(client, Extra::default())?.params)
    }

    /// Runs one round, with at least one client unless [`RoundRule::EMPTY_ROUNDS`]: `run.model`
    /// becomes the next one. Defaults to FedAvg's round.
    ///
    /// # Errors
    /// Those of the exchanges.
    fn round(&self, run: InRound<'_, '_, Self::State>) -> Result<()> {
        *run.model = run.server.run(run.round, &TRAIN, |_| &*run.model)?;
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

    /// See [`Protocol::conflicts`].
    fn conflicts(&self, _family: Family<'_>, _has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        Vec::new()
    }

    /// See [`Protocol::data_conflicts`].
    fn data_conflicts(&self, _facts: &DataFacts<'_>) -> Vec<Conflict> {
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
            [] => R::SHARE.iter().map(|g| (*g).into()).collect(),
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
            personal: R::PERSONAL,
            by_gradients: R::BY_GRADIENTS,
        }
    }
}

impl<R: RoundRule> Protocol for Rounds<R> {
    fn declare(&self) -> Declaration<'_> {
        let (family, rule) = (self.family(), &self.settings.own);
        let RoundSettings { fresh, rounds, .. } = *family.settings;
        let model = MODEL.spec().lasting_if(!fresh || family.keeps());
        let model = model.published_if(family.keeps());
        let model = model.from_server_if(family.begins());
        let model = model.trained_by("local", &family.settings.local, (fresh, rounds));
        let model = family.settings.local.rated(model);
        let model = model.steps_alone_if(R::OWN_RATES && family.settings.tune.is_none());
        let tune = family.settings.tune.iter();
        let model = tune.fold(model, |model, training| training.needs(model));
        let model = model.needs_if(rule.mu() > 0.0, Ability::GradientTerms);
        // parameters that stay as they are, are put back after each step
        let holds = R::TURNS || family.settings.freeze_rest;
        let model = model.needs_if(holds, Ability::ByStep);
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
            if R::EMPTY_ROUNDS || !cohort.is_empty() {
                rule.round(InRound {
                    server: &mut *server,
                    round,
                    model: &mut *model,
                    state,
                })?;
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
        let initial = InitialModel::conflict(initial.as_ref(), settings.initial_is_public);
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
        let more = more || R::CORRECTS || family.mu > 0.0 || settings.attacker_trainings > 1;
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
        all.extend(family.misfits(R::USES_WHOLE_MODELS, has));
        all
    }

    fn data_conflicts(&self, facts: &DataFacts<'_>) -> Vec<Conflict> {
        self.settings.own.data_conflicts(facts)
    }

    fn suits(&self, kind: TaskKind, has: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        if !kind.scores_classes() {
            self.settings.own.suits_without_classes()?;
        }
        match kind {
            TaskKind::Classes(_) => Ok(()),
            _ if has(&LABELS) => {
                Err("parts.labels changes the class of a whole input; leave it empty".into())
            }
            _ => Ok(()),
        }
    }
}
