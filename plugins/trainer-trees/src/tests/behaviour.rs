//! Behaviour that users may rely on.

use super::*;
use fl_core::Problem;
use ndarray::array;

fn forest() -> Forest {
    Forest {
        trees: 40,
        ..defaults()
    }
}

fn boosting() -> Boosting {
    Boosting {
        trees: 40,
        rate: 0.3,
        depth: 4,
        ..defaults()
    }
}

#[test]
fn they_are_trainers() {
    let tasks: Vec<Task> = [vec![7], vec![1, 6, 6]]
        .into_iter()
        .flat_map(|input| {
            [2, 3].map(|n| Task {
                input: input.clone(),
                kind: TaskKind::Classes(n),
            })
        })
        .collect();
    fl_conformance::trainer_for(&tasks, |make| Trees::new(defaults::<Tree>(), make));
    fl_conformance::trainer_for(&tasks, |make| Trees::new(forest(), make));
    fl_conformance::trainer_for(&tasks, |make| Trees::new(boosting(), make));
}

#[test]
fn they_are_trainers_of_a_number() {
    let tasks = [fl_conformance::numbers()];
    let task = &tasks[0];
    fl_conformance::trainer_for(&tasks, |make| Trees::new(defaults::<Tree>(), make));
    fl_conformance::trainer_for(&tasks, |make| Trees::new(forest(), make));
    fl_conformance::trainer_for(&tasks, |make| Trees::new(boosting(), make));
    let stream = Stream::root(1);
    let refused = |settings: Tree, kind| {
        let task = Task {
            kind,
            ..task.clone()
        };
        let stream = stream.clone();
        let made = Trees::new(settings, &BuildContext { task, stream });
        made.err().map(|error| error.to_string())
    };
    let kind = |outputs, loss| TaskKind::Numbers { outputs, loss };
    let entropy = Tree {
        purity: Purity::Entropy,
        ..defaults()
    };
    assert_eq!(
        [
            refused(entropy, kind(1, Loss::Mse)),
            refused(defaults(), kind(1, Loss::Mae)),
            refused(defaults(), kind(2, Loss::Mse)),
        ]
        .map(Option::unwrap),
        [
            "`purity` is about classes, and the task is a number to predict; leave it out",
            "trees learn a number by the loss mse, and that of the label is mae",
            "trees learn tasks of classes, or of one number, not of 2 numbers to predict",
        ]
    );
}

/// Least squares by every cut between two values: the best one, and the means of both sides.
fn best_cut(x: &[f64], y: &[f64]) -> (f64, [f64; 2]) {
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let squares = |of: &[f64]| of.iter().map(|y| (y - mean(of)).powi(2)).sum::<f64>();
    let cut = |at: f64| {
        let side = |left: bool| {
            let of = x.iter().zip(y).filter(|(x, _)| (**x <= at) == left);
            of.map(|(_, y)| *y).collect::<Vec<f64>>()
        };
        let sides = [side(true), side(false)];
        (
            squares(&sides[0]) + squares(&sides[1]),
            at,
            sides.map(|of| mean(&of)),
        )
    };
    let ends = x.iter().copied().fold(f64::MIN, f64::max);
    let cuts = x.iter().filter(|at| **at < ends).map(|at| cut(*at));
    let best = cuts.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    (best.1, best.2)
}

