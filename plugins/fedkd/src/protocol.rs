//! The protocol: train to the end, predict the public samples once, distil at the server.
use fl_core::augment::{Augment, Augmenter};
use fl_core::message::ExchangeShape;
use fl_core::prelude::*;
use fl_core::{ClientId, Length, TaskKind};
use fl_plugin_dp_sgd::{self as dp_sgd, Sampling};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

choices! {
    /// The student's loss: readings of Eq. 7, whose norm the paper does not name.
    pub enum StudentLoss {
        /// Mean absolute error of the scores (the published code).
        Mae = "mae",
        /// Mean squared error of the scores.
        Mse = "mse",
        /// Mean Euclidean distance of the scores.
        Norm = "norm",
        /// Kullback-Leibler divergence at this temperature, times its square.
        Kl(f64, in above(0.0)) = "kl",
    }
}

impl StudentLoss {
    fn loss(&self) -> Loss {
        match self {
            Self::Mae => Loss::Mae,
            Self::Mse => Loss::Mse,
            Self::Norm => Loss::Norm,
            Self::Kl(tau) => Loss::Kl { tau: *tau },
        }
    }
}

choices! {
    /// The form of scores on the wire.
    pub enum Wire {
        /// As the bits of their quantisation level, if there is a quantiser.
        Packed = "packed",
        /// As 4-byte floats.
        F32 = "f32",
    }
}

settings! {
    /// Clients train to the end and predict the public samples once; the server distils the
    /// ensemble into a student (FedKD; Gong et al. 2022).
    pub struct OneShotDistill {
        /// A client's training. FedKD: 500 epochs, batch 16.
        local: Training = Training::epochs(500, 16);
        /// The student's training on the public samples. FedKD on CIFAR-10: 200 epochs, batch 512.
        student: Training = Training::epochs(200, 512);
        /// The student's loss.
        loss: StudentLoss = StudentLoss::Mae;
        /// The form of scores on the wire.
        wire: Wire = Wire::Packed;
        /// Clients also train on the public data, which then must have labels (the labelled-public
        /// variant of Table 4).
        public_labels: bool = false;
        /// Number of predictions of the public samples, each with another augmentation (Table 2:
        /// 50).
        passes: usize = 1, in 1..=10_000;
        /// Evaluate the clients' own models too.
        evaluate_clients: bool = true;
        /// Keep the clients' own models as results of the run.
        keep_clients: bool = false;
        /// DP-SGD, with `parts.example-privacy`: how each of `local.steps` steps draws examples.
        sampling: Option<Sampling> = None;
    }
}

/// The view of the public samples to predict, and the clients' common bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Look {
    /// The largest absolute score of all clients; empty before they have agreed, or without a
    /// quantiser.
    z_max: Array1<f32>,
    /// The key of the augmentation's stream, as eight words; empty for the samples as they are.
    stream: Array1<u32>,
}

messages! { Look }

impl Message for Look {
    const KIND: &'static str = "look";
    fn expected(_: &ExchangeShape) -> Option<u64> {
        Some(4 + 32) // one number, and the key of a stream if the samples are to be augmented
    }
    fl_core::tensor_fields!(z_max, stream);
}

impl Look {
    /// Returns the samples as they are, or, with several passes, augmented in this round's way.
    fn new(passes: usize, round: &Round) -> Self {
        let key = round.stream.child("augment", 0).key();
        let words = key
            .as_chunks::<4>()
            .0
            .iter()
            .map(|w| u32::from_le_bytes(*w));
        Self {
            z_max: Array1::zeros(0),
            stream: words.filter(|_| passes > 1).collect(),
        }
    }

    fn samples(&self, public: &Samples) -> Result<Samples> {
        if self.stream.is_empty() {
            return Ok(public.clone());
        }
        let bytes: Vec<u8> = self.stream.iter().flat_map(|w| w.to_le_bytes()).collect();
        let stream = Stream::from_key(
            bytes
                .try_into()
                .ok()
                .context("a stream's key has eight words")?,
        );
        let (shape, mut values, black) = (
            public.shape(),
            public.values(),
            Augmenter::black(public.inputs()),
        );
        let augmenter = Augmenter::new(vec![CROP, Augment::Flip], &shape)?;
        CROP.fits(&shape)?;
        let mut draws = stream.draws();
        for mut row in values.rows_mut() {
            augmenter.apply(
                row.as_slice_mut().context("rows are contiguous")?,
                &black,
                &mut draws,
            );
        }
        Samples::fresh(values, shape)
    }
}

