//! Parts that keep something, one of each role that does. With `forgets: true` they keep nothing,
//! so a test can see that what they keep counts. `hosts/cli/tests/program/stateful.c` has the same
//! parts in C.

use fl_core::message::Params;
use fl_core::prelude::*;
use fl_core::{FitReport, Parametric, Problem};
use ndarray::{Array1, Array2, ArrayView2, Ix1};

mod spreads;

fl_core::export_plugins!();

settings! {
    /// Keeps something from one use to the next.
    pub struct Keeps {
        /// Keep nothing.
        forgets: bool = false;
    }
}

/// How often a part was used.
#[derive(Clone, Copy, Default)]
struct Uses {
    forgets: bool,
    count: u32,
}

impl Uses {
    fn next(&mut self) -> u32 {
        self.count += u32::from(!self.forgets);
        self.count
    }

    fn save(self) -> Vec<u8> {
        match self.count {
            0 => Vec::new(),
            count => count.to_le_bytes().to_vec(),
        }
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        let bytes = state
            .try_into()
            .with_context(|| format!("a count has 4 bytes, not {}", state.len()))?;
        self.count = u32::from_le_bytes(bytes);
        Ok(())
    }
}

/// The mean times a factor that depends on the number of rounds so far.
pub struct Mean(Uses);

/// Two clients in a round, in turn.
pub struct Turns(Uses);

/// Noise that grows with each release.
pub struct Noise(Uses);

macro_rules! counts {
    ($part:ident) => {
        impl From<Keeps> for $part {
            fn from(keeps: Keeps) -> Self {
                Self(Uses {
                    forgets: keeps.forgets,
                    count: 0,
                })
            }
        }
    };
}
counts!(Mean);
counts!(Turns);
counts!(Noise);

macro_rules! saves {
    () => {
        fn save(&self) -> Vec<u8> {
            self.0.save()
        }
        fn load(&mut self, state: &[u8]) -> Result<()> {
            self.0.load(state)
        }
    };
}

impl Aggregator for Mean {
    type In = Params;
    type Out = Params;
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let mut mean = inbox.weighted_mean(&vec![1.0; inbox.len()], &*round.exec);
        mean.scale(1.0 + 0.1 * f64::from(self.0.next()));
        Ok(mean)
    }
    saves!();
}
plugin!(aggregator "rs-aggregator" => Keeps as Mean);

impl Selector for Turns {
    type Pool = Roster;
    fn select(&mut self, _: &Round, pool: &Roster) -> Result<Vec<usize>> {
        let first = self.0.next() as usize % pool.len();
        let mut chosen = vec![first, (first + 1) % pool.len()];
        chosen.sort_unstable();
        chosen.dedup();
        Ok(chosen)
    }
    saves!();
}
plugin!(selector "rs-selector" => Keeps as Turns);

impl PrivacyMechanism for Noise {
    type On = Params;
    fn clip(&self, _: &mut Params) -> Result<()> {
        Ok(())
    }
    fn price(&self, _: &Params, _: &Cohort) -> Result<PrivacyEvent> {
        let why = "nothing is clipped".into();
        Ok(PrivacyEvent::Unaccounted { why })
    }
    fn perturb(&mut self, message: &mut Params, _: &Cohort, _: &ReleaseNoise) -> Result<()> {
        let by = 0.01 * self.0.next() as f32;
        let tensors = message.0.values_mut();
        tensors.for_each(|tensor| tensor.mapv_inplace(|x| x + by));
        Ok(())
    }
    saves!();
}
plugin!(privacy "rs-privacy" => Keeps as Noise);

/// A score for each class, whatever the sample; a momentum, and a memory that counts questions.
pub struct Scores {
    scores: Array1<f32>,
    moment: Array1<f32>,
    uses: Uses,
}

impl Scores {
    fn new(keeps: Keeps, context: &BuildContext) -> Result<Self> {
        let zeros = Array1::zeros(context.task.kind.outputs());
        Ok(Self {
            scores: zeros.clone(),
            moment: zeros,
            uses: Uses {
                forgets: keeps.forgets,
                count: 0,
            },
        })
    }

    fn take(&self, bytes: &[u8]) -> Result<Array1<f32>> {
        let due = 4 * self.scores.len();
        ensure!(
            bytes.len() == due,
            "a model has {due} bytes, not {}",
            bytes.len()
        );
        let numbers = bytes.chunks_exact(4);
        let numbers = numbers.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        Ok(numbers.collect())
    }
}

