#![doc = include_str!("../README.md")]

mod adaptive;
mod central;
mod fuse;
pub mod generate;
pub mod nova;
mod private;
pub mod scaffold;
pub mod teachers;
mod train;

pub use adaptive::{AdaptiveClip, Bounded};
pub use fuse::{Fuse, TeacherOf, teacher};
pub use generate::{Generate, Taught};
pub use nova::{Normalised, Nova};
pub use private::GaussianUpdate;
pub use scaffold::{Control, Controlled, Scaffold, ServerControl};

use fl_core::TaskKind;
use fl_core::message::Votes;
use fl_core::prelude::*;
use fl_plugin_dp_sgd::{self as dp_sgd, Sampling};
use serde::{Deserialize, Serialize};

choices! {
    /// What is done about clients that drift apart.
    pub enum Correction {
        /// Nothing (FedAvg); FedProx's `mu` holds them back.
        None = "none",
        /// Control variates at the server and at every client correct each step (SCAFFOLD, Karimireddy et al. 2020).
        Scaffold(Scaffold) = "scaffold",
        /// Those who took more steps count no more for it (FedNova, Wang et al. 2020).
        Nova(Nova) = "nova",
    }
}

settings! {
    /// Clients train from the server's parameters, the server combines theirs, and again (FedAvg, McMahan et al. 2017; FedProx
    /// with `mu`, Li et al. 2020; SCAFFOLD and FedNova with `correction`; FedDF with `fuse`, Lin et al. 2020; FedGEN with `generate`,
    /// Zhu et al. 2021).
    pub struct ParamRounds {
        /// Rounds.
        rounds: usize = 50, in 1..=1_000_000;
        /// A client's training in one round. FedKT's comparison uses 10 epochs, batch 32.
        local: Training = Training::epochs(10, 32);
        /// FedProx: adds `mu / 2 * |w - w_server|^2` to the local loss; 0 is FedAvg. FedKT's comparison uses 0.1.
        mu: f64 = 0.0, in 0.0..=1e6;
        /// What is done about clients that drift apart.
        correction: Correction = Correction::None;
        /// With `parts.attack`: an attacker trains so many times from the same parameters, each time on a random half of its examples, so
        /// that its attack knows how far honest answers differ. 1: once, on all of them.
        looks: usize = 1, in 1..=1000;
        /// DP-SGD, with `parts.example-privacy`: how each of `local.steps` steps draws examples.
        sampling: Option<Sampling> = None;
        /// DP-FedAvg, with `parts.server-privacy`: the bound of updates follows a quantile of their norms, and the mechanism's own
        /// `clip` must be 1.
        adaptive: Option<AdaptiveClip> = None;
        /// Start every round's training with a fresh optimiser.
        fresh: bool = true;
        /// Start from this model, which another run kept, instead of a new one: a path from the working directory, such as
        /// `runs/fedkt-mnist-1/models/final`. FedKT-Prox is FedProx started from FedKT's final model.
        initial: Option<String> = None;
        /// That model has learnt from nothing that is private here, such as from public data: it costs nothing. Otherwise nothing is guaranteed of a
        /// run that starts from it.
        initial_is_public: bool = false;
        /// FedDF: after the parameters are combined, the server's model learns what the clients' models say together about
        /// the public samples.
        fuse: Option<Fuse> = None;
        /// FedGEN: clients learn made features beside their examples; the server teaches `parts.generator` to make them.
        generate: Option<Generate> = None;
    }
}

/// Loads the model that a run is to start from.
fn load_initial(fed: &mut Federation<'_>, path: &str) -> Result<Params> {
    let bytes = std::fs::read(path).with_context(|| format!("protocol.initial: {path}"))?;
    fed.model("model")?
        .load(&bytes)
        .with_context(|| format!("protocol.initial: {path} does not fit parts.model"))?;
    Ok(fed.parametric("model")?.params())
}

