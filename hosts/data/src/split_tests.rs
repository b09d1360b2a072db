use super::*;

/// `n` samples, class `i * i % classes` or so: classes of different sizes, mixed.
fn groups(n: usize, count: usize) -> Groups {
    Groups {
        of: (0..n).map(|i| i * i % (2 * count) % count).collect(),
        count,
    }
}

const READINGS: [Reading; 3] = [Reading::Floor, Reading::Balanced, Reading::Plain];

fn dir(alpha: f64, reading: Reading, min_size: Option<usize>) -> Split {
    Split::Dirichlet(Dirichlet {
        alpha,
        reading,
        min_size,
    })
}

fn error(groups: &Groups, how: &Split, clients: usize) -> String {
    split(groups, how, clients, "toy", &Stream::root(1))
        .unwrap_err()
        .to_string()
}

#[test]
fn numbers_are_grouped_by_their_order() {
    let values = vec![5.0, -1.0, 3.0, 3.0, 9.0, 3.0, 7.0, 0.0];
    let rows = fl_core::Inputs::Dense {
        shape: vec![1],
        data: vec![0.0; values.len()],
    };
    let scale = fl_core::LabelScale::of(&values);
    let numbers = fl_core::Numbers::one(&values, scale, fl_core::Loss::Mse).unwrap();
    let labels = fl_core::Labels::Numbers(numbers);
    let all = Examples::all(rows.into(), labels.into()).unwrap();
    // -1 0 | 3 3 3 | 5 7 9: the threes begin at the third of eight, in group 2 * 4 / 8
    let groups = Groups::to_split(&all, Some(4));
    assert_eq!((groups.of, groups.count), (vec![2, 0, 1, 1, 3, 1, 3, 0], 4));
    assert_eq!(Groups::to_split(&all, None).count, 1);
}

#[test]
fn every_sample_goes_to_exactly_one_client() {
    for (n, classes) in [(0, 3), (1, 1), (7, 3), (200, 10), (1000, 4)] {
        let groups = groups(n, classes);
        for clients in [1, 2, 3, 10, 30] {
            let mut all = vec![
                Split::Iid,
                Split::Classes(classes),
                Split::ClassBlocks(classes),
                Split::Size(Sizes::Power(0.0)),
                Split::Size(Sizes::Power(1.5)),
                Split::Size(Sizes::Shares(
                    (0..clients).map(|k| (k % 3 + 1) as f64).collect(),
                )),
            ];
            if clients >= classes {
                all.push(Split::RandomClasses(classes.min(2)));
            }
            if n >= 2 * clients {
                all.push(Split::Shards(2));
            }
            if n >= 20 * clients {
                all.push(Split::Size(Sizes::Dirichlet(100.0)));
            }
            for alpha in [1e-4, 1e-3, 0.1, 1.0, 100.0, 1e6] {
                for reading in READINGS {
                    all.push(dir(alpha, reading, Some(0)));
                }
            }
            for how in &all {
                for seed in 0..3 {
                    let stream = Stream::root(seed);
                    let got = split(&groups, how, clients, "toy", &stream).unwrap();
                    assert_eq!(got, split(&groups, how, clients, "toy", &stream).unwrap());
                    assert_eq!(got.clients.len(), clients);
                    let mut samples = got.clients.concat();
                    samples.sort_unstable();
                    assert_eq!(samples, (0..n).collect::<Vec<_>>(), "{how:?} {n} {clients}");
                }
            }
        }
    }
}

#[test]
fn iid_parts_are_equal_and_by_size_follows_shares() {
    let stream = Stream::root(3);
    let groups = groups(100, 4);
    assert_eq!(
        split(&groups, &Split::Iid, 3, "toy", &stream)
            .unwrap()
            .sizes(),
        [34, 33, 33]
    );
    let shares = Split::Size(Sizes::Shares(vec![0.5, 0.3, 0.2]));
    assert_eq!(
        split(&groups, &shares, 3, "toy", &stream).unwrap().sizes(),
        [50, 30, 20]
    );
    let power = Split::Size(Sizes::Power(1.0));
    assert_eq!(
        split(&groups, &power, 3, "toy", &stream).unwrap().sizes(),
        [55, 27, 18]
    );
    let other = split(&groups, &Split::Iid, 3, "toy", &Stream::root(4)).unwrap();
    assert_ne!(
        other,
        split(&groups, &Split::Iid, 3, "toy", &stream).unwrap()
    );
    assert!(
        error(&groups, &Split::Size(Sizes::Shares(vec![1.0])), 3)
            .contains("1 shares for 3 clients")
    );
    assert!(
        error(&groups, &Split::Size(Sizes::Power(-1.0)), 3)
            .contains("size.power: must be at least 0.0, got -1")
    );
    for clients in [0, 1 << 40] {
        assert!(error(&groups, &Split::Iid, clients).contains("at least 1 and at most 1000000"));
    }
}

