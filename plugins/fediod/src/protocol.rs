//! Algorithm 1 of FedIOD (Gong et al. 2023).
use crate::discriminator::{DiscriminatorBatch, by_patch, inputs, odds};
use crate::generator::Batch;
use crate::image_translator::{self, DISCRIMINATOR, MAPS, STUDENT};
use crate::messages::{Answers, ClassCounts, ImagesOfMaps, InputValues, SlopeRequest};
use crate::objective::{ClientAnswers, Objective, Outcome, TrainingTarget};
use crate::report::{self, Report};
use crate::settings::{Game, GenerateAndDistill, GeneratorInput, Mimic, SentCounts, Weights};
use fl_core::loss::{by_class, by_pixel, sigmoid};
use fl_core::prelude::*;
use fl_core::{Length, Problem, TaskKind};
use fl_plugin_dp_sgd as dp_sgd;
use ndarray::{Array, Array1, Array2, Axis, Dimension, s};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Train the teacher, and send the numbers of examples.
pub const TRAIN: Exchange<Nothing, ClassCounts> = Exchange::new("training");
/// Send the teacher's and the discriminator's answers for these made inputs.
pub const ANSWER: Exchange<InputValues, Answers> = Exchange::new("scores of made inputs");
const ANSWER_OF_MAPS: Exchange<ImagesOfMaps, Answers> =
    Exchange::new("scores of inputs made of label maps");
/// The slopes by the inputs of the last [`ANSWER`], from the slopes of a loss by its answers.
pub const SLOPES: Exchange<SlopeRequest, InputValues> = Exchange::new("slopes by made inputs");

const TEACHER: TrainerSlot = TrainerSlot::new(
    "teacher",
    "A client's own model, which does not change any more once it is trained; each may have another.",
);
const ANSWERS_PRIVACY: MechanismSlot<Logits> = MechanismSlot::new(
    "answers-privacy",
    "Noise on a client's answer about a batch: its scores, and the log-odds of its discriminator as one more column.",
);

/// Number of made inputs that a run keeps as a picture.
pub(crate) const SHOWN: usize = 64;

