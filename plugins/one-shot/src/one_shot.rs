//! What DENSE and Co-Boosting share: the models that clients send once, the generator and the
//! student.
use crate::ensemble::{Ensemble, lacks, weighted};
use crate::generator_loss::{Emphasis, Seen, generator_loss};
use crate::pool::Pool;
use fl_core::message::Models;
use fl_core::prelude::*;
use fl_core::settings::{Joined, Settings};
use fl_core::{Problem, TaskKind};
use fl_plugin_dp_sgd::{self as dp_sgd, Sampling};
use ndarray::Array2;
use serde::{Deserialize, Serialize};

settings! {
    /// The settings that the methods share.
    pub struct OneShotSettings {
        /// A client's training. DENSE: 400 epochs; Co-Boosting: 100; batch 128.
        local: Training = Training::epochs(100, 128);
        /// Rounds of the server: in each the generator makes a batch, and the student learns.
        /// Published: 200.
        rounds: usize = 200, in 1..=1_000_000;
        /// Steps of the generator in one round. Published: 30.
        steps: usize = 30, in 1..=1_000_000;
        /// Inputs made in one round. Published: 256 (DENSE), 128 (Co-Boosting).
        batch: usize = 128, in 1..=100_000;
        /// The most batches that the student learns from; the oldest is dropped. Published: all.
        pool: usize = 50, in 1..=1_000_000;
        /// The weight of the divergence in the generator's loss. Published code: 1.
        adversarial: f64 = 1.0, in 0.0..=1e6;
        /// The student's training on the pool in one round.
        student: Training = Training::epochs(1, 128);
        /// The temperature of the student's loss. Published: 20 (DENSE), 4 (Co-Boosting).
        temperature: f64 = 4.0, in above(0.0);
        /// Evaluate the clients' models too.
        evaluate_clients: bool = true;
        /// Keep the clients' models as results of the run.
        keep_clients: bool = false;
        /// DP-SGD, with `parts.example-privacy`: how each of `local.steps` steps draws examples.
        sampling: Option<Sampling> = None;
    }
}

const TEACHER: TrainerSlot = TrainerSlot::new(
    "teacher",
    "A client's own model, which it sends once; each may have another.",
);
const STUDENT: TrainerSlot = TrainerSlot::new("student", "The server's model.");
const MAKER: GeneratorSlot = GeneratorSlot::new("generator", "Makes the inputs, at the server.");
const MODELS: Exchange<Nothing, Models> = Exchange::new("models");

const CROSS_ENTROPY: &str = "generator.cross-entropy";
const DIVERGENCE: &str = "generator.divergence";

/// Number of made inputs that a run keeps as a picture.
const SHOWN: usize = 64;

/// What a method adds. `plugin!(protocol "name" => Shared<Rule> as OneShot<Rule>)` registers it.
pub trait OneShotRule: Settings + Send + Sync + 'static {
    /// How much a made input counts in the generator's loss.
    fn emphasis(&self, seen: &Seen) -> Emphasis;

    /// The temperature of the divergence in the generator's loss.
    fn adversarial_temperature(&self) -> f64 {
        1.0
    }

    /// Returns settings that have no effect at this weight of the divergence in the generator's
    /// loss.
    fn conflicts(&self, _adversarial: f64) -> Vec<Conflict> {
        Vec::new()
    }

    /// Changes the weights of the models, before the round's batch joins the pool. Defaults to
    /// equal weights.
    ///
    /// # Errors
    /// Those of the models.
    fn weigh(
        &self,
        _ensemble: &mut Ensemble,
        _weights: &mut Vec<f64>,
        _pool: &Pool,
        _round_and_batch: (&Round, usize),
    ) -> Result<()> {
        Ok(())
    }

    /// Returns the inputs that the student sees, from those of the pool. Defaults to these.
    ///
    /// # Errors
    /// Those of the models.
    fn shifted(
        &self,
        _ensemble: &mut Ensemble,
        _weights: &[f64],
        x: Samples,
        _stream: &Stream,
    ) -> Result<Samples> {
        Ok(x)
    }
}

