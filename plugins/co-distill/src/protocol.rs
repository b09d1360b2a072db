//! The conversation of federated distillation.
use crate::taught::{Taught, one_hot, votes};
use fl_core::message::{ClassMeans, Mask, SoftLabels, Votes, softmax};
use fl_core::prelude::*;
use fl_core::settings::above;
use fl_core::{Examples, Labels as Classes, metrics};
use ndarray::Array2;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

choices! {
    /// What clients say.
    pub enum Labels {
        /// Class probabilities of public samples.
        Soft = "soft",
        /// The most probable class of each public sample: `ceil(log2(classes))` bits.
        Hard = "hard",
        /// Raw scores of public samples (FedMD).
        Scores = "scores",
        /// The mean output over their own examples of each class; no public data are needed (FKD, PLS).
        ClassMeans = "class-means",
    }
}

choices! {
    /// What the server sends back about a sample.
    pub enum Reply {
        /// What the ensemble gives: probabilities, shares of votes, or scores.
        Ensemble = "ensemble",
        /// Its most probable class only.
        Hard = "hard",
    }
}

choices! {
    /// In which order a client learns from its own examples and from the others.
    pub enum Order {
        /// Its own first, after it has labelled (Selective-FD).
        OwnFirst = "own-first",
        /// Its own before it labels (the published code of Selective-FD).
        OwnBeforeLabels = "own-before-labels",
        /// What the others say first (FedMD: digest, then revisit).
        PublicFirst = "public-first",
        /// Step by step in turns, every mini-batch drawn anew (our reading of Cronus, which trains on both together).
        Turns = "turns",
    }
}

choices! {
    /// What the client-side filter sees of a sample.
    pub enum FilterOn {
        /// The sample itself. The filter is fitted and asked once, before round 1.
        Inputs = "inputs",
        /// The layer before the last of the client's model after its warm-up. Fitted and asked once, before round 1.
        Features = "features",
        /// The scores that the client's model gives it. Fitted and asked anew in every round.
        Scores = "scores",
    }
}

choices! {
    /// How scores are imitated, with `labels: scores`.
    pub enum ScoreLoss {
        /// Mean absolute error (the published code of FedMD).
        Mae = "mae",
        /// Mean squared error.
        Mse = "mse",
        /// Kullback-Leibler divergence at this temperature, times its square.
        Kl(f64, in above(0.0)) = "kl",
    }
}

choices! {
    /// Who teaches the clients.
    pub enum Teacher {
        /// The ensemble of their labels.
        Ensemble = "ensemble",
        /// The server's student, once it has learnt from the ensemble in this round (FedED).
        Student = "student",
    }
}

settings! {
    /// Clients label public samples, the server combines the labels, and everybody learns from them, round after round:
    /// Selective-FD (Shao et al. 2024), FedMD (Li and Wang 2019), FedED (Sui et al. 2020), DS-FL (Itahara et al. 2020), Cronus
    /// (Chang et al. 2019), and without public samples FKD (Jeong et al. 2018) and PLS.
    #[check(CoDistill::consistent)]
    pub struct CoDistill {
        /// Rounds. Selective-FD's published code: 20,000; FedMD: 20.
        rounds: usize = 200, in 1..=1_000_000;
        /// Training on the labelled public samples before anything else (FedMD). Default: none.
        pretrain: Option<Training> = None;
        /// A client's training on its own examples before round 1. Selective-FD: 200 steps. Default: none.
        warm_up: Option<Training> = None;
        /// A client's training on its own examples in one round. Selective-FD: 1 step of 64, IID 5.
        local: Training = Training::steps(1, 64);
        /// Training on what the others say in one round. Selective-FD: 10 steps of 512, IID 6.
        distil: Training = Training::steps(10, 512);
        /// Public samples of a round, drawn without replacement. Default: one batch of `distil` (Selective-FD). FedMD: 5,000.
        samples: Option<usize> = None, in 1..;
        /// What clients say.
        labels: Labels = Labels::Soft;
        /// What the server sends back.
        reply: Reply = Reply::Ensemble;
        /// In which order a client learns.
        order: Order = Order::OwnFirst;
        /// How scores are imitated, with `labels: scores`.
        score_loss: ScoreLoss = ScoreLoss::Mae;
        /// What the client-side filter sees of a sample.
        filter_on: FilterOn = FilterOn::Inputs;
        /// Who teaches the clients.
        teacher: Teacher = Teacher::Ensemble;
        /// The server's student learns from the ensemble so long in one round. Default: as `distil`.
        student: Option<Training> = None;
        /// With `labels: class-means`: weight of the term that pulls an output to the mean of its class. No paper at hand
        /// gives it.
        class_weight: f64 = 1.0, in 0.0..=1e6;
        /// With `labels: class-means`: a client is shown the mean of the others, without its own share.
        leave_one_out: bool = false;
        /// Draw the private sample anew in every round, if `parts.sampling` is filled; its costs add up.
        resample: bool = false;
    }
}