impl Protocol for GenerateAndDistill {
    fn declare(&self) -> Declaration<'_> {
        let steps = self.rounds * self.steps;
        let warming = self.warm_up * self.steps;
        let sampling = self.sampling.as_ref();
        let published = self.evaluate_clients || self.keep_clients;
        let teacher = TEACHER.spec().lasting().published_if(published);
        let teacher = self.local.needs(teacher.needs(Ability::TaskLoss));
        let teacher = teacher.needs(Ability::InputGradient);
        let student = (STUDENT.spec().at_server())
            .needs(Ability::ByStep)
            .needs(Ability::Loss(self.mimic.loss()))
            .needs_if(self.mimic == Mimic::Kl, Ability::SoftTargets)
            .needs_if(self.terms.mimic > 0.0, Ability::InputGradient);
        let student = Training::steps(self.steps * self.student_steps, self.batch).needs(student);
        let mut all = Declaration::new()
            .rounds(self.warm_up + self.rounds)
            .grows_by("rounds")
            .measures([Measurement::server(&STUDENT)])
            .measures(
                self.evaluate_clients
                    .then(|| Measurement::clients(&TEACHER)),
            )
            .measures(report::measures(self))
            .slot(dp_sgd::learner(teacher, sampling))
            .slot(&dp_sgd::SLOT)
            .slot(student)
            .slot(self.maker());
        if self.discriminates() {
            // of the linear game: its target is made in evaluation and learnt in training, which
            // must score alike
            let discriminator = (DISCRIMINATOR.spec().lasting())
                .needs(Ability::ByStep)
                .with_task(self.judges())
                .needs(Ability::InputGradient)
                .needs_if(self.game == Game::Linear, Ability::Loss(Loss::Mse))
                .needs_if(self.game == Game::Linear, Ability::NoBuffers)
                .needs_if(self.game == Game::Linear, Ability::ByGradient);
            let trained = Training::steps(self.steps, self.batch);
            all = all.slot(trained.needs(discriminator));
        }
        let train = TRAIN.answered_by(|client, _| self.train(client));
        let train = match (self.counted(), sampling) {
            (SentCounts::Nothing, None) => train.public(),
            (SentCounts::Nothing, Some(_)) => train,
            // counts bypass the mechanism
            _ => train.partly_if(true),
        };
        let slopes = SLOPES
            .answered_by(|client, wanted| self.differentiate(client, wanted))
            .times(warming + steps)
            .made(self.batch);
        let slopes = self.of_teacher(image_translator::hidden(slopes));
        let all = all
            .exchange_if(self.made_of != GeneratorInput::Noise, || {
                MAPS.answered_by(|client, _| image_translator::own(client))
            })
            .exchange(dp_sgd::declared(train, sampling, &self.local));
        let times = warming + steps * self.student_steps;
        let all = match self.made_of {
            GeneratorInput::Noise => all.exchange(self.answers(
                times,
                ANSWER.answered_by(|client, made| {
                    let (values, of) = (made.values.clone(), Array1::zeros(0));
                    self.say(client, &ImagesOfMaps { values, of })
                }),
            )),
            GeneratorInput::LabelMaps(_) => {
                let answers = ANSWER_OF_MAPS.answered_by(|client, made| self.say(client, made));
                all.exchange(self.answers(times, answers))
            }
        };
        all.exchange(slopes)
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        let mut known = ServerState::default();
        server.once("teachers", &mut known, |server, known, round| {
            if self.made_of != GeneratorInput::Noise {
                known.maps = image_translator::ask(server, round)?;
            }
            let told = server.collect(round, &TRAIN, |_| &Nothing)?;
            let due = self.counted().numbers(server.task());
            for mail in told.iter() {
                let (from, found) = (mail.from, mail.body.counts.len());
                let text = || format!("client {from} sent {found} counts where {due} were due");
                Problem::shape_unless(found == due, text)?;
                known.counts.insert(from, mail.body.counts.to_vec());
            }
            if self.evaluate_clients {
                server.evaluate_clients_of(round, &TEACHER, &known.trained())
            } else {
                Ok(())
            }
        })?;
        let mut last = None;
        server.rounds(&mut known, |server, known, round| {
            let warming = round.number <= self.warm_up;
            let mut report = Report::new(server.task());
            for step in 0..self.steps as u64 {
                let stream = round.stream.child("step", step);
                // the student also learns from batches that the generator does not learn from
                for extra in 1..self.student_steps as u64 {
                    if !warming {
                        let shown =
                            self.show(server, round, known, &stream.child("extra", extra))?;
                        self.teach(server, &shown, &stream.child("extra", extra))?;
                    }
                }
                // a made batch goes down; scores and odds come up; the ensemble weights them by
                // input and class
                let shown = self.show(server, round, known, &stream)?;
                let student = self.student_scores(server, &shown, warming)?;
                let loss = shown
                    .objective
                    .of(&shown.answers, &shown.wanted, &student, warming);
                // slopes of the loss go down, slopes by the batch come up; then the
                // discriminators learn
                let slope = self.slopes(server, round, &shown, &loss)?;
                shown.made.learn(server, slope.view(), &stream)?;
                if !warming {
                    self.teach(server, &shown, &stream)?;
                }
                report.add(&shown.answers, &loss);
            }
            report.record(server, round, self)?;
            last = Some(round.stream.child("picture", 0));
            if warming {
                Ok(())
            } else {
                server.evaluate(round, &STUDENT)
            }
        })?;
        // a budget can end the rounds early, and a resumed run has its picture already
        if let Some(stream) = last {
            let made = self.make(server, SHOWN, &known.maps, &stream)?;
            server.keep_images("made", made.inputs())?;
        }
        self.keep_maker(server)?;
        if self.keep_clients {
            server.keep_clients_of(&TEACHER, &known.trained())?;
        }
        server.keep_model(&STUDENT)
    }

    fn suits(&self, kind: TaskKind, _: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        match (kind, &self.made_of) {
            (TaskKind::MultiLabel(_), _) => {
                Err("the teachers' probabilities are those of one class out of several".into())
            }
            (kind @ (TaskKind::Image { .. } | TaskKind::Numbers { .. }), _) => Err(format!(
                "the teachers' probabilities are those of classes, and these are {kind}; use `one-shot-distill` (FedKD) or `co-distill` (FedMD)"
            )),
            (kind, GeneratorInput::LabelMaps(_)) => image_translator::suits(kind),
            _ => Ok(()),
        }
    }

    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let weighs = matches!(&self.weights, Weights::Importance(i) if i.discriminator);
        let foreign = self.made_of != GeneratorInput::Noise && weighs;
        let text = "label maps lets only the owner of a map judge its image; weigh clients without their discriminators, with `weights: { importance: { discriminator: false } }`, `sizes` or `uniform`";
        let foreign = Conflict::at("made-of", text).when(foreign);
        let alike = "leaves nothing to weigh clients by: set `weights: uniform`, or leave it out";
        let told = Conflict::at("equal-weights", alike);
        let told = told.when(self.equal_weights && self.weights != Weights::Uniform);
        let sampling = dp_sgd::conflict(has, self.sampling.as_ref(), &self.local);
        let mut all: Vec<Conflict> = [foreign, told, sampling].into_iter().flatten().collect();
        all.extend(self.idle());
        all
    }
}
plugin!(protocol "generate-and-distill" => GenerateAndDistill,
    aliases: ["fediod"],
    papers: ["Gong et al. 2023"]);