/// What the server keeps from round to round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub model: Params,
    /// SCAFFOLD's, from its first round on.
    pub control: Option<Params>,
    /// The bound of the next round's updates, where it adapts, from the first round on.
    pub bound: Option<f64>,
    /// FedGEN: has the generator learnt anything?
    pub taught: bool,
}

pub(crate) const TRAIN: Ask<Params, Params> = Ask::new("parameters after local training");
const LOSS: Ask<Params, Scalar> = Ask::new("loss of the global model");

impl Protocol for ParamRounds {
    fn slots(&self) -> Vec<Slot> {
        let mut model = Slot::trainer(
            "model",
            "The model that everybody trains; it needs parameters.",
        )
        .lasting_if(!self.fresh)
        .averaged()
        .at_server();
        let mut generator = Slot::trainer(
            generate::SLOT,
            "Makes features of noise and a class, for `generate` (FedGEN): a model that learns at the server and is shown to clients.",
        )
        .averaged()
        .at_server()
        .optional();
        let equal_steps = match &self.correction {
            Correction::None => false,
            Correction::Scaffold(scaffold) => scaffold.control == Control::Steps,
            Correction::Nova(nova) => nova.momentum == 0.0,
        };
        if equal_steps {
            model = model.needs(Ability::EqualSteps);
        }
        if let Some(generate) = &self.generate {
            model = model.needs(Ability::Head(generate.features));
            generator = generator.needs(Ability::Loss(Loss::Mse));
            generator = generator.with_task(generate.task());
        }
        vec![
            // with a fresh optimiser, the server's parameters are all that a client begins with
            model,
            generator,
            Slot::aggregator::<Params, Params>("aggregator", "Combines the clients' parameters."),
            Slot::selector::<Roster>("cohort", "Picks the clients of a round; everyone if empty.")
                .optional(),
            Slot::privacy::<Params>(
                "privacy",
                "Bounds and hides what a client's training has changed, before it leaves the client.",
            )
            .optional(),
            dp_sgd::slot(),
            Slot::privacy::<Params>(
                central::SLOT,
                "Clips every client's update at the client, and hides their sum at the server (DP-FedAvg).",
            )
            .optional(),
            Slot::aggregator::<Params, Params>(
                "attack",
                "What attackers answer in place of what they have trained; name them with `clients`.",
            )
            .for_some(),
            Slot::aggregator::<Votes, Votes>(
                "labels",
                "What attackers make of their own labels before they learn them; name them with `clients`.",
            )
            .for_some(),
            Slot::counts(),
            Slot::accountant(),
        ]
    }