const PREPARE: Ask<Nothing, Nothing> = Ask::new("warm-up");
const KNOWN: Ask<Nothing, Mask> = Ask::new("public samples that a client knows");
const SOFT: Ask<Ids, SoftLabels> = Ask::new("soft labels of public samples");
const HARD: Ask<Ids, Votes> = Ask::new("hard labels of public samples");
const SCORES: Ask<Ids, Logits> = Ask::new("scores of public samples");
const MEANS: Ask<Nothing, ClassMeans> = Ask::new("mean outputs of own classes");
const LEARN_SOFT: Ask<SoftLabels, Nothing> = Ask::new("learning from soft labels");
const LEARN_SCORES: Ask<Logits, Nothing> = Ask::new("learning from scores");
const LEARN_HARD: Ask<Votes, Nothing> = Ask::new("learning from hard labels");
const LEARN_MEANS: Ask<ClassMeans, Nothing> = Ask::new("learning from class means");

/// What the server knows between two rounds.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// The public samples that somebody knows.
    pool: Vec<u32>,
    /// Rounds in which nothing was left to learn.
    silent: usize,
}

impl CoDistill {
    fn consistent(&self) -> Result<(), String> {
        let about_samples = self.labels != Labels::ClassMeans;
        match () {
            () if self.teacher == Teacher::Student && self.labels == Labels::Scores => Err(
                "`teacher: student` answers with probabilities; use `labels: soft` or `hard`"
                    .into(),
            ),
            () if !about_samples && self.reply == Reply::Hard => Err(
                "`reply: hard` is about public samples, and `labels: class-means` has none".into(),
            ),
            () if !about_samples && self.teacher == Teacher::Student => Err(
                "`teacher: student` learns public samples, and `labels: class-means` has none"
                    .into(),
            ),
            () if !about_samples && self.order != Order::OwnFirst => {
                Err("`order` is about public samples, and `labels: class-means` has none".into())
            }
            () => Ok(()),
        }
    }

    fn filters_once(&self, filled: bool) -> bool {
        filled && self.filter_on != FilterOn::Scores
    }

    // ---- the server's side

    /// What the clients say about these samples, combined.
    fn hear(&self, fed: &mut Federation<'_>, round: &Round, ids: &Ids) -> Result<Taught> {
        let all = fed.everyone();
        let mut taught = match self.labels {
            Labels::Hard => {
                let outputs = fed.task().kind.outputs();
                let form = |votes: Votes| match votes.classes() == outputs {
                    true => Ok(one_hot(votes)),
                    false => Err(fl_core::Problem::Shape(format!(
                        "votes for {} classes, and there are {outputs}",
                        votes.classes()
                    ))
                    .into()),
                };
                Taught::Soft(fed.gather_as("ensemble", round, &HARD, &all, |_| ids, form)?)
            }
            Labels::Scores => {
                Taught::Scores(fed.gather("ensemble", round, &SCORES, &all, |_| ids)?)
            }
            _ => Taught::Soft(fed.gather("ensemble", round, &SOFT, &all, |_| ids)?),
        };
        if let (Taught::Soft(soft), true) = (&mut taught, fed.has("privacy")) {
            soft.project();
        }
        if let Some(clear) = fed.select("server-filter", round, &taught.soft())? {
            taught.retain_rows(&clear);
        }
        Ok(taught)
    }

