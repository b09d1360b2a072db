//! The settings of `co-distill`.
use fl_core::prelude::*;

choices! {
    /// A client's label of a public sample.
    pub enum Labels {
        /// Its class probabilities.
        Soft = "soft",
        /// Its most probable class: `ceil(log2(classes))` bits.
        Hard = "hard",
        /// Its raw scores (FedMD).
        Scores(Scores) = "scores",
    }
}

settings! {
    /// Raw scores.
    pub struct Scores {
        /// The loss for learning the scores. Default: `mae`.
        loss: Option<ScoreLoss> = None;
    }
}

choices! {
    /// The loss for learning scores.
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
    /// The server's label of a sample.
    pub enum Reply {
        /// The ensemble's output: probabilities, shares of votes, or scores.
        Ensemble = "ensemble",
        /// Its most probable class only.
        Hard = "hard",
    }
}

choices! {
    /// The order of a client's training on its own examples and on the labels of the others.
    pub enum Order {
        /// Its own examples first, after it has labelled (Selective-FD).
        OwnFirst = "own-first",
        /// Its own examples before it labels (the published code of Selective-FD).
        OwnBeforeLabels = "own-before-labels",
        /// The labels of the others first (FedMD: digest, then revisit).
        PublicFirst = "public-first",
        /// Alternating steps, each on a mini-batch drawn from all samples anew, so that `epochs`
        /// give a number of steps and no passes (our reading of Cronus, which trains on both
        /// together).
        Turns = "turns",
        /// Both in one step, along the gradient of
        /// `alpha * own loss + (1 - alpha) * loss on the labels`, with the number of steps of
        /// `distil` and mini-batches of `local` and of `distil`. The value is alpha; only the own
        /// loss is left if all labels were filtered out (Selective-FD, Figure 10). Uses
        /// [`Parametric::gradient`], so without dropout.
        Together(f64, in 0.0..=1.0) = "together",
    }
}

choices! {
    /// The client-side filter's view of a sample.
    pub enum FilterOn {
        /// The sample itself. The filter is fitted and used once, before round 1.
        Inputs = "inputs",
        /// The layer before the last of the client's model after its warm-up. Fitted and used once,
        /// before round 1.
        Features = "features",
        /// The scores of the client's model. Fitted again in every round.
        Scores = "scores",
    }
}

choices! {
    /// The teacher of the clients.
    pub enum Teacher {
        /// The ensemble of their labels.
        Ensemble = "ensemble",
        /// The server's student, after it has trained on the ensemble in this round (FedED).
        Student = "student",
        /// The true labels of the public samples: an ensemble without errors (Selective-FD, Figure
        /// 10).
        Truth = "truth",
    }
}

settings! {
    /// In every round clients label public samples, the server combines the labels, and all clients
    /// learn from them: Selective-FD (Shao et al. 2024), FedMD (Li and Wang 2019), FedED (Sui et
    /// al. 2020), DS-FL (Itahara et al. 2020) and Cronus (Chang et al. 2019). Class means, which
    /// need no public samples, are protocol `class-distill`.
    #[check(CoDistill::consistent)]
    pub struct CoDistill {
        /// Rounds. Selective-FD's published code: 20,000; FedMD: 20.
        rounds: usize = 200, in 1..=1_000_000;
        /// Training on the labelled public samples before anything else (FedMD). Default: none.
        pretrain: Option<Training> = None;
        /// A client's training on its own examples before round 1. Selective-FD: 200 steps.
        /// Default: none.
        warm_up: Option<Training> = None;
        /// A client's training on its own examples in one round. Selective-FD: 1 step of 64, IID 5.
        local: RoundTraining = Training::steps(1, 64).into();
        /// Training on the labels of the others in one round. Selective-FD: 10 steps of 512, IID 6.
        distil: RoundTraining = Training::steps(10, 512).into();
        /// Public samples of a round, drawn without replacement. Default: one batch of `distil`
        /// (Selective-FD). FedMD: 5,000.
        samples: Option<usize> = None, in 1..;
        /// The clients' labels.
        labels: Labels = Labels::Soft;
        /// The server's labels.
        reply: Reply = Reply::Ensemble;
        /// The order of a client's training.
        order: Order = Order::OwnFirst;
        /// The view of a sample for `parts.client-filter`; only if that is filled. Default:
        /// `inputs`.
        filter_on: Option<FilterOn> = None;
        /// The teacher of the clients.
        teacher: Teacher = Teacher::Ensemble;
        /// Training of `parts.student` on the ensemble's labels in one round; only if that is
        /// filled. Default: as `distil`.
        student: Option<RoundTraining> = None;
        /// Draw a new private sample in every round; the costs add up. Only if `parts.sampling`
        /// is filled.
        resample: bool = false;
        /// Measure how far the ensemble's labels are from the true classes of the public samples
        /// (Selective-FD's Theorem 2): `ensemble.p1`, `ensemble.p1-l1`, `ensemble.p2-l1`, and the
        /// same of the labels that are `taught`.
        judge_labels: bool = false;
        /// Evaluate the clients' own models in every round, and keep them at the end. Without it no
        /// scores of these models leave the clients, and only `parts.student` is measured.
        evaluate_clients: bool = true;
    }
}

