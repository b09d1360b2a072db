//! Parts that do nothing, for specs that name them.

use crate::DataSection;
use fl_core::message::{Ids, Logits, Nothing, Params};
use fl_core::prelude::*;
use fl_core::privacy::{Composition, Guarantee, Ledger, Unit};
use fl_core::{Ability, FitReport, Parametric, Problem, TaskKind};
use ndarray::{Array2, ArrayD};

settings! {
    /// A data section.
    pub struct Toy {
        /// How many clients.
        clients: usize = 10, in 1..;
        /// How many classes.
        classes: usize = 3, in 2..;
        /// Public data.
        public: Option<Public> = None;
    }
}
settings! {
    /// Public data.
    pub struct Public {
        /// How much.
        size: usize, in 1..;
        /// With labels?
        labelled: bool = false;
    }
}
impl DataSection for Toy {
    fn task(&self) -> Option<Task> {
        Some(Task {
            input: vec![1, 28, 28],
            kind: TaskKind::Classes(self.classes),
        })
    }
    fn clients(&self) -> usize {
        self.clients
    }
    fn has_public(&self) -> bool {
        self.public.is_some()
    }
    fn has_public_labels(&self) -> bool {
        self.public.as_ref().is_some_and(|p| p.labelled)
    }
}

macro_rules! aggregator {
    ($name:literal, $t:ident, $kind:ty) => {
        settings! {
            /// Averages.
            pub struct $t {
                /// Dropped at each end.
                trim: f64 = 0.1, in 0.0..0.5;
            }
        }
        impl Aggregator for $t {
            type In = $kind;
            type Out = $kind;
            fn aggregate(&mut self, _: &Round, _: &Inbox<$kind>) -> Result<$kind> {
                bail!("a fake")
            }
        }
        plugin!(aggregator $name => $t);
    };
}
aggregator!("mean", Mean, Params);
aggregator!("trimmed-mean", TrimmedMean, Params);
aggregator!("mean-scores", MeanScores, Logits);

settings! {
    /// A part of the clients, each as likely as any other. More words.
    pub struct Uniform {
        /// Share of clients.
        share: f64 = 1.0, in 0.0..=1.0;
    }
}
impl Selector for Uniform {
    type Pool = Roster;
    fn select(&mut self, _: &Round, _: &Roster) -> Result<Vec<usize>> {
        bail!("a fake")
    }
}
plugin!(selector "uniform" => Uniform);

settings! {
    /// Clips and adds noise.
    pub struct Gaussian {
        /// Largest norm.
        clip: f64, in fl_core::settings::above(0.0);
        /// Noise.
        sigma: Option<f64> = Some(1.0), in 0.0..;
    }
}
impl PrivacyMechanism for Gaussian {
    type On = Params;
    fn clip(&self, _: &mut Params) -> Result<()> {
        bail!("a fake")
    }
    fn price(&self, _: &Params, _: &Cohort) -> Result<PrivacyEvent> {
        bail!("a fake")
    }
    fn perturb(&mut self, _: &mut Params, _: &Cohort, _: &ReleaseNoise) -> Result<()> {
        bail!("a fake")
    }
}
plugin!(privacy "gaussian" => Gaussian);

settings! {
    /// Counts in Renyi divergences.
    pub struct Rdp {
        /// The delta of every guarantee.
        delta: f64 = 1e-5, in 0.0..1.0;
    }
}
impl Accountant for Rdp {
    fn charge(&mut self, _: &PrivacyEvent) -> Result<()> {
        bail!("a fake")
    }
    fn guarantee(&self, _: Option<&PrivacyEvent>) -> Result<Guarantee> {
        bail!("a fake")
    }
    fn merge(&mut self, _: &[Ledger], _: Composition) -> Result<()> {
        bail!("a fake")
    }
}
plugin!(accountant "rdp" => Rdp);

choices! {
    /// How it descends.
    pub enum Optimiser {
        /// It does not.
        Frozen = "frozen",
        /// Downhill.
        Sgd(Sgd) = "sgd",
    }
}
settings! {
    /// Downhill.
    pub struct Sgd {
        /// Rate.
        lr: f64, in fl_core::settings::above(0.0);
        /// Inertia.
        momentum: f64 = 0.9, in 0.0..1.0;
    }
}
settings! {
    /// A network.
    pub struct NetSettings {
        /// Number of outputs, if not that of the task.
        outputs: Option<usize> = None, in 1..;
        /// How it learns.
        optimiser: Optimiser = Optimiser::Frozen;
        /// A label.
        label: String = String::new();
    }
}
pub struct Net;
impl Net {
    fn new(settings: NetSettings, make: &BuildContext) -> Result<Self> {
        let due = make.task.kind.outputs();
        match settings.outputs {
            Some(n) if n != due => bail!("it has {n} outputs, the task needs {due}"),
            _ => Ok(Self),
        }
    }
}
impl Trainer for Net {
    fn fit(
        &mut self,
        _: &Samples,
        _: Target<'_>,
        _: &FitOptions<'_>,
        _: &Stream,
    ) -> Result<FitReport> {
        bail!("a fake")
    }
    fn predict(&mut self, _: &Samples) -> Result<Array2<f32>> {
        bail!("a fake")
    }
    fn save(&self) -> Result<Vec<u8>> {
        bail!("a fake")
    }
    fn load(&mut self, _: &[u8]) -> Result<()> {
        bail!("a fake")
    }
}
plugin!(trainer "net" => NetSettings as Net);

