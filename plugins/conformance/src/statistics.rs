//! Tests of whether a sample comes from a distribution.

/// The probability that a test here refuses a correct sample. Seeds are fixed, so a part passes
/// always or never.
pub(crate) const ERROR_RATE: f64 = 1e-6;

/// Returns the Kolmogorov-Smirnov distance between a sample and a distribution function, and the
/// distance that a correct sample exceeds with probability [`ERROR_RATE`] (the bound of Dvoretzky,
/// Kiefer, Wolfowitz and Massart).
pub(crate) fn kolmogorov_smirnov(mut sample: Vec<f64>, below: impl Fn(f64) -> f64) -> (f64, f64) {
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let gap = |(i, x): (usize, &f64)| {
        let p = below(*x);
        (p - i as f64 / n).max((i + 1) as f64 / n - p)
    };
    let distance = sample.iter().enumerate().map(gap).fold(0.0, f64::max);
    (distance, (libm::log(2.0 / ERROR_RATE) / (2.0 * n)).sqrt())
}

/// Returns the share of pairs of neighbours on the same side of 0, and its largest distance from a
/// half. Draws from a symmetric distribution, independent of each other, exceed it with probability
/// [`ERROR_RATE`] (Hoeffding's bound).
pub(crate) fn same_sides(sample: &[f64]) -> (f64, f64) {
    let pairs = sample.as_chunks::<2>().0;
    let same = pairs
        .iter()
        .filter(|[x, y]| (*x < 0.0) == (*y < 0.0))
        .count();
    let n = pairs.len().max(1) as f64;
    (
        same as f64 / n,
        (libm::log(2.0 / ERROR_RATE) / (2.0 * n)).sqrt(),
    )
}

/// The distribution function of the Laplace distribution with scale 1.
pub(crate) fn laplace_below(x: f64) -> f64 {
    if x < 0.0 {
        libm::exp(x) / 2.0
    } else {
        1.0 - libm::exp(-x) / 2.0
    }
}

/// The distribution function of the standard normal distribution, to 1e-7 (Abramowitz and Stegun,
/// 26.2.17).
pub(crate) fn normal_below(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let poly = [
        1.330_274_429,
        -1.821_255_978,
        1.781_477_937,
        -0.356_563_782,
        0.319_381_530,
    ];
    let tail = poly.iter().fold(0.0, |sum, c| (sum + c) * t) * libm::exp(-x * x / 2.0)
        / std::f64::consts::TAU.sqrt();
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::Stream;

    #[test]
    fn honest_samples_pass_and_others_do_not() {
        let mut draws = Stream::root(5).draws();
        let laplace: Vec<f64> = (0..20_000).map(|_| draws.laplace(1.0)).collect();
        let normal: Vec<f64> = (0..20_000).map(|_| draws.normal()).collect();
        let far = |sample: &[f64], factor: f64, below: fn(f64) -> f64| {
            let (distance, most) =
                kolmogorov_smirnov(sample.iter().map(|x| x * factor).collect(), below);
            distance > most
        };
        assert!(!far(&laplace, 1.0, laplace_below) && !far(&normal, 1.0, normal_below));
        assert!(far(&laplace, 1.0, normal_below) && far(&normal, 1.0, laplace_below));
        assert!(
            far(&laplace, 0.85, laplace_below) && far(&normal, 0.85, normal_below),
            "15 % too little noise is seen"
        );
    }

    #[test]
    fn the_normal_distribution_function() {
        for (x, p) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746),
            (-1.96, 0.024_997_895),
            (3.0, 0.998_650_102),
        ] {
            assert!(
                (normal_below(x) - p).abs() < 2e-7,
                "{x}: {}",
                normal_below(x)
            );
        }
    }
}
