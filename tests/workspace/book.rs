//! Code that pages show. The README shows the aggregator, the book the rest; what they show is this
//! code, so it compiles, and it is tested.

use crate::federation::part;
use fl_core::message::{
    ClassMeans, Message as _, Params, Tensor, TensorMap, bytes, decode, encode,
};
use fl_core::settings::defaults;
use fl_core::{
    Aggregator as _, Examples, FeatureTerm, Inputs, Labels, Parts, Protocol, Role, RunOptions,
    SlotAssignment, Stream, Target,
};
use fl_sim::{Outcome, Setup, run};
use ndarray::{Array2, array};
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
        /// Clients train from the server's parameters; the server combines what they send.
        pub struct MyFedAvg {
            /// Rounds.
            rounds: usize = 10, in 1..;
            /// Each client's training in a round.
            local: Training = Training::epochs(1, 16);
        }
    }

    const MODEL: TrainerSlot = TrainerSlot::new("model", "What every client trains.");
    const AGGREGATOR: AggregatorSlot<Params, Params> =
        AggregatorSlot::new("aggregator", "Combines the clients' parameters.");
    const COHORT: SelectorSlot<Roster> =
        SelectorSlot::new("cohort", "Picks the clients of a round; everyone if empty.");
    const PRIVACY: MechanismSlot<Params> =
        MechanismSlot::new("privacy", "Clips and perturbs what training has changed.");
    const TRAIN: Exchange<Params, Params> = Exchange::new("parameters after local training");

    impl Protocol for MyFedAvg {
        fn declare(&self) -> Declaration<'_> {
            let train = TRAIN
                .answered_by(|client, global| {
                    client.parametric(&MODEL)?.set_params(global)?;
                    client.fit_own(&MODEL, &self.local.pass(Loss::CrossEntropy))?;
                    Ok(client.parametric(&MODEL)?.params())
                })
                .to(&COHORT)
                .each_round()
                .trains()
                .releases_difference(&PRIVACY)
                .into(&AGGREGATOR);
            Declaration::new()
                .rounds(self.rounds)
                .grows_by("rounds")
                .slot(MODEL.spec().shared_parameters().at_server())
                .exchange(train)
        }

        fn lead(&self, server: &mut Server<'_>) -> Result<()> {
            let mut global = server.parametric(&MODEL)?.params();
            server.rounds(&mut global, |server, global, round| {
                *global = server.run(round, &TRAIN, |_| &*global)?;
                server.parametric(&MODEL)?.set_params(global)?;
                server.evaluate(round, &MODEL)
            })?;
            server.keep_model(&MODEL)
        }
    }
    plugin!(protocol "my-fedavg" => MyFedAvg);
    // ANCHOR_END: protocol

    // ANCHOR: protocol-test
    #[test]
    fn exact_slots_and_exchanges() {
        let protocol: &dyn Protocol = &fl_core::settings::defaults::<MyFedAvg>();
        let slots: Vec<_> = protocol.slots().iter().map(|slot| slot.name).collect();
        assert_eq!(slots[..4], ["model", "cohort", "privacy", "aggregator"]);
        let train = &protocol.exchanges()[0];
        let shown = format!("{} -> {} x {}", train.down, train.up, train.times);
        assert_eq!(shown, "params -> params x 10");
    }
    // ANCHOR_END: protocol-test
}

mod weighted {
    use fl_core::prelude::*;

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
                .each_round()
                .trains()
                .into(&AGGREGATOR);
            Declaration::new()
                .rounds(self.rounds)
                .slot(MODEL.spec().shared_parameters().at_server())
                .exchange(train)
        }

        fn lead(&self, server: &mut Server<'_>) -> Result<()> {
            let mut global = server.parametric(&MODEL)?.params();
            server.rounds(&mut global, |server, global, round| {
                // ANCHOR: weights
                let sent = global.clone();
                let inbox = server.collect(round, &TRAIN, |_| &sent)?;
                let shown = round.showing(sent.clone());
                // weights of our own, instead of the numbers of examples
                *global = server.aggregate_with(&TRAIN, &shown, &inbox, |mail| {
                    let moved = mail.body.zip(&sent, |to, from| to - from);
                    moved.map_or(0.0, |moved| 1.0 / (1.0 + moved.norm()))
                })?;
                // ANCHOR_END: weights
                server.parametric(&MODEL)?.set_params(global)?;
                server.evaluate(round, &MODEL)
            })?;
            server.keep_model(&MODEL)
        }
    }
    plugin!(protocol "careful" => Careful);
}

mod anchored {
    // ANCHOR: feature-loss
    use fl_core::prelude::*;
    use fl_core::{FeatureLoss, FeatureTerm};
    use ndarray::{Array2, ArrayView2};

