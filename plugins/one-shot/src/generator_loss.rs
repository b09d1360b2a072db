//! The generator's loss on one batch, with its slopes.
use fl_core::loss::{self, Aim};
use fl_core::metrics::argmax;
use fl_core::prelude::*;
use ndarray::Array2;

/// What ensemble and student say of a made input.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The ensemble's probability of the label.
    pub likely: f64,
    /// Whether both name the same class.
    pub agreed: bool,
}

/// How much a made input counts.
#[derive(Clone, Copy, Debug)]
pub struct Emphasis {
    /// In the cross-entropy.
    pub cross_entropy: f64,
    /// In the divergence.
    pub divergence: f64,
}

/// The generator's loss on one batch.
#[derive(Clone, Debug)]
pub struct GeneratorLoss {
    /// The mean of the ensemble's cross-entropy to the labels, as inputs count.
    pub cross_entropy: f64,
    /// The mean divergence of the student from the ensemble, as inputs count.
    pub divergence: f64,
    /// The slope by the ensemble's scores.
    pub by_ensemble: Array2<f64>,
    /// The slope by the student's scores.
    pub by_student: Array2<f64>,
}

/// Returns `mean(CE(ensemble, label)) - weight * mean(KL(ensemble || student))`, each input counting
/// as `emphasis` says, with its slopes. The divergence is that at temperature `tau`, times its
/// square. The slopes take `emphasis` as given.
///
/// # Errors
/// If a label is not below the number of classes.
pub fn generator_loss(
    labels: &[u32],
    (ensemble, student): (&Array2<f64>, &Array2<f64>),
    (weight, tau): (f64, f64),
    emphasis: impl Fn(&Seen) -> Emphasis,
) -> Result<GeneratorLoss> {
    let n = labels.len() as f64;
    let mut all = GeneratorLoss {
        cross_entropy: 0.0,
        divergence: 0.0,
        by_ensemble: Array2::zeros(ensemble.dim()),
        by_student: Array2::zeros(student.dim()),
    };
    for (row, label) in labels.iter().enumerate() {
        let label = *label as usize;
        let (z, s) = (ensemble.row(row).to_vec(), student.row(row).to_vec());
        ensure!(label < z.len(), "label {label} of {} classes", z.len());
        let (mut by_z, mut by_s) = (vec![0.0; z.len()], vec![0.0; z.len()]);
        let (ce, _) = loss::of_sample(Loss::CrossEntropy, Aim::Class(label), &z, &mut by_z)?;
        let (kl, _) = loss::of_sample(Loss::Kl { tau }, Aim::Scores(&z), &s, &mut by_s)?;
        let counts = emphasis(&Seen {
            likely: by_z[label] + 1.0,
            agreed: argmax(z.iter()) == argmax(s.iter()),
        });
        all.cross_entropy += counts.cross_entropy * ce / n;
        all.divergence += counts.divergence * kl / n;
        // d KL / d z_c = tau q_c (d_c - sum q d), with d = (z - s) / tau and q = softmax(z / tau)
        let mut q = z.clone();
        loss::softmax(&mut q, tau);
        let apart = z.iter().zip(&s).map(|(z, s)| z - s);
        let mean: f64 = q.iter().zip(apart.clone()).map(|(q, d)| q * d).sum();
        let (ce, kl) = (counts.cross_entropy / n, weight * counts.divergence / n);
        let each = apart.zip(&q).zip(by_z.iter().zip(&by_s)).enumerate();
        for (class, ((d, q), (by_z, by_s))) in each {
            all.by_ensemble[(row, class)] = ce * by_z - kl * q * (d - mean);
            all.by_student[(row, class)] = -kl * by_s;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Stream;
    use ndarray::array;

    fn plain(_: &Seen) -> Emphasis {
        Emphasis {
            cross_entropy: 1.0,
            divergence: 1.0,
        }
    }

    #[test]
    fn close_the_terms_of_one_input_are_those_computed_by_hand() {
        // the ensemble says 3/4, the student 1/2
        let z = array![[libm::log(3.0), 0.0]];
        let s = array![[0.0, 0.0]];
        let loss = generator_loss(&[0], (&z, &s), (1.0, 1.0), plain).unwrap();
        let ce = libm::log(4.0 / 3.0);
        let kl = 0.75 * libm::log(1.5) + 0.25 * libm::log(0.5);
        assert!((loss.cross_entropy - ce).abs() < 1e-12);
        assert!((loss.divergence - kl).abs() < 1e-12);
        // the student's slope of the divergence is p - q, and the generator ascends it
        assert!((loss.by_student[(0, 0)] - 0.25).abs() < 1e-12);
    }

    #[test]
    fn an_input_counts_as_its_emphasis_says() {
        let z = array![[3.0, 0.0], [3.0, 0.0]];
        let s = array![[1.0, 0.0], [0.0, 1.0]];
        let differing = |seen: &Seen| Emphasis {
            cross_entropy: 0.0,
            divergence: f64::from(u8::from(!seen.agreed)),
        };
        let loss = generator_loss(&[0, 1], (&z, &s), (1.0, 1.0), differing).unwrap();
        assert_eq!(loss.cross_entropy, 0.0);
        assert!(loss.by_student.row(0).iter().all(|g| *g == 0.0));
        assert!(loss.by_ensemble.row(0).iter().all(|g| *g == 0.0));
        assert!(loss.by_student[(1, 0)] > 0.0 && loss.by_ensemble[(1, 0)] < 0.0);
        let likely = |seen: &Seen| Emphasis {
            cross_entropy: seen.likely,
            divergence: 0.0,
        };
        let p = 1.0 / (1.0 + libm::exp(-3.0));
        let one = generator_loss(&[0], (&array![[3.0, 0.0]], &s), (1.0, 1.0), likely);
        let due = -p * libm::log(p);
        assert!((one.unwrap().cross_entropy - due).abs() < 1e-12);
    }

    #[test]
    fn slopes_are_those_of_the_loss() {
        let mut draws = Stream::root(3).draws();
        let mut table = || Array2::from_shape_simple_fn((4, 3), || 2.0 * draws.normal());
        let (z, s, labels) = (table(), table(), [0, 2, 1, 1]);
        let (weight, tau) = (0.7, 3.0);
        let at = |z: &Array2<f64>, s: &Array2<f64>| {
            generator_loss(&labels, (z, s), (weight, tau), plain).unwrap()
        };
        let value = |z: &Array2<f64>, s: &Array2<f64>| {
            let loss = at(z, s);
            loss.cross_entropy - weight * loss.divergence
        };
        let exact = at(&z, &s);
        for place in ndarray::indices((4, 3)) {
            let moved = |of: &Array2<f64>, by: f64| {
                let mut of = of.clone();
                of[place] += by;
                of
            };
            let by_z = value(&moved(&z, 1e-5), &s) - value(&moved(&z, -1e-5), &s);
            assert!((exact.by_ensemble[place] - by_z / 2e-5).abs() < 1e-7);
            let by_s = value(&z, &moved(&s, 1e-5)) - value(&z, &moved(&s, -1e-5));
            assert!((exact.by_student[place] - by_s / 2e-5).abs() < 1e-7);
        }
    }
}