/// The settings of a method: the shared ones, and its own.
pub type Shared<R> = Joined<OneShotSettings, R>;

/// A method as a protocol.
pub struct OneShot<R>(Shared<R>);

impl<R> From<Shared<R>> for OneShot<R> {
    fn from(settings: Shared<R>) -> Self {
        Self(settings)
    }
}

/// The server's state between two rounds.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// The clients' models, in the order of clients.
    models: Vec<(ClientId, Vec<u8>)>,
    /// The weight of each in the ensemble.
    weights: Vec<f64>,
    pool: Pool,
}

impl State {
    /// Returns the clients that have sent a model.
    fn senders(&self) -> Vec<ClientId> {
        self.models.iter().map(|(id, _)| *id).collect()
    }
}

impl<R: OneShotRule> Protocol for OneShot<R> {
    fn declare(&self) -> Declaration<'_> {
        let of = &self.0.shared;
        let (sampling, shown) = (of.sampling.as_ref(), of.evaluate_clients || of.keep_clients);
        let teacher = TEACHER.spec().lasting_if(shown).published_if(shown);
        let teacher = teacher.trained_by("local", &of.local, (false, 1));
        // the penalty on statistics of batches, a term of the generator's loss, is not there
        let teacher = teacher
            .needs(Ability::InputGradient)
            .needs(Ability::NoBuffers);
        let student = of.student.clips(STUDENT.spec().at_server());
        let student = student.needs(Ability::Loss(self.loss()));
        let models = MODELS.answered_by(|client, _| self.train(client));
        Declaration::new()
            .rounds(of.rounds)
            .grows_by("rounds")
            .measures([Measurement::server(&STUDENT)])
            .measures(of.evaluate_clients.then(|| Measurement::clients(&TEACHER)))
            .measures([CROSS_ENTROPY, DIVERGENCE].map(Measurement::number))
            .slot(dp_sgd::learner(teacher, sampling))
            .slot(&dp_sgd::SLOT)
            .slot(student.needs(Ability::InputGradient))
            .slot(MAKER.spec().at_server())
            .exchange(dp_sgd::declared(
                models.model(&TEACHER),
                sampling,
                &of.local,
            ))
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let (of, mut known) = (&self.0.shared, State::default());
        server.once("models", &mut known, |server, known, round| {
            // one that cannot be read ends the run before it is kept
            let (read, to) = (server.reader(&TEACHER), server.cohort(round, &MODELS)?);
            let readable = |from, models: Models| {
                let [model] = &models.0[..] else {
                    let n = models.0.len();
                    bail!(Problem::Shape(format!("{n} models where one was due")));
                };
                read(from, model).map(|_| models)
            };
            let sent = server.collect_each(round, &MODELS, &to, |_| &Nothing, readable)?;
            let models = sent.iter().map(|mail| (mail.from, mail.body.0[0].clone()));
            known.models = models.collect();
            known.weights = vec![1.0 / known.models.len() as f64; known.models.len()];
            if of.evaluate_clients {
                server.evaluate_clients_of(round, &TEACHER, &known.senders())
            } else {
                Ok(())
            }
        })?;
        let (read, sent) = (server.reader(&TEACHER), known.models.iter());
        let models = sent.map(|(from, model)| Ok((*from, read(*from, model)?)));
        let mut ensemble = Ensemble::new(models.collect::<Result<_>>()?);
        server.rounds(&mut known, |server, known, round| {
            let (made, labels) = self.make(server, round, &mut ensemble, &known.weights)?;
            let (weights, pool) = (&mut known.weights, &mut known.pool);
            let rule = &self.0.own;
            rule.weigh(&mut ensemble, weights, pool, (round, of.student.batch))?;
            pool.add(&made, labels, of.pool);
            let stream = round.stream.child("shift", 0);
            let x = rule.shifted(&mut ensemble, weights, pool.examples()?.0, &stream)?;
            let target = weighted(&ensemble.scores(&x)?, weights).mapv(|z| z as f32);
            let (target, pass) = (Target::Scores(target.view()), of.student.pass(self.loss()));
            server.fit(&STUDENT, &round.stream, &x, target, &pass)?;
            server.evaluate(round, &STUDENT)
        })?;
        if let Some(made) = known.pool.last(SHOWN)? {
            server.keep_images("made", &made)?;
        }
        server.keep_generator(&MAKER)?;
        if of.keep_clients {
            server.keep_clients_of(&TEACHER, &known.senders())?;
        }
        server.keep_model(&STUDENT)
    }

    fn suits(&self, kind: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        match kind {
            TaskKind::Classes(_) => Ok(()),
            _ => Err("a made input has one class out of several".into()),
        }
    }

    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let of = &self.0.shared;
        let sampling = dp_sgd::conflict(has, of.sampling.as_ref(), &of.local);
        let mut all = self.0.own.conflicts(of.adversarial);
        all.extend(sampling);
        all
    }
}