fn bytes(of: &Array1<f32>) -> Vec<u8> {
    of.iter().flat_map(|x| x.to_le_bytes()).collect()
}

impl Trainer for Scores {
    fn fit(
        &mut self,
        _: &Samples,
        target: Target<'_>,
        pass: &FitOptions<'_>,
        _: &Stream,
    ) -> Result<FitReport> {
        let Target::Classes(classes) = target else {
            bail!(Problem::Lacks("it learns classes only".into()));
        };
        if pass.fresh {
            self.moment.fill(0.0);
        }
        let mut shares = Array1::<f32>::zeros(self.scores.len());
        for class in classes {
            let share = shares.get_mut(*class as usize);
            *share.with_context(|| Problem::Shape(format!("class {class}")))? +=
                1.0 / classes.len() as f32;
        }
        let slope = &self.scores - &shares;
        self.moment = 0.5 * &self.moment + &slope;
        let rate = 0.1 / (1.0 + self.uses.next() as f32);
        self.scores.scaled_add(-rate, &self.moment);
        Ok(FitReport {
            steps: 1,
            loss: f64::from(slope.dot(&slope)),
            falls: None,
        })
    }
    fn abilities(&self) -> Abilities {
        Abilities {
            learns: vec![Loss::CrossEntropy],
            ..Abilities::default()
        }
    }
    fn predict(&mut self, x: &Samples) -> Result<Array2<f32>> {
        let shape = (x.len(), self.scores.len());
        let all = self.scores.broadcast(shape).context("one row")?;
        Ok(all.to_owned())
    }
    // ANCHOR: state
    fn save(&self) -> Result<Vec<u8>> {
        Ok(bytes(&self.scores))
    }
    fn load(&mut self, model: &[u8]) -> Result<()> {
        self.scores = self.take(model)?;
        Ok(())
    }
    fn save_state(&self) -> Result<Vec<u8>> {
        let all = [bytes(&self.scores), bytes(&self.moment), self.uses.save()];
        Ok(all.concat())
    }
    fn load_state(&mut self, state: &[u8]) -> Result<()> {
        let size = 4 * self.scores.len();
        ensure!(state.len() >= 2 * size, "a state of {} bytes", state.len());
        let (scores, rest) = state.split_at(size);
        let (moment, uses) = rest.split_at(size);
        let (scores, moment) = (self.take(scores)?, self.take(moment)?);
        self.load_memory(uses)?;
        (self.scores, self.moment) = (scores, moment);
        Ok(())
    }
    fn save_memory(&self) -> Result<Vec<u8>> {
        Ok(self.uses.save())
    }
    fn load_memory(&mut self, memory: &[u8]) -> Result<()> {
        match memory {
            [] => self.uses.count = 0,
            some => self.uses.load(some)?,
        }
        Ok(())
    }
    // ANCHOR_END: state
    fn parametric(&mut self) -> Option<&mut dyn Parametric> {
        Some(self)
    }
}

impl Parametric for Scores {
    fn params(&self) -> Params {
        Params([("w".to_string(), self.scores.clone().into_dyn())].into())
    }
    fn set_params(&mut self, params: &Params) -> Result<()> {
        fl_core::message::alike(&self.params(), params)?;
        self.scores = params.0["w"].clone().into_dimensionality::<Ix1>()?;
        Ok(())
    }
}
plugin!(trainer "rs-trainer" => Keeps as Scores);

/// Normal numbers, moved by the number of lessons.
pub struct Moved {
    uses: Uses,
    task: Task,
}

impl Moved {
    fn new(keeps: Keeps, context: &BuildContext) -> Result<Self> {
        Ok(Self {
            uses: Uses {
                forgets: keeps.forgets,
                count: 0,
            },
            task: context.task.clone(),
        })
    }
}

impl Generator for Moved {
    fn sample(&mut self, n: usize, stream: &Stream) -> Result<Samples> {
        let (mut draws, by) = (stream.draws(), 0.01 * self.uses.count as f32);
        let shape = (n, self.task.width());
        let values = Array2::from_shape_simple_fn(shape, || draws.normal() as f32 + by);
        Samples::fresh(values, self.task.input.clone())
    }
    fn learn(&mut self, _: &Samples, _: ArrayView2<'_, f32>) -> Result<()> {
        self.uses.next();
        Ok(())
    }
    fn save(&self) -> Result<Vec<u8>> {
        Ok(self.uses.save())
    }
    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.uses.load(state)
    }
}
plugin!(generator "rs-generator" => Keeps as Moved);