    fn suits(&self, kind: TaskKind, has: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        if !kind.is_dense() {
            return Ok(());
        }
        if self.fuse.is_some() {
            return Err(
                "`fuse` takes the mean of class probabilities of whole inputs; leave it out".into(),
            );
        }
        if self.generate.is_some() {
            return Err("`generate` makes features of one class each; leave it out".into());
        }
        match has("labels") {
            true => Err("parts.labels changes the class of a whole input; leave it empty".into()),
            false => Ok(()),
        }
    }

    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<String> {
        let fuse = (self.fuse.is_some() && !has("data.public")).then(|| {
            "`fuse` learns from public samples, and there are none: set `data.public`, or leave `fuse` out".to_string()
        });
        let initial = self.initial.as_ref().and_then(|path| {
            let why = match std::fs::metadata(path) {
                Ok(found) if found.is_file() => return None,
                Ok(_) => "it is no file".into(),
                Err(error) => error.to_string(),
            };
            Some(format!("`initial` names a model that another run kept, a path from the working directory, and {path} cannot be read: {why}"))
        });
        let corrected = self.correction != Correction::None;
        let both = (self.fuse.is_some() && corrected).then(|| {
            "`fuse` learns from the clients' parameters as they are: leave out `correction`, or `fuse`".to_string()
        });
        let pulled = match &self.correction {
            Correction::Scaffold(_) if self.mu > 0.0 => Some("`mu` would be in every control variate: set it to 0 with `correction: scaffold`".to_string()),
            Correction::Nova(nova) if self.mu > 0.0 && nova.momentum > 0.0 => Some("`mu` and momentum together give a way of unknown length: set one of them to 0 with `correction: nova`".to_string()),
            _ => None,
        };
        let looks = (self.looks > 1 && !has("attack")).then(|| {
            "`looks` has no effect without an attacker: fill `parts.attack`, or leave it out"
                .to_string()
        });
        let bare = (self.looks > 1 && has("attack") && has("privacy")).then(|| {
            "`looks` lets an attack see trainings that `parts.privacy` has not released: leave it at 1, or leave `parts.privacy` out".to_string()
        });
        let hidden = (has(central::SLOT) && (corrected || self.fuse.is_some() || has("attack"))).then(|| {
            "`server-privacy` hides the sum of the clients' updates and nothing beside it: leave out `correction`, `fuse` and `parts.attack`".to_string()
        });
        let twice = (has(central::SLOT) && has("privacy")).then(|| {
            "an update is hidden at its client (`parts.privacy`) or in a sum at the server (`parts.server-privacy`): leave one out".to_string()
        });
        let alone = (self.adaptive.is_some() && !has(central::SLOT)).then(|| {
            "`adaptive` has no effect without `parts.server-privacy`: fill it, or leave `adaptive` out".to_string()
        });
        let stepwise = has(dp_sgd::SLOT);
        let beside = stepwise
            && (corrected
                || self.mu > 0.0
                || self.looks > 1
                || ["privacy", central::SLOT, "attack", "labels"]
                    .iter()
                    .any(|slot| has(slot)));
        let beside = beside.then(|| {
            "`example-privacy` hides what each step sees and nothing beside it: leave out `correction`, `mu`, `looks`, and the other mechanisms and attacks".to_string()
        });
        let drawn = dp_sgd::conflict(has, self.sampling.as_ref(), &self.local);
        let generate = match &self.generate {
            Some(generate) => generate.conflicts(self, has),
            None => has(generate::SLOT).then(|| "a generator (`parts.generator`) makes features for `generate` only: set it, or leave the generator out".to_string()),
        };
        let all = [
            fuse, generate, initial, both, pulled, looks, bare, hidden, twice, alone, beside, drawn,
        ];
        all.into_iter().flatten().collect()
    }

    fn questions(&self) -> Vec<Asked> {
        let train = match &self.correction {
            Correction::None => match dp_sgd::lots(self.sampling.as_ref(), &self.local) {
                Some(lots) => TRAIN.asked().releases_steps(dp_sgd::SLOT, lots),
                None => TRAIN
                    .asked()
                    .releases("privacy")
                    .with_class_counts_if(self.generate.is_some()),
            },
            Correction::Scaffold(_) => scaffold::TRAIN.asked(),
            Correction::Nova(_) => nova::TRAIN.asked(),
        };
        let summed = match &self.adaptive {
            Some(_) => adaptive::UPDATE.asked(),
            None => central::UPDATE.asked(),
        };
        let summed = summed.times(self.rounds).cohort("cohort");
        let summed = summed
            .needs(central::SLOT)
            .releases_at_server(central::SLOT);
        vec![
            LOSS.asked().times(self.rounds).if_asked_by("cohort"),
            summed,
            generate::SHOW
                .asked()
                .times(self.rounds - 1)
                .model(generate::SLOT)
                .cohort("cohort")
                .needs(generate::SLOT),
            train
                .times(self.rounds)
                .cohort("cohort")
                .unless(central::SLOT)
                .aggregated_in("aggregator"),
        ]
    }

