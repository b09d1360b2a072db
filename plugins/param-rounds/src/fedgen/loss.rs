//! The server's loss of made features (FedGEN, Zhu et al. 2021): the loss of the clients' last
//! layers, and the diversity of the features.
use fl_core::Head;
use fl_core::loss::{Aim, of_sample};
use fl_core::prelude::*;
use ndarray::{Array1, Array2};

/// The last layers of the clients of a round, with their counts of classes.
#[derive(Default)]
pub struct Teachers {
    heads: Vec<Head>,
    /// For each class, the number of examples of each client.
    counts: Vec<Vec<f64>>,
}

impl Teachers {
    /// Adds a client with these numbers of examples per class.
    pub fn add(&mut self, head: Head, counts: &[u32]) {
        self.counts.resize_with(head.outputs(), Vec::new);
        for (class, all) in self.counts.iter_mut().enumerate() {
            all.push(counts.get(class).copied().unwrap_or_default().into());
        }
        self.heads.push(head);
    }

    /// Returns the classes that at least one client has.
    pub fn classes(&self) -> Vec<u32> {
        let held = self.counts.iter().enumerate();
        let held = held.filter(|(_, all)| all.iter().any(|n| *n > 0.0));
        held.map(|(class, _)| class as u32).collect()
    }

    /// Returns `mean_i sum_k a_k(y_i) CE(head_k(f_i), y_i)` and its slope by each feature. Features
    /// `f` are made for classes `y` that at least one client has, and `a_k(y)` is client `k`'s
    /// share of all examples of class `y`.
    pub fn of_batch(&self, features: &Array2<f64>, classes: &[u32]) -> (f64, Array2<f64>) {
        let n = classes.len().max(1) as f64;
        let (mut loss, mut slope) = (0.0, Array2::zeros(features.dim()));
        for (k, head) in self.heads.iter().enumerate() {
            let scores = head.scores(features.view());
            let mut by_scores = Array2::<f64>::zeros(scores.dim());
            let rows = scores.rows().into_iter().zip(by_scores.rows_mut());
            for ((scores, mut by), class) in rows.zip(classes) {
                let class = *class as usize;
                let all = &self.counts[class];
                let share = all[k] / all.iter().sum::<f64>();
                let (scores, mut to) = (scores.to_vec(), vec![0.0; by.len()]);
                // cross-entropy always goes with a class
                let term = of_sample(Loss::CrossEntropy, Aim::Class(class), &scores, &mut to);
                loss += share / n * term.map_or(f64::NAN, |(loss, _)| loss);
                by.assign(&(Array1::from(to) * (share / n)));
            }
            slope += &head.by_features(by_scores.view());
        }
        (loss, slope)
    }
}