/// How the public samples are cropped for several passes.
const CROP: Augment = Augment::Crop(4);

const TEACHER: TrainerSlot =
    TrainerSlot::new("teacher", "A client's own model; each may have another.");
const STUDENT: TrainerSlot = TrainerSlot::new("student", "The server's model.");
const ENSEMBLE: AggregatorSlot<Logits, Logits> =
    AggregatorSlot::new("ensemble", "Combines the clients' scores.");
const QUANTISER: MechanismSlot<Logits> = MechanismSlot::new(
    "quantiser",
    "Bounds a client's scores before they leave it.",
);
const PRIVACY: MechanismSlot<Logits> = MechanismSlot::new(
    "privacy",
    "Noise on the ensemble's scores, drawn once at the server.",
);

const TRAIN: Exchange<Nothing, Nothing> = Exchange::new("training");
const PEAK: Exchange<Look, Scalar> = Exchange::new("largest score of the public samples");
const LOGITS: Exchange<Look, Logits> = Exchange::new("scores of the public samples");

/// The server's state between two steps.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// The clients that have trained a model.
    trained: Vec<ClientId>,
    /// Of each pass, the view of the public samples and the ensemble's scores.
    targets: Vec<(Look, Logits)>,
}

impl OneShotDistill {
    /// Returns the conflict of `passes` with the student's training, if it learns from each pass in
    /// another epoch and has too few.
    fn unlearnt(&self) -> Option<Conflict> {
        let passes = self.passes;
        if passes == 1 {
            return None;
        }
        let why = match self.student.epochs {
            None => "has the student learn from another pass in each epoch: give `student.epochs` in place of steps".into(),
            Some(epochs) if epochs < passes => format!(
                "is {passes}, and the student learns from another pass in each of {epochs} epochs, so the others would only cost: ask for fewer, or for more `student.epochs`"
            ),
            Some(_) => return None,
        };
        Some(Conflict::at("passes", why))
    }

    fn train(&self, client: &mut Client) -> Result<Nothing> {
        if client.has(&dp_sgd::SLOT) {
            dp_sgd::train(client, &TEACHER, self.sampling.as_ref(), (&self.local, 1.0))?;
            return Ok(Nothing);
        }
        let mut examples = client.own().clone();
        if self.public_labels {
            examples = examples.join(client.public()?.examples()?)?;
        }
        let pass = self.local.pass(client.task().kind.loss());
        client.fit_examples(&TEACHER, &examples, &pass)?;
        Ok(Nothing)
    }

    fn predict(&self, client: &mut Client, look: &Look) -> Result<Logits> {
        let x = look.samples(client.public()?.samples())?;
        let scores: Array2<f32> = client.model(&TEACHER)?.predict(&x)?;
        Ok(Logits::new((0..x.len() as u32).collect(), scores))
    }

    /// Trains the student: on the samples as they are, or on another augmented view in each epoch.
    fn distil(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        targets: &[(Look, Logits)],
    ) -> Result<()> {
        let (public, pass) = (server.public()?, self.student.pass(self.loss.loss()));
        if let [(look, target)] = targets {
            return server.fit(
                &STUDENT,
                &round.stream,
                &look.samples(public.samples())?,
                Target::Scores(target.values.view()),
                &pass,
            );
        }
        for epoch in 0..self
            .student
            .epochs
            .context("several passes need `student.epochs`")?
        {
            let (look, target) = &targets[epoch % targets.len()];
            let (x, stream) = (
                look.samples(public.samples())?,
                round.stream.child("epoch", epoch as u64),
            );
            server.fit(
                &STUDENT,
                &stream,
                &x,
                Target::Scores(target.values.view()),
                &FitOptions {
                    length: Length::Epochs(1),
                    ..pass.clone()
                },
            )?;
        }
        Ok(())
    }
}

