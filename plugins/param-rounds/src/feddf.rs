//! FedDF: ensemble distillation at the server (Lin et al. 2020, algorithm 1).
use crate::rounds::{Family, InRound, RoundRule, Rounds, Shared};
use crate::slots::{MODEL, TRAIN};
use fl_core::prelude::*;
use fl_core::settings::between;
use fl_core::{Length, loss};
use ndarray::{Array2, ArrayView2, Axis};

choices! {
    /// How the clients' models form a teacher.
    pub enum TeacherOf {
        /// The softmax of the mean of their scores (FedDF).
        MeanScores = "mean-scores",
        /// The mean of their probabilities.
        MeanProbabilities = "mean-probabilities",
    }
}

/// The share of the public samples to validate on, if none is given.
const VALIDATION: f64 = 0.1;

settings! {
    /// FedAvg whose server's model starts at the combined parameters and learns from the ensemble
    /// of the clients' models on the public samples (FedDF, Lin et al. 2020).
    pub struct FedDf {
        /// The server's training in one round, with a fresh optimiser. FedDF: Adam 0.001, batch
        /// 128, at most 10,000 steps.
        training: Training = Training::steps(1000, 128);
        /// Temperature of the teachers' probabilities.
        temperature: f64 = 1.0, in above(0.0);
        /// How the clients' models form a teacher.
        teacher: TeacherOf = TeacherOf::MeanScores;
        /// Stop after this many mini-batches in a row without an improvement on the validation
        /// samples, and keep the best parameters. It validates ten times within as many, and after
        /// each draws mini-batches from all samples anew. FedDF: 1,000. Default: train to the end.
        patience: Option<usize> = None, in 1..;
        /// With `patience`: the share of the public samples that the server validates on and does
        /// not learn from, at least one. The validation loss is the cross-entropy to the teacher,
        /// so no labels are needed; FedDF validates on labelled data.
        validation: f64 = VALIDATION, in between(0.0, 1.0);
    }
}

/// Number of validations within the patience.
const LOOKS: usize = 10;

/// Returns probabilities (`samples x classes`) from the scores of several models for the same
/// samples, all models weighted equally.
pub fn teacher<T: Into<f64> + Copy>(
    models: &[ArrayView2<'_, T>],
    how: &TeacherOf,
    tau: f64,
) -> Array2<f64> {
    let mut sum = Array2::<f64>::zeros(models.first().map_or((0, 0), |m| m.dim()));
    for scores in models {
        for (mut sum, scores) in sum.rows_mut().into_iter().zip(scores.rows()) {
            let mut row: Vec<f64> = scores.iter().map(|v| (*v).into()).collect();
            if *how == TeacherOf::MeanProbabilities {
                loss::softmax(&mut row, tau);
            }
            sum.iter_mut().zip(row).for_each(|(s, v)| *s += v);
        }
    }
    sum.mapv_inplace(|s| s / models.len() as f64);
    if *how == TeacherOf::MeanScores {
        for mut row in sum.rows_mut() {
            let mut wide = row.to_vec();
            loss::softmax(&mut wide, tau);
            row.iter_mut().zip(wide).for_each(|(r, p)| *r = p);
        }
    }
    sum
}

impl RoundRule for FedDf {
    type State = ();
    const USES_WHOLE_MODELS: bool = true;

    fn declare<'p>(&'p self, family: Family<'p>, all: Declaration<'p>) -> Declaration<'p> {
        let steps = self.patience.map(|_| Measurement::number("fuse.steps"));
        all.exchange(family.trains(self)).measures(steps)
    }

    fn round(&self, run: InRound<'_, '_, Self::State>) -> Result<()> {
        let (server, round, model) = (run.server, run.round, run.model);
        let sent = server.collect(round, &TRAIN, |_| &*model)?;
        let shown = round.showing(model.clone());
        let mean = server.aggregate(&TRAIN, &shown, &sent)?;
        *model = self.distil(server, round, &sent, &mean)?;
        Ok(())
    }

    fn conflicts(&self, _: Family<'_>, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let alone = Conflict::between(
            "FedDF learns from public samples, and there are none: set `data.public`",
        );
        let idle = Conflict::at(
            "validation",
            "has no effect without `patience`: give that, or leave `validation` out",
        );
        [
            alone.when(!has("data.public")),
            idle.when(self.patience.is_none() && self.validation != VALIDATION),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn data_conflicts(&self, facts: &DataFacts<'_>) -> Vec<Conflict> {
        let few = "validates on public samples and learns from others, and there is at most 1: ask for more in `data.public`, or leave `patience` out";
        let few = Conflict::at("patience", few);
        let few = few.when(self.patience.is_some() && facts.public == Some(1));
        few.into_iter().collect()
    }

    fn model(&self, slot: SlotSpec) -> SlotSpec {
        // with patience it validates after some steps
        let slot = slot.needs_if(self.patience.is_some(), Ability::ByStep);
        self.training.needs(slot.needs(Ability::SoftTargets))
    }

    fn suits_without_classes(&self) -> std::result::Result<(), String> {
        Err("FedDF takes the mean of class probabilities of whole inputs; use `fedavg`".into())
    }
}
plugin!(protocol "feddf" => Shared<FedDf> as Rounds<FedDf>, papers: ["Lin et al. 2020"]);