/// Returns `exp(-mean_ij (|f_i - f_j| |e_i - e_j|))` over all pairs of features `f` and of their
/// noise `e`, where `|.|` is the mean absolute difference. It is from 0 to 1, and 1 if the features
/// do not depend on the noise. Second, its slope by each feature.
pub fn diversity(features: &Array2<f64>, noise: &Array2<f64>) -> (f64, Array2<f64>) {
    let (n, width) = features.dim();
    let pairs = (n * n).max(1) as f64;
    let apart = |of: &Array2<f64>, i: usize, j: usize| {
        let both = of.row(i).into_iter().zip(of.row(j));
        both.map(|(a, b)| (a - b).abs()).sum::<f64>() / of.ncols().max(1) as f64
    };
    let (mut sum, mut slope) = (0.0, Array2::<f64>::zeros((n, width)));
    for i in 0..n {
        for j in 0..i {
            let noise = apart(noise, i, j);
            sum += 2.0 * noise * apart(features, i, j);
            for c in 0..width {
                let off = features[[i, c]] - features[[j, c]];
                // two equal features have no slope
                if off != 0.0 {
                    let by = 2.0 * noise * off.signum() / width as f64;
                    slope[[i, c]] += by;
                    slope[[j, c]] -= by;
                }
            }
        }
    }
    let alike = libm::exp(-sum / pairs);
    (alike, slope * (-alike / pairs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn teachers() -> Teachers {
        let mut all = Teachers::default();
        let head = |w: [[f64; 2]; 3], b: [f64; 3]| Head {
            weight: ndarray::arr2(&w),
            bias: ndarray::arr1(&b),
        };
        all.add(
            head([[0.5, -1.0], [0.2, 0.3], [-0.7, 0.1]], [0.0, 0.1, -0.1]),
            &[3, 0, 0],
        );
        all.add(
            head([[1.5, 0.4], [-0.2, 0.8], [0.3, 0.3]], [0.2, 0.0, 0.4]),
            &[1, 5, 0],
        );
        all
    }

    /// Computes the formulas again, number by number.
    fn by_hand(f: &[[f64; 2]; 3], e: &[[f64; 1]; 3], y: [usize; 3]) -> (f64, f64) {
        let w = [
            [[0.5, -1.0, 0.0], [0.2, 0.3, 0.1], [-0.7, 0.1, -0.1]],
            [[1.5, 0.4, 0.2], [-0.2, 0.8, 0.0], [0.3, 0.3, 0.4]],
        ];
        let a = [[0.75, 0.0, 0.0], [0.25, 1.0, 0.0]];
        let mut loss = 0.0;
        for (f, y) in f.iter().zip(y) {
            for k in 0..2 {
                let s = w[k].map(|[u, v, b]| u * f[0] + v * f[1] + b);
                let sum: f64 = s.iter().map(|s| libm::exp(*s)).sum();
                loss -= a[k][y] * libm::log(libm::exp(s[y]) / sum) / 3.0;
            }
        }
        let mut mean = 0.0;
        for i in 0..3 {
            for j in 0..3 {
                let apart = (f[i][0] - f[j][0]).abs() / 2.0 + (f[i][1] - f[j][1]).abs() / 2.0;
                mean += apart * (e[i][0] - e[j][0]).abs() / 9.0;
            }
        }
        (loss, libm::exp(-mean))
    }

    const F: [[f64; 2]; 3] = [[0.3, -0.8], [1.2, 0.1], [-0.4, 0.6]];
    const E: [[f64; 1]; 3] = [[0.5], [-1.0], [0.25]];
    const Y: [usize; 3] = [0, 1, 0];

    #[test]
    fn close_losses_are_the_formulas_and_slopes_are_theirs() {
        let (e, y) = (ndarray::arr2(&E), Y.map(|y| y as u32));
        let (loss, by) = teachers().of_batch(&ndarray::arr2(&F), &y);
        let (alike, parts) = diversity(&ndarray::arr2(&F), &e);
        let due = by_hand(&F, &E, Y);
        assert!((loss - due.0).abs() < 1e-12, "{loss}, {}", due.0);
        assert!((alike - due.1).abs() < 1e-12, "{alike}, {}", due.1);
        for i in 0..3 {
            for c in 0..2 {
                let at = |d: f64| {
                    let mut f = F;
                    f[i][c] += d;
                    by_hand(&f, &E, Y)
                };
                let (more, less) = (at(1e-5), at(-1e-5));
                let (n, m) = ((more.0 - less.0) / 2e-5, (more.1 - less.1) / 2e-5);
                assert!((by[[i, c]] - n).abs() < 1e-9, "{} {n}", by[[i, c]]);
                assert!((parts[[i, c]] - m).abs() < 1e-9, "{} {m}", parts[[i, c]]);
            }
        }
    }

    #[test]
    fn exact_who_lacks_a_class_says_nothing_of_it() {
        assert_eq!(teachers().classes(), [0, 1]);
        let f = array![[0.3, -0.8]];
        let (all, by) = teachers().of_batch(&f, &[1]);
        let mut other = teachers();
        other.heads[0].weight.fill(9.0);
        assert_eq!(other.of_batch(&f, &[1]), (all, by));
    }

    #[test]
    fn exact_features_that_do_not_follow_the_noise_are_all_alike() {
        let same = array![[1.0, 2.0], [1.0, 2.0]];
        let (alike, slope) = diversity(&same, &array![[0.0], [3.0]]);
        assert_eq!(alike, 1.0);
        assert!(slope.iter().all(|g| *g == 0.0));
        assert_eq!(diversity(&array![[1.0]], &array![[0.0]]).0, 1.0);
    }
}
