//! The learner compared with one that counts every sample for every cut, and other exact
//! equalities.

use super::*;
use crate::bins::Binned;

/// A tree as text, found slowly: for every feature and every cut between two values, all samples
/// are counted.
struct Naive<'a> {
    x: &'a Array2<f32>,
    y: &'a [u32],
    of: usize,
    purity: Purity,
    min_leaf: usize,
    depth: usize,
}

impl Naive<'_> {
    fn impurity(&self, rows: &[usize]) -> f64 {
        let share = |c: usize| {
            rows.iter().filter(|r| self.y[**r] as usize == c).count() as f64 / rows.len() as f64
        };
        let each = (0..self.of).map(share).filter(|p| *p > 0.0);
        match self.purity {
            Purity::Gini => 1.0 - each.map(|p| p * p).sum::<f64>(),
            Purity::Entropy => -each.map(|p| p * libm::log2(p)).sum::<f64>(),
        }
    }

    fn grow(&self, rows: &[usize], depth: usize) -> String {
        let before = self.impurity(rows);
        let mut best: Option<(f64, usize, f32)> = None;
        if depth < self.depth && before > 0.0 {
            for f in 0..self.x.ncols() {
                let mut seen: Vec<f32> = rows.iter().map(|r| self.x[[*r, f]]).collect();
                seen.sort_by(f32::total_cmp);
                seen.dedup();
                for low in &seen[..seen.len() - 1] {
                    let (l, r) = self.sides(rows, f, *low);
                    if l.len().min(r.len()) < self.min_leaf {
                        continue;
                    }
                    let after =
                        l.len() as f64 * self.impurity(&l) + r.len() as f64 * self.impurity(&r);
                    let gain = before - after / rows.len() as f64;
                    if gain > best.map_or(-1e-9, |b| b.0 + 1e-12) {
                        best = Some((gain, f, *low));
                    }
                }
            }
        }
        match best {
            None => {
                let count = |c: usize| rows.iter().filter(|r| self.y[**r] as usize == c).count();
                format!("{:?}", (0..self.of).map(count).collect::<Vec<_>>())
            }
            Some((_, f, low)) => {
                let (l, r) = self.sides(rows, f, low);
                let (l, r) = (self.grow(&l, depth + 1), self.grow(&r, depth + 1));
                format!("({f} {low} {l} {r})")
            }
        }
    }

    fn sides(&self, rows: &[usize], f: usize, low: f32) -> (Vec<usize>, Vec<usize>) {
        rows.iter().partition(|r| self.x[[**r, f]] <= low)
    }
}

/// Returns one of our trees as the same text: values and counts come from the samples that arrive.
fn told(model: &Trees, x: &Array2<f32>, y: &[u32], of: usize) -> String {
    fn walk(
        tree: &crate::model::Grown,
        at: crate::model::Next,
        rows: &[usize],
        x: &Array2<f32>,
        y: &[u32],
        of: usize,
    ) -> String {
        if at.is_leaf() || tree.splits.is_empty() {
            let count = |c: usize| rows.iter().filter(|r| y[**r] as usize == c).count();
            let counts: Vec<usize> = (0..of).map(count).collect();
            for (c, n) in counts.iter().enumerate() {
                let share = *n as f64 / rows.len() as f64;
                assert_eq!(tree.leaves[at.at() * of + c], share as f32);
            }
            return format!("{counts:?}");
        }
        let split = tree.splits[at.at()];
        let f = split.feature as usize;
        let (l, r): (Vec<usize>, Vec<usize>) =
            rows.iter().partition(|r| x[[**r, f]] <= split.threshold);
        let low = l.iter().map(|r| x[[*r, f]]).fold(f32::MIN, f32::max);
        let (left, right) = (
            walk(tree, split.left, &l, x, y, of),
            walk(tree, split.right, &r, x, y, of),
        );
        format!("({f} {low} {left} {right})")
    }
    let tree = &model.model().trees[0];
    let rows: Vec<usize> = (0..y.len()).collect();
    let root = if tree.splits.is_empty() {
        crate::model::Next::leaf(0)
    } else {
        crate::model::Next::split(0)
    };
    walk(tree, root, &rows, x, y, of)
}

