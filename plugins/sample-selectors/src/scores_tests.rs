use super::*;
use fl_core::settings::read_yaml;
use fl_core::{Inputs, Labels};
use ndarray::{Array2, arr2};
use std::sync::Arc;

fn confidence_of(yaml: &str) -> Confidence {
    Confidence::from(read_yaml::<ConfidenceSettings>(yaml).unwrap())
}

fn energy_of(yaml: &str) -> Energy {
    Energy::from(read_yaml::<EnergySettings>(yaml).unwrap())
}

fn own(scores: Array2<f32>, classes: usize) -> Examples {
    let labels = Labels::Classes {
        of: vec![0; scores.nrows()],
        classes,
    };
    let inputs = Inputs::Dense {
        shape: vec![scores.ncols()],
        data: scores.iter().copied().collect(),
    };
    Examples::all(Arc::new(inputs), Arc::new(labels)).unwrap()
}

fn pool() -> Samples {
    // softmax of (ln 3, 0) is (0.75, 0.25); logsumexp of (ln 3, 0) is ln 4
    let l3 = libm::logf(3f32);
    Samples::fresh(
        arr2(&[[l3, 0.0], [0.0, 0.0], [40.0, 0.0], [l3 - 9.0, -9.0]]),
        vec![2],
    )
    .unwrap()
}

#[test]
fn both_are_selectors() {
    for yaml in ["{}", "{quantile: 0}", "{quantile: 1}"] {
        fl_conformance::selector(|| confidence_of(yaml));
        fl_conformance::selector(|| energy_of(yaml));
    }
    fl_conformance::selector(|| confidence_of("{threshold: 0.5}"));
    fl_conformance::selector(|| energy_of("{threshold: -1.5}"));
}

#[test]
fn close_scores_are_those_of_the_papers() {
    let mut part = confidence_of("{threshold: 0.74}");
    part.fit(&own(Array2::zeros((0, 2)), 2), &Stream::root(1))
        .unwrap();
    let rank = part.rank(&pool()).unwrap().unwrap();
    for (got, wanted) in rank.iter().zip([0.75, 0.5, 1.0, 0.75]) {
        assert!((got - wanted).abs() < 1e-6, "{rank:?}");
    }
    assert_eq!(part.select(&Round::first(), &pool()).unwrap(), [0, 2, 3]);
    // energies: -ln 4 = -1.386, -ln 2 = -0.693, -40, 9 - ln 4 = 7.6
    let mut part = energy_of("{threshold: -1}");
    part.fit(&own(Array2::zeros((0, 2)), 2), &Stream::root(1))
        .unwrap();
    let rank = part.rank(&pool()).unwrap().unwrap();
    for (got, wanted) in rank.iter().zip([
        libm::log(4f64),
        libm::log(2f64),
        40.0,
        libm::log(4f64) - 9.0,
    ]) {
        assert!((got - wanted).abs() < 1e-5, "{rank:?}");
    }
    assert_eq!(part.select(&Round::first(), &pool()).unwrap(), [0, 2]);
}

#[test]
fn exact_the_quantile_of_the_own_scores_is_rejected() {
    let scores = Array2::from_shape_fn((9, 2), |(i, c)| if c == 0 { i as f32 } else { 0.0 });
    let own = own(scores, 2);
    // position (9 - 1) x 0.25 = 2: the three least confident are 0, 1, 2, and 2 is the threshold
    let (mut confidence, mut energy) = (confidence_of("{}"), energy_of("{}"));
    confidence.fit(&own, &Stream::root(1)).unwrap();
    energy.fit(&own, &Stream::root(1)).unwrap();
    let wanted: Vec<usize> = (2..9).collect();
    assert_eq!(
        confidence.select(&Round::first(), &own.samples).unwrap(),
        wanted
    );
    assert_eq!(
        energy.select(&Round::first(), &own.samples).unwrap(),
        wanted
    );
}

#[test]
fn without_own_samples_nothing_is_kept() {
    let mut part = confidence_of("{}");
    part.fit(&own(Array2::zeros((0, 2)), 2), &Stream::root(1))
        .unwrap();
    assert_eq!(
        part.select(&Round::first(), &pool()).unwrap(),
        [] as [usize; 0]
    );
}

#[test]
fn mistakes_are_told() {
    let s = Stream::root(1);
    let mut part = confidence_of("{}");
    let unfitted = part.select(&Round::first(), &pool()).unwrap_err();
    let images = part.fit(&own(Array2::zeros((2, 784)), 10), &s).unwrap_err();
    part.fit(&own(Array2::zeros((2, 2)), 2), &s).unwrap();
    let other = part.select(
        &Round::first(),
        &Samples::fresh(Array2::zeros((1, 3)), vec![3]).unwrap(),
    );
    let nan = Samples::fresh(arr2(&[[0.0, 1.0], [f32::NAN, 0.0]]), vec![2]).unwrap();
    let nan = part.select(&Round::first(), &nan).unwrap_err();
    let findings = Examples::all(
        Arc::new(Inputs::Dense {
            shape: vec![2],
            data: vec![0.0; 2],
        }),
        Arc::new(Labels::Multi(Array2::zeros((1, 2)))),
    );
    let findings = energy_of("{}").fit(&findings.unwrap(), &s).unwrap_err();
    let state = part.load(b"x").unwrap_err();
    let lines =
        [unfitted, images, other.unwrap_err(), nan, findings, state].map(|e| format!("{e:#}"));
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_quantile_beside_a_fixed_threshold_is_a_mistake() {
    let both = "{quantile: 0.1, threshold: 0.5}";
    let due = "`quantile` has no effect beside a fixed `threshold`: leave one of them out";
    let confidence = read_yaml::<ConfidenceSettings>(both).unwrap_err();
    assert_eq!(confidence.to_string(), due);
    let energy = read_yaml::<EnergySettings>(both).unwrap_err();
    assert_eq!(energy.to_string(), due);
}
