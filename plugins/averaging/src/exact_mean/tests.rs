use super::*;
use fl_core::{Draws, Serial};
use num_rational::BigRational;

fn exact(x: f64) -> BigRational {
    BigRational::from_float(x).expect("a finite number")
}

/// The nearest f32 of a rational, ties to even, by bisection over all f32.
fn rounded(x: &BigRational) -> f32 {
    let of = |at: i64| {
        let size = f32::from_bits(at.unsigned_abs() as u32);
        if at < 0 { -size } else { size }
    };
    let most = i64::from(f32::MAX.to_bits());
    let (mut low, mut high) = (-most, most);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if exact(f64::from(of(middle))) <= *x {
            low = middle
        } else {
            high = middle
        }
    }
    let (below, above) = (of(low), of(high));
    let below_by = x - exact(f64::from(below));
    let above_by = exact(f64::from(above)) - x;
    match below_by.cmp(&above_by) {
        std::cmp::Ordering::Less => below,
        std::cmp::Ordering::Greater => above,
        std::cmp::Ordering::Equal if below.to_bits().is_multiple_of(2) => below,
        std::cmp::Ordering::Equal => above,
    }
}

fn reference(sent: &[Vec<f32>], weights: &[f64], at: usize) -> f32 {
    let sum: BigRational = sent
        .iter()
        .zip(weights)
        .map(|(sent, weight)| exact(f64::from(sent[at])) * exact(*weight))
        .sum();
    rounded(&(sum / weights.iter().map(|w| exact(*w)).sum::<BigRational>()))
}

fn mean(sent: &[Vec<f32>], weights: &[f64]) -> Vec<f32> {
    let sent: Vec<&[f32]> = sent.iter().map(Vec::as_slice).collect();
    exact_weighted_mean(&sent, weights, &Serial).unwrap()
}

fn fold(sent: &[Vec<f32>], weights: &[f64], of: &[usize]) -> ExactMeanOfParams {
    let mut fold = ExactMeanOfParams::default();
    for at in of {
        let params = Params([("w".into(), ndarray::arr1(&sent[*at]).into_dyn())].into());
        let mail = ClientMessage::new(*at as u32, weights[*at], params);
        fold.add(mail).unwrap();
    }
    fold
}

fn finish(fold: ExactMeanOfParams) -> Vec<u32> {
    let mean = Box::new(fold).finish().unwrap();
    mean.iter().map(|x| x.to_bits()).collect()
}

fn bits(of: &[f32]) -> Vec<u32> {
    of.iter().map(|x| x.to_bits()).collect()
}

/// Numbers of a kind: like a model's, of every size, near ties, or such that they cancel.
fn number(kind: usize, draws: &mut Draws) -> f32 {
    match kind {
        0 => draws.normal() as f32,
        1 => loop {
            let any = f32::from_bits((draws.uniform() * 4_294_967_296.0) as u32);
            if any.is_finite() {
                break any;
            }
        },
        2 => 1.0 + draws.below(3) as f32 * f32::EPSILON,
        3 => [f32::MAX, -f32::MAX, 1e-30, -1e-30, 1.0, -1.0, 0.0, -0.0][draws.below(8)],
        // subnormal
        _ => f32::from_bits(draws.below(16) as u32) * [1.0, -1.0][draws.below(2)],
    }
}

