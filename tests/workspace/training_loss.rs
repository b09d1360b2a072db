//! An aggregator asks for training losses: where they come from, what they cost, and who sees them.

use crate::federation::{federation, part, strict};
use fl_core::prelude::*;
use fl_core::privacy::{Observer, Protection};
use fl_core::settings::read_yaml;
use fl_core::{Problem, Role, SlotAssignment};
use fl_sim::Outcome;
use std::sync::Arc;

settings! {
    /// The mean, which records the mean of the training losses.
    struct Reads {
        /// Whether it asks for them.
        asks: bool = true;
    }
}

impl Aggregator for Reads {
    type In = Params;
    type Out = Params;
    fn needs(&self) -> RequiredInputs {
        RequiredInputs {
            training_loss: self.asks,
            ..RequiredInputs::default()
        }
    }
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        if self.asks {
            let losses = inbox.training_losses()?;
            round.record("loss", losses.iter().sum::<f64>() / losses.len() as f64);
        }
        Ok(inbox.weighted_mean(&vec![1.0; inbox.len()], &*round.exec))
    }
}
plugin!(aggregator "reads-losses" => Reads);

const MODEL: TrainerSlot = TrainerSlot::new("model", "");
const AGGREGATOR: AggregatorSlot<Params, Params> = AggregatorSlot::new("aggregator", "");
const PRIVACY: MechanismSlot<Params> = MechanismSlot::new("privacy", "");
const TRAIN: Exchange<Params, Params> = Exchange::new("training");

/// One round of training.
#[derive(Clone, Copy)]
struct Trains {
    /// Whether the exchange says so.
    says: bool,
    /// Whether client 2 does.
    all: bool,
}

const HONEST: Trains = Trains {
    says: true,
    all: true,
};

impl Protocol for Trains {
    fn declare(&self) -> Declaration<'_> {
        let train = TRAIN.answered_by(|client, global| {
            client.parametric(&MODEL)?.set_params(global)?;
            if self.all || client.id() != 2 {
                let pass = Training::epochs(2, 4).pass(Loss::CrossEntropy);
                let fitted = client.fit_own(&MODEL, &pass)?;
                client.measure("fitted", fitted.loss);
            }
            Ok(client.parametric(&MODEL)?.params())
        });
        let train = if self.says { train.trains() } else { train };
        Declaration::new()
            .rounds(1)
            .slot(MODEL.spec().shared_parameters().at_server())
            .exchange(train.releases_difference(&PRIVACY).into(&AGGREGATOR))
    }
    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        server.rounds(&mut (), |server, (), round| {
            let sent = server.parametric(&MODEL)?.params();
            let _: Params = server.run(round, &TRAIN, |_| &sent)?;
            Ok(())
        })
    }
}

fn parts(asks: bool) -> Vec<SlotAssignment> {
    let settings = format!("{{asks: {asks}}}");
    vec![
        part("model", Role::Trainer, "linear", "{}"),
        part("aggregator", Role::Aggregator, "reads-losses", &settings),
    ]
}

fn outcome(protocol: Trains, parts: Vec<SlotAssignment>) -> Result<Outcome> {
    federation(Arc::new(protocol), parts, strict(), None)
}

#[test]
fn close_the_loss_is_that_of_the_training_and_costs_four_bytes_a_client() {
    let with = outcome(HONEST, parts(true)).unwrap();
    let (fitted, seen) = (with.metrics["fitted"], with.metrics["aggregator.loss"]);
    assert!(
        fitted > 0.0 && (fitted - seen).abs() < 1e-6 * fitted,
        "{fitted} {seen}"
    );
    let without = outcome(HONEST, parts(false)).unwrap();
    assert_eq!(with.bytes.up, without.bytes.up + 6 * 4);
    assert_eq!(with.bytes.down, without.bytes.down);
}

#[test]
fn a_loss_has_no_price_whatever_hides_the_answer() {
    let private = |asks| {
        let mut all = parts(asks);
        let noise = "{clip: 1, noise-multiplier: 10}";
        all.push(part("privacy", Role::Privacy, "gaussian-update", noise));
        all.push(part("accountant", Role::Accountant, "rdp", "{delta: 1e-5}"));
        all
    };
    let privacy = outcome(HONEST, private(false)).unwrap().privacy.unwrap();
    assert!(
        privacy.values().all(|p| p.guarantee().is_some()),
        "{privacy:?}"
    );
    let privacy = outcome(HONEST, private(true)).unwrap().privacy.unwrap();
    for observer in Observer::ALL {
        let Protection::Nothing { nothing, .. } = &privacy[&observer] else {
            panic!("{observer}: {privacy:?}")
        };
        assert_eq!(
            nothing[..],
            ["with its answer to `training` a client sends its training loss"]
        );
    }
    // so no budget can be kept
    let budget = read_yaml("epsilon: 100").unwrap();
    let run = federation(Arc::new(HONEST), private(true), strict(), Some(budget));
    let error = run.unwrap_err();
    assert!(
        matches!(error.downcast_ref(), Some(Problem::Unpriced(_))),
        "{error:#}"
    );
}

#[test]
fn who_does_not_train_has_no_loss() {
    let silent = Trains {
        says: false,
        ..HONEST
    };
    let error = format!("{:#}", outcome(silent, parts(true)).unwrap_err());
    assert!(
        error.contains(
            "needs the training loss of each client, and clients do not train for `training`"
        ),
        "{error}"
    );
    outcome(silent, parts(false)).unwrap();
    let idle = Trains {
        all: false,
        ..HONEST
    };
    let error = format!("{:#}", outcome(idle, parts(true)).unwrap_err());
    assert!(
        error.contains("client 2") && error.contains("took no training step for this answer"),
        "{error}"
    );
    outcome(idle, parts(false)).unwrap();
}
