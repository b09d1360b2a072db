#![doc = include_str!("../README.md")]

mod fuse;

pub use fuse::{Fuse, TeacherOf, teacher};

use fl_core::prelude::*;

settings! {
    /// Clients train from the server's parameters, the server combines theirs, and again (FedAvg, McMahan et al. 2017; FedProx
    /// with `mu`, Li et al. 2020; FedDF with `fuse`, Lin et al. 2020).
    pub struct ParamRounds {
        /// Rounds.
        rounds: usize = 50, in 1..=1_000_000;
        /// A client's training in one round. FedKT's comparison uses 10 epochs, batch 32.
        local: Training = Training::epochs(10, 32);
        /// FedProx: adds `mu / 2 * |w - w_server|^2` to the local loss; 0 is FedAvg. FedKT's comparison uses 0.1.
        mu: f64 = 0.0, in 0.0..=1e6;
        /// Start every round's training with a fresh optimiser.
        fresh: bool = true;
        /// Start from this model, which another run kept, instead of a new one: a path from the working directory, such as
        /// `runs/fedkt-mnist-1/models/final`. FedKT-Prox is FedProx started from FedKT's final model.
        initial: Option<String> = None;
        /// FedDF: after the parameters are combined, the server's model learns what the clients' models say together about
        /// the public samples.
        fuse: Option<Fuse> = None;
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

const TRAIN: Ask<Params, Params> = Ask::new("parameters after local training");
const LOSS: Ask<Params, Scalar> = Ask::new("loss of the global model");

impl Protocol for ParamRounds {
    fn slots(&self) -> Vec<Slot> {
        vec![
            // with a fresh optimiser, the server's parameters are all that a client begins with
            Slot::trainer(
                "model",
                "The model that everybody trains; it needs parameters.",
            )
            .lasting_if(!self.fresh)
            .averaged()
            .at_server(),
            Slot::aggregator::<Params, Params>("aggregator", "Combines the clients' parameters."),
            Slot::selector::<Roster>("cohort", "Picks the clients of a round; everyone if empty.")
                .optional(),
            Slot::privacy::<Params>(
                "privacy",
                "Bounds and hides what a client's training has changed, before it leaves the client.",
            )
            .optional(),
            Slot::accountant(),
        ]
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
        fuse.into_iter().chain(initial).collect()
    }

    fn questions(&self) -> Vec<Asked> {
        vec![
            LOSS.asked().times(self.rounds).if_asked_by("cohort"),
            TRAIN
                .asked()
                .times(self.rounds)
                .cohort("cohort")
                .releases("privacy"),
        ]
    }

    fn lead(&self, fed: &mut Federation<'_>) -> Result<()> {
        let mut global = fed.parametric("model")?.params();
        if let Some(path) = &self.initial {
            fed.once("initial model", &mut global, |fed, global, _| {
                *global = load_initial(fed, path)?;
                Ok(())
            })?;
        }
        fed.rounds(self.rounds, &mut global, |fed, global, round| {
            let cohort = fed.cohort_by_loss("cohort", round, &LOSS, &*global)?;
            if cohort.is_empty() {
                return fed.evaluate(round, "model"); // a Poisson draw of nobody
            }
            match &self.fuse {
                None => {
                    *global = fed.gather("aggregator", round, &TRAIN, &cohort, |_| &*global)?;
                    fed.parametric("model")?.set_params(global)?;
                }
                Some(fuse) => {
                    let sent =
                        fed.ask_for::<_, _, Params>("aggregator", round, &TRAIN, &cohort, |_| {
                            &*global
                        })?;
                    let mean = fed.aggregate("aggregator", round, &sent)?;
                    *global = fuse.distil(fed, round, &sent, &mean)?;
                }
            }
            fed.evaluate(round, "model")
        })?;
        fed.keep_model("model")
    }

    fn answer(&self, me: &mut Client, question: Question<'_>) -> Result<Answer> {
        question
            .on(&TRAIN, me, |me, global| {
                me.parametric("model")?.set_params(global)?;
                let pull = (self.mu > 0.0).then_some((self.mu as f32, global));
                me.fit_own(
                    "model",
                    &Pass {
                        fresh: self.fresh,
                        pull,
                        ..self.local.pass(Loss::CrossEntropy)
                    },
                )?;
                let mut trained = me.parametric("model")?.params();
                if me.has("privacy") {
                    let mut update = trained.zip(global, |w, g| w - g)?;
                    me.release("privacy", &mut update)?;
                    trained = global.zip(&update, |g, u| g + u)?;
                }
                Ok(trained)
            })
            .on(&LOSS, me, |me, global| {
                me.parametric("model")?.set_params(global)?;
                me.own_loss("model").map(|loss| Scalar::new(loss as f32))
            })
            .end()
    }
}
plugin!(protocol "param-rounds" => ParamRounds);