impl<R: OneShotRule> OneShot<R> {
    /// The student's loss.
    fn loss(&self) -> Loss {
        let tau = self.0.shared.temperature;
        Loss::Kl { tau }
    }

    /// Trains a client's model, and returns it.
    fn train(&self, client: &mut Client) -> Result<Models> {
        let of = &self.0.shared;
        if client.has(&dp_sgd::SLOT) {
            dp_sgd::train(client, &TEACHER, of.sampling.as_ref(), (&of.local, 1.0))?;
        } else {
            client.fit_own(&TEACHER, &of.local.pass(client.task().kind.loss()))?;
        }
        Ok(Models(vec![client.model(&TEACHER)?.save()?]))
    }

    /// Trains the generator on one batch of noise and labels. Returns the inputs of the step with
    /// the lowest loss, and the labels.
    fn make(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        ensemble: &mut Ensemble,
        weights: &[f64],
    ) -> Result<(Samples, Vec<u32>)> {
        let (of, rule) = (&self.0.shared, &self.0.own);
        let classes = server.task().kind.classes();
        let mut draws = round.stream.child("labels", 0).draws();
        let labels: Vec<u32> = (0..of.batch).map(|_| draws.below(classes) as u32).collect();
        let settings = (of.adversarial, rule.adversarial_temperature());
        let (mut best, mut sums) = (None, [0.0; 2]);
        for _ in 0..of.steps {
            // the same noise in each step
            let noise = round.stream.child("generator", 0);
            let x = server.generator(&MAKER)?.sample(of.batch, &noise)?;
            let teacher = weighted(&ensemble.scores(&x)?, weights);
            let student = server.model(&STUDENT)?;
            let said = student.predict(&x)?.mapv(f64::from);
            let emphasis = |seen: &Seen| rule.emphasis(seen);
            let loss = generator_loss(&labels, (&teacher, &said), settings, emphasis)?;
            let mut slope = ensemble.slope(weights, &x, &loss.by_ensemble)?;
            if loss.by_student.iter().any(|g| *g != 0.0) {
                let by_student = loss.by_student.mapv(|g| g as f32);
                let student = student.differentiable().with_context(lacks)?;
                slope += &student.vjp(&x, by_student.view())?.mapv(f64::from);
            }
            let slope: Array2<f32> = slope.mapv(|g| g as f32);
            server.generator(&MAKER)?.learn(&x, slope.view())?;
            sums[0] += loss.cross_entropy / of.steps as f64;
            sums[1] += loss.divergence / of.steps as f64;
            let value = loss.cross_entropy - of.adversarial * loss.divergence;
            if best.as_ref().is_none_or(|(lowest, _)| value < *lowest) {
                best = Some((value, x));
            }
        }
        server.record(round, CROSS_ENTROPY, sums[0])?;
        server.record(round, DIVERGENCE, sums[1])?;
        let (_, made) = best.context("the generator takes at least one step")?;
        Ok((made, labels))
    }
}