#[test]
fn trees_are_those_of_the_slow_way() {
    for seed in 0..120 {
        let of = 2 + seed as usize % 3;
        let rows = 1 + seed as usize * 7 % 60;
        let (x, y) = coarse(rows, 1 + seed as usize % 4, of, seed);
        let purity = [Purity::Gini, Purity::Entropy][seed as usize / 3 % 2].clone();
        let (min_leaf, depth) = (1 + seed as usize % 4, seed as usize % 6);
        let settings = Tree {
            purity: purity.clone(),
            min_leaf,
            depth,
            ..defaults()
        };
        let values = x.values();
        let naive = Naive {
            x: &values,
            y: &y,
            of,
            purity,
            min_leaf,
            depth,
        };
        let all: Vec<usize> = (0..rows).collect();
        let model = fitted(&settings, &x, &y, of);
        assert_eq!(
            told(&model, &values, &y, of),
            naive.grow(&all, 0),
            "seed {seed}"
        );
    }
}

#[test]
fn the_first_boosted_tree_is_xgboosts_formula() {
    let (x, y) = coarse(50, 3, 2, 9);
    let values = x.values();
    let settings = Boosting {
        trees: 1,
        depth: 1,
        rate: 0.3,
        l2: 0.7,
        min_weight: 0.0,
        ..defaults()
    };
    let scores = fitted(&settings, &x, &y, 2).predict(&x).unwrap();
    let p = y.iter().sum::<u32>() as f64 / 50.0;
    let sums = |f: usize, low: f32| {
        let mut sums = [[0.0; 2]; 2];
        for (row, class) in values.rows().into_iter().zip(&y) {
            let side = &mut sums[usize::from(row[f] > low)];
            side[0] += p - f64::from(*class);
            side[1] += p * (1.0 - p);
        }
        sums
    };
    let worth = |[g, h]: [f64; 2]| g * g / (h + 0.7);
    let cuts = (0..3).flat_map(|f| [-0.6, -0.3, 0.0, 0.3].map(|low| (f, low + 0.1)));
    let gain = |(f, low): (usize, f32)| sums(f, low).map(worth).iter().sum::<f64>();
    let (f, low) = cuts.max_by(|a, b| gain(*a).total_cmp(&gain(*b))).unwrap();
    let leaves = sums(f, low).map(|[g, h]| -0.3 * g / (h + 0.7));
    for (row, score) in values.rows().into_iter().zip(scores.rows()) {
        let wanted = libm::log(p / (1.0 - p)) + leaves[usize::from(row[f] > low)];
        assert!(
            (f64::from(score[1]) - wanted).abs() < 1e-5,
            "{} and not {wanted}",
            score[1]
        );
        assert_eq!(score[0], 0.0);
    }
}

#[test]
fn sums_are_exact_whatever_the_numbers() {
    use crate::criterion::{high, low, pair};
    let parts = [(-5, 7), (3, u32::MAX / 4), (i32::MIN / 4, 0), (-1, 1)];
    let sum = parts
        .iter()
        .fold(0u64, |s, (a, b)| s.wrapping_add(pair(*a, *b)));
    assert_eq!(high(sum), parts.iter().map(|p| p.0).sum::<i32>());
    assert_eq!(low(sum), parts.iter().map(|p| p.1).sum::<u32>());
    let rest = sum.wrapping_sub(pair(-5, 7));
    assert_eq!(
        (high(rest), low(rest)),
        (-2 + i32::MIN / 4 + 4, u32::MAX / 4 + 1)
    );
}

#[test]
fn a_weight_is_a_number_of_copies() {
    for of in [2, 3] {
        let (x, y) = coarse(40, 3, of, 5);
        let copies: Vec<usize> = (0..40).map(|i| 1 + i % 3).collect();
        let at: Vec<usize> = (0..40).flat_map(|i| vec![i; copies[i]]).collect();
        let labels: Vec<u32> = at.iter().map(|i| y[*i]).collect();
        let soft = Array2::from_shape_fn((40, of), |(i, c)| {
            if y[i] as usize == c {
                copies[i] as f32
            } else {
                0.0
            }
        });
        let tree = Tree {
            depth: 5,
            min_leaf: 3,
            ..defaults()
        };
        let (mut a, mut b) = (new(&tree, &x, of), new(&tree, &x, of));
        fit(&mut a, &x, Target::Soft(soft.view()), 1).unwrap();
        fit(&mut b, &x.pick(&at), Target::Classes(&labels), 1).unwrap();
        assert_eq!(a.model(), b.model());

        let boosting = Boosting {
            trees: 8,
            depth: 3,
            rate: 0.3,
            ..defaults()
        };
        let (mut a, mut b) = (new(&boosting, &x, of), new(&boosting, &x, of));
        fit(&mut a, &x, Target::Soft(soft.view()), 1).unwrap();
        fit(&mut b, &x.pick(&at), Target::Classes(&labels), 1).unwrap();
        let (a, b) = (a.predict(&x).unwrap(), b.predict(&x).unwrap());
        assert!(
            a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4),
            "{a} and {b}"
        );
    }
}

