//! FedProto (Tan et al. 2022, algorithm 1): clients share the mean features of each class.
use crate::prototypes::{FeatureMeans, Near, Prototypes, one_class_each};
use fl_core::TaskKind;
use fl_core::prelude::*;

settings! {
    /// Each client has a model of its own, which draws the features of each class to the server's
    /// prototype of it, the combined mean features of the clients (FedProto, Tan et al. 2022).
    /// Nothing else leaves a client. Networks may differ, but for the width of their features.
    pub struct FedProto {
        /// Rounds.
        rounds: usize = 100, in 1..=1_000_000;
        /// A client's training in one round.
        local: RoundTraining = Training::epochs(1, 10).into();
        /// The weight of the mean squared difference between features and prototype in the local
        /// loss. The published code: 1. HtFLlib: 10.
        lambda: f64 = 1.0, in 0.0..=1e6;
        /// Start every round's training with a fresh optimiser.
        fresh: bool = true;
        /// Keep the clients' models as results of the run.
        keep_clients: bool = false;
    }
}

const MODEL: TrainerSlot =
    TrainerSlot::new("model", "A client's model; each client may have another.");
const COHORT: SelectorSlot<Roster> =
    SelectorSlot::new("cohort", "Picks the clients of a round; everyone if empty.");
const PROTOTYPES: AggregatorSlot<FeatureMeans, FeatureMeans> = AggregatorSlot::new(
    "prototypes",
    "Combines the clients' mean features of each class.",
);
const PRIVACY: MechanismSlot<FeatureMeans> =
    MechanismSlot::new("privacy", "Noise on a client's mean features.");

const LEARN: Exchange<Prototypes, FeatureMeans> =
    Exchange::new("mean features of own classes after local training");

impl Protocol for FedProto {
    fn declare(&self) -> Declaration<'_> {
        let model = MODEL.spec().lasting().published_if(true);
        let model = model.trained_by("local", &self.local, (self.fresh, self.rounds));
        let model = self.local.needs(model).needs(Ability::FeatureLoss);
        let learn = LEARN.answered_by(|client, sent| self.learn(client, sent));
        let learn = learn.to(&COHORT).each_round().trains();
        Declaration::new()
            .rounds(self.rounds)
            .grows_by("rounds")
            .slot(model)
            .slot(&COHORT)
            // noise on the means does not hide for which classes a client has examples
            .exchange(learn.into(&PROTOTYPES).releases(&PRIVACY).partly_if(true))
            .measures([Measurement::clients(&MODEL)])
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let mut known = FeatureMeans::none();
        server.rounds(&mut known, |server, known, round| {
            if !server.cohort(round, &LEARN)?.is_empty() {
                let means = known.clone();
                let sent = Prototypes { means };
                let new: FeatureMeans = server.run(round, &LEARN, |_| &sent)?;
                known.update(&new)?;
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
plugin!(protocol "fedproto" => FedProto,
    aliases: [
        "fedtgp": "{ lambda: 10 }" with "{ prototypes: { use: trainable-prototypes } }",
    ],
    papers: ["Tan et al. 2022", "Zhang et al. 2024"]);

impl FedProto {
    /// Trains towards the prototypes, and answers with the mean features of the trained model.
    fn learn(&self, client: &mut Client, sent: &Prototypes) -> Result<FeatureMeans> {
        let near = Near {
            means: &sent.means.0,
            weight: self.lambda,
        };
        let known = !near.means.rows.is_empty() && self.lambda > 0.0;
        let pass = FitOptions {
            fresh: self.fresh,
            feature_loss: known.then_some(&near),
            ..self
                .local
                .pass(client.task().kind.loss(), client.round_number())
        };
        client.fit_own(&MODEL, &pass)?;
        FeatureMeans::of(client, &MODEL)
    }
}
