use super::*;
use fl_core::settings::read_yaml;
use fl_core::{Inputs, Labels};
use std::sync::Arc;

fn settings(yaml: &str) -> DensityRatioSettings {
    read_yaml(yaml).unwrap()
}

fn fitted(yaml: &str, own: &Examples) -> Result<DensityRatio> {
    let mut part = DensityRatio::from(settings(yaml));
    part.fit(own, &Stream::root(5))?;
    Ok(part)
}

fn chosen(part: &mut DensityRatio, pool: &Samples) -> Vec<usize> {
    part.select(&Round::first(), pool).unwrap()
}

/// Returns own samples of these classes: two features around (3 class, 0).
fn lumps(of: Vec<u32>, seed: u64) -> Examples {
    let mut draws = Stream::root(seed).draws();
    let row = |class: &u32| {
        [
            3.0 * f64::from(*class) + 0.3 * draws.normal(),
            0.3 * draws.normal(),
        ]
    };
    let data = of.iter().flat_map(row).map(|v| v as f32).collect();
    let inputs = Inputs::Dense {
        shape: vec![2],
        data,
    };
    let labels = Labels::Classes { of, classes: 5 };
    Examples::all(Arc::new(inputs), Arc::new(labels)).unwrap()
}

fn points(rows: &[[f32; 2]]) -> Samples {
    Samples::fresh(ndarray::arr2(rows), vec![2]).unwrap()
}

const SMALL: &str = "bounds: [-4, 10], width: 1";

#[test]
fn density_ratio_is_a_selector() {
    for yaml in [
        "{uniform: 40}",
        "{uniform: 1, quantile: 0}",
        "{uniform: 30, width: median, strict: true, quantile: 1}",
        "{uniform: 30, variant: official, per-class: false}",
        "{uniform: 60, variant: landmarks, landmarks: 20, share: 1}",
        "{uniform: 60, variant: landmarks, landmarks: 1, bounds: [0, 0]}",
    ] {
        fl_conformance::selector(|| DensityRatio::from(settings(yaml)));
    }
}

#[test]
fn it_knows_its_own_and_one_class_is_enough() {
    let of: Vec<u32> = (0..120).map(|i| 2 * (i % 2)).collect(); // classes 0 and 2, at 0 and 6
    let pool = points(&[
        [0.0, 0.0],
        [3.0, 0.0],
        [6.0, 0.0],
        [9.0, 0.0],
        [6.2, 0.1],
        [0.0, 5.0],
    ]);
    for variant in ["exact", "landmarks, landmarks: 80"] {
        let yaml = format!("{{{SMALL}, share: 0.3, variant: {variant}}}");
        let mut part = fitted(&yaml, &lumps(of.clone(), 1)).unwrap();
        assert_eq!(chosen(&mut part, &pool), [0, 2, 4], "{variant}");
        let rank = part.rank(&pool).unwrap().unwrap();
        assert!(rank[0] > rank[1] && rank[2] > rank[3], "{rank:?}");
        assert_eq!(part.fitted.as_ref().unwrap().thresholds.len(), 2);
    }
    let mut part = fitted(
        &format!("{{{SMALL}, share: 0.3, per-class: false}}"),
        &lumps(of, 1),
    )
    .unwrap();
    assert_eq!(part.fitted.as_ref().unwrap().thresholds.len(), 1);
    assert_eq!(chosen(&mut part, &pool), [0, 2, 4]);
}

#[test]
fn a_quarter_of_the_own_samples_is_rejected() {
    let own = lumps(vec![1; 400], 2);
    let mut part = fitted(&format!("{{{SMALL}}}"), &own).unwrap();
    // 5 % of 400 are fitted to, the other 380 set the threshold: position 379 x 0.25 = 94.75, so 95
    // are below
    let validation: Vec<usize> = (20..400).collect();
    assert_eq!(
        chosen(&mut part, &own.samples.pick(&validation)).len(),
        380 - 95
    );
}

#[test]
fn exact_strictness_decides_at_the_threshold() {
    let own = lumps(vec![1; 3], 3);
    // share 1: the three samples set the threshold themselves, which is the lowest of them
    let mut lax = fitted(&format!("{{{SMALL}, share: 1, quantile: 0}}"), &own).unwrap();
    let mut strict = fitted(
        &format!("{{{SMALL}, share: 1, quantile: 0, strict: true}}"),
        &own,
    )
    .unwrap();
    assert_eq!(chosen(&mut lax, &own.samples), [0, 1, 2]);
    assert_eq!(chosen(&mut strict, &own.samples).len(), 2);
}

#[test]
fn tiny_classes_work() {
    let mut part = fitted(&format!("{{{SMALL}}}"), &lumps(vec![0, 2, 2, 3], 4)).unwrap();
    assert_eq!(part.fitted.as_ref().unwrap().thresholds.len(), 3);
    let own = lumps(vec![0, 2, 2, 3], 4).samples;
    // the lone samples of classes 0 and 3 accept themselves
    let kept = chosen(&mut part, &own);
    assert!(kept.contains(&0) && kept.contains(&3), "{kept:?}");
    assert_eq!(chosen(&mut part, &points(&[[-3.0, 9.0]])), [] as [usize; 0]);
}

#[test]
fn a_client_without_samples_keeps_nothing() {
    let mut part = fitted("{}", &lumps(vec![], 1)).unwrap();
    assert_eq!(chosen(&mut part, &points(&[[0.0, 0.0]])), [] as [usize; 0]);
    assert_eq!(part.rank(&points(&[[0.0, 0.0]])).unwrap().unwrap(), [0.0]);
}

