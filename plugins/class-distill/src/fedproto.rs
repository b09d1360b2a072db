//! FedProto (Tan et al. 2022, algorithm 1): clients share the mean features of each class.
use crate::feature_rounds::{COHORT, FeatureMethod, FeatureRounds, PRIVACY};
use crate::prototypes::{FeatureMeans, Near, Prototypes, one_class_each};
use fl_core::TaskKind;
use fl_core::prelude::*;
use fl_core::settings::Joined;

settings! {
    /// Each client has a model of its own, which draws the features of each class to the server's
    /// prototype of it, the combined mean features of the clients (FedProto, Tan et al. 2022).
    /// Nothing else leaves a client. Networks may differ, but for the width of their features.
    pub struct FedProtoSettings {
        /// The weight of the mean squared difference between features and prototype in the local
        /// loss. The published code: 1. HtFLlib: 10.
        lambda: f64 = 1.0, in 0.0..=1e6;
        /// How a client's model predicts in tests.
        predict: Prediction = Prediction::LastLayer;
    }
}

choices! {
    /// How a client's model predicts in tests.
    pub enum Prediction {
        /// By its last layer.
        LastLayer = "last-layer",
        /// The class whose prototype at the server is nearest to the features, as in the paper.
        /// Models need a linear last layer. Models that are kept have their own last layer.
        NearestPrototype = "nearest-prototype",
    }
}

const MODEL: TrainerSlot =
    TrainerSlot::new("model", "A client's model; each client may have another.");
const PROTOTYPES: AggregatorSlot<FeatureMeans, FeatureMeans> = AggregatorSlot::new(
    "prototypes",
    "Combines the clients' mean features of each class.",
);

const LEARN: Exchange<Prototypes, FeatureMeans> =
    Exchange::new("mean features of own classes after local training");

/// FedProto as a protocol.
pub type FedProto = FeatureMethod<FedProtoSettings>;

impl Protocol for FedProto {
    fn declare(&self) -> Declaration<'_> {
        let model = MODEL.spec().needs(Ability::FeatureLoss);
        let model = match self.own.predict {
            Prediction::LastLayer => model,
            // a last layer that is linear, whose parameters can be replaced
            Prediction::NearestPrototype => model
                .needs(Ability::Parameters)
                .needs(Ability::AuxiliaryLoss),
        };
        let learn = LEARN.answered_by(|client, sent| self.learn(client, sent));
        let learn = learn.to(&COHORT).each_round().trains();
        self.rounds
            .declare(model)
            // noise on the means does not hide for which classes a client has examples
            .exchange(learn.into(&PROTOTYPES).releases(&PRIVACY).partly_if(true))
            .measures([Measurement::clients(&MODEL)])
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let mut known = FeatureMeans::none();
        self.rounds.begin(server, &mut known, |_, _| Ok(()))?;
        let classes = server.task().kind.classes();
        server.rounds(&mut known, |server, known, round| {
            if !server.cohort(round, &LEARN)?.is_empty() {
                let means = known.clone();
                let sent = Prototypes { means };
                let new: FeatureMeans = server.run(round, &LEARN, |_| &sent)?;
                known.update(&new)?;
            }
            match self.own.predict {
                Prediction::NearestPrototype if !known.0.rows.is_empty() => {
                    server.evaluate_clients_with(round, &MODEL, &known.nearest(classes))
                }
                _ => server.evaluate_clients(round, &MODEL),
            }
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
plugin!(protocol "fedproto" => Joined<FeatureRounds, FedProtoSettings> as FedProto,
    aliases: [
        "fedtgp": "{ lambda: 10 }" with "{ prototypes: { use: trainable-prototypes } }",
    ],
    papers: ["Tan et al. 2022", "Zhang et al. 2024"]);

impl FedProto {
    /// Trains towards the prototypes, and answers with the mean features of the trained model.
    fn learn(&self, client: &mut Client, sent: &Prototypes) -> Result<FeatureMeans> {
        let near = Near {
            means: &sent.means.0,
            weight: self.own.lambda,
        };
        let known = !near.means.rows.is_empty() && self.own.lambda > 0.0;
        let pass = FitOptions {
            feature_loss: known.then_some(&near),
            ..self.rounds.pass(client)
        };
        self.rounds.train(client, &pass)
    }
}
