//! Algorithm 1 of FedIOD (Gong et al. 2023).
use crate::adversary::{by_patch, inputs, odds, real};
use crate::messages::{Answers, ClassCounts, InputValues, SlopesWanted};
use crate::objective::{Objective, Outcome, Said, Wanted};
use crate::report::Report;
use crate::settings::{Counted, Game, GenerateAndDistill, Mimic};
use fl_core::loss::sigmoid;
use fl_core::prelude::*;
use fl_core::{Length, Problem, TaskKind};
use ndarray::{Array1, Array2, ArrayD, Axis, Ix2};
use std::collections::BTreeMap;

/// Train the teacher, and say how much there is of what.
pub const TRAIN: Ask<Nothing, ClassCounts> = Ask::new("training");
/// Say of these made inputs what teacher and discriminator make of them.
pub const ANSWER: Ask<InputValues, Answers> = Ask::new("scores of made inputs");
/// The slopes by the inputs of the last [`ANSWER`], of a loss that has these slopes by what was said.
pub const SLOPES: Ask<SlopesWanted, InputValues> = Ask::new("slopes by made inputs");

/// Made inputs that a run keeps for people to look at.
const SHOWN: usize = 64;

impl Protocol for GenerateAndDistill {
    fn lead(&self, fed: &mut Federation<'_>) -> Result<()> {
        let classes = matches!(fed.task().kind, TaskKind::Classes(_));
        let text = "the teachers' probabilities are those of one class out of several; this task has several labels at once";
        ensure!(classes, Problem::Lacks(text.into()));
        let everyone = fed.everyone();
        let mut counts = BTreeMap::new();
        fed.once("teachers", &mut counts, |fed, counts, round| {
            let told = fed.ask(round, &TRAIN, &everyone, |_| &Nothing)?;
            let due = self.counted().numbers(fed.task());
            for mail in told.iter() {
                let (from, found) = (mail.from, mail.body.counts.len());
                let text = || format!("client {from} sent {found} counts where {due} were due");
                ensure!(found == due, Problem::Shape(text()));
                counts.insert(from, mail.body.counts.to_vec());
            }
            match self.evaluate_clients {
                true => fed.evaluate_clients(round, "teacher"),
                false => Ok(()),
            }
        })?;
        fed.rounds(
            self.warm_up + self.rounds,
            &mut counts,
            |fed, counts, round| {
                let warming = round.number <= self.warm_up;
                let mut report = Report::default();
                for step in 0..self.steps as u64 {
                    let stream = round.stream.child("step", step);
                    // the student also learns from batches that the generator does not learn from
                    for extra in 1..self.student_steps as u64 {
                        if !warming {
                            let shown =
                                self.show(fed, round, counts, &stream.child("extra", extra))?;
                            self.teach(fed, &shown, &stream.child("extra", extra))?;
                        }
                    }
                    // a made batch goes down; scores and odds come up; the ensemble weighs them by input and class
                    let shown = self.show(fed, round, counts, &stream)?;
                    let student = self.student_scores(fed, &shown, warming)?;
                    let loss = shown
                        .objective
                        .of(&shown.said, &shown.wanted, &student, warming);
                    // slopes of the loss go down, slopes by the batch come up; the discriminators learn there
                    let slope = self.slopes(fed, round, &shown, &loss)?;
                    fed.generator("generator")?
                        .learn(&shown.made, slope.view())?;
                    if !warming {
                        self.teach(fed, &shown, &stream)?;
                    }
                    report.add(&shown.said, &loss);
                }
                report.record(fed, round, self)?;
                if round.number == self.warm_up + self.rounds {
                    let stream = round.stream.child("picture", 0);
                    let made = fed.generator("generator")?.sample(SHOWN, &stream)?;
                    fed.keep_images("made", &made)?;
                }
                match warming {
                    true => Ok(()),
                    false => fed.evaluate(round, "student"),
                }
            },
        )?;
        fed.keep_generator("generator")?;
        fed.keep_model("student")
    }

    fn answer(&self, me: &mut Client, question: Question<'_>) -> Result<Answer> {
        question
            .on(&TRAIN, me, |me, _| {
                me.fit_own("teacher", &self.local.pass(Loss::CrossEntropy))?;
                let counts = match self.counted() {
                    Counted::Classes => me.own().class_counts(),
                    Counted::Examples => vec![me.own().len() as u32],
                    Counted::Nothing => Vec::new(),
                };
                Ok(ClassCounts {
                    counts: counts.into(),
                })
            })
            .on(&ANSWER, me, |me, made| self.say(me, made))
            .on(&SLOPES, me, |me, wanted| self.differentiate(me, wanted))
            .end()
    }