impl Protocol for OneShotDistill {
    fn declare(&self) -> Declaration<'_> {
        let (sampling, local) = (self.sampling.as_ref(), &self.local);
        let published = self.evaluate_clients || self.keep_clients;
        let teacher = TEACHER.spec().lasting().published_if(published);
        let teacher = teacher.trained_by("local", &self.local, (false, 1));
        let student = self.student.needs(STUDENT.spec().at_server());
        let student = student.needs_if(self.passes > 1, Ability::ByEpoch);
        Declaration::new()
            .rounds(self.passes)
            .measures([Measurement::server(&STUDENT)])
            .measures(
                self.evaluate_clients
                    .then(|| Measurement::clients(&TEACHER)),
            )
            .slot(dp_sgd::learner(teacher, sampling))
            .slot(&dp_sgd::SLOT)
            .slot(student.needs(Ability::Loss(self.loss.loss())))
            .exchange(dp_sgd::declared(
                TRAIN.answered_by(|client, _| self.train(client)),
                sampling,
                local,
            ))
            // the server sends it back to clients, and uses it for all scores
            .exchange(
                PEAK.answered_by(|client, look| {
                    let scores = self.predict(client, look)?;
                    client.cache("scores", &scores);
                    Ok(Scalar::new(
                        client.range(&QUANTISER, &scores)?.unwrap_or(0.0),
                    ))
                })
                .each_round()
                .if_requested_by(&QUANTISER)
                .learnt_through(&dp_sgd::SLOT)
                .released_with(&LOGITS, &PRIVACY)
                .sent_back_unreleased(),
            )
            .exchange(
                LOGITS
                    .answered_by(|client, look| match client.cached("scores")? {
                        Some(scores) => Ok(scores),
                        None => self.predict(client, look),
                    })
                    .each_round()
                    .all_public()
                    .learnt_through(&dp_sgd::SLOT)
                    .bounds(&QUANTISER, |look| look.z_max.first().copied())
                    .sent_as(|mut scores| {
                        if self.wire == Wire::F32 {
                            scores.unpack();
                        }
                        scores
                    })
                    .into(&ENSEMBLE)
                    .releases_at_server(&PRIVACY),
            )
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let mut known = State::default();
        server.once("teachers", &mut known, |server, known, round| {
            let done = server.collect(round, &TRAIN, |_| &Nothing)?;
            known.trained = done.iter().map(|mail| mail.from).collect();
            if self.evaluate_clients {
                server.evaluate_clients_of(round, &TEACHER, &known.trained)
            } else {
                Ok(())
            }
        })?;
        server.rounds(&mut known, |server, known, round| {
            let mut look = Look::new(self.passes, round);
            let trained: BTreeSet<ClientId> = known.trained.iter().copied().collect();
            let to = server.everyone().retain(|id| trained.contains(&id));
            if server.wants_range(&QUANTISER)? {
                let peaks = server.collect_from(round, &PEAK, &to, |_| &look)?;
                look.z_max =
                    Array1::from_elem(1, peaks.iter().map(|m| m.body.value()).fold(0.0, f32::max));
            }
            let ensemble = server.run_from(round, &LOGITS, &to, |_| &look)?;
            known.targets.push((look, ensemble));
            Ok(())
        })?;
        server.once("student", &mut known, |server, known, round| {
            self.distil(server, round, &known.targets)?;
            server.evaluate(round, &STUDENT)
        })?;
        if self.keep_clients {
            server.keep_clients_of(&TEACHER, &known.trained)?;
        }
        server.keep_model(&STUDENT)
    }

    fn suits(&self, _: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        Ok(())
    }

    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let both = Conflict::at(
            "public-labels",
            "has clients learn more than their own examples, of which DP-SGD draws: leave it out, or `parts.example-privacy`",
        );
        let unlabelled = Conflict::at(
            "public-labels",
            "needs labels of the public samples: set `data.public.labelled: true`, or leave `public-labels` out",
        );
        [
            dp_sgd::conflict(has, self.sampling.as_ref(), &self.local),
            both.when(self.public_labels && has(&dp_sgd::SLOT)),
            unlabelled.when(self.public_labels && !has("data.public.labelled")),
            self.unlearnt(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn data_conflicts(&self, facts: &DataFacts<'_>) -> Vec<Conflict> {
        let flat = facts.input.as_ref().is_some_and(|input| input.len() != 3);
        let flat = flat && self.passes > 1;
        let small = |input: &Vec<usize>| input.len() == 3 && CROP.fits(input).is_err();
        let small = facts.input.as_ref().is_some_and(small) && self.passes > 1;
        let unlike = self.public_labels && facts.other_public;
        let few = "crops the public samples by up to 4 rows and columns, which needs larger images: \
                   leave it out";
        let join = "has clients learn from public samples among their own, and these are test rows, or of another data set: take training rows, with `data.public.from: { share: .. }`, or leave `public-labels` out";
        [
            Conflict::at("passes", "augments the public samples anew for each, which needs images [channels, height, width]: leave it out").when(flat),
            Conflict::at("passes", few).when(small),
            Conflict::at("public-labels", join).when(unlike),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
plugin!(protocol "one-shot-distill" => OneShotDistill,
    aliases: ["fedkd"],
    papers: ["Gong et al. 2022"]);