settings! {
    /// Training at home.
    pub struct Local {
        /// Passes over the data.
        epochs: usize = 1, in 1..;
        /// Examples at a time.
        batch: usize = 32, in 1..;
    }
}
settings! {
    /// Parameters go round and round.
    pub struct Rounds {
        /// How many.
        rounds: usize, in 1..=1000;
        /// Training at home.
        local: Local = Local { epochs: 1, batch: 32 };
        /// Is the result released with noise?
        noise: bool = true;
    }
}
const MODEL: TrainerSlot = TrainerSlot::new("model", "What is trained.");
const COHORT: SelectorSlot<Roster> = SelectorSlot::new("cohort", "Who trains.");
const AGGREGATOR: AggregatorSlot<Params, Params> =
    AggregatorSlot::new("aggregator", "Makes one of many.");
const PRIVACY: MechanismSlot<Params> = MechanismSlot::new("privacy", "Hides who took part.");
const TRAIN: Exchange<Params, Params> = Exchange::new("train");
impl Protocol for Rounds {
    fn declare(&self) -> Declaration<'_> {
        let train = TRAIN.answered_by(|_, _| bail!("a fake")).times(self.rounds);
        let all = Declaration::new()
            .slot(&MODEL)
            .slot(&COHORT)
            .slot(&AGGREGATOR)
            .slot(&PRIVACY);
        if self.noise {
            all.exchange(train.releases(&PRIVACY))
        } else {
            all.exchange(train)
        }
    }
    fn lead(&self, _: &mut Server<'_>) -> Result<()> {
        bail!("a fake")
    }
}
plugin!(protocol "rounds" => Rounds);

settings! {
    /// All clients answer about public samples once.
    pub struct Distil {}
}
const TEACHER: TrainerSlot = TrainerSlot::new("teacher", "Teaches.");
const ENSEMBLE: AggregatorSlot<Logits, Logits> = AggregatorSlot::new("ensemble", "Listens.");
const SCORES: Exchange<Nothing, Logits> = Exchange::new("scores of all public samples");
const SOME: Exchange<Ids, Logits> = Exchange::new("scores of some");
impl Protocol for Distil {
    fn declare(&self) -> Declaration<'_> {
        Declaration::new()
            .slot(&TEACHER)
            .slot(&ENSEMBLE)
            .exchange(SCORES.answered_by(|_, _| bail!("a fake")).all_public())
            .exchange(SOME.answered_by(|_, _| bail!("a fake")))
    }
    fn lead(&self, _: &mut Server<'_>) -> Result<()> {
        bail!("a fake")
    }
}
plugin!(protocol "distil" => Distil);

settings! {
    /// A model with settable abilities.
    pub struct Able {
        /// Numbers in its only parameter; 0 gives none, and without it the model has no parameters.
        width: Option<usize> = None, in 0..=100;
        /// Has it a layer of features?
        features: bool = false;
        /// Does it learn anything but classes?
        scores: bool = false;
        /// Does it learn classes?
        classes: bool = true;
    }
}
impl Able {
    fn new(settings: Able, _: &BuildContext) -> Result<Self> {
        Ok(settings)
    }
}
impl Trainer for Able {
    fn fit(
        &mut self,
        _: &Samples,
        _: Target<'_>,
        _: &FitOptions<'_>,
        _: &Stream,
    ) -> Result<FitReport> {
        bail!(Problem::Lacks("it learns classes only".into()))
    }
    fn predict(&mut self, _: &Samples) -> Result<Array2<f32>> {
        bail!("a fake")
    }
    fn features(&mut self, x: &Samples) -> Result<Option<Array2<f32>>> {
        Ok(self.features.then(|| Array2::zeros((x.len(), 2))))
    }
    fn abilities(&self) -> Abilities {
        let mut abilities = Abilities::default();
        abilities.learns.retain(|loss| match loss {
            Loss::CrossEntropy => self.classes,
            _ => self.scores,
        });
        abilities
    }
    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        self.width.is_some().then_some(self)
    }
    fn save(&self) -> Result<Vec<u8>> {
        bail!("a fake")
    }
    fn load(&mut self, _: &[u8]) -> Result<()> {
        bail!("a fake")
    }
}
impl Parametric for Able {
    fn params(&self) -> Params {
        let width = self.width.filter(|width| *width > 0);
        let w = width.map(|width| ("w".to_string(), ArrayD::zeros(vec![width])));
        Params(w.into_iter().collect())
    }
    fn set_params(&mut self, _: &Params) -> Result<()> {
        bail!("a fake")
    }
}
plugin!(trainer "able" => Able as Able);

