//! The network that makes a prototype of each class (FedTGP): an embedding, and two linear layers.
use crate::prototypes::FeatureMeans;
use fl_core::Problem;
use fl_core::message::ClassMeans;
use fl_core::portable::product;
use fl_core::prelude::*;
use ndarray::{Array1, Array2, Axis, Dimension};

message! {
    /// A network that makes a prototype of each class.
    pub struct Network: "prototype-network" {
        /// An embedding of each class that a client has had, as wide as a prototype.
        embedding: FeatureMeans,
        /// Weights and biases of two layers, with a rectifier between them.
        layers: Params,
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            embedding: FeatureMeans::none(),
            layers: Params::default(),
        }
    }
}

const WEIGHTS: [&str; 2] = ["1.weight", "2.weight"];
const BIASES: [&str; 2] = ["1.bias", "2.bias"];

/// The numbers of a network in 64 bits.
struct Numbers {
    embedding: Array2<f64>,
    /// `outputs x inputs` of each layer.
    weights: [Array2<f64>; 2],
    biases: [Array1<f64>; 2],
}

pub(crate) fn norm(of: &Array1<f64>) -> f64 {
    of.iter().map(|x| x * x).sum::<f64>().sqrt()
}

impl Network {
    /// Draws what it lacks: layers of this width, and embeddings of these classes.
    ///
    /// # Errors
    /// If it has another width.
    pub(crate) fn grow(&mut self, classes: &[u32], width: usize, stream: &Stream) -> Result<()> {
        if self.layers.0.is_empty() {
            let (mut draws, bound) = (
                stream.child("layers", 0).draws(),
                1.0 / (width as f64).sqrt(),
            );
            let mut draw = || (bound * (2.0 * draws.uniform() - 1.0)) as f32;
            for (weight, bias) in WEIGHTS.into_iter().zip(BIASES) {
                let w = Array2::from_shape_simple_fn((width, width), &mut draw);
                let b = Array1::from_shape_simple_fn(width, &mut draw);
                self.layers.0.insert(weight.into(), w.into_dyn());
                self.layers.0.insert(bias.into(), b.into_dyn());
            }
        }
        let due = self.layers.0[BIASES[0]].len();
        let text = || {
            format!(
                "mean features of {width} numbers, and prototypes of {due}: give all clients networks with as many features"
            )
        };
        Problem::shape_unless(width == due, text)?;
        for class in classes {
            if self.embedding.0.class(*class).is_none() {
                let mut draws = stream.child("embedding", u64::from(*class)).draws();
                let drawn = Array2::from_shape_simple_fn((1, width), || draws.normal() as f32);
                self.embedding
                    .update(&FeatureMeans(ClassMeans::new(vec![*class], drawn)))?;
            }
        }
        Ok(())
    }

    fn open(&self) -> Numbers {
        fn of<D: Dimension>(layers: &Params, name: &str) -> ndarray::Array<f64, D> {
            let tensor = layers.0[name].mapv(f64::from);
            tensor.into_dimensionality().expect("as it was drawn")
        }
        Numbers {
            embedding: self.embedding.0.values.mapv(f64::from),
            weights: WEIGHTS.map(|name| of(&self.layers, name)),
            biases: BIASES.map(|name| of(&self.layers, name)),
        }
    }

    /// Returns the prototype of each class.
    pub(crate) fn prototypes(&self) -> FeatureMeans {
        let classes = &self.embedding.0.rows;
        if classes.is_empty() {
            return FeatureMeans::none();
        }
        let made = self.open().forward().1.mapv(|t| t as f32);
        FeatureMeans(ClassMeans::new(classes.clone(), made))
    }

    /// Takes a step for each mini-batch of means, each with its class. Returns the loss of the last.
    /// The numbers are rounded to 32 bits at the end.
    pub(crate) fn train<'m>(
        &mut self,
        batches: impl Iterator<Item = Vec<&'m (u32, Array1<f64>)>>,
        margin: f64,
        lr: f64,
    ) -> f64 {
        let (mut numbers, classes, mut loss) = (self.open(), &self.embedding.0.rows, 0.0);
        for batch in batches {
            loss = numbers.step(classes, &batch, margin, lr);
        }
        let Numbers {
            embedding,
            weights,
            biases,
        } = numbers;
        self.embedding.0.values = embedding.mapv(|x| x as f32);
        for (name, of) in WEIGHTS.into_iter().zip(weights) {
            self.layers
                .0
                .insert(name.into(), of.mapv(|x| x as f32).into_dyn());
        }
        for (name, of) in BIASES.into_iter().zip(biases) {
            self.layers
                .0
                .insert(name.into(), of.mapv(|x| x as f32).into_dyn());
        }
        loss
    }
}

impl Numbers {
    /// Returns the outputs of the first layer, and the prototypes.
    fn forward(&self) -> (Array2<f64>, Array2<f64>) {
        let layer =
            |x: &Array2<f64>, at: usize| product(x.view(), self.weights[at].t()) + &self.biases[at];
        let hidden = layer(&self.embedding, 0).mapv(|h| h.max(0.0));
        let made = layer(&hidden, 1);
        (hidden, made)
    }