#[test]
fn close_a_tree_of_one_cut_is_that_of_least_squares() {
    let x: Vec<f64> = (0..12).map(|at| f64::from(at * 5 % 12)).collect();
    let y: Vec<f64> = x
        .iter()
        .map(|x| 0.3 * x + if *x > 6.0 { 2.0 } else { (x * 3.0) % 1.0 })
        .collect();
    let (at, [low, high]) = best_cut(&x, &y);
    let samples = |of: &[f64]| {
        let column = Array2::from_shape_fn((of.len(), 1), |(row, _)| of[row] as f32);
        Samples::fresh(column, vec![1]).unwrap()
    };
    let target = Array2::from_shape_fn((12, 1), |(row, _)| y[row] as f32);
    let task = Task {
        input: vec![1],
        kind: fl_conformance::numbers().kind,
    };
    let make = BuildContext {
        task,
        stream: Stream::root(1),
    };
    let pass = FitOptions::new(Length::Epochs(1), 32, Loss::Mse);
    let due = x.iter().map(|x| if *x <= at { low } else { high });
    let due: Vec<f64> = due.collect();
    let squares = due
        .iter()
        .zip(&y)
        .map(|(a, b)| (a - b).powi(2))
        .sum::<f64>();
    let stump = Tree {
        depth: 1,
        ..defaults()
    };
    let mut tree = Trees::new(stump, &make).unwrap();
    let fitted = tree.fit(
        &samples(&x),
        Target::Scores(target.view()),
        &pass,
        &make.stream,
    );
    assert!((fitted.unwrap().loss - squares / 12.0).abs() < 1e-6);
    // one step of boosting with rate 1 and without a penalty is the same tree
    let step = Boosting {
        trees: 1,
        rate: 1.0,
        l2: 0.0,
        depth: 1,
        min_weight: 0.0,
        ..defaults()
    };
    let mut boosted = Trees::new(step, &make).unwrap();
    let fitted = boosted.fit(
        &samples(&x),
        Target::Scores(target.view()),
        &pass,
        &make.stream,
    );
    assert!((fitted.unwrap().loss - squares / 12.0).abs() < 1e-6);
    for found in [
        tree.predict(&samples(&x)).unwrap(),
        boosted.predict(&samples(&x)).unwrap(),
    ] {
        let off = found
            .iter()
            .zip(&due)
            .map(|(a, b)| (f64::from(*a) - b).abs());
        assert!(off.fold(0.0, f64::max) < 1e-5, "{found} {due:?}");
    }
}

#[test]
fn they_learn_what_one_cut_cannot_tell() {
    let ((x, y), (xt, yt)) = (rings(1500, 6, 1), rings(1500, 6, 2));
    let tree = fitted(&defaults::<Tree>(), &x, &y, 2).predict(&xt).unwrap();
    let forest = Forest {
        features: Features::Share(0.5),
        depth: 12,
        ..forest()
    };
    let many = fitted(&forest, &x, &y, 2).predict(&xt).unwrap();
    let boosted = fitted(&boosting(), &x, &y, 2).predict(&xt).unwrap();
    // one label in twenty is wrong
    let [tree, many, boosted] = [tree, many, boosted].map(|s| accuracy(&s, &yt));
    assert!(
        tree > 0.85 && many > tree - 0.005 && boosted > 0.9,
        "{tree} {many} {boosted}"
    );
}

#[test]
fn more_rounds_leave_less_loss() {
    for of in [2, 4] {
        let (x, y) = coarse(200, 4, of, 6);
        let mut last = f64::INFINITY;
        for trees in [1, 3, 10, 30, 100] {
            let settings = Boosting {
                trees,
                ..boosting()
            };
            let mut model = new(&settings, &x, of);
            let loss = fit(&mut model, &x, Target::Classes(&y), 1).unwrap().loss;
            let scores = model.predict(&x).unwrap();
            let (wanted, _) =
                fl_core::loss::of_batch(Loss::CrossEntropy, Target::Classes(&y), scores.view())
                    .unwrap();
            assert!(
                loss < last && (loss - wanted).abs() < 1e-4,
                "{loss}, {wanted}, {last}"
            );
            last = loss;
        }
    }
}

#[test]
fn the_loss_of_a_tree_is_its_cross_entropy() {
    let (x, y) = coarse(200, 4, 3, 6);
    let mut model = new(
        &Tree {
            min_leaf: 10,
            ..defaults()
        },
        &x,
        3,
    );
    let loss = fit(&mut model, &x, Target::Classes(&y), 1).unwrap().loss;
    let scores = model.predict(&x).unwrap();
    let (wanted, _) =
        fl_core::loss::of_batch(Loss::CrossEntropy, Target::Classes(&y), scores.view()).unwrap();
    assert!((loss - wanted).abs() < 1e-5, "{loss} and not {wanted}");
}

