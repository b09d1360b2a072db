//! The settings of the method.
use crate::image_translator;
use fl_core::prelude::*;
use fl_plugin_dp_sgd::Sampling;

settings! {
    /// Weights of the terms of the generator's loss; 0 leaves a term out.
    pub struct Terms {
        /// Made inputs look real to the discriminators (Eq. 2).
        gan: f64 = 1.0, in 0.0..;
        /// Each teacher is sure of its class (Eq. 3).
        conf: f64 = 1.0, in 0.0..;
        /// The teachers disagree (Eq. 5).
        unique: f64 = 1.0, in 0.0..;
        /// The student does not match the ensemble yet (Eq. 10).
        mimic: f64 = 1.0, in 0.0..;
        /// Each teacher finds all classes among the made inputs. Only in the published code, with
        /// weight 10.
        balance: f64 = 0.0, in 0.0..;
    }
}

choices! {
    /// The probability of a class at a client, in Eq. 8.
    pub enum Classes {
        /// The share of the client's examples that are of the class (the equation).
        Proportions = "proportions",
        /// The number of examples of the class (the sentence after the equation, and the published
        /// code).
        Counts = "counts",
    }
}

settings! {
    /// The factors of an importance.
    pub struct Importance {
        /// The probability of a class at a client.
        classes: Classes = Classes::Proportions;
        /// Multiply by the discriminator's judgement of the input. The published code leaves it
        /// out.
        discriminator: bool = true;
    }
}

choices! {
    /// The weight of a client in the ensemble.
    pub enum Weights {
        /// For each input and class by its importance (Eq. 8).
        Importance(Importance) = "importance",
        /// By its number of examples.
        Sizes = "sizes",
        /// All clients equally.
        Uniform = "uniform",
    }
}

choices! {
    /// The game between generator and discriminators.
    pub enum Game {
        /// Cross-entropy; the generator's slope does not vanish where it loses (Goodfellow et al.
        /// 2014).
        NonSaturating = "non-saturating",
        /// Eq. 2 literally, on probabilities. Discriminators must have no batch normalisation and
        /// no dropout.
        Linear = "linear",
    }
}

choices! {
    /// The weights of the clients' discriminators for the generator.
    pub enum Discriminators {
        /// Their sum (Algorithm 1).
        Sum = "sum",
        /// Each by its client's number of examples (the published code).
        Sizes = "sizes",
        /// Their mean.
        Mean = "mean",
    }
}

choices! {
    /// The measure of disagreement between teachers.
    pub enum Divergence {
        /// Jensen-Shannon divergence, weighted by numbers of examples and maximised (Eq. 5).
        JensenShannon = "jensen-shannon",
        /// The published code: divergence of their plain mean from each, which is *minimised*.
        Published = "published",
    }
}

choices! {
    /// The student's target and loss.
    pub enum Mimic {
        /// The ensemble's scores: squared distance (the limit of large temperatures; best in Table
        /// 6).
        Squared = "squared",
        /// The ensemble's scores: mean absolute error (the published code).
        Absolute = "absolute",
        /// The ensemble's probabilities at `tau`: Kullback-Leibler divergence (Eq. 6).
        Kl = "kl",
    }
}

impl Mimic {
    /// Returns the loss that the student minimises.
    pub fn loss(&self) -> Loss {
        match self {
            Self::Squared => Loss::Mse,
            Self::Absolute => Loss::Mae,
            Self::Kl => Loss::CrossEntropy,
        }
    }
}

choices! {
    /// The regions that a discriminator judges.
    pub enum Patches {
        /// The whole input: one score.
        Whole = "whole",
        /// 2 x 2 regions, one score each.
        Two = "2x2",
        /// 4 x 4 regions.
        Four = "4x4",
        /// 7 x 7 regions, for images of 28 x 28.
        Seven = "7x7",
        /// 8 x 8 regions, for images of 32 x 32 (FedIOD).
        Eight = "8x8",
    }
}