/// The clients' one-time answers, kept by the server.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct ServerState {
    /// The numbers of examples of each client with a teacher, see [`ClassCounts`].
    counts: BTreeMap<ClientId, Vec<u32>>,
    /// Label maps, if inputs are made from them.
    pub maps: image_translator::ServerState,
}

impl ServerState {
    /// Returns the clients with a teacher, ascending.
    fn trained(&self) -> Vec<ClientId> {
        self.counts.keys().copied().collect()
    }
}

/// One batch, with the clients' answers.
struct BatchWithAnswers<'a> {
    made: Batch,
    /// The clients that answered, in order.
    by: Cohort,
    answers: ClientAnswers,
    objective: Objective<'a>,
    wanted: TrainingTarget,
}

fn wide(values: &Array2<f32>) -> Array2<f64> {
    values.mapv(f64::from)
}

fn narrow<D: Dimension>(values: &Array<f64, D>) -> Array<f32, D> {
    values.mapv(|x| x as f32)
}

/// The server's side.
impl GenerateAndDistill {
    /// Makes a batch and requests all clients' answers.
    fn show(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        known: &ServerState,
        stream: &Stream,
    ) -> Result<BatchWithAnswers<'_>> {
        let made = self.make(
            server,
            self.batch,
            &known.maps,
            &stream.child("generator", 0),
        )?;
        let values = made.inputs().values();
        let trained = known.trained();
        let told = match &made {
            Batch::OfNoise(_) => {
                let sent = InputValues { values };
                server.collect_from(round, &ANSWER, &trained, |_| &sent)?
            }
            Batch::OfMaps(_, whose) => {
                let sent = trained.iter().map(|id| {
                    let of = whose.iter().map(|(whose, row)| {
                        if whose == id {
                            *row
                        } else {
                            ImagesOfMaps::ANOTHERS
                        }
                    });
                    let values = values.clone();
                    (
                        *id,
                        ImagesOfMaps {
                            values,
                            of: of.collect(),
                        },
                    )
                });
                let sent: BTreeMap<ClientId, ImagesOfMaps> = sent.collect();
                server.collect_from(round, &ANSWER_OF_MAPS, &trained, |id| &sent[&id])?
            }
        };
        let kind = server.task().kind;
        let wanted = (self.batch, kind.outputs());
        let (mut answers, mut by) = (ClientAnswers::default(), Vec::new());
        for mail in told.iter() {
            let (from, found) = (mail.from, mail.body.scores.dim());
            let text =
                || format!("client {from} sent scores of {found:?} where {wanted:?} were due");
            Problem::shape_unless(found == wanted, text)?;
            by.push(from);
            answers
                .scores
                .push(by_pixel(kind.classes(), wide(&mail.body.scores).view()));
            if self.discriminates() {
                let text = || format!("client {from} has sent no odds");
                let real = *mail.body.real.first().with_context(text)?;
                // the discriminator does not judge this input, so there is no loss against it
                let odds = mail.body.odds.indexed_iter().map(|(at, odds)| {
                    if made.judged_by(from, at) {
                        f64::from(*odds)
                    } else {
                        f64::NEG_INFINITY
                    }
                });
                answers.odds.push(odds.collect());
                answers.real.push(f64::from(real));
            }
        }
        let counts: Vec<_> = by.iter().map(|id| known.counts[id].clone()).collect();
        let objective = Objective::new(self, &counts);
        let wanted = objective.wanted(&answers);
        Ok(BatchWithAnswers {
            made,
            by: Cohort::everyone(by),
            answers,
            objective,
            wanted,
        })
    }

    /// Returns the student's scores of a batch, if the generator uses them; else none.
    fn student_scores(
        &self,
        server: &mut Server<'_>,
        shown: &BatchWithAnswers<'_>,
        warming: bool,
    ) -> Result<Array2<f64>> {
        if self.terms.mimic > 0.0 && !warming {
            let classes = server.task().kind.classes();
            let scores = wide(&server.model(&STUDENT)?.predict(shown.made.inputs())?);
            Ok(by_pixel(classes, scores.view()))
        } else {
            Ok(Array2::zeros((0, 0)))
        }
    }

    /// Returns the slope of the generator's loss by each number of the batch, through every
    /// client's models and through the student.
    fn slopes(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        shown: &BatchWithAnswers<'_>,
        loss: &Outcome,
    ) -> Result<Array2<f32>> {
        let linear = self.discriminates() && self.game == Game::Linear;
        let wanted = shown.by.iter().enumerate().map(|(k, id)| {
            let wanted = SlopeRequest {
                scores: narrow(&by_class(self.batch, loss.by_scores[k].view())),
                odds: loss.by_odds.get(k).map_or_else(|| Array1::zeros(0), narrow),
                share: Array1::from_elem(usize::from(linear), shown.objective.share(k) as f32),
            };
            (*id, wanted)
        });
        let wanted: BTreeMap<ClientId, SlopeRequest> = wanted.collect();
        let answers = server.collect_from(round, &SLOPES, &shown.by, |id| &wanted[&id])?;
        let made = shown.made.inputs();
        let dim = (made.len(), made.width());
        let mut sum = Array2::<f64>::zeros(dim);
        for mail in answers.iter() {
            let (from, found) = (mail.from, mail.body.values.dim());
            let text = || format!("client {from} sent slopes of {found:?} where {dim:?} were due");
            Problem::shape_unless(found == dim, text)?;
            sum += &wide(&mail.body.values);
        }
        if loss.by_student.iter().any(|g| *g != 0.0) {
            let lacks = || {
                Problem::Lacks("parts.student: this trainer cannot be differentiated by its input; use a neural trainer, or `terms.mimic: 0`".into())
            };
            let student = server
                .model(&STUDENT)?
                .differentiable()
                .with_context(lacks)?;
            let slope = narrow(&by_class(self.batch, loss.by_student.view()));
            sum += &wide(&student.vjp(made, slope.view())?);
        }
        Ok(narrow(&sum))
    }

    /// Trains the student for one step towards the ensemble.
    fn teach(
        &self,
        server: &mut Server<'_>,
        shown: &BatchWithAnswers<'_>,
        stream: &Stream,
    ) -> Result<()> {
        let target = narrow(&by_class(self.batch, shown.wanted.target.view()));
        let target = match self.mimic {
            Mimic::Kl => Target::Soft(target.view()),
            _ => Target::Scores(target.view()),
        };
        let pass = FitOptions::new(Length::Steps(1), self.batch, self.mimic.loss());
        server.fit(&STUDENT, stream, shown.made.inputs(), target, &pass)
    }
}