#[test]
fn the_seed_decides_and_nothing_else() {
    fn check<S: Into<Method> + Clone + Sync>(settings: &S, differs: bool) {
        let (x, y) = rings(300, 5, 3);
        let bytes = |seed| {
            let mut model = new(settings, &x, 2);
            fit(&mut model, &x, Target::Classes(&y), seed).unwrap();
            model.save().unwrap()
        };
        let here = bytes(1);
        let there = std::thread::scope(|s| s.spawn(|| bytes(1)).join().unwrap());
        assert_eq!(here, bytes(1));
        assert_eq!(here, there);
        assert_eq!(here != bytes(2), differs);
    }
    check(&defaults::<Tree>(), false);
    check(
        &Tree {
            features: Features::Sqrt,
            ..defaults()
        },
        true,
    );
    check(&forest(), true);
    check(&boosting(), false);
    check(
        &Boosting {
            subsample: 0.5,
            ..boosting()
        },
        true,
    );
    check(
        &Boosting {
            features: Features::Count(2),
            ..boosting()
        },
        true,
    );
}

#[test]
fn one_class_one_row_and_no_difference_give_constants() {
    fn check<S: Into<Method> + Clone>(settings: &S) {
        for of in [1, 2, 3] {
            let (x, _) = coarse(30, 3, of, 1);
            let only = of as u32 - 1;
            let scores = fitted(settings, &x, &[only; 30], of).predict(&x).unwrap();
            assert!(
                classes(&scores).iter().all(|c| *c == only) && scores.iter().all(|s| s.is_finite())
            );
            let one = x.pick(&[4]);
            assert_eq!(
                classes(&fitted(settings, &one, &[only], of).predict(&x).unwrap()),
                [only; 30]
            );
        }
        let flat = Samples::fresh(Array2::ones((9, 2)), vec![2]).unwrap();
        let mut model = fitted(settings, &flat, &[0, 1, 1, 1, 1, 1, 0, 0, 1], 2);
        assert_eq!(classes(&model.predict(&flat).unwrap()), [1; 9]);
        assert_eq!(model.importance(), [0.0, 0.0]);
    }
    check(&defaults::<Tree>());
    check(&forest());
    check(&boosting());
}

#[test]
fn a_class_without_a_sample_has_an_even_share_and_is_no_veto() {
    /// Trains on the rows whose class is not `less`.
    fn teacher<S: Into<Method> + Clone>(settings: &S, x: &Samples, y: &[u32], less: u32) -> Trees {
        let rows: Vec<usize> = (0..y.len()).filter(|row| y[*row] != less).collect();
        let classes: Vec<u32> = rows.iter().map(|row| y[*row]).collect();
        fitted(settings, &x.pick(&rows), &classes, 3)
    }
    fn check<S: Into<Method> + Clone>(settings: &S) {
        let values = Array2::from_shape_fn((60, 1), |(row, _)| (row % 3 * 10 + row % 7) as f32);
        let y: Vec<u32> = (0..60).map(|row| row % 3).collect();
        let x = Samples::fresh(values, vec![1]).unwrap();
        let mut of = [2, 0].map(|less| teacher(settings, &x, &y, less));
        let scores = of.each_mut().map(|model| model.predict(&x).unwrap());
        for (scores, unseen) in scores.iter().zip([2, 0]) {
            for row in scores.rows() {
                let seen = (0..3).filter(|class| *class != unseen);
                let sum: f64 = seen.map(|class| libm::exp(f64::from(row[class]))).sum();
                let share = libm::exp(f64::from(row[unseen])) / sum;
                assert!((share - 1.0 / 3.0).abs() < 1e-5, "{row}");
            }
            assert!(
                classes(scores)
                    .iter()
                    .all(|class| *class as usize != unseen)
            );
        }
        assert_eq!(classes(&(&scores[0] + &scores[1])), y, "their mean");
        // a kept model knows it too
        let mut loaded = new(settings, &x, 3);
        loaded.load(&of[0].save().unwrap()).unwrap();
        assert_eq!(bits(&loaded.predict(&x).unwrap()), bits(&scores[0]));
    }
    check(&defaults::<Tree>());
    check(&forest());
    check(&boosting());
    check(&Boosting {
        start: crate::settings::Start::Even,
        ..boosting()
    });
}