impl Patches {
    /// Returns the task of a discriminator: for each region, whether it is generated.
    pub(crate) fn task(&self) -> fn(&Task) -> Task {
        fn scores<const N: usize>(of: &Task) -> Task {
            Task::new(of.input.clone(), fl_core::TaskKind::MultiLabel(N))
        }
        match self {
            Self::Whole => scores::<1>,
            Self::Two => scores::<4>,
            Self::Four => scores::<16>,
            Self::Seven => scores::<49>,
            Self::Eight => scores::<64>,
        }
    }
}

impl Patches {
    /// Returns the same task for images beside their label maps.
    pub(crate) fn task_of_pairs(&self) -> impl Fn(&Task) -> Task + Send + Sync + 'static {
        let patches = self.task();
        move |of| Task {
            input: image_translator::with_channels(of.input[0] + of.kind.classes(), of),
            ..patches(of)
        }
    }
}

settings! {
    /// The inputs of the generator beside a label map.
    pub struct OfMaps {
        /// Number of channels with one normally distributed number each, so that two images of one
        /// map differ.
        noise: usize = 4, in 0..=1_000;
    }
}

choices! {
    /// The source of made inputs.
    pub enum GeneratorInput {
        /// Noise, by a generator.
        Noise = "noise",
        /// The clients' label maps, by a trainer that makes images from them, for tasks with a
        /// class for every pixel (FedIOD on slides and scans). The label maps themselves leave the
        /// clients.
        LabelMaps(OfMaps) = "label-maps",
    }
}

settings! {
    /// A generator at the server makes inputs on which the clients' frozen teachers teach a student
    /// (FedIOD; Gong et al. 2023).
    #[check(GenerateAndDistill::consistent)]
    pub struct GenerateAndDistill {
        /// A teacher's training. FedIOD: 500 epochs, batch 16.
        local: Training = Training::epochs(500, 16);
        /// Rounds of distillation, each ending in an evaluation. FedIOD: 300.
        rounds: usize = 300, in 1..=1_000_000;
        /// Steps of the generator in one round.
        steps: usize = 100, in 1..=1_000_000;
        /// Number of inputs made at once. FedIOD: 64.
        batch: usize = 64, in 1..=100_000;
        /// Additional first rounds in which generator and discriminators learn alone (FedIOD on
        /// nuclei: 100 epochs).
        warm_up: usize = 0, in 0..=1_000_000;
        /// Batches that the student learns from per batch of the generator. Published code: 5.
        student_steps: usize = 1, in 1..=1_000;
        /// Steps of a discriminator per step of the generator.
        discriminator_steps: usize = 1, in 1..=1_000;
        /// The terms of the generator's loss.
        terms: Terms = Terms { gan: 1.0, conf: 1.0, unique: 1.0, mimic: 1.0, balance: 0.0 };
        /// The source of made inputs.
        made_of: GeneratorInput = GeneratorInput::Noise;
        /// The weight of a client in the ensemble.
        weights: Weights = Weights::Importance(Importance { classes: Classes::Proportions, discriminator: true });
        /// All clients have equal weights in every term, and no client sends its number of
        /// examples; needs `weights: uniform`.
        equal_weights: bool = false;
        /// The student's target and loss.
        mimic: Mimic = Mimic::Squared;
        /// The temperature of the teachers' probabilities.
        tau: f64 = 1.0, in above(0.0);
        /// The measure of disagreement between teachers.
        divergence: Divergence = Divergence::JensenShannon;
        /// The game between generator and discriminators.
        game: Game = Game::NonSaturating;
        /// The weights of the discriminators for the generator.
        discriminators: Discriminators = Discriminators::Sum;
        /// The regions that a discriminator judges: it must have as many outputs.
        patches: Patches = Patches::Whole;
        /// Evaluate the teachers too.
        evaluate_clients: bool = true;
        /// Keep the teachers as results of the run.
        keep_clients: bool = false;
        /// DP-SGD, with `parts.example-privacy`: how each of `local.steps` steps of a teacher draws
        /// examples.
        sampling: Option<Sampling> = None;
    }
}

impl GenerateAndDistill {
    fn consistent(&self) -> Result<(), String> {
        let Terms {
            gan,
            conf,
            unique,
            mimic,
            balance,
        } = self.terms;
        if gan + conf + unique + mimic + balance == 0.0 {
            return Err(
                "`terms`: at least one must be above 0, or the generator learns nothing".into(),
            );
        }
        if self.warm_up > 0 && gan == 0.0 {
            return Err("`warm-up` is the time of `terms.gan` alone, which is 0".into());
        }
        Ok(())
    }