    /// The mean squared distance of features to the mean of their class.
    #[derive(Debug)]
    pub struct Distance {
        /// Mean features of each class.
        pub means: ClassMeans,
        /// Weight beside the loss of the batch.
        pub weight: f32,
    }

    impl FeatureLoss for Distance {
        fn of_features(
            &self,
            features: ArrayView2<'_, f32>,
            target: Target<'_>,
            _: &[usize],
            _: &Stream,
        ) -> Result<FeatureTerm> {
            let Target::Classes(classes) = target else {
                bail!("means of classes need a class for each sample");
            };
            let mut apart = Array2::zeros(features.raw_dim());
            for (at, class) in classes.iter().enumerate() {
                // a class without a mean adds nothing
                if let Some(mean) = self.means.class(*class) {
                    apart.row_mut(at).assign(&(&features.row(at) - &mean));
                }
            }
            let share = self.weight / apart.len() as f32;
            Ok(FeatureTerm {
                loss: apart.iter().map(|d| f64::from(share * d * d)).sum(),
                by_features: apart * (2.0 * share),
            })
        }
    }
    // ANCHOR_END: feature-loss

    settings! {
        /// Clients train from the server's model, and keep the features of each class near its.
        pub struct Anchored {
            /// Rounds.
            rounds: usize = 5, in 1..;
            /// Each client's training in a round.
            local: Training = Training::epochs(1, 16);
            /// Weight of the distance.
            weight: f64 = 1.0, in 0.0..=1e6;
        }
    }

    const MODEL: TrainerSlot = TrainerSlot::new("model", "What every client trains.");
    const AGGREGATOR: AggregatorSlot<Params, Params> =
        AggregatorSlot::new("aggregator", "Combines the clients' parameters.");
    const TRAIN: Exchange<Params, Params> = Exchange::new("parameters after local training");

    impl Protocol for Anchored {
        fn declare(&self) -> Declaration<'_> {
            // ANCHOR: feature-loss-use
            let train = TRAIN
                .answered_by(|client, global| {
                    client.parametric(&MODEL)?.set_params(global)?;
                    let own = client.own().clone();
                    let classes = own.classes().context("an example has several classes")?;
                    let features = client.model(&MODEL)?.features(&own.samples)?;
                    let features = features.context("this model has no features")?;
                    let distance = Distance {
                        means: ClassMeans::of(features.view(), &classes)?,
                        weight: self.weight as f32,
                    };
                    let pass = FitOptions {
                        feature_loss: Some(&distance),
                        ..self.local.pass(Loss::CrossEntropy)
                    };
                    client.fit_own(&MODEL, &pass)?;
                    Ok(client.parametric(&MODEL)?.params())
                })
                .each_round()
                .trains()
                .into(&AGGREGATOR);
            let model = MODEL.spec().shared_parameters().at_server();
            Declaration::new()
                .rounds(self.rounds)
                .slot(model.needs(Ability::FeatureLoss))
                .exchange(train)
            // ANCHOR_END: feature-loss-use
        }

        fn lead(&self, server: &mut Server<'_>) -> Result<()> {
            let mut global = server.parametric(&MODEL)?.params();
            server.rounds(&mut global, |server, global, round| {
                let sent = global.clone();
                *global = server.run(round, &TRAIN, |_| &sent)?;
                server.parametric(&MODEL)?.set_params(global)?;
                server.evaluate(round, &MODEL)
            })?;
            server.keep_model(&MODEL)
        }
    }
    plugin!(protocol "anchored" => Anchored);
}

mod packed {
    // ANCHOR: message
    use fl_core::message::{Bits, NamedTensors, Tensor, TensorMap, View};
    use fl_core::prelude::*;
    use ndarray::{Array1, ArrayD, IxDyn};
    use std::collections::BTreeMap;

