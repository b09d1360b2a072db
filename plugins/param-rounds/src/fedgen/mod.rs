//! FedGEN: features made from noise and class (Zhu et al. 2021, algorithm 1).
pub mod client_loss;
pub mod loss;

use crate::local::Extra;
use crate::rounds::{Family, InRound, RoundRule, Rounds, Shared, Start};
use crate::slots::{MODEL, TRAIN};
use client_loss::GeneratedFeatures;
use fl_core::prelude::*;
use fl_core::{AuxiliaryLoss, PassStep, TaskKind, parametric};
use loss::Teachers;
use ndarray::Array2;
use std::cell::RefCell;

settings! {
    /// FedAvg with a generator of features, the inputs of the model's last layer, from noise and
    /// class. The server trains it with the ensemble of the clients' last layers; each client then
    /// also trains on made features of classes that it lacks (FedGEN, Zhu et al. 2021).
    pub struct FedGen {
        /// Number of inputs of the model's last layer per sample, which the generator makes;
        /// `fl check` prints the number.
        features: usize, in 1..=10_000_000;
        /// Normally distributed numbers that features are made from, besides the class. FedGEN's
        /// code: 32 for MNIST, 64 for CIFAR.
        noise: usize = 32, in 1..=100_000;
        /// The generator's steps in one round. FedGEN's code: 50.
        steps: usize = 50, in 1..=1_000_000;
        /// Features in a step. FedGEN: 32.
        batch: usize = 32, in 2..=4096;
        /// Weight of the diversity of features relative to the loss of the clients' layers.
        /// FedGEN's code: 1.
        diversity: f64 = 1.0, in 0.0..=1e6;
        /// At a client: weight of the cross-entropy of made features relative to that of its
        /// examples. FedGEN's code: 10.
        cross_entropy: f64 = 10.0, in 0.0..=1e6;
        /// At a client: weight of the divergence between the model's output for an example and its
        /// output for features made for the example's class. FedGEN's code: 10.
        kl: f64 = 10.0, in 0.0..=1e6;
        /// Factor of both weights at clients from round to round. FedGEN's code: 0.98.
        decay: f64 = 0.98, in above_to(0.0, 1.0);
    }
}

message! {
    /// A generator of features (FedGEN).
    pub struct Taught: "features-generator" {
        generator: Params,
        /// Factor of both weights in this round.
        scale: Scalar,
    }
}

/// The trainer that makes features.
const GENERATOR: TrainerSlot = TrainerSlot::new(
    "generator",
    "Makes features of noise and a class, for FedGEN: a model that is trained at the server and sent to clients.",
);

/// Sent in every round after the generator has learnt something.
const SHOW: Exchange<Taught, Nothing> =
    Exchange::new("the generator, for the training that follows");

/// Returns the generator's input, `classes x (noise + number of classes)`: noise, then a 1 at the
/// position of the class.
pub fn inputs(noise: &Array2<f32>, classes: &[u32], of: usize) -> Array2<f32> {
    let width = noise.ncols();
    Array2::from_shape_fn((classes.len(), width + of), |(i, j)| {
        match j.checked_sub(width) {
            None => noise[[i, j]],
            Some(class) => f32::from(u8::from(class == classes[i] as usize)),
        }
    })
}

/// Returns `n` rows of `width` normally distributed numbers.
pub fn noise(n: usize, width: usize, stream: &Stream) -> Array2<f32> {
    let mut draws = stream.child("noise", 0).draws();
    Array2::from_shape_simple_fn((n, width), || draws.normal() as f32)
}

/// A generator at a client.
pub(crate) struct Maker {
    model: RefCell<Box<dyn Trainer>>,
    noise: usize,
    classes: usize,
    scale: f64,
}

impl Maker {
    pub fn make(&self, classes: &[u32], stream: &Stream) -> Result<Array2<f32>> {
        let noise = noise(classes.len(), self.noise, stream);
        let x = inputs(&noise, classes, self.classes);
        let shape = vec![x.ncols()];
        self.model.borrow_mut().predict(&Samples::fresh(x, shape)?)
    }
}

impl RoundRule for FedGen {
    /// Whether the generator has learnt anything.
    type State = bool;
    const USES_WHOLE_MODELS: bool = true;

