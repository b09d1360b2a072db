use super::*;
use crate::synthetic::Make;
use fl_core::settings::defaults;

fn bytes(inputs: Inputs) -> Vec<u8> {
    let Inputs::Bytes { data, .. } = inputs else {
        panic!("glyphs are images")
    };
    data
}

#[test]
fn exact_the_set_never_changes() {
    let [(inputs, labels), _] = Glyphs {
        train: 20,
        test: 1,
        ..defaults()
    }
    .make()
    .unwrap();
    assert_eq!(
        labels,
        Labels::Classes {
            of: (0..20).map(|i| i % 10).collect(),
            classes: 10
        }
    );
    assert_eq!(crate::synthetic::hash(bytes(inputs)), "d99fdae2f17d5dfc");
}

#[test]
fn an_image_depends_on_its_number_only() {
    let make = |train| {
        bytes(
            Glyphs {
                train,
                test: 3,
                ..defaults()
            }
            .make()
            .unwrap()[0]
                .0
                .clone(),
        )
    };
    assert_eq!(make(2), make(5)[..2 * SIDE * SIDE]);
    assert_ne!(make(11)[..SIDE * SIDE], make(11)[10 * SIDE * SIDE..]);
    let [(train, _), (test, _)] = Glyphs {
        train: 1,
        test: 1,
        ..defaults()
    }
    .make()
    .unwrap();
    assert_ne!(bytes(train), bytes(test));
    let other = Glyphs {
        train: 2,
        test: 1,
        seed: 1,
        ..defaults()
    }
    .make()
    .unwrap();
    assert_ne!(make(2), bytes(other[0].0.clone()));
}

#[test]
fn the_statistics_are_those_of_the_set() {
    let data = bytes(defaults::<Glyphs>().make().unwrap()[0].0.clone());
    let n = data.len() as f64;
    let mean = data.iter().map(|b| f64::from(*b) / 255.0).sum::<f64>() / n;
    let var = data
        .iter()
        .map(|b| (f64::from(*b) / 255.0 - mean).powi(2))
        .sum::<f64>()
        / n;
    assert!(
        (mean - f64::from(STATISTICS.0)).abs() < 0.005,
        "mean {mean}"
    );
    assert!(
        (var.sqrt() - f64::from(STATISTICS.1)).abs() < 0.005,
        "std {}",
        var.sqrt()
    );
}

/// Softmax regression by plain gradient descent: the set must teach something, and leave something
/// to a network.
#[test]
fn bounds_a_linear_model_learns_most_of_it_but_not_all() {
    let [(train, _), (test, _)] = defaults::<Glyphs>().make().unwrap();
    let row = |of: &Inputs, at: usize| {
        let mut out = vec![0.0f32; SIDE * SIDE];
        of.write_row(at, &mut out);
        out
    };
    let train: Vec<Vec<f32>> = (0..train.len()).map(|i| row(&train, i)).collect();
    let mut weights = vec![vec![0.0f32; SIDE * SIDE]; CLASSES];
    let score = |weights: &[Vec<f32>], x: &[f32]| -> Vec<f32> {
        weights
            .iter()
            .map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum())
            .collect()
    };
    for epoch in 0..15 {
        for step in 0..train.len() {
            // 1117 has no factor in common with the 4000 images
            let at = step * 1117 % train.len();
            let mut p = score(&weights, &train[at]);
            let top = p.iter().copied().fold(f32::MIN, f32::max);
            p.iter_mut().for_each(|p| *p = libm::expf(*p - top));
            let sum: f32 = p.iter().sum();
            for (c, w) in weights.iter_mut().enumerate() {
                let slope = p[c] / sum - f32::from(u8::from(c == at % CLASSES));
                let rate = 0.002 / (1.0 + epoch as f32);
                w.iter_mut()
                    .zip(&train[at])
                    .for_each(|(w, x)| *w -= rate * slope * x);
            }
        }
    }
    let right = (0..test.len()).filter(|i| {
        let scores = score(&weights, &row(&test, *i));
        (0..CLASSES).all(|c| scores[c] <= scores[i % CLASSES])
    });
    let accuracy = right.count() as f64 / test.len() as f64;
    assert!((0.75..0.92).contains(&accuracy), "{accuracy}");
}

#[test]
fn settings_are_checked() {
    assert!(
        Glyphs {
            train: 1 << 40,
            ..defaults()
        }
        .make()
        .is_err()
    );
    assert!(
        Glyphs {
            noise: -1.0,
            ..defaults()
        }
        .make()
        .is_err()
    );
    assert!(
        Glyphs {
            noise: f64::NAN,
            ..defaults()
        }
        .make()
        .is_err()
    );
}