    fn slots(&self) -> Vec<Slot> {
        let mut student = Slot::trainer("student", "The server's model.")
            .at_server()
            .needs(Ability::Loss(self.mimic.loss()));
        if self.terms.mimic > 0.0 {
            student = student.needs(Ability::InputGradient);
        }
        let mut slots = vec![
            Slot::trainer("teacher", "A client's own model, which does not change any more once it is trained; each may have another.")
                .lasting()
                .shown_if(self.evaluate_clients)
                .needs(Ability::InputGradient),
            student,
            Slot::generator("generator", "Makes the inputs, at the server.").at_server(),
        ];
        if self.discriminates() {
            let mut discriminator = Slot::trainer(
                "discriminator",
                "A client's judge of inputs: are they made? Each may have another.",
            )
            .lasting()
            .with_task(self.patches.task())
            .needs(Ability::InputGradient);
            if self.game == Game::Linear {
                discriminator = discriminator.needs(Ability::Loss(Loss::Mse));
            }
            slots.push(discriminator);
        }
        slots.extend([
            Slot::privacy::<Logits>(
                "answers-privacy",
                "Noise on what a client says of a batch: its scores, and the log-odds of its discriminator as one more column.",
            )
            .optional(),
            Slot::privacy::<Params>(
                "slopes-privacy",
                "Bounds and hides the slopes by a batch that leave a client, as one tensor `inputs`.",
            )
            .optional(),
            Slot::accountant(),
        ]);
        slots
    }

    fn questions(&self) -> Vec<Asked> {
        let steps = self.rounds * self.steps;
        let warming = self.warm_up * self.steps;
        let trained = match self.counted() {
            Counted::Nothing => TRAIN.asked().public(),
            _ => TRAIN.asked(),
        };
        let answered = ANSWER
            .asked()
            .times(warming + steps * self.student_steps)
            .made(self.batch)
            .releases("answers-privacy");
        let differentiated = SLOPES.asked().times(warming + steps).made(self.batch);
        vec![
            trained,
            match self.discriminates() {
                // what the discriminator makes of real inputs goes beside the mechanism
                true => answered.partly(),
                false => answered,
            },
            differentiated.releases("slopes-privacy"),
        ]
    }
}
plugin!(protocol "generate-and-distill" => GenerateAndDistill);

/// One batch, and what was said of it.
struct Shown<'a> {
    made: Samples,
    /// Who said it, in order.
    by: Cohort,
    said: Said,
    objective: Objective<'a>,
    wanted: Wanted,
}

fn wide(values: &Array2<f32>) -> Array2<f64> {
    values.mapv(f64::from)
}

/// The server's side.
impl GenerateAndDistill {
    /// Makes a batch and asks all clients about it.
    fn show(
        &self,
        fed: &mut Federation<'_>,
        round: &Round,
        counts: &BTreeMap<ClientId, Vec<u32>>,
        stream: &Stream,
    ) -> Result<Shown<'_>> {
        let made = fed
            .generator("generator")?
            .sample(self.batch, &stream.child("generator", 0))?;
        let sent = InputValues {
            values: made.values(),
        };
        let trained = Cohort::everyone(counts.keys().copied().collect());
        let told = fed.ask(round, &ANSWER, &trained, |_| &sent)?;
        let wanted = (self.batch, fed.task().kind.outputs());
        let (mut said, mut by) = (Said::default(), Vec::new());
        for mail in told.iter() {
            let (from, found) = (mail.from, mail.body.scores.dim());
            let text =
                || format!("client {from} sent scores of {found:?} where {wanted:?} were due");
            ensure!(found == wanted, Problem::Shape(text()));
            by.push(from);
            said.scores.push(wide(&mail.body.scores));
            if self.discriminates() {
                let text = || format!("client {from} has sent no odds");
                let real = *mail.body.real.first().with_context(text)?;
                said.odds.push(mail.body.odds.mapv(f64::from));
                said.real.push(f64::from(real));
            }
        }
        let counts: Vec<_> = by.iter().map(|id| counts[id].clone()).collect();
        let objective = Objective::new(self, &counts);
        let wanted = objective.wanted(&said);
        Ok(Shown {
            made,
            by: Cohort::everyone(by),
            said,
            objective,
            wanted,
        })
    }

    /// What the student says of a batch, if the generator asks; else nothing.
    fn student_scores(
        &self,
        fed: &mut Federation<'_>,
        shown: &Shown<'_>,
        warming: bool,
    ) -> Result<Array2<f64>> {
        match self.terms.mimic > 0.0 && !warming {
            true => Ok(wide(&fed.model("student")?.predict(&shown.made)?)),
            false => Ok(Array2::zeros((0, 0))),
        }
    }

    /// The slope of the generator's loss by each number of the batch: through every client's models, and through the student.
    fn slopes(
        &self,
        fed: &mut Federation<'_>,
        round: &Round,
        shown: &Shown<'_>,
        loss: &Outcome,
    ) -> Result<Array2<f32>> {
        let linear = self.discriminates() && self.game == Game::Linear;
        let wanted = shown.by.iter().enumerate().map(|(k, id)| {
            let wanted = SlopesWanted {
                scores: loss.by_scores[k].mapv(|g| g as f32),
                odds: loss
                    .by_odds
                    .get(k)
                    .map_or_else(|| Array1::zeros(0), |g| g.mapv(|g| g as f32)),
                share: Array1::from_elem(usize::from(linear), shown.objective.share(k) as f32),
            };
            (*id, wanted)
        });
        let wanted: BTreeMap<ClientId, SlopesWanted> = wanted.collect();
        let answers = fed.ask(round, &SLOPES, &shown.by, |id| &wanted[&id])?;
        let dim = (shown.made.len(), shown.made.width());
        let mut sum = Array2::<f64>::zeros(dim);
        for mail in answers.iter() {
            let (from, found) = (mail.from, mail.body.values.dim());
            let text = || format!("client {from} sent slopes of {found:?} where {dim:?} were due");
            ensure!(found == dim, Problem::Shape(text()));
            sum += &wide(&mail.body.values);
        }
        if loss.by_student.iter().any(|g| *g != 0.0) {
            let lacks = || {
                Problem::Lacks("parts.student: this trainer cannot be differentiated by its input; use a neural trainer, or `terms.mimic: 0`".into())
            };
            let student = fed.model("student")?.differentiable().with_context(lacks)?;
            let slope = loss.by_student.mapv(|g| g as f32);
            sum += &wide(&student.vjp(&shown.made, slope.view())?);
        }
        Ok(sum.mapv(|g| g as f32))
    }

    /// The student takes a step towards the ensemble.
    fn teach(&self, fed: &mut Federation<'_>, shown: &Shown<'_>, stream: &Stream) -> Result<()> {
        let target = shown.wanted.target.mapv(|t| t as f32);
        let target = match self.mimic {
            Mimic::Kl => Target::Soft(target.view()),
            _ => Target::Scores(target.view()),
        };
        let pass = Pass::new(Length::Steps(1), self.batch, self.mimic.loss());
        fed.fit("student", stream, &shown.made, target, &pass)
    }
}