#[test]
fn ties_go_to_the_lowest_class_and_depth_is_kept() {
    let x = Samples::fresh(array![[0.0], [1.0], [2.0], [3.0]], vec![1]).unwrap();
    let constant = Tree {
        depth: 0,
        ..defaults()
    };
    let scores = fitted(&constant, &x, &[2, 1, 2, 1], 3).predict(&x).unwrap();
    assert_eq!(classes(&scores), [1; 4]);
    assert_eq!(scores[[0, 1]], scores[[0, 2]]);
    let stump = Tree {
        depth: 1,
        ..defaults()
    };
    assert_eq!(
        fitted(&stump, &x, &[0, 1, 1, 1], 2).model().trees[0]
            .leaves
            .len(),
        4
    );
    // no single cut helps here, and a tree of two levels separates all
    let xor = Samples::fresh(
        array![[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]],
        vec![2],
    )
    .unwrap();
    let scores = fitted(&defaults::<Tree>(), &xor, &[0, 1, 1, 0], 2)
        .predict(&xor)
        .unwrap();
    assert_eq!(classes(&scores), [0, 1, 1, 0]);
    // scores give the probabilities back
    let scores = fitted(&stump, &x, &[1, 0, 1, 1], 2).predict(&x).unwrap();
    let p = libm::exp(f64::from(scores[[3, 0]])) / (1.0 + libm::exp(f64::from(scores[[3, 0]])));
    assert!(
        (p - 0.0).abs() < 1e-8 || (p - 1.0 / 3.0).abs() < 1e-6,
        "{p}"
    );
}

#[test]
fn settings_do_what_they_say() {
    let (x, y) = rings(400, 3, 8);
    let leaves = |t: Tree| fitted(&t, &x, &y, 2).model().trees[0].leaves.len() / 2;
    let all = leaves(Tree {
        depth: 64,
        ..defaults()
    });
    assert!(
        leaves(Tree {
            depth: 64,
            min_leaf: 40,
            ..defaults()
        }) <= 10
    );
    assert!(
        leaves(Tree {
            depth: 64,
            min_gain: 0.01,
            ..defaults()
        }) < all / 2
    );
    assert!(
        leaves(Tree {
            depth: 64,
            bins: 2,
            ..defaults()
        }) <= 8
    );
    // the rare class has the same total weight as the other
    let values = x.values();
    let rare = |i: usize| u32::from(values[[i, 0]] > 0.3 && i.is_multiple_of(6));
    let rare: Vec<u32> = (0..400).map(rare).collect();
    let count = |class_weights| {
        let tree = Tree {
            depth: 2,
            class_weights,
            ..defaults()
        };
        classes(&fitted(&tree, &x, &rare, 2).predict(&x).unwrap())
            .iter()
            .sum::<u32>()
    };
    let (balanced, even) = (count(ClassWeights::Balanced), count(ClassWeights::Even));
    assert!(balanced > 40 && even < 10, "{balanced} {even}");
    let boosted = |class_weights| {
        let boosting = Boosting {
            trees: 3,
            class_weights,
            ..defaults()
        };
        classes(&fitted(&boosting, &x, &rare, 2).predict(&x).unwrap())
            .iter()
            .sum::<u32>()
    };
    assert!(boosted(ClassWeights::Balanced) > 40 && boosted(ClassWeights::Even) == 0);
    // the feature that separates the classes is the important one
    let importance = fitted(&boosting(), &x, &y, 2).importance();
    assert!(
        importance[0] + importance[1] > 0.6 && (importance.iter().sum::<f64>() - 1.0).abs() < 1e-6
    );
    let alone = fitted(
        &Forest {
            bootstrap: false,
            features: Features::All,
            trees: 2,
            ..defaults()
        },
        &x,
        &y,
        2,
    );
    assert_eq!(alone.model().trees[0], alone.model().trees[1]);
    assert_eq!(
        alone.model().trees[0],
        fitted(&defaults::<Tree>(), &x, &y, 2).model().trees[0]
    );
}