    /// The server's student learns, and teaches in place of the ensemble if it is to.
    fn teach_student(
        &self,
        fed: &mut Federation<'_>,
        round: &Round,
        taught: Taught,
    ) -> Result<Taught> {
        if !fed.has("student") || taught.rows().is_empty() {
            return Ok(taught);
        }
        let ids = Ids(taught.rows().to_vec());
        let x = fed.public()?.pick(&ids)?;
        let training = self.student.as_ref().unwrap_or(&self.distil);
        let pass = training.pass(self.loss(&taught));
        with_target(&taught, |target| {
            fed.fit("student", &round.stream, &x, target, &pass)
        })?;
        if self.teacher == Teacher::Ensemble {
            return Ok(taught);
        }
        let scores = fed.model("student")?.predict(&x)?;
        Ok(Taught::Soft(SoftLabels::of_scores(ids.0, scores.view())))
    }

    fn public_round(&self, fed: &mut Federation<'_>, s: &mut State, round: &Round) -> Result<()> {
        let batch = self.samples.unwrap_or(self.distil.batch).min(s.pool.len());
        let drawn = round
            .stream
            .child("public", 0)
            .draws()
            .choose(s.pool.len(), batch);
        let ids = Ids(drawn.into_iter().map(|at| s.pool[at]).collect());
        let taught = self.hear(fed, round, &ids)?;
        fed.record(round, "taught.samples", taught.rows().len() as f64)?;
        s.silent += usize::from(taught.rows().is_empty());
        let taught = self.teach_student(fed, round, taught)?;
        let taught = match self.reply {
            Reply::Ensemble => taught,
            Reply::Hard => taught.hard(),
        };
        let all = fed.everyone();
        match &taught {
            Taught::Soft(soft) => fed.ask(round, &LEARN_SOFT, &all, |_| soft)?,
            Taught::Scores(scores) => fed.ask(round, &LEARN_SCORES, &all, |_| scores)?,
            Taught::Hard(labels) => fed.ask(round, &LEARN_HARD, &all, |_| labels)?,
        };
        Ok(())
    }

    fn class_round(&self, fed: &mut Federation<'_>, round: &Round) -> Result<()> {
        let all = fed.everyone();
        let sent =
            fed.ask_for::<_, _, ClassMeans>("ensemble", round, &MEANS, &all, |_| &Nothing)?;
        let means: ClassMeans = fed.aggregate("ensemble", round, &sent)?;
        fed.record(round, "taught.classes", means.rows.len() as f64)?;
        if !self.leave_one_out {
            fed.ask(round, &LEARN_MEANS, &all, |_| &means)?;
            return Ok(());
        }
        let mut of_others = BTreeMap::new();
        for id in &all {
            let others = sent.iter().filter(|mail| mail.from != *id).cloned();
            let of = match Inbox::new(others.collect()) {
                Ok(others) => fed.aggregate("ensemble", round, &others)?,
                Err(_) => ClassMeans::new(Vec::new(), Array2::zeros((0, means.values.ncols()))), // nobody else
            };
            of_others.insert(*id, of);
        }
        fed.ask(round, &LEARN_MEANS, &all, |id| &of_others[&id])?;
        Ok(())
    }

    /// The samples that somebody knows; all, if nobody filters.
    fn pool(&self, fed: &mut Federation<'_>, round: &Round) -> Result<Vec<u32>> {
        let n = fed.public()?.samples().len();
        if !self.filters_once(fed.has("client-filter")) {
            return Ok((0..n as u32).collect());
        }
        let all = fed.everyone();
        let known = fed.ask(round, &KNOWN, &all, |_| &Nothing)?;
        if let Some(other) = known.iter().find(|m| m.body.len() != n) {
            let (from, length) = (other.from, other.body.len());
            bail!("client {from} knows about {length} public samples, and there are {n}");
        }
        let somebody = |at: &u32| known.iter().any(|m| m.body.has(*at as usize));
        let pool: Vec<u32> = (0..n as u32).filter(somebody).collect();
        if pool.len() < n {
            fed.warn(&format!(
                "{} of {n} public samples are known to no client and are left out",
                n - pool.len()
            ));
        }
        Ok(pool)
    }

    fn loss(&self, taught: &Taught) -> Loss {
        match taught {
            Taught::Scores(_) => self.loss_of_scores(),
            _ => Loss::CrossEntropy,
        }
    }

    fn loss_of_scores(&self) -> Loss {
        match self.score_loss {
            ScoreLoss::Mae => Loss::Mae,
            ScoreLoss::Mse => Loss::Mse,
            ScoreLoss::Kl(tau) => Loss::Kl { tau },
        }
    }