#[test]
fn exact_means_are_the_rounded_rationals_in_any_order_and_partition() {
    let mut draws = Stream::root(36).draws();
    for case in 0..400 {
        let (clients, numbers) = (1 + draws.below(20), 1 + draws.below(12));
        let kind = case % 5;
        let sent: Vec<Vec<f32>> = (0..clients)
            .map(|_| (0..numbers).map(|_| number(kind, &mut draws)).collect())
            .collect();
        let mut weights: Vec<f64> = (0..clients)
            .map(|_| match case / 5 % 5 {
                0 => 1.0,
                1 => draws.below(1000) as f64,
                2 => draws.uniform(),
                3 => draws.uniform() * 10f64.powi(draws.below(400) as i32 - 200),
                _ => 0.1 * (1 + draws.below(3)) as f64,
            })
            .collect();
        weights[0] = weights[0].max(0.5);
        let here = mean(&sent, &weights);
        for (at, here) in here.iter().enumerate() {
            let due = reference(&sent, &weights, at);
            assert_eq!(*here, due, "case {case}, number {at}: {weights:?}");
        }
        // folded in another order, and merged from two parts
        let order = draws.permutation(clients);
        assert_eq!(
            finish(fold(&sent, &weights, &order)),
            bits(&here),
            "case {case}"
        );
        let cut = draws.below(clients + 1);
        let mut merged = fold(&sent, &weights, &order[..cut]);
        merged.merge(fold(&sent, &weights, &order[cut..])).unwrap();
        assert_eq!(finish(merged), bits(&here), "case {case}, cut at {cut}");
        let shuffled: Vec<Vec<f32>> = order.iter().map(|at| sent[*at].clone()).collect();
        let by: Vec<f64> = order.iter().map(|at| weights[*at]).collect();
        assert_eq!(bits(&mean(&shuffled, &by)), bits(&here), "case {case}");
    }
}

#[test]
fn exact_blocks_and_threads_change_nothing() {
    struct Backwards;
    impl Executor for Backwards {
        fn chunks(&self, data: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
            let mut all: Vec<_> = data.chunks_mut(size).enumerate().collect();
            all.reverse();
            all.into_iter().for_each(|(at, chunk)| work(at, chunk));
        }
    }
    let mut draws = Stream::root(5).draws();
    let n = CHUNK + BLOCK + GROUP + 7;
    let sent: Vec<Vec<f32>> = (0..11)
        .map(|_| (0..n).map(|_| draws.normal() as f32).collect())
        .collect();
    let weights = [3.0, 1.0, 0.0, 20.5, 7.25, 1e-3, 11.0, 2.0, 9.5, 0.1, 4.0];
    let here = mean(&sent, &weights);
    let views: Vec<&[f32]> = sent.iter().map(Vec::as_slice).collect();
    let there = exact_weighted_mean(&views, &weights, &Backwards).unwrap();
    assert_eq!(bits(&here), bits(&there));
    let all: Vec<usize> = (0..11).collect();
    assert_eq!(finish(fold(&sent, &weights, &all)), bits(&here));
    for at in (0..n).step_by(997).chain([CHUNK - 1, CHUNK, n - 1]) {
        assert_eq!(here[at], reference(&sent, &weights, at), "number {at}");
    }
}

#[test]
fn numbers_that_are_not_finite_stay_so() {
    let inf = f32::INFINITY;
    let sent = [
        vec![inf, inf, f32::NAN, -inf, 1.0],
        vec![1.0, -inf, 1.0, -inf, 2.0],
    ];
    let here = mean(&sent, &[1.0, 2.0]);
    assert!(here[0] == inf && here[1].is_nan() && here[2].is_nan() && here[3] == -inf);
    assert_eq!(here[4], 5.0f32 / 3.0);
    let folded = finish(fold(&sent, &[1.0, 2.0], &[1, 0]));
    assert_eq!(folded, bits(&here));
    let mut merged = fold(&sent, &[1.0, 2.0], &[1]);
    merged.merge(fold(&sent, &[1.0, 2.0], &[0])).unwrap();
    assert_eq!(finish(merged), bits(&here));
}

#[test]
fn what_has_no_exact_mean_is_an_error() {
    let sent: [&[f32]; 1] = [&[1.0]];
    for weight in [-1.0, f64::NAN, f64::INFINITY, 1e300, 1e-300] {
        let error = exact_weighted_mean(&sent, &[weight], &Serial).unwrap_err();
        assert!(error.to_string().contains("takes 0 and weights"), "{error}");
    }
    assert!(Box::<ExactMeanOfParams>::default().finish().is_err());
    assert!(mean(&[vec![]], &[1.0]).is_empty());
    let mut one = fold(&[vec![1.0]], &[1.0], &[0]);
    one.merge(ExactMeanOfParams::default()).unwrap();
    assert!(one.merge(fold(&[vec![1.0, 2.0]], &[1.0], &[0])).is_err());
}