/// The client's side.
impl GenerateAndDistill {
    /// What teacher and discriminator say of a batch, which is kept for the question that follows.
    fn say(&self, me: &mut Client, made: &InputValues) -> Result<Answers> {
        let x = inputs(&made.values, me.task())?;
        me.stash("batch", made);
        let mut scores = me.model("teacher")?.predict(&x)?;
        let (mut said, mut mean) = (Array1::zeros(0), Array1::zeros(0));
        if self.discriminates() {
            let real = real(me, x.len(), &me.stream("real"));
            let judge = me.model("discriminator")?;
            said = odds(judge.predict(&x)?.view()).mapv(|o| o as f32);
            let of_real = odds(judge.predict(&real)?.view()).mapv(sigmoid);
            mean = Array1::from_elem(1, of_real.mean().unwrap_or_default() as f32);
        }
        if me.has("answers-privacy") {
            let column = said.view().insert_axis(Axis(1));
            let all = match said.is_empty() {
                true => scores,
                false => ndarray::concatenate(Axis(1), &[scores.view(), column])?,
            };
            let mut released = Logits::new((0..x.len() as u32).collect(), all);
            me.release("answers-privacy", &mut released)?;
            scores = released.values;
            if !said.is_empty() {
                let last = scores.ncols() - 1;
                said = scores.column(last).to_owned();
                scores.remove_index(Axis(1), last);
            }
        }
        Ok(Answers {
            scores,
            odds: said,
            real: mean,
        })
    }

    /// From the slopes by what it said to those by the batch; then the discriminator learns from it.
    fn differentiate(&self, me: &mut Client, wanted: &SlopesWanted) -> Result<InputValues> {
        let made: InputValues = me.unstash("batch")?.context("it was shown no batch")?;
        let x = inputs(&made.values, me.task())?;
        let mut slope = me
            .differentiable("teacher")?
            .vjp(&x, wanted.scores.view())?;
        if self.discriminates() {
            let scores = me.model("discriminator")?.predict(&x)?;
            ensure!(
                wanted.odds.len() == x.len(),
                Problem::Shape("slopes by odds of another batch".into())
            );
            let by_scores = by_patch(scores.view(), wanted.odds.view());
            slope += &me
                .differentiable("discriminator")?
                .vjp(&x, by_scores.view())?;
            let share = wanted.share.first().copied().map_or(1.0, f64::from);
            for step in 0..self.discriminator_steps as u64 {
                let stream = me.stream("discriminator").child("step", step);
                self.discriminate(me, &x, share, &stream)?;
            }
        }
        if me.has("slopes-privacy") {
            let mut released = Params([("inputs".to_string(), slope.into_dyn())].into());
            me.release("slopes-privacy", &mut released)?;
            let all: ArrayD<f32> = released
                .0
                .remove("inputs")
                .context("the mechanism lost its tensor")?;
            slope = all.into_dimensionality::<Ix2>()?;
        }
        Ok(InputValues { values: slope })
    }
}
