//! FedGH (Yi et al. 2023, algorithm 1): the server trains a common last layer on class means.
use crate::last_layer;
use crate::prototypes::{FeatureMeans, one_class_each};
use fl_core::prelude::*;
use fl_core::{Length, TaskKind};

settings! {
    /// Each client has a network of its own and sends its mean features of each class. The server
    /// trains a last layer on all of them, which replaces that of each client (FedGH, Yi et al.
    /// 2023). Networks may differ, but for their last layer.
    pub struct FedGh {
        /// Rounds.
        rounds: usize = 100, in 1..=1_000_000;
        /// A client's training in one round.
        local: RoundTraining = Training::epochs(1, 10).into();
        /// The server's passes over the class means of one round.
        head_epochs: usize = 1, in 1..=100_000;
        /// Class means in a mini-batch of the server.
        head_batch: usize = 10, in 1..=1_000_000;
        /// The server's learning rate. The published code: 0.01.
        head_lr: f64 = 0.01, in above(0.0);
        /// Start every round's training with a fresh optimiser.
        fresh: bool = true;
        /// Keep the clients' models as results of the run.
        keep_clients: bool = false;
    }
}

const MODEL: TrainerSlot = TrainerSlot::new(
    "model",
    "A client's model, and the one with which the server's last layer begins.",
);
const COHORT: SelectorSlot<Roster> =
    SelectorSlot::new("cohort", "Picks the clients of a round; everyone if empty.");
const PRIVACY: MechanismSlot<FeatureMeans> =
    MechanismSlot::new("privacy", "Noise on a client's mean features.");

const LEARN: Exchange<Params, FeatureMeans> =
    Exchange::new("mean features of own classes after training with the server's last layer");

impl Protocol for FedGh {
    fn declare(&self) -> Declaration<'_> {
        let model = MODEL.spec().lasting().published_if(true).at_server();
        let model = model.trained_by("local", &self.local, (self.fresh, self.rounds));
        let model = self.local.needs(model).needs(Ability::Features);
        // a last layer that is linear, whose parameters can be replaced
        let model = model
            .needs(Ability::Parameters)
            .needs(Ability::AuxiliaryLoss);
        let learn = LEARN.answered_by(|client, head| {
            last_layer::put(client.parametric(&MODEL)?, head)?;
            let pass = FitOptions {
                fresh: self.fresh,
                ..self.local.pass(Loss::CrossEntropy, client.round_number())
            };
            client.fit_own(&MODEL, &pass)?;
            FeatureMeans::of(client, &MODEL)
        });
        let learn = learn.to(&COHORT).each_round().trains();
        Declaration::new()
            .rounds(self.rounds)
            .grows_by("rounds")
            .slot(model)
            .slot(&COHORT)
            // noise on the means does not hide for which classes a client has examples
            .exchange(
                learn
                    .shares(&["head".into()])
                    .releases(&PRIVACY)
                    .partly_if(true),
            )
            .measures([
                Measurement::clients(&MODEL),
                Measurement::number("head.loss"),
            ])
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let first = server.model(&MODEL)?.head();
        let first = first.context("parts.model: it shows no linear last layer; use `dfdx`")?;
        let mut head = last_layer::params(&first);
        server.rounds(&mut head, |server, head, round| {
            if !server.cohort(round, &LEARN)?.is_empty() {
                let means = server.collect(round, &LEARN, |_| &*head)?;
                let pass = FitOptions::new(
                    Length::Epochs(self.head_epochs),
                    self.head_batch,
                    Loss::CrossEntropy,
                );
                let loss = last_layer::train(head, &means, (&pass, self.head_lr), &round.stream)?;
                server.record(round, "head.loss", loss)?;
            }
            server.evaluate_clients(round, &MODEL)
        })?;
        match self.keep_clients {
            true => server.keep_clients(&MODEL),
            false => Ok(()),
        }
    }

    fn suits(&self, kind: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        one_class_each(kind)
    }

    fn conflicts(&self, _: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let rate = self.local.conflict("local.rate.by-round", self.rounds);
        rate.into_iter().collect()
    }
}
plugin!(protocol "fedgh" => FedGh, papers: ["Yi et al. 2023"]);