settings! {
    /// Chooses by scores.
    pub struct Sure {}
}
impl Selector for Sure {
    type Pool = Samples;
    fn needs_scores(&self) -> bool {
        true
    }
    fn select(&mut self, _: &Round, _: &Samples) -> Result<Vec<usize>> {
        bail!("a fake")
    }
}
plugin!(selector "sure" => Sure);

settings! {
    /// Noise that has a price or not.
    pub struct Noisy {
        /// Which event its release is.
        priced: bool = true;
        /// Is it only for clients who were drawn?
        drawn: bool = false;
    }
}
impl PrivacyMechanism for Noisy {
    type On = Logits;
    fn clip(&self, _: &mut Logits) -> Result<()> {
        Ok(())
    }
    fn price(&self, _: &Logits, cohort: &Cohort) -> Result<PrivacyEvent> {
        let all = cohort.draw == SamplingScheme::Everyone;
        ensure!(!self.drawn || !all, Problem::Lacks("fill `cohort`".into()));
        Ok(if self.priced {
            PrivacyEvent::Pure {
                epsilon: 1.0,
                times: 1,
                unit: Unit::Party,
            }
        } else {
            PrivacyEvent::Unaccounted {
                why: "nothing bounds the scores; set `clip`".into(),
            }
        })
    }
    fn perturb(&mut self, _: &mut Logits, _: &Cohort, _: &ReleaseNoise) -> Result<()> {
        bail!("a fake")
    }
}
plugin!(privacy "noisy" => Noisy);

settings! {
    /// Prices what is pure.
    pub struct Pure {}
}
impl Accountant for Pure {
    fn charge(&mut self, _: &PrivacyEvent) -> Result<()> {
        bail!("a fake")
    }
    fn guarantee(&self, next: Option<&PrivacyEvent>) -> Result<Guarantee> {
        if let Some(PrivacyEvent::Unaccounted { why }) = next {
            bail!(Problem::Unpriced(why.clone()));
        }
        bail!("a fake")
    }
    fn merge(&mut self, _: &[Ledger], _: Composition) -> Result<()> {
        bail!("a fake")
    }
}
plugin!(accountant "pure" => Pure);

settings! {
    /// Needs much of its parts.
    pub struct Picky {
        /// Which samples the filter sees.
        filter_on_scores: bool = false;
        /// Learns from labelled public samples.
        pretrain: Option<Local> = None;
        /// Records a number of this name.
        records: Option<String> = None;
    }
}
impl Protocol for Picky {
    fn declare(&self) -> Declaration<'_> {
        const MODEL: TrainerSlot = TrainerSlot::new("model", "Is averaged.");
        const STUDENT: TrainerSlot = TrainerSlot::new("student", "Imitates.");
        const PUPIL: TrainerSlot = TrainerSlot::new("pupil", "Takes added losses.");
        const TEACHER: TrainerSlot = TrainerSlot::new("teacher", "Has features.");
        const FILTER: SelectorSlot<Samples> = SelectorSlot::new("filter", "Filters.");
        const PRIVACY: MechanismSlot<Logits> = MechanismSlot::new("privacy", "Noise.");
        const SAID: Exchange<Nothing, Logits> = Exchange::new("scores");
        let student = STUDENT.spec().at_server().optional();
        let teacher = TEACHER.spec().optional().needs(Ability::Features);
        let all = match &self.records {
            Some(name) => Declaration::new().measures([Measurement::number(name)]),
            None => Declaration::new(),
        };
        all.slot(MODEL.spec().shared_parameters().at_server())
            .slot(student.needs(Ability::Loss(Loss::Mae)))
            .slot(teacher.needs(Ability::InputGradient))
            .slot(
                (PUPIL.spec().optional())
                    .needs(Ability::TaskLoss)
                    .needs(Ability::SoftTargets)
                    .needs(Ability::GradientTerms)
                    .needs(Ability::AuxiliaryLoss)
                    .needs(Ability::FeatureLoss),
            )
            .slot(FILTER.spec().selects_from_scores(self.filter_on_scores))
            .exchange(SAID.answered_by(|_, _| bail!("a fake")).releases(&PRIVACY))
    }
    fn conflicts(&self, has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        let mut all = Vec::new();
        if self.pretrain.is_some() && !has("data.public.labelled") {
            all.push(Conflict::at("pretrain.epochs", "needs labels"));
        }
        if self.filter_on_scores && !has("filter") {
            all.push(Conflict::at("filter-on-scores", "has no effect"));
        }
        if has("student") && !has("data.public") {
            all.push(Conflict::between("a student needs public data"));
        }
        all
    }
    fn lead(&self, _: &mut Server<'_>) -> Result<()> {
        bail!("a fake")
    }
}
plugin!(protocol "picky" => Picky);