    fn grows(&self) -> Option<&'static str> {
        Some("rounds")
    }

    fn begins_with(&self) -> Option<String> {
        let unpriced = self.initial.is_some() && !self.initial_is_public;
        unpriced.then(|| "the run starts from a model that another run kept (`initial`), and what that has learnt from has no price here".into())
    }

    fn lead(&self, fed: &mut Federation<'_>) -> Result<()> {
        for who in [fed.who("attack"), fed.who("labels")].concat() {
            fed.warn(&format!("attackers: {who}"));
        }
        let mut state = State {
            model: fed.parametric("model")?.params(),
            control: None,
            bound: None,
            taught: false,
        };
        if let Some(path) = &self.initial {
            fed.once("initial model", &mut state, |fed, state, _| {
                state.model = load_initial(fed, path)?;
                Ok(())
            })?;
        }
        fed.rounds(self.rounds, &mut state, |fed, state, round| {
            let cohort = fed.cohort_by_loss("cohort", round, &LOSS, &state.model)?;
            if fed.has(central::SLOT) {
                central::round(self, fed, round, &cohort, state)?;
                fed.parametric("model")?.set_params(&state.model)?;
                return fed.evaluate(round, "model");
            }
            if cohort.is_empty() {
                return fed.evaluate(round, "model"); // a Poisson draw of nobody
            }
            if let Some(generate) = &self.generate {
                generate.round(fed, round, &cohort, state)?;
                fed.parametric("model")?.set_params(&state.model)?;
                return fed.evaluate(round, "model");
            }
            match (&self.correction, &self.fuse) {
                (Correction::Scaffold(scaffold), _) => {
                    scaffold.round(fed, round, &cohort, state)?
                }
                (Correction::Nova(nova), _) => nova.round(fed, round, &cohort, state)?,
                (Correction::None, None) => {
                    let next =
                        fed.gather("aggregator", round, &TRAIN, &cohort, |_| &state.model)?;
                    state.model = next;
                }
                (Correction::None, Some(fuse)) => {
                    let global = &state.model;
                    let sent =
                        fed.ask_for::<_, _, Params>("aggregator", round, &TRAIN, &cohort, |_| {
                            global
                        })?;
                    let shown = round.showing(global.clone());
                    let mean = fed.aggregate("aggregator", &shown, &sent)?;
                    state.model = fuse.distil(fed, round, &sent, &mean)?;
                }
            }
            fed.parametric("model")?.set_params(&state.model)?;
            fed.evaluate(round, "model")
        })?;
        fed.keep_model("model")
    }

    fn answer(&self, me: &mut Client, question: Question<'_>) -> Result<Answer> {
        question
            .on(&TRAIN, me, |me, global| {
                if me.has(dp_sgd::SLOT) {
                    me.parametric("model")?.set_params(global)?;
                    dp_sgd::train(me, "model", self.sampling.as_ref(), &self.local)?;
                    return Ok(me.parametric("model")?.params());
                }
                let mut trained = self.train(me, global, None)?.params;
                if me.has("privacy") {
                    let mut update = trained.zip(global, |w, g| w - g)?;
                    me.release("privacy", &mut update)?;
                    trained = global.zip(&update, |g, u| g + u)?;
                }
                self.answered(me, global, None, trained)
            })
            .on(&generate::SHOW, me, |me, sent| {
                // kept, so that a client that is asked again has it still
                me.stash(generate::SLOT, sent);
                Ok(Nothing)
            })
            .on(&scaffold::TRAIN, me, |me, sent| match &self.correction {
                Correction::Scaffold(scaffold) => scaffold.answer(self, me, sent),
                _ => bail!("this run does not correct by control variates"),
            })
            .on(&nova::TRAIN, me, |me, global| match &self.correction {
                Correction::Nova(nova) => nova.answer(self, me, global),
                _ => bail!("this run does not divide changes by their lengths"),
            })
            .on(&central::UPDATE, me, |me, global| {
                central::answer(self, me, global)
            })
            .on(&adaptive::UPDATE, me, |me, sent| match &self.adaptive {
                Some(adaptive) => adaptive.answer(self, me, sent),
                None => bail!("this run does not adapt a bound"),
            })
            .on(&LOSS, me, |me, global| {
                me.parametric("model")?.set_params(global)?;
                me.own_loss("model").map(|loss| Scalar::new(loss as f32))
            })
            .end()
    }
}
plugin!(protocol "param-rounds" => ParamRounds);