    /// A bit for the sign of each change of a parameter, and the mean size of each tensor's changes.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SignedUpdate {
        signs: BTreeMap<String, Bits<'static>>,
        sizes: Array1<f32>,
    }

    impl SignedUpdate {
        /// Rounds a change to its signs.
        pub fn of(change: &Params) -> Result<Self> {
            let (mut signs, mut sizes) = (BTreeMap::new(), Vec::new());
            for (name, tensor) in &change.0 {
                let mut packed = vec![0u8; tensor.len().div_ceil(8)];
                let mut sum = 0.0f64;
                for (i, x) in tensor.iter().enumerate() {
                    packed[i / 8] |= u8::from(*x >= 0.0) << (i % 8);
                    sum += f64::from(x.abs());
                }
                let bits = Bits::new(tensor.shape().to_vec(), packed)?;
                signs.insert(name.clone(), bits);
                sizes.push((sum / tensor.len().max(1) as f64) as f32);
            }
            let sizes = Array1::from(sizes);
            Ok(Self { signs, sizes })
        }

        /// Returns the change that it stands for.
        pub fn change(&self) -> Result<Params> {
            let mut all = Params::default();
            for ((name, signs), size) in self.signs.iter().zip(&self.sizes) {
                let values = signs.iter().map(|up| if up { *size } else { -size });
                let shape = IxDyn(signs.shape());
                let tensor = ArrayD::from_shape_vec(shape, values.collect())?;
                all.0.insert(name.clone(), tensor);
            }
            Ok(all)
        }
    }

    impl Message for SignedUpdate {
        const KIND: &'static str = "signed-update";
        const DOC: &'static str = "The sign of each change, and the mean size of each tensor's.";

        fn tensors(&self) -> NamedTensors<'_> {
            let mut all = NamedTensors::new();
            for (name, signs) in &self.signs {
                all.push((format!("signs.{name}").into(), View::Bits(signs.view())));
            }
            all.push(("sizes".into(), View::F32(self.sizes.view().into_dyn())));
            all
        }

        fn from_tensors(mut parcel: TensorMap) -> Result<Self> {
            let sizes: Array1<f32> = parcel.f32("sizes")?.into_dimensionality()?;
            let mut signs = BTreeMap::new();
            for (name, tensor) in parcel.rest() {
                match (name.strip_prefix("signs."), tensor) {
                    (Some(of), Tensor::Bits(bits)) => signs.insert(of.to_string(), bits),
                    _ => bail!("`{name}` is no tensor of a signed update"),
                };
            }
            let (n, found) = (signs.len(), sizes.len());
            ensure!(n == found, "`sizes` has {found} numbers for {n} tensors");
            Ok(Self { signs, sizes })
        }
    }
    messages! { SignedUpdate }
    // ANCHOR_END: message

    settings! {
        /// Clients send the signs of their changes; the server averages what these stand for.
        pub struct Signs {
            /// Rounds.
            rounds: usize = 5, in 1..;
            /// Each client's training in a round.
            local: Training = Training::epochs(1, 16);
        }
    }

    const MODEL: TrainerSlot = TrainerSlot::new("model", "What every client trains.");
    const TRAIN: Exchange<Params, SignedUpdate> = Exchange::new("signs of local changes");

    impl Protocol for Signs {
        fn declare(&self) -> Declaration<'_> {
            // ANCHOR: remember
            let train = TRAIN
                .answered_by(|client, global| {
                    client.parametric(&MODEL)?.set_params(global)?;
                    client.fit_own(&MODEL, &self.local.pass(Loss::CrossEntropy))?;
                    let trained = client.parametric(&MODEL)?.params();
                    let mut change = trained.zip(global, |to, from| to - from)?;
                    // add what earlier answers have rounded away
                    if let Some(left) = client.stashed::<Params>("left")? {
                        change.add_scaled(1.0, &left)?;
                    }
                    let answer = SignedUpdate::of(&change)?;
                    change.add_scaled(-1.0, &answer.change()?)?;
                    client.stash("left", &change);
                    Ok(answer)
                })
                .each_round()
                .trains();
            // ANCHOR_END: remember
            Declaration::new()
                .rounds(self.rounds)
                .slot(MODEL.spec().shared_parameters().at_server())
                .exchange(train)
        }

        fn lead(&self, server: &mut Server<'_>) -> Result<()> {
            let mut global = server.parametric(&MODEL)?.params();
            server.rounds(&mut global, |server, global, round| {
                let sent = global.clone();
                let inbox = server.collect(round, &TRAIN, |_| &sent)?;
                let share = 1.0 / inbox.len() as f64;
                for mail in inbox.iter() {
                    global.add_scaled(share, &mail.body.change()?)?;
                }
                server.parametric(&MODEL)?.set_params(global)?;
                server.evaluate(round, &MODEL)
            })?;
            server.keep_model(&MODEL)
        }
    }
    plugin!(protocol "signs" => Signs);
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
fn six_clients(protocol: Arc<dyn Protocol>, parts: Vec<SlotAssignment>, wire: bool) -> Outcome {
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
    let options = RunOptions::new(1, all.task());
    let mut setup = Setup::new(
        protocol,
        Arc::new(Parts::new(parts)),
        options,
        (0..6).map(own).collect(),
        all.clone(),
    );
    setup.execution.wire = wire;
    run(setup).unwrap()
}