    /// Steps along the gradient of the mean of `CE(-(|p - T| + margin [its class]), class)` over
    /// means `p`, where `T` are the prototypes. Returns that loss.
    fn step(
        &mut self,
        classes: &[u32],
        batch: &[&(u32, Array1<f64>)],
        margin: f64,
        lr: f64,
    ) -> f64 {
        let (hidden, made) = self.forward();
        let (mut loss, mut by_made) = (0.0, Array2::<f64>::zeros(made.dim()));
        for (class, mean) in batch {
            let own = |at: usize| f64::from(u8::from(classes[at] == *class));
            let ways: Vec<_> = made.rows().into_iter().map(|t| &t - mean).collect();
            let far: Vec<f64> = ways.iter().map(norm).collect();
            let scores: Vec<f64> = (0..far.len())
                .map(|at| -(far[at] + margin * own(at)))
                .collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| libm::exp(s - top)).sum();
            for (at, way) in ways.iter().enumerate() {
                let share = libm::exp(scores[at] - top) / sum;
                loss += own(at) * (libm::log(sum) + top - scores[at]) / batch.len() as f64;
                if far[at] > 0.0 {
                    let by = (own(at) - share) / far[at] / batch.len() as f64;
                    by_made.row_mut(at).scaled_add(by, way);
                }
            }
        }
        let mut by_hidden = product(by_made.view(), self.weights[1].view());
        by_hidden.zip_mut_with(&hidden, |by, h| *by *= f64::from(u8::from(*h > 0.0)));
        let by_embedding = product(by_hidden.view(), self.weights[0].view());
        for (at, by, x) in [
            (1, &by_made, &hidden),
            (0, &by_hidden, &self.embedding.clone()),
        ] {
            self.weights[at].scaled_add(-lr, &product(by.t(), x.view()));
            self.biases[at].scaled_add(-lr, &by.sum_axis(Axis(0)));
        }
        self.embedding.scaled_add(-lr, &by_embedding);
        loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    /// The paper's loss, from the numbers of a network.
    fn loss(of: &Numbers, batch: &[&(u32, Array1<f64>)], margin: f64) -> f64 {
        let all = batch.iter().map(|(class, mean)| {
            let far = |c: usize| {
                let mut hidden = of.biases[0].clone();
                for i in 0..2 {
                    for j in 0..2 {
                        hidden[i] += of.weights[0][[i, j]] * of.embedding[[c, j]];
                    }
                }
                let mut square = 0.0;
                for i in 0..2 {
                    let layer = (0..2).map(|j| of.weights[1][[i, j]] * f64::max(hidden[j], 0.0));
                    square += (layer.sum::<f64>() + of.biases[1][i] - mean[i]).powi(2);
                }
                square.sqrt() + if c == *class as usize { margin } else { 0.0 }
            };
            let sum: f64 = (0..3).map(|c| libm::exp(-far(c))).sum();
            far(*class as usize) + libm::log(sum)
        });
        all.sum::<f64>() / batch.len() as f64
    }

    #[test]
    fn close_a_step_follows_the_slope_of_the_papers_loss() {
        let mut network = Network::default();
        network.grow(&[0, 1, 2], 2, &Stream::root(3)).unwrap();
        let means = [
            (0, array![0.3, -1.0]),
            (2, array![1.4, 0.2]),
            (2, array![0.1, 0.9]),
        ];
        let batch: Vec<_> = means.iter().collect();
        let (before, lr, margin) = (network.open(), 1e-3, 0.7);
        let mut after = network.open();
        let found = after.step(&[0, 1, 2], &batch, margin, lr);
        assert!((found - loss(&before, &batch, margin)).abs() < 1e-12);
        let moved = |change: &dyn Fn(&mut Numbers, f64)| {
            let at = |d: f64| {
                let mut of = network.open();
                change(&mut of, d);
                loss(&of, &batch, margin)
            };
            -lr * (at(1e-6) - at(-1e-6)) / 2e-6
        };
        for at in 0..2 {
            for i in 0..2 {
                let due = moved(&|of, d| of.biases[at][i] += d);
                assert!((after.biases[at][i] - before.biases[at][i] - due).abs() < 1e-10);
                for j in 0..2 {
                    let due = moved(&|of, d| of.weights[at][[i, j]] += d);
                    let found = after.weights[at][[i, j]] - before.weights[at][[i, j]];
                    assert!((found - due).abs() < 1e-10, "{at} {i} {j}: {found}, {due}");
                }
            }
        }
        for (at, before) in before.embedding.indexed_iter() {
            let due = moved(&|of, d| of.embedding[at] += d);
            assert!((after.embedding[at] - before - due).abs() < 1e-10);
        }
    }

    #[test]
    fn another_width_is_refused() {
        let mut network = Network::default();
        network.grow(&[1], 2, &Stream::root(3)).unwrap();
        let text = network.grow(&[1], 3, &Stream::root(3)).unwrap_err();
        assert!(text.to_string().contains("prototypes of 2"), "{text}");
    }
}