    // ---- a client's side

    /// A client's own examples: all, or those that its private sample leaves.
    fn own(&self, me: &Client) -> Result<Examples> {
        Ok(match me.stashed::<Ids>("own")? {
            Some(Ids(chosen)) => {
                let chosen: Vec<usize> = chosen.iter().map(|at| *at as usize).collect();
                me.own().pick(&chosen)
            }
            // a client whose warm-up was dropped must not fall back on all that it has
            None if me.has("sampling") => {
                bail!("it has drawn no private sample; see its `warm-up`")
            }
            None => me.own().clone(),
        })
    }

    fn sample(&self, me: &mut Client) -> Result<()> {
        if me.has("sampling") {
            let chosen = me.sample_own("sampling")?;
            me.stash("own", &chosen);
        }
        Ok(())
    }

    fn prepare(&self, me: &mut Client) -> Result<()> {
        self.sample(me)?;
        if let Some(pretrain) = &self.pretrain {
            let public = me.public()?;
            me.fit_examples(
                "model",
                public.examples()?,
                &pretrain.pass(Loss::CrossEntropy),
            )?;
        }
        if let Some(warm_up) = &self.warm_up {
            let own = self.own(me)?;
            me.fit_examples("model", &own, &warm_up.pass(Loss::CrossEntropy))?;
        }
        Ok(())
    }

    /// These samples as the filter is to see them.
    fn seen(&self, me: &mut Client, x: &Samples) -> Result<Samples> {
        let seen = match self.filter_on {
            FilterOn::Inputs => return Ok(x.clone()),
            FilterOn::Scores => me.model("model")?.predict(x)?,
            FilterOn::Features => me.model("model")?.features(x)?.with_context(|| {
                fl_core::Problem::Lacks("parts.model: this trainer has no features; use a neural trainer, or `filter-on: inputs`".into())
            })?,
        };
        let width = seen.ncols();
        Samples::fresh(seen, vec![width])
    }

    /// Which of these public samples the client knows: the filter is fitted to its own examples first.
    fn filter(&self, me: &mut Client, ids: &Ids) -> Result<Vec<usize>> {
        let Some(mut filter) = me.selector::<Samples>("client-filter")? else {
            return Ok((0..ids.0.len()).collect());
        };
        if me.has("privacy") {
            me.disclose("a client's filter says which public samples it knows, without noise; leave out `client-filter`");
        }
        let (own, public) = (self.own(me)?, me.public()?);
        let x = public.pick(ids)?;
        let pool = self.seen(me, &x)?;
        let fitted = match self.filter_on {
            FilterOn::Inputs => own.clone(),
            _ => {
                let labels = match (own.classes(), own.multi_label()) {
                    (Some(of), _) => Classes::Classes {
                        of,
                        classes: own.labels().classes(),
                    },
                    (None, findings) => Classes::Multi(findings.unwrap_or_default()),
                };
                let seen = self.seen(me, &own.samples)?;
                Examples::all(seen.inputs().clone(), Arc::new(labels))?
            }
        };
        filter.fit(&fitted, &me.stream("filter"))?;
        let known = filter.select(&pool, &me.stream("filter").child("select", 0))?;
        if let Some(truth) = public.truth() {
            let truth: Vec<u32> = ids.0.iter().map(|id| truth[*id as usize]).collect();
            let has = own.class_counts();
            let familiar: Vec<bool> = truth.iter().map(|class| has[*class as usize] > 0).collect();
            let ranks = filter.rank(&pool)?;
            judge(me, &known, &familiar);
            rank(me, "filter.auroc", &ranks, &familiar);
            // an untrained model is right by chance only
            if self.warm_up.is_some() || self.filter_on == FilterOn::Scores {
                let scores = me.model("model")?.predict(&x)?;
                let said = metrics::classes(scores.view());
                let right: Vec<bool> = said.iter().zip(&truth).map(|(a, b)| a == b).collect();
                rank(me, "filter.auroc-right", &ranks, &right);
            }
        }
        Ok(known)
    }

    fn known(&self, me: &mut Client) -> Result<Mask> {
        let all = Ids((0..me.public()?.samples().len() as u32).collect());
        let mask = Mask::new(&self.filter(me, &all)?, all.0.len());
        me.stash("known", &mask);
        Ok(mask)
    }

