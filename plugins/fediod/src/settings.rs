//! What a spec can say about the method.
use crate::image_translator;
use fl_core::prelude::*;
use fl_core::settings::above;
use fl_plugin_dp_sgd::Sampling;

settings! {
    /// How much each term of the generator's loss counts; 0 leaves it out.
    pub struct Terms {
        /// Made inputs look real to the discriminators (Eq. 2).
        gan: f64 = 1.0, in 0.0..;
        /// Each teacher is sure of its class (Eq. 3).
        conf: f64 = 1.0, in 0.0..;
        /// The teachers do not agree (Eq. 5).
        unique: f64 = 1.0, in 0.0..;
        /// The student does not yet say what the ensemble says (Eq. 10).
        mimic: f64 = 1.0, in 0.0..;
        /// Each teacher finds all classes among the made inputs. Only in the published code, where it counts 10.
        balance: f64 = 0.0, in 0.0..;
    }
}

choices! {
    /// The probability of a class at a client, as Eq. 8 has it.
    pub enum Classes {
        /// The share of the client's examples that are of the class (the equation).
        Proportions = "proportions",
        /// How many examples of the class it has (the sentence after the equation, and the published code).
        Counts = "counts",
    }
}

settings! {
    /// What an importance is made of.
    pub struct Importance {
        /// The probability of a class at a client.
        classes: Classes = Classes::Proportions;
        /// Times what the client's discriminator makes of the input. The published code leaves it out.
        discriminator: bool = true;
    }
}

choices! {
    /// How much a client counts in the ensemble.
    pub enum Weights {
        /// For each input and class by its importance (Eq. 8).
        Importance(Importance) = "importance",
        /// By its number of examples.
        Sizes = "sizes",
        /// Every client alike.
        Uniform = "uniform",
    }
}

choices! {
    /// How generator and discriminators play against one another.
    pub enum Game {
        /// Cross-entropy; the generator's does not vanish where it loses (Goodfellow et al. 2014).
        NonSaturating = "non-saturating",
        /// Eq. 2 as it stands, on probabilities. Discriminators must have no batch normalisation and no dropout.
        Linear = "linear",
    }
}

choices! {
    /// How the discriminators of the clients count for the generator.
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
    /// What teachers that do not agree are.
    pub enum Divergence {
        /// Jensen-Shannon divergence, weighted by numbers of examples and made large (Eq. 5).
        JensenShannon = "jensen-shannon",
        /// The published code: divergence of their plain mean from each, made *small*.
        Published = "published",
    }
}

choices! {
    /// What the student imitates, and how.
    pub enum Mimic {
        /// The ensemble's scores: squared distance (the limit of large temperatures; best in Table 6).
        Squared = "squared",
        /// The ensemble's scores: mean absolute error (the published code).
        Absolute = "absolute",
        /// The ensemble's probabilities at `tau`: Kullback-Leibler divergence (Eq. 6).
        Kl = "kl",
    }
}

impl Mimic {
    /// What the student minimises.
    pub fn loss(&self) -> Loss {
        match self {
            Self::Squared => Loss::Mse,
            Self::Absolute => Loss::Mae,
            Self::Kl => Loss::CrossEntropy,
        }
    }
}

choices! {
    /// What a discriminator judges.
    pub enum Patches {
        /// The whole input: one score.
        Whole = "whole",
        /// 2 x 2 parts, a score each.
        Two = "2x2",
        /// 4 x 4 parts.
        Four = "4x4",
        /// 7 x 7 parts, for images of 28 x 28.
        Seven = "7x7",
        /// 8 x 8 parts, for images of 32 x 32 (FedIOD).
        Eight = "8x8",
    }
}