#[test]
fn classes_are_shared_equally_by_those_who_hold_them() {
    let groups = Groups {
        of: (0..100).map(|i| i % 10).collect(),
        count: 10,
    };
    let of = |clients, per_client| {
        let how = Split::Classes(per_client);
        let got = split(&groups, &how, clients, "toy", &Stream::root(5)).unwrap();
        got.class_counts(&groups.of, 10)
    };
    for (k, counts) in of(10, 1).iter().enumerate() {
        assert!(
            counts
                .iter()
                .enumerate()
                .all(|(c, n)| *n == if c == k { 10 } else { 0 })
        );
    }
    for (k, counts) in of(10, 2).iter().enumerate() {
        assert_eq!(
            (
                counts[k],
                counts[(k + 1) % 10],
                counts.iter().sum::<usize>()
            ),
            (5, 5, 10)
        );
    }
    assert_eq!(of(20, 1)[3][3] + of(20, 1)[13][3], 10);
    assert_eq!(of(5, 2)[1], [0, 0, 10, 10, 0, 0, 0, 0, 0, 0]);
    assert!(error(&groups, &Split::Classes(1), 5).contains("at least 2 classes"));
    assert!(error(&groups, &Split::Classes(11), 5).contains("1..=10"));
}

#[test]
fn random_classes_are_the_clients_own_and_others_in_equal_parts() {
    let groups = Groups {
        of: (0..1000).map(|i| i % 10).collect(),
        count: 10,
    };
    let how = Split::RandomClasses(3);
    let got = split(&groups, &how, 20, "toy", &Stream::root(5)).unwrap();
    let counts = got.class_counts(&groups.of, 10);
    for (k, own) in counts.iter().enumerate() {
        assert!(own[k % 10] > 0 && own.iter().filter(|n| **n > 0).count() == 3);
    }
    for class in 0..10 {
        let held: Vec<usize> = counts.iter().map(|own| own[class]).collect();
        let least = held.iter().filter(|n| **n > 0).min().unwrap();
        assert!(held.iter().max().unwrap() - least <= 1, "{held:?}");
    }
    let others: std::collections::BTreeSet<Vec<usize>> = counts
        .iter()
        .map(|own| (0..10).filter(|c| own[*c] > 0).collect())
        .collect();
    assert!(others.len() > 10, "drawn, not in a cycle: {others:?}");
    assert!(error(&groups, &how, 9).contains("take at least 10 clients, or `classes: 3`"));
    assert!(error(&groups, &Split::RandomClasses(11), 20).contains("1..=10"));
}

#[test]
fn blocks_of_classes_go_to_the_next_clients_in_parts_of_random_sizes() {
    let groups = Groups {
        of: (0..4000).map(|i| i % 10).collect(),
        count: 10,
    };
    // PFLlib's setting: 20 clients, two classes each, so four clients a class
    let how = Split::ClassBlocks(2);
    let counts = |clients| {
        let got = split(&groups, &how, clients, "toy", &Stream::root(5));
        got.unwrap().class_counts(&groups.of, 10)
    };
    let of = counts(20);
    for (k, own) in of.iter().enumerate() {
        let held: Vec<usize> = (0..10).filter(|c| own[*c] > 0).collect();
        assert_eq!(held, [k / 4 * 2, k / 4 * 2 + 1], "client {k}");
    }
    for class in 0..10 {
        let holders = of.iter().skip(class / 2 * 4).take(4);
        let parts: Vec<usize> = holders.map(|own| own[class]).collect();
        assert!(
            parts[..3].iter().all(|n| (10..100).contains(n)),
            "{parts:?}"
        );
        assert_eq!(parts.iter().sum::<usize>(), 400);
    }
    assert_eq!(counts(5)[4][8], 400, "a class of its own");
    let says = "leave class 9 to no client, since each class goes to 3";
    let seven = error(&groups, &Split::ClassBlocks(3), 7);
    let advice = "take a number of classes that divides 10, or `split: { classes: 3 }`";
    assert!(seven.contains(says) && seven.contains(advice), "{seven}");
    let ten = error(&groups, &Split::ClassBlocks(3), 10);
    let fewer = "client 9 would hold fewer than 3 of 10 classes";
    assert!(ten.contains(fewer) && ten.contains(advice), "{ten}");
    let some = error(&groups, &Split::ClassBlocks(2), 12);
    assert!(some.contains("take a multiple of 5 clients"), "{some}");
}

