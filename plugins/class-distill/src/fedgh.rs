//! FedGH (Yi et al. 2023, algorithm 1): the server trains a common last layer on class means.
use crate::feature_rounds::{COHORT, FeatureMethod, FeatureRounds, PRIVACY};
use crate::last_layer;
use crate::prototypes::{FeatureMeans, one_class_each};
use fl_core::prelude::*;
use fl_core::settings::Joined;
use fl_core::{Length, TaskKind};

settings! {
    /// Each client has a network of its own and sends its mean features of each class. The server
    /// trains a last layer on all of them, which replaces that of each client (FedGH, Yi et al.
    /// 2023). Networks may differ, but for their last layer.
    pub struct FedGhSettings {
        /// The server's passes over the class means of one round.
        head_epochs: usize = 1, in 1..=100_000;
        /// Class means in a mini-batch of the server.
        head_batch: usize = 10, in 1..=1_000_000;
        /// The server's learning rate. The published code: 0.01.
        head_lr: f64 = 0.01, in above(0.0);
    }
}

const MODEL: TrainerSlot = TrainerSlot::new(
    "model",
    "A client's model, and the one with which the server's last layer begins.",
);

const LEARN: Exchange<Params, FeatureMeans> =
    Exchange::new("mean features of own classes after training with the server's last layer");

/// FedGH as a protocol.
pub type FedGh = FeatureMethod<FedGhSettings>;

/// Returns the last layer of the server's model.
fn head(server: &mut Server<'_>) -> Result<Params> {
    let head = server.model(&MODEL)?.head();
    let head = head.context("parts.model: it shows no linear last layer; use `dfdx`")?;
    Ok(last_layer::params(&head))
}

impl Protocol for FedGh {
    fn declare(&self) -> Declaration<'_> {
        // a last layer that is linear, whose parameters can be replaced
        let model = (MODEL.spec().at_server())
            .needs(Ability::Features)
            .needs(Ability::Parameters)
            .needs(Ability::AuxiliaryLoss);
        let learn = LEARN.answered_by(|client, head| {
            last_layer::put(client.parametric(&MODEL)?, head)?;
            let pass = self.rounds.pass(client);
            self.rounds.train(client, &pass)
        });
        let learn = learn.to(&COHORT).each_round().trains();
        self.rounds
            .declare(model)
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
        let mut last = head(server)?;
        self.rounds.begin(server, &mut last, |server, last| {
            *last = head(server)?;
            Ok(())
        })?;
        server.rounds(&mut last, |server, last, round| {
            if !server.cohort(round, &LEARN)?.is_empty() {
                let means = server.collect(round, &LEARN, |_| &*last)?;
                let pass = FitOptions::new(
                    Length::Epochs(self.own.head_epochs),
                    self.own.head_batch,
                    Loss::CrossEntropy,
                );
                let pass = (&pass, self.own.head_lr);
                let loss = last_layer::train(last, &means, pass, &round.stream)?;
                server.record(round, "head.loss", loss)?;
            }
            server.evaluate_clients(round, &MODEL)
        })?;
        self.rounds.end(server)
    }

    fn suits(&self, kind: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        one_class_each(kind)
    }

    fn conflicts(&self, _: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        self.rounds.conflicts()
    }
}
plugin!(protocol "fedgh" => Joined<FeatureRounds, FedGhSettings> as FedGh, papers: ["Yi et al. 2023"]);