impl Patches {
    /// What a discriminator is to learn: for each part, is it generated?
    pub(crate) fn task(&self) -> fn(&Task) -> Task {
        fn scores<const N: usize>(of: &Task) -> Task {
            Task {
                input: of.input.clone(),
                kind: fl_core::TaskKind::MultiLabel(N),
            }
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
    /// The same of images beside their label maps.
    pub(crate) fn task_of_pairs(&self) -> impl Fn(&Task) -> Task + Send + Sync + 'static {
        let patches = self.task();
        move |of| Task {
            input: image_translator::beside(of.input[0] + of.kind.classes(), of),
            ..patches(of)
        }
    }
}

settings! {
    /// What an image is made of beside its label map.
    pub struct OfMaps {
        /// Normally distributed numbers, a channel for each, which make two images of one map differ.
        noise: usize = 4, in 0..=1_000;
    }
}

choices! {
    /// What inputs are made of.
    pub enum MadeOf {
        /// Noise, by a generator.
        Noise = "noise",
        /// The clients' label maps, by a trainer that paints them, where every pixel has a class (FedIOD on slides and scans). The label
        /// maps themselves leave the clients.
        LabelMaps(OfMaps) = "label-maps",
    }
}

settings! {
    /// A generator at the server makes inputs on which the clients' frozen teachers teach a student (FedIOD; Gong et al. 2023).
    #[check(GenerateAndDistill::consistent)]
    pub struct GenerateAndDistill {
        /// A teacher's training. FedIOD: 500 epochs, batch 16.
        local: Training = Training::epochs(500, 16);
        /// Rounds of distillation, each ending in an evaluation. FedIOD: 300.
        rounds: usize = 300, in 1..=1_000_000;
        /// Steps of the generator in one round.
        steps: usize = 100, in 1..=1_000_000;
        /// Inputs that are made at once. FedIOD: 64.
        batch: usize = 64, in 1..=100_000;
        /// Rounds before these in which generator and discriminators learn alone (FedIOD on nuclei: 100 epochs).
        warm_up: usize = 0, in 0..=1_000_000;
        /// Batches that the student learns from for each that the generator learns from. Published code: 5.
        student_steps: usize = 1, in 1..=1_000;
        /// Steps of a discriminator for one of the generator.
        discriminator_steps: usize = 1, in 1..=1_000;
        /// The terms of the generator's loss.
        terms: Terms = Terms { gan: 1.0, conf: 1.0, unique: 1.0, mimic: 1.0, balance: 0.0 };
        /// What inputs are made of.
        made_of: MadeOf = MadeOf::Noise;
        /// How much a client counts in the ensemble.
        weights: Weights = Weights::Importance(Importance { classes: Classes::Proportions, discriminator: true });
        /// All clients count alike in every term, and nobody tells how many examples it has; needs `weights: uniform`.
        equal_weights: bool = false, was "alike";
        /// What the student imitates, and how.
        mimic: Mimic = Mimic::Squared;
        /// The temperature of the teachers' probabilities.
        tau: f64 = 1.0, in above(0.0);
        /// What teachers that do not agree are.
        divergence: Divergence = Divergence::JensenShannon;
        /// How generator and discriminators play against one another.
        game: Game = Game::NonSaturating;
        /// How the discriminators count for the generator.
        discriminators: Discriminators = Discriminators::Sum;
        /// What a discriminator judges: it must have as many outputs.
        patches: Patches = Patches::Whole;
        /// Evaluate the teachers too.
        evaluate_clients: bool = true;
        /// DP-SGD, with `parts.example-privacy`: how each of `local.steps` steps of a teacher draws examples.
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

    /// What a discriminator is to learn.
    pub(crate) fn judges(&self) -> Box<dyn Fn(&Task) -> Task + Send + Sync> {
        match self.made_of {
            MadeOf::Noise => Box::new(self.patches.task()),
            MadeOf::LabelMaps(_) => Box::new(self.patches.task_of_pairs()),
        }
    }

    /// What the server must know of how much a client has.
    pub(crate) fn counted(&self) -> Counted {
        let Terms {
            conf,
            unique,
            balance,
            ..
        } = self.terms;
        if self.equal_weights {
            return Counted::Nothing;
        }
        let shares = conf + balance > 0.0
            || (unique > 0.0 && self.divergence == Divergence::JensenShannon)
            || self.weights == Weights::Sizes
            || (self.discriminates()
                && (self.discriminators == Discriminators::Sizes || self.game == Game::Linear));
        match self.weights {
            Weights::Importance(_) => Counted::Classes,
            _ if shares => Counted::Examples,
            _ => Counted::Nothing,
        }
    }

    /// Does the method look at discriminators at all?
    pub(crate) fn discriminates(&self) -> bool {
        let weighs = matches!(&self.weights, Weights::Importance(i) if i.discriminator);
        self.terms.gan > 0.0 || weighs
    }
}

/// What a client says of how much it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Its examples of each class.
    Classes,
    /// Its examples.
    Examples,
    /// Nothing.
    Nothing,
}

impl Counted {
    /// How many numbers that takes.
    pub(crate) fn numbers(self, task: &Task) -> usize {
        match self {
            Self::Classes => task.kind.classes(),
            Self::Examples => 1,
            Self::Nothing => 0,
        }
    }
}