#[test]
fn shards_hold_at_most_two_classes_where_classes_are_larger() {
    let groups = Groups {
        of: (0..6000).map(|i| i % 10).collect(),
        count: 10,
    };
    let how = Split::Shards(2);
    let got = split(&groups, &how, 100, "toy", &Stream::root(5)).unwrap();
    assert!(got.sizes().iter().all(|n| *n == 60));
    let counts = got.class_counts(&groups.of, 10);
    let held = |own: &Vec<usize>| own.iter().filter(|n| **n > 0).count();
    assert!(counts.iter().all(|own| held(own) <= 2));
    assert!(counts.iter().any(|own| held(own) == 1));
    let other = split(&groups, &how, 100, "toy", &Stream::root(6)).unwrap();
    assert_ne!(other, got);
    let says = "shards: 61 for each of 100 clients are 6100, and there are 6000 rows: take fewer";
    assert!(error(&groups, &Split::Shards(61), 100).contains(says));
}

/// McMahan et al. 2017, section 3: MNIST's 60,000 rows in the order of their digits are 200 shards
/// of 300, and each of 100 clients has two, so most clients have examples of two digits only.
#[test]
fn exact_shards_of_mnist_have_the_published_sizes() {
    let digits = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949];
    let of = (0..)
        .zip(digits)
        .flat_map(|(digit, rows)| vec![digit; rows]);
    let groups = Groups {
        of: of.collect(),
        count: 10,
    };
    let got = split(&groups, &Split::Shards(2), 100, "mnist", &Stream::root(1)).unwrap();
    assert_eq!(got.sizes(), [600; 100]);
    let counts = got.class_counts(&groups.of, 10);
    let held = |own: &Vec<usize>| own.iter().filter(|rows| **rows > 0).count();
    // no two digits end with a shard: nine shards of 200 have two digits
    let more = counts.iter().filter(|own| held(own) > 2).count();
    assert!(more <= 9, "{more}");
    // all other rows of a client come in shards of one digit
    let whole = counts.iter().filter(|own| held(own) <= 2);
    let whole = whole.filter(|own| own.iter().all(|rows| rows % 300 == 0));
    assert!(whole.count() >= 91 - 9, "{counts:?}");
}

#[test]
fn drawn_sizes_leave_every_client_its_samples() {
    let groups = groups(1000, 4);
    let of = |alpha, clients| {
        let how = Split::Size(Sizes::Dirichlet(alpha));
        split(&groups, &how, clients, "toy", &Stream::root(2)).map(|p| p.sizes())
    };
    let skewed = of(0.5, 10).unwrap();
    assert!(skewed.iter().all(|n| *n >= 10) && skewed.iter().max().unwrap() > &200);
    let even = of(1e6, 10).unwrap();
    assert!(even.iter().all(|n| (98..=102).contains(n)), "{even:?}");
    assert!(
        of(1.0, 101)
            .unwrap_err()
            .to_string()
            .contains("take fewer clients")
    );
    assert!(
        of(1e-4, 90)
            .unwrap_err()
            .to_string()
            .contains("raise alpha")
    );
}

#[test]
fn the_floor_reading_keeps_the_order_of_the_set() {
    let groups = groups(300, 3);
    let got = split(
        &groups,
        &dir(0.5, Reading::Floor, None),
        4,
        "toy",
        &Stream::root(6),
    )
    .unwrap();
    for class in 0..3 {
        let of_class = |k: &Vec<usize>| -> Vec<usize> {
            k.iter()
                .copied()
                .filter(|at| groups.of[*at] == class)
                .collect()
        };
        let dealt: Vec<usize> = got.clients.iter().flat_map(of_class).collect();
        assert!(
            dealt.is_sorted(),
            "consecutive samples, client after client"
        );
    }
}

