use super::*;
use ndarray::arr2;

fn text<T: std::fmt::Debug>(got: Result<T>) -> String {
    got.unwrap_err().to_string()
}

#[test]
fn floors_can_lose_samples_to_the_last_client_and_cuts_do_not() {
    let third = vec![1.0 / 3.0; 3];
    assert_eq!(floor_counts(&[10], &[third]), [[3, 3, 4]]);
    let quarter = vec![0.25; 4];
    assert_eq!(
        floor_counts(&[10, 0], &[quarter.clone(), quarter.clone()]),
        [[2, 2, 2, 4], [0; 4]]
    );
    let cuts = cumulative_counts(&[10], 4, |_, _| Ok(quarter.clone()));
    assert_eq!(cuts.unwrap(), [[2, 3, 2, 3]]);
}

#[test]
fn one_client_gets_everything() {
    let groups = by_class(&[1, 0, 1], 2).unwrap();
    let floors = floor_counts(&[1, 2], &[vec![1.0], vec![1.0]]);
    assert_eq!(deal(&groups, &floors, 1).clients, [[1, 0, 2]]);
    let cuts = cumulative_counts(&[1, 2], 1, |_, _| Ok(vec![1.0])).unwrap();
    assert_eq!(deal(&groups, &cuts, 1).clients, [[1, 0, 2]]);
    assert!(text(by_class(&[0, 3], 1)).contains("sample 1 has class 3"));
}

#[test]
fn counts_per_client_and_class() {
    let partition = Partition {
        clients: vec![vec![0, 3], vec![], vec![1, 2]],
    };
    assert_eq!(
        partition.class_counts(&[1, 0, 0, 1], 3),
        [[0, 2, 0], [0, 0, 0], [2, 0, 0]]
    );
}

#[test]
fn whole_numbers_follow_shares() {
    assert_eq!(proportional_sizes(10, &[1.0, 1.0, 1.0]).unwrap(), [4, 3, 3]);
    assert_eq!(
        proportional_sizes(6000, &[5923.0, 6742.0, 47335.0]).unwrap(),
        [592, 674, 4734]
    );
    assert_eq!(
        proportional_sizes(2, &[0.0, 1e-9, 0.0, 1e-9]).unwrap(),
        [0, 1, 0, 1]
    );
    for bad in [&[][..], &[0.0], &[1.0, -1.0], &[f64::NAN], &[f64::INFINITY]] {
        assert!(text(proportional_sizes(3, bad)).contains("shares"));
    }
    let mut draws = fl_core::Stream::root(1).draws();
    for _ in 0..5000 {
        let (n, parts) = (draws.below(5000), 1 + draws.below(40));
        let shares: Vec<f64> = (0..parts)
            .map(|_| (1 + draws.below(6)) as f64 * 0.1)
            .collect();
        let sizes = proportional_sizes(n, &shares).unwrap();
        let sum: f64 = shares.iter().sum();
        assert_eq!(sizes.iter().sum::<usize>(), n);
        assert!(
            sizes
                .iter()
                .zip(&shares)
                .all(|(got, s)| (*got as f64 - s / sum * n as f64).abs() < 1.0 + 1e-9)
        );
    }
    assert_eq!(iid_sizes(2, 3).unwrap(), [1, 1, 0]);
    assert!(text(iid_sizes(2, 0)).contains("at least 1"));
}

#[test]
fn fewer_clients_than_classes_still_hold_them_all() {
    assert_eq!(covering_classes(2, 4, 2).unwrap(), [[0, 1], [2, 3]]);
    assert_eq!(covering_classes(3, 4, 2).unwrap(), [[0, 1], [1, 2], [2, 3]]);
    assert_eq!(covering_classes(4, 3, 1).unwrap(), [[0], [1], [2], [0]]);
    let error = text(covering_classes(3, 10, 2));
    assert!(
        error.contains("at least 4 classes, or take at least 5 clients"),
        "{error}"
    );
    assert!(text(classes_per_client(3, 4, 5)).contains("must be in 1..=4"));
    assert!(text(classes_per_client(3, 4, 0)).contains("must be in 1..=4"));
    for (clients, classes) in [(1, 1), (3, 7), (5, 8), (9, 10), (10, 10), (23, 10)] {
        for per in 1..=classes {
            let Ok(held) = covering_classes(clients, classes, per) else {
                assert!(clients * per < classes);
                continue;
            };
            assert!(
                (0..classes).all(|c| held.iter().any(|h| h.contains(&c))),
                "{clients} {classes} {per}"
            );
        }
    }
}

#[test]
fn findings_unknown_are_not_positive() {
    let (counts, assigned) = rarest_positive(arr2(&[[-1, 1, 1], [0, -1, 1], [-1, -1, 0]]).view());
    assert_eq!(counts, [0, 1, 2]);
    assert_eq!(assigned, [Some(1), Some(2), None]);
}

#[test]
fn sizes_of_public_and_test() {
    assert_eq!(
        fedkt_tabular_split(5),
        TabularSplit {
            train: 3,
            public: 1,
            test: 1,
            pool: 2
        }
    );
    assert_eq!(
        fedkt_tabular_split(0),
        TabularSplit {
            train: 0,
            public: 0,
            test: 0,
            pool: 0
        }
    );
    assert_eq!(fedkt_image_split(7), (3, 4));
    assert_eq!(fraction_split(10, 1.0).unwrap(), (10, 0));
    // the product of these doubles is below 29
    assert_eq!(fedkt_queries(100, 0.29).unwrap(), 29);
    assert!(text(fraction_split(10, 1.1)).contains("0..=1") && fedkt_queries(3, f64::NAN).is_err());
}