#[test]
fn constant_features_work() {
    let inputs = Arc::new(Inputs::Dense {
        shape: vec![2],
        data: vec![7.5; 24],
    });
    let labels = Arc::new(Labels::Classes {
        of: vec![0; 12],
        classes: 2,
    });
    let own = Examples::all(inputs, labels).unwrap();
    for yaml in [
        "{width: median}",
        "{width: median, variant: landmarks}",
        "{share: 1, variant: official}",
    ] {
        let mut part = fitted(yaml, &own).unwrap();
        let rank = part
            .rank(&points(&[[7.5, 7.5], [90.0, 7.5]]))
            .unwrap()
            .unwrap();
        assert!(rank.iter().all(|w| w.is_finite()), "{yaml}: {rank:?}");
    }
}

#[test]
fn bytes_sparse_and_dense_rows_of_the_same_numbers_give_the_same_bits() {
    let mut draws = Stream::root(8).draws();
    let bytes: Vec<u8> = (0..6 * 300)
        .map(|_| {
            if draws.below(3) == 0 {
                draws.below(256) as u8
            } else {
                0
            }
        })
        .collect();
    let image = Inputs::Bytes {
        shape: [1, 2, 3],
        data: bytes,
        mean: vec![0.0],
        std: vec![1.0],
    };
    let values = Samples::all(Arc::new(image.clone())).values();
    let dense = Inputs::Dense {
        shape: vec![6],
        data: values.iter().copied().collect(),
    };
    let (mut starts, mut columns, mut cells) = (vec![0], vec![], vec![]);
    for row in values.rows() {
        for (c, v) in row.iter().enumerate().filter(|(_, v)| **v != 0.0) {
            columns.push(c as u32);
            cells.push(*v);
        }
        starts.push(columns.len());
    }
    let sparse = Inputs::Sparse {
        width: 6,
        starts,
        columns,
        values: cells,
    };
    let labels = Arc::new(Labels::Classes {
        of: (0..300).map(|i| i % 2).collect(),
        classes: 2,
    });
    let all: Vec<Vec<f64>> = [image, dense, sparse]
        .map(|inputs| {
            let own = Examples::all(Arc::new(inputs), labels.clone()).unwrap();
            let mut part = fitted("{width: median}", &own).unwrap();
            part.rank(&own.samples).unwrap().unwrap()
        })
        .into();
    assert!(all[0].iter().any(|w| *w > 0.0));
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn findings_share_one_ratio() {
    let own = lumps(vec![1; 60], 9);
    let labels = Arc::new(Labels::Multi(Array2::from_elem((60, 4), 1)));
    let own = Examples::all(own.samples.inputs().clone(), labels).unwrap();
    let mut part = fitted(&format!("{{{SMALL}}}"), &own).unwrap();
    assert_eq!(chosen(&mut part, &points(&[[3.0, 0.0], [9.0, 0.0]])), [0]);
}

#[test]
fn exact_where_a_sample_stands_among_others_does_not_change_its_ratio() {
    let own = lumps((0..700).map(|i| i % 3).collect(), 10);
    let mut part = fitted(&format!("{{{SMALL}, share: 0.2}}"), &own).unwrap();
    let all = part.rank(&own.samples).unwrap().unwrap();
    for at in [0, 1, 255, 256, 511, 699] {
        let alone = part.rank(&own.samples.pick(&[at])).unwrap().unwrap();
        assert_eq!(alone[0], all[at], "{at}");
    }
}

#[test]
fn mistakes_are_told() {
    let mut lines: Vec<String> = [
        "{bounds: [1]}",
        "{bounds: [2, 1]}",
        "{uniform: 30000}",
        "{uniform: 0, share: 0, quantile: .nan, width: -1, beta: 0}",
        "{width: mean}",
        "{variant: nystrom}",
    ]
    .iter()
    .map(|yaml| {
        read_yaml::<DensityRatioSettings>(yaml)
            .unwrap_err()
            .to_string()
    })
    .collect();
    let bad = |value: f32| {
        let inputs = Inputs::Dense {
            shape: vec![2],
            data: vec![0.0, 1.0, 2.0, value],
        };
        let labels = Labels::Classes {
            of: vec![0, 0],
            classes: 1,
        };
        Examples::all(Arc::new(inputs), Arc::new(labels)).unwrap()
    };
    let own = lumps(vec![0; 20], 1);
    let mut part = fitted("{}", &own).unwrap();
    let r = Round::first();
    let mut fresh = DensityRatio::from(settings("{}"));
    let three = Samples::fresh(Array2::zeros((1, 3)), vec![3]).unwrap();
    lines.extend([
        format!("{:#}", fitted("{}", &bad(f32::NAN)).unwrap_err()),
        format!(
            "{:#}",
            fitted(&format!("{{{SMALL}}}"), &bad(f32::INFINITY)).unwrap_err()
        ),
        format!("{:#}", part.select(&r, &bad(f32::NAN).samples).unwrap_err()),
        format!("{:#}", part.select(&r, &three).unwrap_err()),
        format!(
            "{:#}",
            fitted("{uniform: 1, beta: 1.0e-320}", &own).unwrap_err()
        ),
        format!("{:#}", fresh.select(&r, &three).unwrap_err()),
        format!("{:#}", part.load(b"what").unwrap_err()),
    ]);
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn landmarks_of_another_variant_are_a_mistake() {
    let error = read_yaml::<DensityRatioSettings>("{landmarks: 20}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`landmarks` has no effect without `variant: landmarks`: set that, or leave `landmarks` out"
    );
}