#[test]
fn the_balanced_reading_leaves_nobody_with_little() {
    let groups = Groups {
        of: (0..2000).map(|i| i % 10).collect(),
        count: 10,
    };
    for alpha in [1e-3, 0.1, 0.5, 10.0] {
        let got = split(
            &groups,
            &dir(alpha, Reading::Balanced, None),
            10,
            "toy",
            &Stream::root(7),
        )
        .unwrap();
        assert!(
            got.sizes().iter().all(|n| *n >= 10),
            "{alpha}: {:?}",
            got.sizes()
        );
    }
    let at_least = dir(0.1, Reading::Plain, Some(20));
    let got = split(&groups, &at_least, 10, "toy", &Stream::root(7)).unwrap();
    assert!(got.sizes().iter().all(|n| *n >= 20));
}

#[test]
fn a_small_parameter_gives_a_class_to_one_client_and_a_large_one_to_all() {
    let groups = Groups {
        of: (0..4000).map(|i| i % 4).collect(),
        count: 4,
    };
    for reading in READINGS {
        let counts = |alpha| {
            let how = dir(alpha, reading.clone(), Some(0));
            split(&groups, &how, 8, "toy", &Stream::root(8))
                .unwrap()
                .class_counts(&groups.of, 4)
        };
        for class in 0..4 {
            assert!(
                counts(1e-3).iter().map(|k| k[class]).max() >= Some(950),
                "{reading:?}"
            );
            assert!(
                counts(1e5).iter().all(|k| k[class].abs_diff(125) < 20),
                "{reading:?}"
            );
        }
    }
}

#[test]
fn proportions_have_the_moments_of_a_dirichlet() {
    // mean 1 / K, variance (K - 1) / (K^2 (K alpha + 1))
    for alpha in [0.1, 1.0, 5.0] {
        let (k, n) = (5, 20_000);
        let mut squares = 0.0;
        for i in 0..n {
            let mut draws = Stream::root(9).child("x", i).draws();
            let logs: Vec<f64> = (0..k).map(|_| draws.ln_gamma_draw(alpha)).collect();
            let p = proportions(&logs, |_| true).unwrap();
            assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            squares += (p[0] - 0.2).powi(2);
        }
        let (got, wanted) = (squares / n as f64, 4.0 / (25.0 * (5.0 * alpha + 1.0)));
        assert!((got / wanted - 1.0).abs() < 0.05, "{alpha}: {got} {wanted}");
    }
    assert_eq!(
        proportions(&[-5e3, -9e3, -1.0], |k| k < 2).unwrap(),
        [1.0, 0.0, 0.0]
    );
    assert_eq!(proportions(&[1.0], |_| false), None);
}

#[test]
fn what_cannot_be_had_says_what_to_change() {
    let groups = groups(100, 2);
    assert!(
        error(&groups, &dir(0.0, Reading::Floor, None), 2).contains("in 0.0001..=1000000.0, got 0")
    );
    assert!(
        error(&groups, &dir(f64::NAN, Reading::Floor, None), 2)
            .contains("dirichlet.alpha: must be a finite number, got .nan")
    );
    let text = error(&groups, &dir(1.0, Reading::Balanced, None), 11);
    assert!(
        text.contains("11 clients with at least 10 samples each need more than the 100"),
        "{text}"
    );
    let text = error(&groups, &dir(1e-3, Reading::Plain, Some(10)), 9);
    assert!(
        text.contains("of 1000 drawn") && text.contains("raise alpha, lower min-size"),
        "{text}"
    );
    assert!(
        error(&groups, &dir(1.0, Reading::Plain, Some(usize::MAX)), 9).contains("smaller min-size")
    );
    assert!(
        error(
            &groups,
            &Split::Published(PublishedSplit {
                alpha: 0.1,
                seed: 1
            }),
            20
        )
        .contains("no published split of `toy`")
    );
}

#[test]
fn groups_are_taken_in_proportion() {
    let groups = Groups {
        of: (0..100).map(|i| usize::from(i >= 90)).collect(),
        count: 3,
    };
    let first = |_, _, k| (0..k).collect();
    assert_eq!(
        groups.take(10, first).unwrap(),
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 90]
    );
    assert_eq!(groups.take(100, first).unwrap().len(), 100);
    assert_eq!(groups.take(0, first).unwrap().len(), 0);
    assert!(groups.take(101, first).is_err());
}