#[test]
fn what_trees_cannot_do_is_said() {
    let (x, y) = coarse(20, 3, 2, 1);
    let mut model = new(&forest(), &x, 2);
    let anchor = fl_core::message::Params::default();
    let mut lacks = |target: Target<'_>, pass: FitOptions<'_>| {
        let error = model.fit(&x, target, &pass, &Stream::root(0)).unwrap_err();
        assert!(
            matches!(error.downcast_ref(), Some(Problem::Lacks(_))),
            "{error}"
        );
        error.to_string()
    };
    let classes = Target::Classes(&y);
    assert_eq!(
        lacks(
            classes,
            FitOptions {
                proximal: Some((0.1, &anchor)),
                ..pass()
            }
        ),
        "trees have no parameters that follow a gradient and cannot be pulled towards an anchor (FedProx); use a neural or linear trainer"
    );
    lacks(
        classes,
        FitOptions {
            gradient_offset: Some(&anchor),
            ..pass()
        },
    );
    lacks(
        classes,
        FitOptions {
            clip: Some(1.0),
            ..pass()
        },
    );
    lacks(
        classes,
        FitOptions {
            loss: Loss::Mae,
            ..pass()
        },
    );
    let (scores, findings) = (Array2::zeros((20, 2)), Array2::zeros((20, 2)));
    assert_eq!(
        lacks(Target::Scores(scores.view()), pass()),
        "trees learn classes or soft labels with cross-entropy, not scores; give soft labels instead"
    );
    lacks(Target::MultiLabel(findings.view()), pass());
    let make = BuildContext {
        task: Task {
            input: vec![3],
            kind: TaskKind::MultiLabel(3),
        },
        stream: Stream::root(0),
    };
    let error = Trees::new(forest(), &make).err().unwrap();
    assert_eq!(
        error.to_string(),
        "trees learn tasks of classes, or of one number, not of 3 labels, any number of them at once"
    );
    let mut fails =
        |x: &Samples, target: Target<'_>| fit(&mut model, x, target, 0).unwrap_err().to_string();
    assert_eq!(
        fails(&x.pick(&[]), Target::Classes(&[])),
        "there are no samples to fit trees to"
    );
    let mut soft = Array2::<f32>::ones((20, 2));
    soft[[3, 1]] = -0.5;
    assert_eq!(
        fails(&x, Target::Soft(soft.view())),
        "the soft label of sample 3 for class 1 is -0.5; it must be at least 0"
    );
    assert_eq!(
        fails(&x, Target::Soft(Array2::zeros((20, 2)).view())),
        "every soft label is 0: there is nothing to learn"
    );
}

/// Returns the root of the mean squared error of a tree on the numbers that it learnt.
fn error_of_a_tree(rows: &[[f32; 2]], y: &[f32]) -> f64 {
    let x = Array2::from_shape_fn((rows.len(), 2), |(row, column)| rows[row][column]);
    let x = Samples::fresh(x, vec![2]).unwrap();
    let task = Task {
        input: vec![2],
        kind: fl_conformance::numbers().kind,
    };
    let make = BuildContext {
        task,
        stream: Stream::root(1),
    };
    let deep = Tree {
        depth: 20,
        ..defaults()
    };
    let target = Array2::from_shape_fn((y.len(), 1), |(row, _)| y[row]);
    let pass = FitOptions::new(Length::Epochs(1), 32, Loss::Mse);
    let mut tree = Trees::new(deep, &make).unwrap();
    tree.fit(&x, Target::Scores(target.view()), &pass, &make.stream)
        .unwrap();
    let found = tree.predict(&x).unwrap();
    let squares = found.iter().zip(y).map(|(a, b)| f64::from(a - b).powi(2));
    (squares.sum::<f64>() / y.len() as f64).sqrt()
}

#[test]
fn numbers_are_split_until_nodes_are_pure() {
    // no first cut gains anything
    let corners: Vec<[f32; 2]> = (0..20u8)
        .map(|at| [at % 2, at / 2 % 2].map(f32::from))
        .collect();
    let either: Vec<f32> = corners.iter().map(|[a, b]| (a - b).abs()).collect();
    assert_eq!(error_of_a_tree(&corners, &either), 0.0);
    // a number far from all others makes the gains of the others small
    let line: Vec<[f32; 2]> = (0..100u8).map(|at| [f32::from(at), 0.0]).collect();
    let step = |at: usize| match at {
        99 => 1e7,
        at => 10.0 + f32::from(u8::from(at >= 50)) * 2.0,
    };
    let step: Vec<f32> = (0..100).map(step).collect();
    assert!(error_of_a_tree(&line, &step) < 0.2);
}