#[test]
fn sparse_and_dense_are_one() {
    let (x, y) = coarse(80, 6, 3, 2);
    let thin = sparse(&x);
    let settings = Forest {
        trees: 5,
        ..defaults()
    };
    let (a, b) = (
        fitted(&settings, &x, &y, 3),
        fitted(&settings, &thin, &y, 3),
    );
    assert_eq!(a.model(), b.model());
    let at: Vec<usize> = (0..80).rev().step_by(3).collect();
    let (mut a, mut b) = (a, b);
    assert_eq!(
        bits(&a.predict(&x.pick(&at)).unwrap()),
        bits(&b.predict(&thin.pick(&at)).unwrap())
    );
}

#[test]
fn images_are_cut_as_the_numbers_they_stand_for() {
    let mut draws = Stream::root(3).draws();
    let data: Vec<u8> = (0..60 * 8).map(|_| draws.below(256) as u8).collect();
    let inputs = Inputs::Bytes {
        shape: [2, 2, 2],
        data,
        mean: vec![0.4, 0.5],
        std: vec![0.2, 0.3],
    };
    let x = Samples::all(Arc::new(inputs)).pick(&(5..60).collect::<Vec<_>>());
    let dense = Samples::fresh(x.values(), vec![2, 2, 2]).unwrap();
    for bins in [2, 7, 256] {
        let (a, b) = (Binned::new(&x, bins), Binned::new(&dense, bins));
        for f in 0..8 {
            assert_eq!(a.column(f), b.column(f));
            assert_eq!(a.bins(f), b.bins(f));
            assert!((0..a.bins(f) - 1).all(|c| a.threshold(f, c) == b.threshold(f, c)));
        }
    }
}

#[test]
fn bins_are_ordered_few_and_even() {
    let mut draws = Stream::root(4).draws();
    for rows in [1, 2, 50, 3000] {
        let values = Array2::from_shape_fn((rows, 3), |(i, j)| match j {
            0 => draws.normal() as f32 * 1e30,
            1 => {
                if draws.below(10) < 6 {
                    0.0
                } else {
                    draws.normal() as f32
                }
            }
            _ => [f32::MIN, -0.0, 0.0, f32::MIN_POSITIVE, f32::MAX][i % 5],
        });
        let x = Samples::fresh(values.clone(), vec![3]).unwrap();
        for bins in [2, 16, 256] {
            let binned = Binned::new(&x, bins);
            for f in 0..3 {
                assert!(binned.bins(f) <= bins);
                for (value, code) in values.column(f).iter().zip(binned.column(f)) {
                    let code = usize::from(*code);
                    assert!(code == 0 || *value > binned.threshold(f, code - 1));
                    assert!(code + 1 == binned.bins(f) || *value <= binned.threshold(f, code));
                }
            }
            let mut held = vec![0; binned.bins(0)];
            binned
                .column(0)
                .iter()
                .for_each(|c| held[usize::from(*c)] += 1);
            let fair = rows / bins + 1;
            assert!(held.iter().all(|n| *n > 0 && *n <= 2 * fair), "{held:?}");
        }
    }
}

#[test]
fn soft_labels_are_parts_of_samples() {
    let (x, _) = coarse(30, 3, 3, 1);
    let mut draws = Stream::root(7).draws();
    let soft = Array2::from_shape_simple_fn((30, 3), || draws.below(4) as f32 / 4.0);
    // a constant tree predicts the mean
    let mut model = new(
        &Tree {
            depth: 0,
            ..defaults()
        },
        &x,
        3,
    );
    fit(&mut model, &x, Target::Soft(soft.view()), 1).unwrap();
    for c in 0..3 {
        let wanted = soft.column(c).sum() / soft.sum();
        assert!((model.model().trees[0].leaves[c] - wanted).abs() < 1e-6);
    }
    // samples of weight 0 do not count, even if a bootstrap draws only those
    let mut soft = Array2::zeros((30, 3));
    soft[[4, 2]] = 1e-30;
    soft[[5, 1]] = 0.9e-30;
    fn check<S: Into<Method> + Clone>(settings: &S, x: &Samples, soft: &Array2<f32>) {
        let mut model = new(settings, x, 3);
        let loss = fit(&mut model, x, Target::Soft(soft.view()), 1)
            .unwrap()
            .loss;
        let scores = model.predict(&x.pick(&[4])).unwrap();
        assert!(loss.is_finite() && scores.iter().all(|s| s.is_finite()));
        assert_eq!(classes(&scores), [2]);
    }
    check(&defaults::<Tree>(), &x, &soft);
    check(&defaults::<Forest>(), &x, &soft);
    check(&defaults::<Boosting>(), &x, &soft);
}