    /// A client's scores of those of these samples that it knows.
    fn scores(&self, me: &mut Client, ids: &Ids) -> Result<Logits> {
        if self.resample {
            self.sample(me)?;
        }
        if self.order == Order::OwnBeforeLabels {
            self.learn_own(me)?;
        }
        let known = match me.stashed::<Mask>("known")? {
            Some(mask) => ids
                .0
                .iter()
                .copied()
                .filter(|id| mask.has(*id as usize))
                .collect(),
            None if !me.has("client-filter") => ids.0.clone(),
            None if self.filters_once(true) => {
                bail!("its filter was never fitted; see its `{}`", KNOWN.label())
            }
            None => self
                .filter(me, ids)?
                .into_iter()
                .map(|at| ids.0[at])
                .collect(),
        };
        me.logits("model", &Ids(known))
    }

    fn soft(&self, me: &mut Client, ids: &Ids) -> Result<SoftLabels> {
        let Logits { rows, values, .. } = self.scores(me, ids)?;
        let mut soft = SoftLabels::of_scores(rows, values.view());
        me.release("privacy", &mut soft)?;
        Ok(soft)
    }

    fn hard(&self, me: &mut Client, ids: &Ids) -> Result<Votes> {
        let Logits { rows, values, .. } = self.scores(me, ids)?;
        let mut hard = votes(rows, metrics::classes(values.view()), values.ncols());
        me.release("privacy", &mut hard)?;
        Ok(hard)
    }

    fn released_scores(&self, me: &mut Client, ids: &Ids) -> Result<Logits> {
        let mut scores = self.scores(me, ids)?;
        me.release("privacy", &mut scores)?;
        Ok(scores)
    }

    /// Learning from these public samples, and from the client's own examples unless that is done already.
    fn learn(
        &self,
        me: &mut Client,
        ids: &[u32],
        target: Target<'_>,
        loss: Loss,
    ) -> Result<Nothing> {
        let (ids, pass) = (Ids(ids.to_vec()), self.distil.pass(loss));
        let learn_public = |me: &mut Client| match ids.0.is_empty() {
            true => Ok(()), // everything was filtered out
            false => me.fit_public("model", &ids, target, &pass).map(|_| ()),
        };
        match self.order {
            Order::OwnBeforeLabels => learn_public(me)?,
            Order::OwnFirst => {
                self.learn_own(me)?;
                learn_public(me)?;
            }
            Order::PublicFirst => {
                learn_public(me)?;
                self.learn_own(me)?;
            }
            Order::Turns => self.learn_in_turns(me, &ids, target, &pass)?,
        }
        Ok(Nothing)
    }

    fn learn_own(&self, me: &mut Client) -> Result<()> {
        let (own, pass) = (self.own(me)?, self.local.pass(Loss::CrossEntropy));
        me.fit_examples("model", &own, &pass).map(|_| ())
    }

    /// One mini-batch at a time; the fewer of the two kinds are spread evenly among the others.
    fn learn_in_turns(
        &self,
        me: &mut Client,
        ids: &Ids,
        target: Target<'_>,
        pass: &Pass<'_>,
    ) -> Result<()> {
        let (own, x, home) = (self.own(me)?, me.public()?.pick(ids)?, me.stream("turns"));
        let local = self.local.pass(Loss::CrossEntropy);
        let steps = [local.steps(own.len()), pass.steps(x.len())];
        let one = |pass: &Pass<'_>| {
            let (length, clip) = (fl_core::Length::Steps(1), pass.clip);
            Pass {
                clip,
                ..Pass::new(length, pass.batch, pass.loss)
            }
        };
        let model = me.model("model")?;
        let most = steps[0].max(steps[1]);
        for turn in 0..most {
            let stream = home.child("turn", turn as u64);
            let due = |n: usize| (turn + 1) * n / most > turn * n / most;
            if due(steps[0]) {
                fl_core::fit_examples(model, &own, &one(&local), &stream.child("own", 0))?;
            }
            if due(steps[1]) {
                model.fit(&x, target, &one(pass), &stream.child("public", 0))?;
            }
        }
        Ok(())
    }

    fn means(&self, me: &mut Client) -> Result<ClassMeans> {
        if self.resample {
            self.sample(me)?;
        }
        let own = self.own(me)?;
        let labels = own
            .classes()
            .context("class means need one class per example")?;
        let outputs = softmax(me.model("model")?.predict(&own.samples)?.view(), 1.0);
        let mut means = ClassMeans::of(outputs.view(), &labels)?;
        me.release("privacy", &mut means)?;
        Ok(means)
    }

    /// Cross-entropy to the label, and `class-weight` times that to the mean of the label's class: one cross-entropy, to
    /// the sum of the two targets.
    fn learn_means(&self, me: &mut Client, means: &ClassMeans) -> Result<Nothing> {
        let own = self.own(me)?;
        let labels = own
            .classes()
            .context("class means need one class per example")?;
        let mut target = Array2::<f32>::zeros((labels.len(), own.labels().classes()));
        for (mut row, label) in target.rows_mut().into_iter().zip(&labels) {
            row[*label as usize] = 1.0;
            if let Some(mean) = means.class(*label) {
                row.zip_mut_with(&mean, |t, m| *t += self.class_weight as f32 * m);
            }
        }
        let (pass, stream) = (self.local.pass(Loss::CrossEntropy), me.stream("model"));
        me.model("model")?
            .fit(&own.samples, Target::Soft(target.view()), &pass, &stream)?;
        Ok(Nothing)
    }
}