    /// Returns the map from the run's task to a discriminator's.
    pub(crate) fn judges(&self) -> Box<dyn Fn(&Task) -> Task + Send + Sync> {
        match self.made_of {
            GeneratorInput::Noise => Box::new(self.patches.task()),
            GeneratorInput::LabelMaps(_) => Box::new(self.patches.task_of_pairs()),
        }
    }

    /// Returns which numbers of examples the server needs.
    pub(crate) fn counted(&self) -> SentCounts {
        let Terms {
            conf,
            unique,
            balance,
            ..
        } = self.terms;
        if self.equal_weights {
            return SentCounts::Nothing;
        }
        let shares = conf + balance > 0.0
            || (unique > 0.0 && self.divergence == Divergence::JensenShannon)
            || self.weights == Weights::Sizes
            || (self.discriminates()
                && (self.discriminators == Discriminators::Sizes || self.game == Game::Linear));
        match self.weights {
            Weights::Importance(_) => SentCounts::Classes,
            _ if shares => SentCounts::Examples,
            _ => SentCounts::Nothing,
        }
    }

    /// Returns the settings of terms that do not count.
    pub(crate) fn idle(&self) -> impl Iterator<Item = Conflict> {
        let Terms {
            gan,
            conf,
            unique,
            balance,
            ..
        } = self.terms;
        let by_tau = conf + unique + balance > 0.0 || self.mimic == Mimic::Kl;
        let idle = |setting, given: bool, counts: bool, by| {
            Conflict::no_effect(setting, by).when(given && !counts)
        };
        [
            idle(
                "tau",
                self.tau != 1.0,
                by_tau,
                "while `terms` has 0 for `conf`, `unique` and `balance`, and `mimic` is not `kl`",
            ),
            idle(
                "divergence",
                self.divergence != Divergence::JensenShannon,
                unique > 0.0,
                "while `terms.unique` is 0",
            ),
            idle(
                "discriminators",
                self.discriminators != Discriminators::Sum,
                gan > 0.0,
                "while `terms.gan` is 0",
            ),
        ]
        .into_iter()
        .flatten()
    }

    /// Returns whether the method uses discriminators at all.
    pub(crate) fn discriminates(&self) -> bool {
        let weighs = matches!(&self.weights, Weights::Importance(i) if i.discriminator);
        self.terms.gan > 0.0 || weighs
    }
}

/// The numbers of examples that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentCounts {
    /// Examples of each class.
    Classes,
    /// Examples in total.
    Examples,
    /// None.
    Nothing,
}

impl SentCounts {
    /// Returns how many numbers these are.
    pub(crate) fn numbers(self, task: &Task) -> usize {
        match self {
            Self::Classes => task.kind.classes(),
            Self::Examples => 1,
            Self::Nothing => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::settings::read_yaml;

    #[test]
    fn settings_of_terms_that_do_not_count_are_mistakes() {
        let idle = |yaml: &str| {
            let of: GenerateAndDistill = read_yaml(yaml).unwrap();
            let found = of.idle().filter_map(|conflict| conflict.setting);
            found.collect::<Vec<_>>()
        };
        for (yaml, due) in [
            ("{}", &[][..]),
            (
                "{tau: 2.0, divergence: published, discriminators: mean}",
                &[],
            ),
            ("{terms: {conf: 0.0, unique: 0.0}, tau: 2.0}", &["tau"]),
            (
                "{terms: {conf: 0.0, unique: 0.0}, tau: 2.0, mimic: kl}",
                &[],
            ),
            (
                "{terms: {conf: 0.0, unique: 0.0, balance: 1.0}, tau: 2.0}",
                &[],
            ),
            (
                "{terms: {unique: 0.0}, divergence: published}",
                &["divergence"],
            ),
            (
                "{terms: {gan: 0.0}, discriminators: sizes}",
                &["discriminators"],
            ),
        ] {
            assert_eq!(idle(yaml), due, "{yaml}");
        }
    }
}
