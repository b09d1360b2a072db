//! Saved models, whole and damaged.

use super::*;

fn settings() -> Forest {
    Forest {
        trees: 3,
        ..defaults()
    }
}

#[test]
fn bytes_that_are_no_model_are_refused() {
    let (x, y) = coarse(60, 4, 3, 1);
    let mut model = fitted(&settings(), &x, &y, 3);
    let (bytes, wanted) = (model.save().unwrap(), bits(&model.predict(&x).unwrap()));
    let mut other = new(&settings(), &x, 3);
    other.load(&bytes).unwrap();
    assert_eq!(bits(&other.predict(&x).unwrap()), wanted);
    assert_eq!(other.save().unwrap(), bytes);

    let other_task = new(&settings(), &coarse(1, 5, 3, 1).0, 3)
        .load(&bytes)
        .unwrap_err();
    assert_eq!(
        other_task.to_string(),
        "a model of 4 features and 3 classes by Votes where one of 5 and 3 by Votes is needed"
    );
    assert!(new(&defaults::<Boosting>(), &x, 3).load(&bytes).is_err());
    for end in 0..bytes.len() {
        assert!(other.load(&bytes[..end]).is_err(), "the first {end} bytes");
    }
    assert!(other.load(&[&bytes[..], &[0]].concat()).is_err());
    // every byte in turn: a model that loads can be used
    for at in 0..bytes.len() {
        for change in [1, 0x80, 0xff] {
            let mut wrong = bytes.clone();
            wrong[at] ^= change;
            if other.load(&wrong).is_ok() {
                assert!(other.predict(&x).unwrap().iter().all(|s| s.is_finite()));
            }
        }
    }
    let mut draws = Stream::root(1).draws();
    for n in 0..2000 {
        let tail: Vec<u8> = (0..n % 90).map(|_| draws.below(256) as u8).collect();
        let _ = other.load(&[b"fltrees1", &tail[..]].concat());
    }
}

#[test]
fn a_small_model_cannot_be_a_huge_tree() {
    use crate::model::{Grown, Model, Next, Split, Sum};
    let split = |left, right| Split {
        feature: 0,
        threshold: 0.0,
        left,
        right,
    };
    let saved = |splits: Vec<Split>| {
        let mut model = Model::blank(Sum::Votes, 1, 2);
        let leaves = vec![0.5; 4];
        model.trees = vec![Grown { splits, leaves }];
        model.save().unwrap()
    };
    let blank = Model::blank(Sum::Votes, 1, 2);
    let (leaf, next) = (Next::leaf(1), Next::split);
    assert!(
        Model::load(
            &saved(vec![split(next(1), leaf), split(leaf, leaf)]),
            &blank
        )
        .is_ok()
    );
    // both sides of every split lead to the next one: 2^60 paths
    let mut doubled: Vec<Split> = (1..60).map(|i| split(next(i), next(i))).collect();
    doubled.push(split(leaf, leaf));
    let circle = vec![split(next(0), leaf)];
    let beyond = vec![split(Next::leaf(2), leaf)];
    for wrong in [doubled, circle, beyond] {
        let error = Model::load(&saved(wrong), &blank).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "the model of trees is damaged: tree 0: split 0 leads nowhere"
        );
    }
}