impl FedDf {
    /// Returns the server's parameters after it has learnt from the models `sent`, starting at
    /// `mean`.
    fn distil(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        sent: &Inbox<Params>,
        mean: &Params,
    ) -> Result<Params> {
        let public = server.public()?;
        let mut scores = Vec::with_capacity(sent.len());
        for mail in sent.iter() {
            server.parametric(&MODEL)?.set_params(&mail.body)?;
            scores.push(server.model(&MODEL)?.predict(public.samples())?);
        }
        let views: Vec<ArrayView2<'_, f32>> = scores.iter().map(|s| s.view()).collect();
        let target = teacher(&views, &self.teacher, self.temperature).mapv(|p| p as f32);
        server.parametric(&MODEL)?.set_params(mean)?;
        self.learn(server, round, public.samples(), target.view())?;
        Ok(server.parametric(&MODEL)?.params())
    }

    fn learn(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        x: &Samples,
        target: ArrayView2<'_, f32>,
    ) -> Result<()> {
        let stream = round.stream.child("fuse", 0);
        let pass = FitOptions {
            fresh: true,
            ..self.training.pass(Loss::CrossEntropy)
        };
        let Some(patience) = self.patience else {
            return server.fit(&MODEL, &stream, x, Target::Soft(target), &pass);
        };
        ensure!(x.len() > 1, "`patience` needs at least two public samples");
        let held = (x.len() as f64 * self.validation).round() as usize;
        let mut order = stream.child("validation", 0).draws().permutation(x.len());
        let learnt = order.split_off(held.clamp(1, x.len() - 1));
        let part = |rows: &[usize]| (x.pick(rows), target.select(Axis(0), rows));
        let ((held, aim), (x, target)) = (part(&order), part(&learnt));
        let cost = |server: &mut Server<'_>| -> Result<f64> {
            let scores = server.model(&MODEL)?.predict(&held)?;
            let aim = Target::Soft(aim.view());
            Ok(loss::of_batch(Loss::CrossEntropy, aim, scores.view())?.0)
        };
        let all = pass.steps(x.len());
        let (mut lowest, mut at, mut done) = (cost(server)?, 0, 0);
        let mut best = server.parametric(&MODEL)?.params();
        while done < all && done - at < patience {
            let steps = patience.div_ceil(LOOKS).min(all - done);
            let next = FitOptions {
                length: Length::Steps(steps),
                fresh: done == 0,
                ..pass.clone()
            };
            let stream = stream.child("from step", done as u64);
            server.fit(&MODEL, &stream, &x, Target::Soft(target.view()), &next)?;
            done += steps;
            let now = cost(server)?;
            if now < lowest {
                (lowest, at, best) = (now, done, server.parametric(&MODEL)?.params());
            }
        }
        server.record(round, "fuse.steps", done as f64)?;
        server.parametric(&MODEL)?.set_params(&best)
    }
}