impl CoDistill {
    fn consistent(&self) -> Result<(), String> {
        match (&self.teacher, &self.labels) {
            (Teacher::Student, Labels::Scores(_)) => Err(
                "`teacher: student` answers with probabilities; use `labels: soft` or `hard`"
                    .into(),
            ),
            (Teacher::Truth, Labels::Scores(_)) => Err(
                "`teacher: truth` answers with probabilities; use `labels: soft` or `hard`".into(),
            ),
            _ if self.order.weight().is_some()
                && (self.local.clip.is_some() || self.distil.clip.is_some()) =>
            {
                Err("`order: together` takes steps along two losses at once, which `clip` says nothing about: leave it out".into())
            }
            _ if self.order.weight().is_some() && self.local.own.rate.is_some() => Err(
                "`order: together` takes its steps at the rate of `distil`: give `rate` there".into(),
            ),
            _ => Ok(()),
        }
    }

    /// Returns the largest number of public samples in a round.
    pub(crate) fn batch(&self) -> usize {
        self.samples.unwrap_or(self.distil.batch)
    }
}

impl Order {
    /// Returns the share of the own loss, if both losses are learnt in one step.
    pub(crate) fn weight(&self) -> Option<f64> {
        match self {
            Self::Together(alpha) => Some(*alpha),
            _ => None,
        }
    }
}

impl Labels {
    /// Returns the loss for learning scores.
    pub(crate) fn score_loss(&self) -> Loss {
        match self {
            Self::Scores(Scores { loss: Some(loss) }) => match loss {
                ScoreLoss::Mae => Loss::Mae,
                ScoreLoss::Mse => Loss::Mse,
                ScoreLoss::Kl(tau) => Loss::Kl { tau: *tau },
            },
            _ => Loss::Mae,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::settings::read_yaml;

    fn idle(settings: &str, filled: &[&str]) -> Vec<String> {
        let read: CoDistill = read_yaml(settings).unwrap();
        let found = read.conflicts(&|slot| filled.contains(&slot));
        found.into_iter().map(|conflict| conflict.text).collect()
    }

    #[test]
    fn what_would_do_nothing_is_a_mistake() {
        insta::assert_snapshot!(idle(
            "{filter-on: inputs, resample: true, student: {steps: 3}, labels: {scores: {loss: mae}}, reply: hard}",
            &["model", "ensemble"],
        ).join("\n"), @r"
        `filter-on` has no effect while `parts.client-filter` is empty: fill that, or leave `filter-on` out
        `student` has no effect while `parts.student` is empty: fill that, or leave `student` out
        `resample` has no effect while `parts.sampling` is empty: fill that, or leave `resample` out
        `labels.scores.loss` has no effect with `reply: hard`, since no model is taught scores: leave it out, or use `reply: ensemble`
        ");
    }

    #[test]
    fn what_does_something_is_none() {
        let all = [
            ("{}", &[][..]),
            ("{filter-on: scores}", &["client-filter"]),
            ("{student: {steps: 3}}", &["student"]),
            ("{resample: true}", &["sampling"]),
            ("{labels: {scores: {loss: mse}}}", &[]),
            ("{labels: scores, reply: hard}", &[]),
            // the student learns scores, the clients its labels
            ("{labels: {scores: {loss: mse}}, reply: hard}", &["student"]),
        ];
        for (settings, filled) in all {
            assert_eq!(idle(settings, filled), [""; 0], "{settings}");
        }
    }
}