/// The client's side.
impl GenerateAndDistill {
    /// Declares the answers to made inputs.
    fn answers<'p, D: Message>(
        &self,
        times: usize,
        answers: Declared<'p, D, Answers>,
    ) -> Declared<'p, D, Answers> {
        let answers = answers.times(times).made(self.batch);
        self.of_teacher(answers.releases_as(
            &ANSWERS_PRIVACY,
            |_, answers| answers.joined(),
            |_, answers, released| Ok(answers.parted(released)),
        ))
    }

    /// Declares the privacy of the teacher, which is post-processing of its training. The
    /// discriminator's values of real inputs bypass every mechanism.
    fn of_teacher<'p, D: Message, U: Message>(
        &self,
        exchange: Declared<'p, D, U>,
    ) -> Declared<'p, D, U> {
        if self.discriminates() {
            exchange.partly_if(true)
        } else {
            exchange.learnt_through(&dp_sgd::SLOT)
        }
    }

    fn train(&self, client: &mut Client) -> Result<ClassCounts> {
        if client.has(&dp_sgd::SLOT) {
            dp_sgd::train(client, &TEACHER, self.sampling.as_ref(), (&self.local, 1.0))?
        } else {
            client.fit_own(&TEACHER, &self.local.pass(Loss::CrossEntropy))?;
        }
        let counts = match self.counted() {
            SentCounts::Classes => client.own().class_counts(),
            SentCounts::Examples => vec![client.own().len() as u32],
            SentCounts::Nothing => Vec::new(),
        };
        Ok(ClassCounts {
            counts: counts.into(),
        })
    }

    /// Returns the answers of teacher and discriminator for a batch. Keeps the batch for the next
    /// request.
    fn say(&self, client: &mut Client, made: &ImagesOfMaps) -> Result<Answers> {
        let x = inputs(&made.values, client.task())?;
        client.stash("batch", made);
        let scores = client.model(&TEACHER)?.predict(&x)?;
        let (mut each, mut mean) = (Array1::zeros(0), Array1::zeros(0));
        if self.discriminates() {
            let judged = self.judged(client, made, &client.stream("real"))?;
            (each, mean) = (Array1::zeros(x.len()), Array1::zeros(1));
            if !judged.rows.is_empty() {
                let judge = client.model(&DISCRIMINATOR)?;
                let of_made = odds(judge.predict(&judged.made)?.view());
                for (row, odds) in judged.rows.iter().zip(of_made) {
                    each[*row] = odds as f32;
                }
                let of_real = odds(judge.predict(&judged.real)?.view()).mapv(sigmoid);
                mean[0] = of_real.mean().unwrap_or_default() as f32;
            }
        }
        Ok(Answers::new(scores, each, mean))
    }

    /// Returns the inputs of a batch that this client's discriminator sees.
    fn judged(
        &self,
        client: &Client,
        made: &ImagesOfMaps,
        stream: &Stream,
    ) -> Result<DiscriminatorBatch> {
        match self.made_of {
            GeneratorInput::Noise => Ok(DiscriminatorBatch::all(
                client,
                inputs(&made.values, client.task())?,
                stream,
            )),
            GeneratorInput::LabelMaps(_) => DiscriminatorBatch::pairs(client, made),
        }
    }

    /// Converts the slopes by the answers to those by the batch. Then the discriminator learns from
    /// it.
    fn differentiate(&self, client: &mut Client, wanted: &SlopeRequest) -> Result<InputValues> {
        let made: ImagesOfMaps = client.unstash("batch")?.context("it was shown no batch")?;
        let x = inputs(&made.values, client.task())?;
        let mut slope = client
            .differentiable(&TEACHER)?
            .vjp(&x, wanted.scores.view())?;
        Problem::shape_unless(
            wanted.odds.len() == if self.discriminates() { x.len() } else { 0 },
            || "slopes by odds of another batch".into(),
        )?;
        let judged = if self.discriminates() {
            Some(self.judged(client, &made, &client.stream("real"))?)
        } else {
            None
        };
        if let Some(DiscriminatorBatch {
            rows, made: shown, ..
        }) = judged.filter(|of| !of.rows.is_empty())
        {
            let scores = client.model(&DISCRIMINATOR)?.predict(&shown)?;
            let by_odds = wanted.odds.select(Axis(0), &rows);
            let by_scores = by_patch(scores.view(), by_odds.view());
            let by_shown = client
                .differentiable(&DISCRIMINATOR)?
                .vjp(&shown, by_scores.view())?;
            for (row, by) in rows.iter().zip(by_shown.rows()) {
                let mut slope = slope.row_mut(*row);
                slope += &by.slice(s![..x.width()]);
            }
            let share = wanted.share.first().copied().map_or(1.0, f64::from);
            let parts = (self.patches.task())(client.task()).kind.outputs();
            for step in 0..self.discriminator_steps as u64 {
                let stream = client.stream(&DISCRIMINATOR).child("step", step);
                let judged = self.judged(client, &made, &stream)?;
                let model = client.model(&DISCRIMINATOR)?;
                match self.game {
                    Game::NonSaturating => judged.train(model, parts, &stream)?,
                    Game::Linear => judged.train_linearly(model, share, &stream)?,
                }
            }
        }
        Ok(InputValues { values: slope })
    }
}
