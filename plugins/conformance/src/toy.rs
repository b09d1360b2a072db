//! Easy problems for trainers.

use crate::broken::{Held, must, run};
use fl_core::{Loss, OwnedTarget, Samples, Stream, Target, Task, TaskKind, Trainer, loss};
use ndarray::Array2;

/// Returns the tasks of the checks of trainers: three classes and three labels. Each is on rows of
/// 7 numbers and on images of one channel with 6x6 pixels.
pub fn tasks() -> Vec<Task> {
    of(&[vec![7], vec![1, 6, 6]])
}

/// Returns the task of two classes for every pixel of an image, brighter or darker than the mean.
/// It is used besides [`tasks`] for a trainer that can be made for it.
pub fn pixels() -> Task {
    Task::new(
        vec![1, 6, 6],
        TaskKind::Pixels {
            classes: 2,
            height: 6,
            width: 6,
        },
    )
}

/// Returns the task of every pixel's value without its noise, used as [`pixels`] is.
pub fn images() -> Task {
    Task::new(
        vec![1, 6, 6],
        TaskKind::Image {
            channels: 1,
            height: 6,
            width: 6,
        },
    )
}

/// Returns the task of a number for each row, used as [`pixels`] is.
pub fn numbers() -> Task {
    Task::new(
        vec![7],
        TaskKind::Numbers {
            outputs: 1,
            loss: Loss::Mse,
        },
    )
}

/// Returns [`tasks`] on images of the sizes that published networks support.
pub(crate) fn larger() -> Vec<Task> {
    of(&[vec![1, 28, 28], vec![3, 32, 32]])
}

fn of(shapes: &[Vec<usize>]) -> Vec<Task> {
    let kinds = [TaskKind::Classes(3), TaskKind::MultiLabel(3)];
    let task = |(kind, input): (TaskKind, &Vec<usize>)| Task::new(input.clone(), kind);
    kinds
        .into_iter()
        .flat_map(|kind| shapes.iter().map(move |s| (kind, s)))
        .map(task)
        .collect()
}

/// Samples that a linear model can separate, with their labels.
pub(crate) struct Toy {
    pub(crate) x: Samples,
    kind: TaskKind,
    target: OwnedTarget,
}

impl Toy {
    /// Makes samples. Every class, or label, has a direction; a sample is the direction of its
    /// class, or the sum of its labels' directions, plus noise; numbers are 1 for a label that is
    /// present and -1 for another. One label in ten is unknown. A
    /// pixel is bright or dark, plus noise.
    pub(crate) fn new(task: &Task, rows: usize, stream: &Stream) -> Self {
        let (width, outputs) = (task.width(), task.kind.outputs());
        // samples of one length for any width, so that one learning rate suits all
        let size = 2.0 / (width as f64).sqrt();
        let mut draws = Stream::root(1).child("directions", width as u64).draws();
        let direction = Array2::from_shape_simple_fn((outputs, width), || size * draws.normal());
        let mut draws = stream.draws();
        let classes: Vec<u32> = (0..rows).map(|_| draws.below(outputs) as u32).collect();
        let present = Array2::from_shape_simple_fn((rows, outputs), || draws.below(2) as i8);
        let pixels = if task.kind.is_dense() { width } else { 0 };
        let mask = Array2::from_shape_simple_fn((rows, pixels), || draws.below(2) as u8);
        let values = Array2::from_shape_fn((rows, width), |(i, j)| {
            let signal: f64 = match task.kind {
                TaskKind::Classes(_) => direction[[classes[i] as usize, j]],
                TaskKind::Pixels { .. } | TaskKind::Image { .. } => {
                    size * (2.0 * f64::from(mask[[i, j]]) - 1.0)
                }
                TaskKind::MultiLabel(_) | TaskKind::Numbers { .. } => (0..outputs)
                    .map(|c| f64::from(2 * present[[i, c]] - 1) * direction[[c, j]] / 2.0)
                    .sum(),
            };
            (signal + 0.2 * size * draws.normal()) as f32
        });
        let target = match task.kind {
            TaskKind::Classes(_) => OwnedTarget::Classes(classes),
            TaskKind::MultiLabel(_) => {
                let known = |p| if draws.below(10) == 0 { -1 } else { p };
                OwnedTarget::MultiLabel(present.mapv(known))
            }
            TaskKind::Pixels { .. } => OwnedTarget::Pixels(mask),
            // not 0, where the mean absolute error has its kink for a model of zeros
            TaskKind::Image { .. } => {
                OwnedTarget::Scores(mask.mapv(|bright| 0.25 + 0.5 * f32::from(bright)))
            }
            TaskKind::Numbers { .. } => OwnedTarget::Scores(present.mapv(|p| f32::from(2 * p - 1))),
        };
        let x = Samples::fresh(values, task.input.clone()).expect("as many values as the task has");
        let kind = task.kind;
        Self { x, kind, target }
    }

    /// Replaces samples by word numbers below `vocabulary`: each place has two words, if there are
    /// as many, one for numbers above 0 and one for others.
    pub(crate) fn in_words(mut self, vocabulary: usize) -> Self {
        let values = self.x.values();
        let words = Array2::from_shape_fn(values.dim(), |(i, j)| {
            let above = usize::from(values[[i, j]] > 0.0);
            ((2 * j + above) % vocabulary.max(1)) as f32
        });
        let shape = self.x.shape();
        self.x = Samples::fresh(words, shape).expect("as many words as there were numbers");
        self
    }

    pub(crate) fn target(&self) -> Target<'_> {
        self.target.view()
    }

    /// Returns the loss of a model's predictions.
    pub(crate) fn loss(
        &self,
        property: &'static str,
        place: &str,
        model: &mut dyn Trainer,
    ) -> Held<f64> {
        let scores = run(property, place, || model.predict(&self.x))?;
        must(property, scores.iter().all(|s| s.is_finite()), || {
            format!("{place}: a score is not finite")
        })?;
        run(property, place, || {
            loss::of_batch(self.kind.loss(), self.target(), scores.view())
        })
        .map(|(value, _)| value)
    }
}
