//! Samples that many models score: as bits, and with bins that stay.

use super::*;
use crate::bits::Bits;
use crate::scored::ScoredSets;

/// Returns rows whose column `c` is 0 or `value(c)`, and classes that half depend on them.
fn two_values(
    rows: usize,
    width: usize,
    of: usize,
    value: fn(usize) -> f32,
) -> (Samples, Vec<u32>) {
    let mut draws = Stream::root((rows * width + of) as u64).draws();
    let values = Array2::from_shape_fn((rows, width), |(_, c)| match draws.below(2 + c % 3) {
        0 => value(c),
        _ => 0.0,
    });
    let class = |row: ndarray::ArrayView1<'_, f32>| match draws.below(4) {
        0 => draws.below(of) as u32,
        _ => row.iter().filter(|v| **v != 0.0).count() as u32 % of as u32,
    };
    let classes = values.axis_iter(Axis(0)).map(class).collect();
    (Samples::fresh(values, vec![width]).unwrap(), classes)
}

#[test]
fn rows_as_bits_reach_the_same_leaves() {
    fn check<S: Into<Method> + Clone>(settings: &S) {
        // a model of coarse numbers has thresholds below, between and above the two values
        let coarse = (coarse(300, 7, 3, 4), 3);
        for value in [(|_| 1.0) as fn(usize) -> f32, |c| 0.2 * c as f32 - 0.5] {
            for rows in [1, 63, 64, 1025, 2100] {
                let (x, y) = two_values(rows, 7, 2, value);
                let thin = sparse(&x);
                assert!(Bits::new(&thin).is_some() && Bits::new(&x).is_none());
                for ((own, y), of) in [((thin.clone(), y), 2), coarse.clone()] {
                    let mut model = fitted(settings, &own, &y, of);
                    let scores = model.predict(&thin).unwrap();
                    assert_eq!(bits(&scores), bits(&model.predict(&x).unwrap()));
                    let at: Vec<usize> = (0..rows).rev().step_by(3).collect();
                    let some = model.predict(&thin.pick(&at)).unwrap();
                    assert_eq!(bits(&some), bits(&scores.select(Axis(0), &at)));
                }
            }
        }
    }
    check(&Tree {
        depth: 20,
        ..defaults()
    });
    check(&Forest {
        trees: 7,
        depth: 5,
        ..defaults()
    });
    check(&Boosting {
        trees: 4,
        ..defaults()
    });
    // without a split
    check(&Tree {
        depth: 0,
        ..defaults()
    });
}

#[test]
fn trees_of_many_leaves_still_walk() {
    let (x, y) = two_values(3000, 16, 2, |_| 1.0);
    let settings = Tree {
        depth: 64,
        ..defaults()
    };
    let mut model = fitted(&settings, &sparse(&x), &y, 2);
    assert!(model.model().trees[0].leaves.len() > 2 * crate::bits::LEAVES);
    let scores = model.predict(&sparse(&x)).unwrap();
    assert_eq!(bits(&scores), bits(&model.predict(&x).unwrap()));
}

#[test]
fn zeros_that_are_written_and_columns_that_repeat_are_as_in_dense_rows() {
    let x = Samples::all(Arc::new(Inputs::Sparse {
        width: 3,
        starts: vec![0, 2, 5, 5, 7],
        columns: vec![0, 2, 0, 1, 1, 1, 1],
        values: vec![2.0, 0.0, 2.0, 3.0, -0.0, 0.0, 3.0],
    }));
    assert!(Bits::new(&x).is_some());
    let mut model = fitted(&defaults::<Tree>(), &x, &[0, 1, 1, 1], 2);
    let dense = Samples::fresh(x.values(), vec![3]).unwrap();
    let scores = model.predict(&dense).unwrap();
    assert_eq!(bits(&model.predict(&x).unwrap()), bits(&scores));
    let three = Inputs::Sparse {
        width: 1,
        starts: vec![0, 1, 2],
        columns: vec![0, 0],
        values: vec![1.0, 2.0],
    };
    assert!(Bits::new(&Samples::all(Arc::new(three))).is_none());
}

#[test]
fn bins_stay_for_samples_that_were_scored() {
    let known = ScoredSets::new();
    let stays = |x: &Samples, bins| Arc::ptr_eq(&known.binned(x, bins), &known.binned(x, bins));
    let (x, _) = two_values(50, 4, 2, |_| 1.0);
    let x = sparse(&x);
    assert!(!stays(&x, 9));
    let as_bits = known.bits(&x).unwrap();
    assert!(stays(&x, 9) && stays(&x, 256));
    assert_eq!(known.binned(&x, 256).bins(0), 2);
    // the same rows of the set are the same samples; others, and equal ones elsewhere, are not
    let same = x.pick(&(0..50).collect::<Vec<_>>());
    assert!(Arc::ptr_eq(&known.bits(&same).unwrap(), &as_bits));
    let others = [x.pick(&(0..30).collect::<Vec<_>>()), sparse(&x)];
    for other in &others {
        assert!(!stays(other, 256));
        assert!(!Arc::ptr_eq(&known.bits(other).unwrap(), &as_bits));
        assert!(stays(other, 256) && stays(&x, 256));
        assert_eq!(known.binned(other, 256).rows(), other.len());
    }
    // the longest unused make room
    let more = [(); 3].map(|()| sparse(&x));
    more.iter().for_each(|other| drop(known.bits(other)));
    assert!(!stays(&others[0], 256) && !stays(&x, 256) && stays(&others[1], 256));
}

#[test]
fn a_model_is_the_same_with_bins_that_stayed() {
    let (x, y) = coarse(50, 4, 2, 8);
    let settings = defaults::<Forest>();
    let mut before = fitted(&settings, &x, &y, 2);
    before.predict(&x).unwrap();
    for _ in 0..2 {
        assert_eq!(fitted(&settings, &x, &y, 2).model(), before.model());
    }
}