#[test]
fn the_protocols_learn_with_the_aggregator_of_the_spec() {
    fn digests<P: Protocol + fl_core::settings::Setting + 'static>() {
        let learn = |aggregator| {
            let parts = vec![
                part("model", Role::Trainer, "linear", "{}"),
                part("aggregator", Role::Aggregator, aggregator, "{}"),
            ];
            six_clients(Arc::new(defaults::<P>()), parts, false)
        };
        let mean = learn("mean");
        assert!(mean.metrics["accuracy"] > 0.9, "{:?}", mean.metrics);
        assert_eq!(mean.digest, learn("mean").digest);
        assert_ne!(mean.digest, learn("median").digest);
    }
    digests::<protocol::MyFedAvg>();
    digests::<weighted::Careful>();
}

#[test]
fn exact_a_signed_update_has_a_bit_for_each_change() {
    let params = |numbers: &[f32]| {
        let tensor = ndarray::arr1(numbers).into_dyn();
        Params([("w".to_string(), tensor)].into())
    };
    let change = params(&[1.0, -3.0, 2.0, -2.0, 0.0, 4.0, -1.0, 2.0, -3.0, 2.0]);
    let sent = packed::SignedUpdate::of(&change).unwrap();
    assert_eq!(bytes(&sent, None).total(), 2 + 4);
    let due = params(&[2.0, -2.0, 2.0, -2.0, 2.0, 2.0, -2.0, 2.0, -2.0, 2.0]);
    assert_eq!(sent.change().unwrap(), due);
    let back = decode::<packed::SignedUpdate>(&encode(&sent)).unwrap();
    assert_eq!(back, sent);
    let numbers = Tensor::F32(ndarray::arr1(&[1.0f32]).into_dyn());
    let error = |tensors: &[&str]| {
        let tensors = tensors
            .iter()
            .map(|name| (name.to_string(), numbers.clone()));
        let made = packed::SignedUpdate::from_tensors(TensorMap::new(tensors.collect()));
        made.unwrap_err().to_string()
    };
    assert_eq!(error(&["w"]), "no tensor `sizes`");
    assert_eq!(error(&["sizes"]), "`sizes` has 1 numbers for 0 tensors");
    let due = "`signs.w` is no tensor of a signed update";
    assert_eq!(error(&["sizes", "signs.w"]), due);
}

#[test]
fn the_protocol_with_signs_learns_in_fewer_bytes() {
    let signs = |wire| {
        let parts = vec![part("model", Role::Trainer, "linear", "{}")];
        six_clients(Arc::new(defaults::<packed::Signs>()), parts, wire)
    };
    let plain = signs(false);
    assert!(plain.metrics["accuracy"] > 0.9, "{:?}", plain.metrics);
    assert_eq!(plain.digest, signs(true).digest);
    assert!(plain.bytes.up < plain.bytes.down, "{:?}", plain.bytes);
}

#[test]
fn the_loss_on_features_has_the_slope_that_it_says() {
    let means = ClassMeans::new(vec![0, 2], array![[0.5, -1.0], [2.0, 0.0]]);
    let distance = anchored::Distance { means, weight: 3.0 };
    let (features, classes) = (array![[1.0f32, 2.0], [0.0, 4.0], [-1.0, 0.5]], [2, 1, 0]);
    let of = |features: &Array2<f32>| {
        let target = Target::Classes(&classes);
        FeatureTerm::of(
            &distance,
            features.view(),
            target,
            &[0, 1, 2],
            &Stream::root(1),
        )
        .unwrap()
    };
    let found = of(&features);
    // by hand: a weight of 3 over 6 numbers; class 1 has no mean
    assert_eq!(found.loss, 0.5 * (1.0 + 4.0 + 2.25 + 2.25));
    assert_eq!(
        found.by_features,
        array![[-1.0, 2.0], [0.0, 0.0], [-1.5, 1.5]]
    );
}

#[test]
fn the_protocol_with_a_loss_on_features_learns() {
    let anchored = |weight: f64, wire| {
        let net = "{net: [{linear: 4}, relu, outputs], optimiser: {sgd: {lr: 0.5}}}";
        let parts = vec![
            part("model", Role::Trainer, "dfdx", net),
            part("aggregator", Role::Aggregator, "mean", "{}"),
        ];
        let mut protocol = defaults::<anchored::Anchored>();
        (protocol.weight, protocol.rounds) = (weight, 20);
        // the samples of a class are alike, so only a second batch is away from their mean
        protocol.local = fl_core::prelude::Training::epochs(1, 5);
        six_clients(Arc::new(protocol), parts, wire)
    };
    let near = anchored(1.0, false);
    assert!(near.metrics["accuracy"] > 0.9, "{:?}", near.metrics);
    assert_eq!(near.digest, anchored(1.0, true).digest);
    assert_ne!(near.digest, anchored(0.0, false).digest);
}
