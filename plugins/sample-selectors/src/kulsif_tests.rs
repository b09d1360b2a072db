use super::*;
use crate::kernel::Points;

/// Returns two-dimensional clusters and a pool of both.
fn features(n: usize, width: usize) -> (Array2<f32>, Array2<f32>, Array2<f32>) {
    let stream = Stream::root(2);
    let mut draws = stream.child("u", 0).draws();
    let uniform = Array2::from_shape_simple_fn((n, width), || (8.0 * draws.uniform() - 4.0) as f32);
    let mut draws = stream.child("x", 0).draws();
    let mut lump = |rows, centre: f64| {
        Array2::from_shape_simple_fn((rows, width), || (centre + draws.normal()) as f32)
    };
    let own = lump(60, 0.5);
    let pool = concatenate(Axis(0), &[lump(200, 0.5).view(), lump(200, -0.5).view()]).unwrap();
    (uniform, own, pool)
}

fn fit(u: &Array2<f32>, own: &Array2<f32>, sigma: f64, method: Method<'_>) -> Ratios {
    Ratios::fit(u.view(), &[own.view()], sigma, 0.05, method).unwrap()
}

/// Returns the objective of a fit with a `beta` of 0.05.
fn objective(of: &Ratios, uniform: &Array2<f32>, own: &Array2<f32>) -> f64 {
    let at = |points: &Array2<f32>| of.of(points.view()).unwrap().column(0).to_vec();
    let (u, s, z) = (at(uniform), at(own), at(&of.centres));
    let norm = dot(&of.coefficients.row(0).to_vec(), &z);
    let mean = s.iter().sum::<f64>() / s.len() as f64;
    0.5 * dot(&u, &u) / u.len() as f64 - mean + 0.5 * 0.05 * norm
}

#[test]
fn close_the_exact_ratio_minimises_the_objective() {
    let (u, own, _) = features(120, 3);
    let exact = fit(&u, &own, 2.0, Method::Exact);
    let least = objective(&exact, &u, &own);
    for at in [0, 7, 119, 120, 150] {
        for step in [0.05, -0.05] {
            let mut moved = exact.clone();
            moved.coefficients[[0, at]] += step;
            let more = objective(&moved, &u, &own);
            assert!(more > least, "coefficient {at}, {step}: {more} <= {least}");
        }
    }
    let official = fit(&u, &own, 2.0, Method::Official);
    assert!(objective(&official, &u, &own) > least);
}

#[test]
fn close_all_points_as_landmarks_are_exact() {
    let (u, own, pool) = features(120, 3);
    let exact = fit(&u, &own, 2.0, Method::Exact).of(pool.view()).unwrap();
    let stream = Stream::root(1);
    let all = fit(&u, &own, 2.0, Method::Landmarks(180, &stream));
    for (a, b) in exact.iter().zip(&all.of(pool.view()).unwrap()) {
        assert!((a - b).abs() < 1e-4 * a.abs().max(1.0), "{a} and {b}");
    }
}

/// Returns the share of pairs in the same order (Kendall); Spearman is at least as high here.
fn agreement(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len();
    let pairs = (0..n).flat_map(|i| (0..i).map(move |j| (i, j)));
    let same = pairs
        .filter(|(i, j)| (a[*i] < a[*j]) == (b[*i] < b[*j]))
        .count();
    same as f64 / (n * (n - 1) / 2) as f64
}

#[test]
fn few_landmarks_rank_as_the_exact_ratio_does() {
    let (u, own, pool) = features(1000, 8);
    let exact = fit(&u, &own, 5.0, Method::Exact).of(pool.view()).unwrap();
    let stream = Stream::root(1);
    let few = fit(&u, &own, 5.0, Method::Landmarks(200, &stream))
        .of(pool.view())
        .unwrap();
    let (exact, few) = (exact.column(0).to_vec(), few.column(0).to_vec());
    let same = agreement(&exact, &few);
    assert!(same > 0.98, "{same} of the pairs are in the same order");
    let below = |w: &[f64]| {
        w[..200]
            .iter()
            .flat_map(|a| w[200..].iter().map(move |b| f64::from(a > b)))
            .sum::<f64>()
            / 40_000.0
    };
    assert!((below(&exact) - below(&few)).abs() < 0.005 && below(&exact) > 0.9);
}

#[test]
fn several_sets_are_as_each_alone() {
    let (u, own, pool) = features(50, 2);
    let (a, b) = (own.slice(s![..20, ..]), own.slice(s![20.., ..]));
    let both = Ratios::fit(u.view(), &[a, b], 1.0, 0.1, Method::Exact).unwrap();
    let both = both.of(pool.view()).unwrap();
    for (set, column) in [a, b].into_iter().zip(both.columns()) {
        let alone = Ratios::fit(u.view(), &[set], 1.0, 0.1, Method::Exact).unwrap();
        for (x, y) in alone.of(pool.view()).unwrap().iter().zip(column) {
            assert!((x - y).abs() < 1e-9 * x.abs().max(1.0), "{x} and {y}");
        }
    }
}

#[test]
fn far_off_points_keep_their_digits() {
    // so far out that f32 just resolves steps of 1/16
    let (far, n) = (1e6_f32, 40);
    let mut draws = Stream::root(4).draws();
    let near = Array2::from_shape_simple_fn((n, 5), || (draws.below(64) as f32) / 16.0);
    let ratio = |shift: f32| {
        let x = near.mapv(|v| v + shift);
        let (u, own) = (x.slice(s![..30, ..]), x.slice(s![30.., ..]));
        let fitted = Ratios::fit(u, &[own], 2.0, 0.1, Method::Exact).unwrap();
        fitted.of(x.view()).unwrap()
    };
    for (a, b) in ratio(0.0).iter().zip(&ratio(far)) {
        assert!((a - b).abs() < 1e-7, "{a} and {b}");
    }
}

#[test]
fn close_kernels_are_those_of_the_definition() {
    let (u, own, _) = features(300, 7);
    let (a, b) = (
        Points::new(u.view(), &[0.1; 7]),
        Points::new(own.view(), &[0.1; 7]),
    );
    let mut buffer = vec![0.0; BLOCK * 60];
    let kernel = Gaussian::new(1.7);
    let mut out = Vec::new();
    for block in a.blocks() {
        out.extend_from_slice(kernel.block(&a, &block, &b, &mut buffer));
    }
    assert_eq!(out.len(), 300 * 60);
    for (i, x) in u.outer_iter().enumerate() {
        for (j, y) in own.outer_iter().enumerate() {
            let square: f64 = x
                .iter()
                .zip(y)
                .map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2))
                .sum();
            let wanted = libm::exp(-square / (2.0 * 1.7 * 1.7));
            assert!((out[i * 60 + j] - wanted).abs() < 1e-13, "{i}, {j}");
        }
    }
}