/// How many samples a filter keeps, and how well they are those of the client's own classes, by labels that no method
/// sees.
fn judge(me: &mut Client, known: &[usize], familiar: &[bool]) {
    let both = known.iter().filter(|at| familiar[**at]).count() as f64;
    let all = familiar.iter().filter(|f| **f).count() as f64;
    me.measure(
        "filter.share",
        known.len() as f64 / familiar.len().max(1) as f64,
    );
    if !known.is_empty() {
        me.measure("filter.precision", both / known.len() as f64);
    }
    if all > 0.0 {
        me.measure("filter.recall", both / all);
    }
}

/// How well the filter's ranks tell samples for which `is` holds from the others: of the client's own classes
/// (`filter.auroc`), or labelled rightly by its model (`filter.auroc-right`; Selective-FD, figure 5).
fn rank(me: &mut Client, name: &str, ranks: &Option<Vec<f64>>, is: &[bool]) {
    let ranks = ranks.iter().flatten().map(|r| *r as f32);
    if let Some(auc) = metrics::auc(ranks, is.iter().map(|is| i8::from(*is))) {
        me.measure(name, auc);
    }
}

fn with_target<T>(taught: &Taught, f: impl FnOnce(Target<'_>) -> T) -> T {
    match taught {
        Taught::Soft(soft) => f(Target::Soft(soft.values.view())),
        Taught::Scores(scores) => f(Target::Scores(scores.values.view())),
        Taught::Hard(votes) => f(Target::Classes(&votes.labels.column(0).to_vec())),
    }
}

impl Protocol for CoDistill {
    fn slots(&self) -> Vec<Slot> {
        let (ensemble, privacy) = (
            "Combines what the clients say.",
            "Noise on what a client says.",
        );
        let (ensemble, privacy) = match self.labels {
            Labels::Soft => (
                Slot::aggregator::<SoftLabels, SoftLabels>("ensemble", ensemble),
                Slot::privacy::<SoftLabels>("privacy", privacy),
            ),
            // each vote reaches the ensemble as a one-hot row
            Labels::Hard => (
                Slot::aggregator::<SoftLabels, SoftLabels>("ensemble", ensemble),
                Slot::privacy::<Votes>("privacy", privacy),
            ),
            Labels::Scores => (
                Slot::aggregator::<Logits, Logits>("ensemble", ensemble),
                Slot::privacy::<Logits>("privacy", privacy),
            ),
            Labels::ClassMeans => (
                Slot::aggregator::<ClassMeans, ClassMeans>("ensemble", ensemble),
                Slot::privacy::<ClassMeans>("privacy", privacy),
            ),
        };
        let mut slots = vec![
            Slot::trainer("model", "A client's model; each client may have another."),
            ensemble,
            privacy.optional(),
            Slot::privacy::<Ids>(
                "sampling",
                "Draws the examples that a client trains on (FedMD-NFDP).",
            )
            .optional(),
            Slot::accountant(),
        ];
        if self.labels != Labels::ClassMeans {
            slots.push(
                Slot::selector::<Samples>(
                    "client-filter",
                    "Picks the public samples that a client knows enough of to label.",
                )
                .optional(),
            );
            slots.push(
                Slot::selector::<SoftLabels>(
                    "server-filter",
                    "Picks the labels that are worth learning.",
                )
                .optional(),
            );
            let student = Slot::trainer(
                "student",
                "The server's model, which learns from the ensemble.",
            );
            slots.push(match self.teacher {
                Teacher::Student => student,
                Teacher::Ensemble => student.optional(),
            });
        }
        slots
    }

    fn questions(&self) -> Vec<Asked> {
        let n = self.samples.unwrap_or(self.distil.batch);
        let mut all = vec![PREPARE.asked().releases("sampling")];
        let (said, learnt) = match (&self.labels, &self.reply) {
            (Labels::ClassMeans, _) => (MEANS.asked(), LEARN_MEANS.asked()),
            (Labels::Soft, Reply::Ensemble) => (SOFT.asked(), LEARN_SOFT.asked()),
            (Labels::Hard, Reply::Ensemble) => (HARD.asked(), LEARN_SOFT.asked()),
            (Labels::Scores, Reply::Ensemble) => (SCORES.asked(), LEARN_SCORES.asked()),
            (Labels::Soft, Reply::Hard) => (SOFT.asked(), LEARN_HARD.asked()),
            (Labels::Hard, Reply::Hard) => (HARD.asked(), LEARN_HARD.asked()),
            (Labels::Scores, Reply::Hard) => (SCORES.asked(), LEARN_HARD.asked()),
        };
        if self.labels != Labels::ClassMeans && self.filter_on != FilterOn::Scores {
            all.push(KNOWN.asked().all_public());
        }
        let said = said.times(self.rounds).rows(n).releases("privacy");
        all.push(match self.resample {
            true => said.releases("sampling"),
            false => said,
        });
        all.push(learnt.times(self.rounds).rows(n));
        all
    }

    fn lead(&self, fed: &mut Federation<'_>) -> Result<()> {
        let (all, mut s) = (fed.everyone(), State::default());
        let by_class = self.labels == Labels::ClassMeans;
        fed.once("warm-up", &mut s, |fed, s, round| {
            fed.ask(round, &PREPARE, &all, |_| &Nothing)?;
            if !by_class {
                s.pool = self.pool(fed, round)?;
            }
            Ok(())
        })?;
        fed.rounds(self.rounds, &mut s, |fed, s, round| {
            match by_class {
                true => self.class_round(fed, round)?,
                false => self.public_round(fed, s, round)?,
            }
            if fed.has("student") {
                fed.evaluate(round, "student")?;
            }
            fed.evaluate_clients(round, "model")
        })?;
        if s.silent > 0 {
            let of = self.rounds;
            fed.warn(&format!("in {} of {of} rounds nothing was left to learn from the others: every label was filtered out", s.silent));
        }
        match fed.has("student") {
            true => fed.keep_model("student"),
            false => Ok(()),
        }
    }

    fn answer(&self, me: &mut Client, question: Question<'_>) -> Result<Answer> {
        question
            .on(&PREPARE, me, |me, _| self.prepare(me).map(|()| Nothing))
            .on(&KNOWN, me, |me, _| self.known(me))
            .on(&SOFT, me, |me, ids| self.soft(me, ids))
            .on(&HARD, me, |me, ids| self.hard(me, ids))
            .on(&SCORES, me, |me, ids| self.released_scores(me, ids))
            .on(&MEANS, me, |me, _| self.means(me))
            .on(&LEARN_SOFT, me, |me, soft| {
                self.learn(
                    me,
                    &soft.rows,
                    Target::Soft(soft.values.view()),
                    Loss::CrossEntropy,
                )
            })
            .on(&LEARN_SCORES, me, |me, z| {
                self.learn(
                    me,
                    &z.rows,
                    Target::Scores(z.values.view()),
                    self.loss_of_scores(),
                )
            })
            .on(&LEARN_HARD, me, |me, votes| {
                let labels = votes.labels.column(0).to_vec();
                self.learn(
                    me,
                    &votes.rows,
                    Target::Classes(&labels),
                    Loss::CrossEntropy,
                )
            })
            .on(&LEARN_MEANS, me, |me, means| self.learn_means(me, means))
            .end()
    }
}
plugin!(protocol "co-distill" => CoDistill);