    fn declare<'p>(&'p self, family: Family<'p>, all: Declaration<'p>) -> Declaration<'p> {
        let show = SHOW.answered_by(|client, sent| {
            // kept, so that a client can answer a repeated request
            client.stash(&GENERATOR, sent);
            Ok(Nothing)
        });
        let show = show.model(&GENERATOR).to(&crate::slots::COHORT);
        let generator = GENERATOR.spec().shared_parameters().at_server();
        let generator = generator.needs(Ability::Loss(Loss::Mse));
        let train = family.trains(self);
        all.slot(generator.with_task(self.task()))
            .exchange(show.times(family.settings.rounds - 1))
            .exchange(train.with_class_counts_if(true))
            .measures(["generator.loss", "generator.alike"].map(Measurement::number))
    }

    /// Trains a client with made features too, if it got a generator.
    fn train(&self, client: &mut Client, start: Start<'_>) -> Result<Params> {
        let maker = self.maker(client)?;
        let made = maker.as_ref().map(|maker| GeneratedFeatures {
            make: |classes: &[u32], stream: &Stream| maker.make(classes, stream),
            cross_entropy: self.cross_entropy * maker.scale,
            kl: self.kl * maker.scale,
        });
        let extra = Extra {
            auxiliary: made.as_ref().map(|made| made as &dyn AuxiliaryLoss),
            ..Extra::default()
        };
        Ok(start.train(client, extra)?.params)
    }

    fn round(&self, run: InRound<'_, '_, Self::State>) -> Result<()> {
        let (server, round, model) = (run.server, run.round, run.model);
        let mut asked = server.cohort(round, &TRAIN)?.to_vec();
        if *run.state {
            let sent = Taught {
                generator: server.parametric(&GENERATOR)?.params(),
                scale: Scalar::new(libm::pow(self.decay, round.number as f64 - 1.0) as f32),
            };
            let shown = server.collect(round, &SHOW, |_| &sent)?;
            asked = shown.iter().map(|mail| mail.from).collect();
        }
        let global = &*model;
        let sent = server.collect_from(round, &TRAIN, &asked, |_| global)?;
        let shown = round.showing(global.clone());
        let mean = server.aggregate(&TRAIN, &shown, &sent)?;
        let mut teachers = Teachers::default();
        for mail in sent.iter() {
            server.parametric(&MODEL)?.set_params(&mail.body)?;
            let head = server.model(&MODEL)?.head();
            let head = head.context("parts.model: it shows no last layer")?;
            let counts = mail.class_counts.as_deref().unwrap_or_default();
            teachers.add(head, counts);
        }
        *model = mean;
        *run.state |= self.learn(server, round, &teachers)?;
        Ok(())
    }

    fn model(&self, slot: SlotSpec) -> SlotSpec {
        slot.needs(Ability::Head(self.features))
    }

    fn conflicts(&self, family: Family<'_>, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let open = Conflict::between(
            "FedGEN needs each client's last layer and its counts of classes, which `parts.example-privacy` does not hide: leave that out, or use `fedavg`",
        );
        let once = Conflict::at(
            "rounds",
            "must be 2 or more: clients are shown the generator from the second on",
        );
        let silent = Conflict::at(
            "cross-entropy",
            "and `kl` are both 0, so the generator has no effect: set one of them, or use `fedavg`",
        );
        let silent = silent.when(self.cross_entropy == 0.0 && self.kl == 0.0);
        let once = once.when(family.settings.rounds == 1);
        let all = [open.when(has("example-privacy")), once, silent];
        all.into_iter().flatten().collect()
    }

    fn suits_without_classes(&self) -> std::result::Result<(), String> {
        Err("FedGEN makes features of one class each; use `fedavg`".into())
    }
}
plugin!(protocol "fedgen" => Shared<FedGen> as Rounds<FedGen>, papers: ["Zhu et al. 2021"]);

impl FedGen {
    /// Returns the generator's task: `features` numbers from noise and one of the run's classes.
    fn task(&self) -> impl Fn(&Task) -> Task + Send + Sync + 'static {
        let (features, noise) = (self.features, self.noise);
        move |task| {
            Task::new(
                vec![noise + task.kind.outputs()],
                TaskKind::Classes(features),
            )
        }
    }

    /// Trains the generator. Returns whether it took steps.
    fn learn(&self, server: &mut Server<'_>, round: &Round, teachers: &Teachers) -> Result<bool> {
        let (known, of) = (teachers.classes(), server.task().kind.outputs());
        if known.is_empty() {
            server.warn(&format!(
                "{}: by the clients' class counts there are no examples, so the generator learns nothing",
                round.name
            ));
            return Ok(false);
        }
        let (mut loss, mut alike) = (0.0, 0.0);
        for step in 0..self.steps {
            let stream = round.stream.child("generator", step as u64);
            let mut draws = stream.child("classes", 0).draws();
            let classes = std::iter::repeat_with(|| known[draws.below(known.len())]);
            let classes: Vec<u32> = classes.take(self.batch).collect();
            let noise = noise(self.batch, self.noise, &stream);
            let x = inputs(&noise, &classes, of);
            let shape = vec![x.ncols()];
            let x = Samples::fresh(x, shape)?;
            let features = server.model(&GENERATOR)?.predict(&x)?.mapv(f64::from);
            let of_teachers = teachers.of_batch(&features, &classes);
            let diversity = loss::diversity(&features, &noise.mapv(f64::from));
            loss += of_teachers.0;
            alike += diversity.0;
            ensure!(
                of_teachers.0.is_finite(),
                "parts.generator: its loss is {} at step {step} of {}; a smaller learning rate may help",
                of_teachers.0,
                round.name
            );
            let slope = of_teachers.1 + diversity.1 * self.diversity;
            // the slope of the mean squared distance to this target is the slope by the features
            let half = (features.len() as f64) / 2.0;
            let target = (&features - &(slope * half)).mapv(|t| t as f32);
            let generator = server.parametric(&GENERATOR)?;
            let gradient = generator.gradient(&x, Target::Scores(target.view()), Loss::Mse);
            let gradient = gradient.context("parts.generator")?;
            generator.descend(&gradient, &PassStep::new(step, self.steps))?;
        }
        let n = self.steps as f64;
        server.record(round, "generator.loss", loss / n)?;
        server.record(round, "generator.alike", alike / n)?;
        Ok(true)
    }

    /// Returns the generator that this client got last, if any.
    fn maker(&self, client: &Client) -> Result<Option<Maker>> {
        let Some(sent) = client.stashed::<Taught>(&GENERATOR)? else {
            return Ok(None);
        };
        let mut model = client.new_model(&GENERATOR, 0)?;
        parametric(model.as_mut(), &GENERATOR)?.set_params(&sent.generator)?;
        Ok(Some(Maker {
            model: RefCell::new(model),
            noise: self.noise,
            classes: client.task().kind.outputs(),
            scale: f64::from(sent.scale.value()),
        }))
    }
}
