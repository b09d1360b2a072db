//! Code that pages show. The README shows the aggregator, the book the rest; what they show is this
//! code, so it compiles, and it is tested.

use crate::federation::part;
use fl_core::{Aggregator as _, Examples, Inputs, Labels, Parts, Protocol, Role, RunOptions};
use fl_sim::{Outcome, Setup, run};
use std::sync::Arc;

mod aggregator {
    // ANCHOR: aggregator
    use fl_core::prelude::*;

    settings! {
        /// Averages each number after dropping the smallest and the largest of its values.
        pub struct MyMean {
            /// Share of clients dropped at each end.
            trim: f64 = 0.1, in 0.0..0.5;
        }
    }

    impl Aggregator for MyMean {
        type In = Params;
        type Out = Params;

        fn aggregate(&mut self, _: &Round, inbox: &Inbox<Params>) -> Result<Params> {
            let drop = (self.trim * inbox.len() as f64) as usize;
            Ok(inbox.per_coordinate(|values| {
                values.sort_by(f32::total_cmp);
                let kept = &values[drop..values.len() - drop];
                kept.iter().sum::<f32>() / kept.len() as f32
            }))
        }
    }
    plugin!(aggregator "my-mean" => MyMean);
    // ANCHOR_END: aggregator
}

mod sent {
    use fl_core::prelude::*;

    settings! {
        /// Half of the way from the server's parameters to the clients' mean.
        pub struct HalfWay {}
    }

    // ANCHOR: sent
    impl Aggregator for HalfWay {
        type In = Params;
        type Out = Params;

        fn needs(&self) -> RequiredInputs {
            RequiredInputs {
                samples: true,
                sent: true,
                ..RequiredInputs::default()
            }
        }

        fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
            let weights: Vec<f64> = inbox.iter().map(|mail| mail.weight).collect();
            let mean = inbox.weighted_mean(&weights, &*round.exec);
            let sent = round
                .sent::<Params>()
                .context("the parameters that clients were sent")?;
            mean.zip(sent, |mean, sent| 0.5 * (mean + sent))
        }
    }
    // ANCHOR_END: sent
}

mod protocol {
    use fl_core::prelude::*;

    // ANCHOR: protocol
    settings! {
        /// Clients train from the server's parameters; those that moved less count more.
        pub struct Careful {
            /// Rounds.
            rounds: usize = 5, in 1..;
            /// Each client's training in a round.
            local: Training = Training::epochs(1, 16);
        }
    }

    const MODEL: TrainerSlot = TrainerSlot::new("model", "What every client trains.");
    const AGGREGATOR: AggregatorSlot<Params, Params> =
        AggregatorSlot::new("aggregator", "Combines the clients' parameters.");
    const TRAIN: Exchange<Params, Params> = Exchange::new("parameters after local training");

    impl Protocol for Careful {
        fn declare(&self) -> Declaration<'_> {
            let train = TRAIN
                .answered_by(|client, global| {
                    client.parametric(&MODEL)?.set_params(global)?;
                    client.fit_own(&MODEL, &self.local.pass(Loss::CrossEntropy))?;
                    Ok(client.parametric(&MODEL)?.params())
                })
                .times(self.rounds)
                .trains()
                .into(&AGGREGATOR);
            Declaration::new()
                .slot(MODEL.spec().shared_parameters().at_server())
                .exchange(train)
        }

        fn lead(&self, server: &mut Server<'_>) -> Result<()> {
            let mut global = server.parametric(&MODEL)?.params();
            server.rounds(self.rounds, &mut global, |server, global, round| {
                let (all, sent) = (server.everyone(), global.clone());
                let inbox = server.collect(round, &TRAIN, &all, |_| &sent)?;
                let shown = round.showing(sent.clone());
                // weights of our own, instead of the numbers of examples
                *global = server.aggregate_with(&AGGREGATOR, &shown, &inbox, |mail| {
                    let moved = mail.body.zip(&sent, |to, from| to - from);
                    moved.map_or(0.0, |moved| 1.0 / (1.0 + moved.norm()))
                })?;
                server.parametric(&MODEL)?.set_params(global)?;
                server.evaluate(round, &MODEL)
            })?;
            server.keep_model(&MODEL)
        }
    }
    plugin!(protocol "careful" => Careful);
    // ANCHOR_END: protocol
}

#[test]
fn the_aggregators_keep_their_promises() {
    fl_conformance::aggregator(|| aggregator::MyMean { trim: 0.25 });
    fl_conformance::aggregator(|| sent::HalfWay {});
    let round = fl_core::Round::first();
    let inbox = fl_conformance::params(&[&[1.0, 2.0], &[2.0, 2.0], &[3.0, 2.0], &[1e9, -1e9]]);
    let out = aggregator::MyMean { trim: 0.25 }.aggregate(&round, &inbox);
    assert_eq!(fl_conformance::show(&out.unwrap()), "w [2] 2.5 2");
    let inbox = fl_conformance::params(&[&[1.0], &[3.0]]);
    let round = round.showing(inbox.iter().next().unwrap().body.zeros_like());
    let out = sent::HalfWay {}.aggregate(&round, &inbox);
    assert_eq!(fl_conformance::show(&out.unwrap()), "w [1] 1");
}

/// Six clients, with ten points each that a line tells apart.
fn careful(aggregator: &str) -> Outcome {
    let inputs = Inputs::Dense {
        shape: vec![1],
        data: (0..60)
            .map(|i| if i % 2 == 0 { -1.0 } else { 1.0 })
            .collect(),
    };
    let labels = Labels::Classes {
        of: (0..60).map(|i| i % 2).collect(),
        classes: 2,
    };
    let all = Examples::all(Arc::new(inputs), Arc::new(labels)).unwrap();
    let own = |k: usize| all.pick(&(10 * k..10 * (k + 1)).collect::<Vec<_>>());
    let parts = vec![
        part("model", Role::Trainer, "linear", "{}"),
        part("aggregator", Role::Aggregator, aggregator, "{}"),
    ];
    let protocol: Arc<dyn Protocol> = Arc::new(fl_core::settings::defaults::<protocol::Careful>());
    let options = RunOptions::new(1, all.task());
    let setup = Setup::new(
        protocol,
        Arc::new(Parts::new(parts)),
        options,
        (0..6).map(own).collect(),
        all.clone(),
    );
    run(setup).unwrap()
}

#[test]
fn the_protocol_learns_with_weights_of_its_own() {
    let mean = careful("mean");
    assert!(mean.metrics["accuracy"] > 0.9, "{:?}", mean.metrics);
    assert_eq!(mean.digest, careful("mean").digest);
    assert_ne!(mean.digest, careful("median").digest);
}
