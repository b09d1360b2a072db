//! What a trainer repeats, hands over and refuses.

use crate::common::*;
use fl_core::message::Params;
use fl_core::settings::read_yaml;
use fl_core::{
    AuxiliaryLoss, AuxiliaryTerm, BuildContext, Differentiable, FeatureLoss, FeatureTerm,
    FitOptions, Head, Length, Loss, Parametric, PassStep, Result, Samples, Stream, Target, Task,
    TaskKind, Trainer,
};
use fl_plugin_trainer_dfdx::Dfdx;
use ndarray::{Array2, ArrayD, ArrayView2, s};

#[test]
fn exact_the_same_calls_give_the_same_bits_on_any_thread() {
    let (x, classes) = bars(70, 1);
    let run = || {
        let mut model = cnn();
        model
            .fit(
                &x,
                Target::Classes(&classes),
                &pass(Length::Steps(7), 16),
                &Stream::root(3),
            )
            .unwrap();
        (model.save_state().unwrap(), model.predict(&x).unwrap())
    };
    let here = run();
    let there = std::thread::scope(|s| {
        let all: Vec<_> = (0..2).map(|_| s.spawn(run)).collect();
        all.into_iter()
            .map(|t| t.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(there.iter().all(|other| *other == here));
}

#[test]
fn exact_a_model_that_stopped_goes_on_with_the_same_bits() {
    for optimiser in ["{adam: {lr: 0.01}}", "{sgd: {lr: 0.1, momentum: 0.9}}"] {
        let yaml = format!(
            "{{net: [{{conv: {{out: 4, kernel: 3}}}}, batch-norm, relu, outputs], optimiser: {optimiser}, schedule: {{cosine: {{steps: 20}}}}}}"
        );
        let (x, classes) = bars(40, 1);
        let make = || trainer(&yaml, &[3, 8, 8], TaskKind::Classes(4));
        let fit = |model: &mut Dfdx, round| {
            model
                .fit(
                    &x,
                    Target::Classes(&classes),
                    &pass(Length::Steps(5), 8),
                    &Stream::root(round),
                )
                .unwrap()
        };
        let mut straight = make();
        let mut first = make();
        fit(&mut straight, 1);
        fit(&mut first, 1);
        let mut second = make();
        second.load_state(&first.save_state().unwrap()).unwrap();
        assert_eq!(fit(&mut straight, 2), fit(&mut second, 2));
        assert_eq!(
            straight.save_state().unwrap(),
            second.save_state().unwrap(),
            "{optimiser}"
        );
        let mut copy = make();
        copy.load(&straight.save().unwrap()).unwrap();
        assert_eq!(copy.predict(&x).unwrap(), straight.predict(&x).unwrap());
        assert!(
            copy.load_state(&straight.save().unwrap())
                .unwrap_err()
                .to_string()
                .contains("a model, not a state")
        );
        assert!(copy.load(b"nonsense").is_err());
    }
}

/// With a bound that no gradient reaches, the gradient is written down, and a pass of its own moves
/// the weights.
#[test]
fn exact_weights_that_move_with_their_gradient_have_the_bits_of_two_passes() {
    let (x, classes) = bars(620, 1);
    let nets = [
        "[{linear: 70}, relu, {linear: 33}, relu, outputs]",
        "[{conv: {out: 5, kernel: 3}}, batch-norm, relu, {pool: 2}, {linear: 129}, relu, outputs]",
    ];
    for (net, decay) in nets.into_iter().flat_map(|net| [(net, 0.0), (net, 0.03)]) {
        for batch in [1, 2, 3, 10, 33, 600] {
            let after = |clip| {
                let sgd = format!("{{sgd: {{lr: 0.05, weight-decay: {decay}}}}}");
                let yaml = format!("{{net: {net}, optimiser: {sgd}}}");
                let mut model = trainer(&yaml, &[3, 8, 8], TaskKind::Classes(4));
                let options = FitOptions {
                    clip,
                    ..pass(Length::Steps(3), batch)
                };
                let stream = Stream::root(3);
                let fitted = model.fit(&x, Target::Classes(&classes), &options, &stream);
                (fitted.unwrap().loss, model.params())
            };
            let (together, apart) = (after(None), after(Some(f32::MAX)));
            assert!(
                together == apart,
                "{net}, decay {decay}, batches of {batch}"
            );
        }
    }
}

#[test]
fn params_come_and_go_with_running_statistics() {
    let (x, classes) = bars(40, 1);
    let (mut a, mut b) = (cnn(), cnn());
    a.fit(
        &x,
        Target::Classes(&classes),
        &pass(Length::Steps(4), 8),
        &Stream::root(1),
    )
    .unwrap();
    let params = a.params();
    let names: Vec<&str> = params.0.keys().map(String::as_str).collect();
    let wanted = "0.bias 0.weight 1.bias 1.running_mean 1.running_var 1.weight 5.bias 5.weight 7.bias 7.weight";
    assert_eq!(names.join(" "), wanted);
    b.set_params(&params).unwrap();
    assert_eq!(b.params(), params);
    assert_eq!(a.predict(&x).unwrap(), b.predict(&x).unwrap());
    let mut wrong = params.clone();
    wrong
        .0
        .insert("0.weight".into(), ArrayD::zeros(vec![6, 3, 3]));
    assert_eq!(
        b.set_params(&wrong).unwrap_err().to_string(),
        "`0.weight` is [6, 3, 3], the model has [6, 3, 3, 3]"
    );
    wrong = params.clone();
    wrong.0.insert("9.weight".into(), ArrayD::zeros(vec![1]));
    assert_eq!(
        b.set_params(&wrong).unwrap_err().to_string(),
        "`9.weight` is no tensor of the model"
    );
    wrong.0.clear();
    assert_eq!(
        b.set_params(&wrong).unwrap_err().to_string(),
        "`0.weight` is missing"
    );
}

/// With plain gradient descent on one batch of all samples, the proximal term and the gradient
/// offset can be told from the weights alone.
#[test]
fn pull_drift_and_clip_do_what_their_formulas_say() {
    let (x, classes) = bars(24, 1);
    let make = || {
        trainer(
            "{net: logistic, optimiser: {sgd: {lr: 0.5}}}",
            &[3, 8, 8],
            TaskKind::Classes(4),
        )
    };
    let flat = |p: &Params| p.iter().copied().collect::<Vec<f32>>();
    let start = make().params();
    let after = |change: &dyn Fn(&mut FitOptions<'_>)| {
        let mut model = make();
        let mut pass = pass(Length::Steps(1), 24);
        change(&mut pass);
        model
            .fit(&x, Target::Classes(&classes), &pass, &Stream::root(1))
            .unwrap();
        flat(&model.params())
    };
    let plain = after(&|_| {});
    let anchor = Params(
        start
            .0
            .iter()
            .map(|(k, v)| (k.clone(), v.mapv(|w| w + 1.0)))
            .collect(),
    );
    let ones = Params(
        start
            .0
            .iter()
            .map(|(k, v)| (k.clone(), v.mapv(|_| 0.25)))
            .collect(),
    );
    // lr * mu * (w - anchor) = 0.5 * 0.1 * -1 and lr * gradient_offset = 0.5 * 0.25
    for (moved, by) in [
        (after_with_pull(&make, &x, &classes, &anchor), 0.05),
        (after_with_drift(&make, &x, &classes, &ones), -0.125),
    ] {
        for (m, p) in moved.iter().zip(&plain) {
            assert!((m - p - by).abs() < 1e-5, "{m} {p} {by}");
        }
    }
    let length = |w: &[f32]| {
        w.iter()
            .zip(flat(&start))
            .map(|(a, b)| f64::from(a - b).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    assert!(length(&plain) > 0.02);
    assert!(
        (length(&after(&|p| p.clip = Some(0.01))) - 0.005).abs() < 1e-5,
        "lr times the clipped length"
    );
}

fn after_with_pull(
    make: &dyn Fn() -> Dfdx,
    x: &Samples,
    classes: &[u32],
    anchor: &Params,
) -> Vec<f32> {
    let mut model = make();
    let pass = FitOptions {
        proximal: Some((0.1, anchor)),
        ..FitOptions::new(Length::Steps(1), 24, Loss::CrossEntropy)
    };
    model
        .fit(x, Target::Classes(classes), &pass, &Stream::root(1))
        .unwrap();
    model.params().iter().copied().collect()
}

fn after_with_drift(
    make: &dyn Fn() -> Dfdx,
    x: &Samples,
    classes: &[u32],
    gradient_offset: &Params,
) -> Vec<f32> {
    let mut model = make();
    let pass = FitOptions {
        gradient_offset: Some(gradient_offset),
        ..FitOptions::new(Length::Steps(1), 24, Loss::CrossEntropy)
    };
    model
        .fit(x, Target::Classes(classes), &pass, &Stream::root(1))
        .unwrap();
    model.params().iter().copied().collect()
}

#[test]
fn the_product_with_a_slope_is_the_difference_of_scores() {
    let (x, classes) = bars(6, 1);
    let yaml = "{net: [{conv: {out: 4, kernel: 3}}, batch-norm, tanh, linear: 5, tanh, outputs], predict-batch: 4}";
    let mut model = trainer(yaml, &[3, 8, 8], TaskKind::Classes(4));
    model
        .fit(
            &x,
            Target::Classes(&classes),
            &pass(Length::Steps(3), 6),
            &Stream::root(1),
        )
        .unwrap();
    let slope = Array2::from_shape_fn((6, 4), |(i, j)| libm::sinf((i * 4 + j) as f32));
    let exact = model.vjp(&x, slope.view()).unwrap();
    let values = x.values();
    let mut score = |row: usize, at: usize, d: f32| {
        let mut moved = values.clone();
        moved[[row, at]] += d;
        let scores = model
            .predict(&Samples::fresh(moved, vec![3, 8, 8]).unwrap())
            .unwrap();
        (&scores * &slope)
            .iter()
            .map(|v| f64::from(*v))
            .sum::<f64>()
    };
    for (row, at) in [(0, 0), (1, 37), (3, 70), (4, 150), (5, 191)] {
        let n = (score(row, at, 1e-2) - score(row, at, -1e-2)) / 2e-2;
        assert!(
            (n - f64::from(exact[[row, at]])).abs() < 1e-3,
            "{row} {at}: {} {n}",
            exact[[row, at]]
        );
    }
    let wrong = model
        .vjp(&x, slope.slice(s![.., ..3]))
        .unwrap_err()
        .to_string();
    assert_eq!(wrong, "a slope of (6, 3) for scores of (6, 4)");
}

#[test]
fn features_feed_the_last_layer() {
    let (x, _) = bars(9, 1);
    let mut model = cnn();
    let (features, scores) = (
        model.features(&x).unwrap().unwrap(),
        model.predict(&x).unwrap(),
    );
    assert_eq!(features.dim(), (9, 16));
    let params = model.params();
    let (w, b) = (&params.0["7.weight"], &params.0["7.bias"]);
    for ((i, j), score) in scores.indexed_iter() {
        let own: f32 = (0..16).map(|f| features[[i, f]] * w[[j, f]]).sum::<f32>() + b[[j]];
        assert!((own - score).abs() < 1e-5);
    }
}

#[test]
fn predictions_do_not_depend_on_how_many_are_made_at_once() {
    let (x, _) = bars(13, 1);
    let all = cnn().predict(&x).unwrap();
    let mut one = trainer(
        &SMALL_CNN.replace("augment", "predict-batch: 1, augment"),
        &[3, 8, 8],
        TaskKind::Classes(4),
    );
    let close = one
        .predict(&x)
        .unwrap()
        .iter()
        .zip(&all)
        .all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(close);
}

#[test]
fn a_last_batch_of_one_is_left_out_only_where_it_would_harm() {
    let (x, classes) = bars(9, 1);
    let steps = |net: &str, batch| {
        let mut model = trainer(&format!("{{net: {net}}}"), &[3, 8, 8], TaskKind::Classes(4));
        model
            .fit(
                &x,
                Target::Classes(&classes),
                &pass(Length::Epochs(1), batch),
                &Stream::root(1),
            )
            .unwrap()
            .steps
    };
    let norm = "[{conv: {out: 2, kernel: 3}}, batch-norm, outputs]";
    assert_eq!(
        (steps("logistic", 4), steps(norm, 4), steps(norm, 1)),
        (3, 2, 9)
    );
    // one number for each channel of a sample
    let rows = "[{linear: 4}, batch-norm, outputs]";
    let one = "[{conv: {out: 2, kernel: 8}}, standardise, outputs]";
    assert_eq!((steps(rows, 4), steps(rows, 1), steps(one, 1)), (2, 0, 0));
    let alone = |net: &str| trainer(&format!("{{net: {net}}}"), &[3, 8, 8], TaskKind::Classes(4));
    let least = [norm, rows, one].map(|net| alone(net).abilities().least_batch);
    assert_eq!(least, [1, 2, 2]);
}

#[test]
fn exact_a_sample_alone_changes_nothing_that_it_cannot_normalise() {
    let (x, classes) = bars(1, 1);
    let rows = "{net: [{linear: 4}, batch-norm, relu, outputs], optimiser: {adam: {lr: 0.1}}}";
    let mut model = trainer(rows, &[3, 8, 8], TaskKind::Classes(4));
    let before = model.save_state().unwrap();
    for length in [Length::Epochs(3), Length::Steps(4)] {
        let target = Target::Classes(&classes);
        let fitted = model.fit(&x, target, &pass(length, 8), &Stream::root(1));
        let fitted = fitted.unwrap();
        assert_eq!((fitted.steps, fitted.loss), (0, 0.0));
    }
    assert_eq!(model.save_state().unwrap(), before);
}

#[test]
fn exact_a_variance_below_zero_counts_as_zero() {
    let mut model = cnn();
    let buffers = model.buffers();
    let due = ["1.running_mean", "1.running_var"].map(String::from);
    assert_eq!(buffers, due.clone().into());
    let mut params = model.params();
    params.0.values_mut().for_each(|tensor| tensor.fill(-0.5));
    model.set_params(&params).unwrap();
    params
        .0
        .entry(due[1].clone())
        .and_modify(|tensor| tensor.fill(0.0));
    assert_eq!(model.params(), params);
    let (x, _) = bars(3, 1);
    assert!(
        model
            .predict(&x)
            .unwrap()
            .iter()
            .all(|score| score.is_finite())
    );
}

/// Slopes by this many scores, whatever the model gives.
#[derive(Debug)]
struct Wide(usize);

impl AuxiliaryLoss for Wide {
    fn of_batch(
        &self,
        head: &Head,
        _: Target<'_>,
        scores: ArrayView2<'_, f32>,
        _: &Stream,
    ) -> Result<AuxiliaryTerm> {
        let by_scores = Array2::zeros((scores.nrows(), self.0));
        let nothing = AuxiliaryTerm::nothing(head, scores);
        Ok(AuxiliaryTerm {
            loss: 5.0,
            by_scores,
            ..nothing
        })
    }
}

#[test]
fn an_auxiliary_loss_of_another_shape_is_refused() {
    let (x, classes) = bars(9, 1);
    let fit = |auxiliary: Option<&dyn AuxiliaryLoss>| {
        let net = "{net: [{linear: 5}, relu, outputs]}";
        let mut model = trainer(net, &[3, 8, 8], TaskKind::Classes(4));
        let pass = FitOptions {
            auxiliary,
            ..pass(Length::Steps(1), 4)
        };
        let target = Target::Classes(&classes);
        model.fit(&x, target, &pass, &Stream::root(1))
    };
    // the reported loss is that of the samples alone
    let plain = fit(None).unwrap().loss;
    assert_eq!(fit(Some(&Wide(4))).unwrap().loss, plain);
    let error = format!("{:#}", fit(Some(&Wide(1))).unwrap_err());
    assert!(error.contains("slopes of other shapes"), "{error}");
}

/// Half the mean over the batch of the squared distance of features to `class / 4`.
#[derive(Debug)]
struct ToClass;

fn of_class(features: &Array2<f32>, classes: &[u32]) -> Array2<f32> {
    let mut apart = features.clone();
    for (mut row, class) in apart.rows_mut().into_iter().zip(classes) {
        row -= *class as f32 / 4.0;
    }
    apart
}

impl FeatureLoss for ToClass {
    fn of_features(
        &self,
        features: ArrayView2<'_, f32>,
        target: Target<'_>,
        _: &[usize],
        _: &Stream,
    ) -> Result<FeatureTerm> {
        let Target::Classes(classes) = target else {
            panic!("other targets than classes");
        };
        let apart = of_class(&features.to_owned(), classes);
        let n = apart.nrows() as f32;
        Ok(FeatureTerm {
            loss: f64::from(apart.mapv(|d| d * d).sum() / (2.0 * n)),
            by_features: apart / n,
        })
    }
}

#[test]
fn close_a_loss_on_features_adds_its_gradient_to_all_layers_but_the_last() {
    let (x, classes) = bars(6, 1);
    for net in [
        "[{linear: 5}, tanh, outputs]",
        "[{conv: {out: 2, kernel: 3}}, tanh, outputs]",
    ] {
        let yaml = format!("{{net: {net}, optimiser: {{sgd: {{lr: 1.0}}}}}}");
        let make = || trainer(&yaml, &[3, 8, 8], TaskKind::Classes(4));
        let step = |feature_loss: Option<&dyn FeatureLoss>| {
            let mut model = make();
            let pass = FitOptions {
                feature_loss,
                ..pass(Length::Steps(1), 6)
            };
            let target = Target::Classes(&classes);
            let report = model.fit(&x, target, &pass, &Stream::root(1)).unwrap();
            (model.params(), report.loss)
        };
        let ((with, loss), (without, plain)) = (step(Some(&ToClass)), step(None));
        let value = |params: &Params| {
            let mut model = make();
            model.set_params(params).unwrap();
            let features = model.features(&x).unwrap().unwrap();
            let apart = of_class(&features, &classes);
            f64::from(apart.mapv(|d| d * d).sum() / (2.0 * apart.nrows() as f32))
        };
        let start = make().params();
        assert_eq!(
            loss, plain,
            "{net}: the reported loss is that of the samples alone"
        );
        let mut moved = 0;
        for (name, tensor) in &start.0 {
            for (at, _) in tensor.indexed_iter().step_by(tensor.len().div_ceil(12)) {
                // a step of plain descent is the gradient
                let found = f64::from(without.0[name][&at] - with.0[name][&at]);
                let shifted = |by: f32| {
                    let mut params = start.clone();
                    params.0.get_mut(name).unwrap()[&at] += by;
                    value(&params)
                };
                let due = (shifted(0.01) - shifted(-0.01)) / 0.02;
                assert!(
                    (found - due).abs() < 2e-3,
                    "{net}: {name} {at:?}: {found}, {due}"
                );
                moved += usize::from(due.abs() > 0.01);
                assert!(
                    !name.starts_with("2.") && !name.starts_with("3.") || found == 0.0,
                    "{name}"
                );
            }
        }
        assert!(moved > 4, "{net}");
    }
}

#[test]
fn a_loss_on_features_of_another_shape_is_refused() {
    #[derive(Debug)]
    struct Narrow;
    impl FeatureLoss for Narrow {
        fn of_features(
            &self,
            features: ArrayView2<'_, f32>,
            _: Target<'_>,
            _: &[usize],
            _: &Stream,
        ) -> Result<FeatureTerm> {
            let by_features = Array2::zeros((features.nrows(), 1));
            let loss = 0.0;
            Ok(FeatureTerm { loss, by_features })
        }
    }
    let (x, classes) = bars(9, 1);
    let mut model = trainer(SMALL_CNN, &[3, 8, 8], TaskKind::Classes(4));
    assert!(model.abilities().feature_loss);
    let pass = FitOptions {
        feature_loss: Some(&Narrow),
        ..pass(Length::Steps(1), 4)
    };
    let error = model.fit(&x, Target::Classes(&classes), &pass, &Stream::root(1));
    let error = format!("{:#}", error.unwrap_err());
    assert!(
        error.contains("slopes of shape (4, 1); expected (4, "),
        "{error}"
    );
    let logistic = trainer("{net: logistic}", &[3, 8, 8], TaskKind::Classes(4));
    assert!(!logistic.abilities().feature_loss);
}

#[test]
fn mistakes_say_what_is_wrong() {
    let (x, classes) = bars(9, 1);
    let mut model = trainer(
        "{net: logistic, optimiser: {sgd: {lr: 1e30}}}",
        &[3, 8, 8],
        TaskKind::Classes(4),
    );
    let (zeros, far) = (
        Array2::zeros((9, 4)),
        FitOptions::new(Length::Steps(9), 9, Loss::Mse),
    );
    let error = model
        .fit(&x, Target::Scores(zeros.view()), &far, &Stream::root(1))
        .unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.starts_with("step ") && text.contains(": training diverged; "),
        "{text}"
    );
    let other = Samples::fresh(Array2::zeros((9, 5)), vec![5]).unwrap();
    assert_eq!(
        model.predict(&other).unwrap_err().to_string(),
        "samples of shape [5] for a model of inputs [3, 8, 8]"
    );
    assert!(
        model
            .fit(
                &x,
                Target::Classes(&classes),
                &pass(Length::Steps(1), 0),
                &Stream::root(1)
            )
            .is_err()
    );
    let none = x.pick(&[]);
    assert_eq!(
        model
            .fit(
                &none,
                Target::Classes(&[]),
                &pass(Length::Epochs(3), 4),
                &Stream::root(1)
            )
            .unwrap()
            .steps,
        0
    );
    assert_eq!(model.predict(&none).unwrap().dim(), (0, 4));
    let make = BuildContext {
        task: Task {
            input: vec![12],
            kind: TaskKind::Classes(3),
        },
        stream: Stream::root(1),
    };
    let wrong = |yaml: &str| match read_yaml(yaml).and_then(|s| Dfdx::new(s, &make)) {
        Err(e) => format!("{e:#}"),
        Ok(_) => panic!("{yaml} was taken"),
    };
    assert!(wrong("{net: logistic, augment: [flip]}").contains("augment: needs images"));
    let images = BuildContext {
        task: Task {
            input: vec![1, 8, 8],
            ..make.task.clone()
        },
        stream: Stream::root(1),
    };
    for (change, limit) in [
        ("crop: 0", "below 8"),
        ("crop: 8", "below 8"),
        ("cutout: 0", "at most 8"),
        ("cutout: 9", "at most 8"),
    ] {
        let yaml = format!("{{net: logistic, augment: [{{{change}}}]}}");
        let error = read_yaml(&yaml).and_then(|s| Dfdx::new(s, &images)).err();
        let error = error.expect(change).to_string();
        assert!(
            error.contains(&format!("at least 1 and {limit}")),
            "{error}"
        );
    }
    assert!(
        wrong("{net: logistic, optimiser: {sgd: {}}}").contains("optimiser.sgd.lr: is missing")
    );
    assert!(
        wrong("{net: logistic, optimiser: {sgd: {lr: 0}}}").contains("must be above 0.0, got 0.0")
    );
    assert!(wrong("{}").contains("net: is missing"));
}

#[test]
fn a_model_that_is_only_made_takes_no_memory_and_one_beyond_counting_is_refused() {
    let make = BuildContext {
        task: Task {
            input: vec![1, 8, 8],
            kind: TaskKind::Classes(3),
        },
        stream: Stream::root(1),
    };
    let new = |yaml: &str| read_yaml(yaml).and_then(|s| Dfdx::new(s, &make));
    // 265 million numbers
    let used = allocation_counter::measure(|| {
        let model = new("{net: [linear: 3900000, outputs]}").unwrap();
        assert_eq!(model.parameters(), 68 * 3_900_000 + 3);
    });
    assert!(used.bytes_max < 1 << 20, "{} bytes", used.bytes_max);
    for layers in [
        "linear: 18446744073709551615",
        "conv: {out: 18446744073709551615, kernel: 1}",
        "linear: 100000000",
        "upsample: 4294967296}, {upsample: 4294967296",
        "upsample: 18446744073709551615",
        "residual: {body: [{conv: {out: 1, kernel: 1}}, {upsample: 9999999999}]}",
    ] {
        let used = allocation_counter::measure(|| {
            let error = new(&format!("{{net: [{{{layers}}}, outputs]}}")).err();
            let error = format!("{:#}", error.expect(layers));
            assert!(
                error.contains("layer") && error.contains("too many"),
                "{layers}: {error}"
            );
        });
        assert!(
            used.bytes_max < 1 << 20,
            "{layers}: {} bytes",
            used.bytes_max
        );
    }
}

/// Each example for itself, as DP-SGD needs it, in networks of every kind of layer.
#[test]
fn the_gradients_of_single_examples_have_the_gradient_of_all_as_their_mean() {
    let nets = [
        "lenet",
        "[{conv: {out: 4, kernel: 3}}, batch-norm, relu, {max-pool: {kernel: 2, stride: 2}}, {linear: 5}, relu, outputs]",
        "[{linear: 7}, tanh, {dropout: 0.5}, outputs]",
        "[{conv: {out: 4, kernel: 3}}, {group-norm: 2}, relu, {linear: 5}, layer-norm, outputs]",
    ];
    for net in nets {
        let mut model = trainer(
            &format!("{{net: {net}, optimiser: {{sgd: {{lr: 0.5}}}}}}"),
            &[1, 28, 28],
            TaskKind::Classes(4),
        );
        let mut draws = Stream::root(2).draws();
        let x = Array2::from_shape_simple_fn((6, 784), || draws.normal() as f32);
        let x = Samples::fresh(x, vec![1, 28, 28]).unwrap();
        let classes = [0, 1, 2, 3, 0, 1];
        let loss = Loss::CrossEntropy;
        let whole = model.gradient(&x, Target::Classes(&classes), loss).unwrap();
        let mut sum = whole.zeros_like();
        for (at, class) in classes.iter().enumerate() {
            let one = model
                .gradient(&x.pick(&[at]), Target::Classes(&[*class]), loss)
                .unwrap();
            sum.add_scaled(1.0 / 6.0, &one).unwrap();
        }
        let off = sum.zip(&whole, |a, b| a - b).unwrap().norm();
        assert!(off < 1e-5 * whole.norm(), "{net}: {off}");
        // a step along it is one of the optimiser
        let mut due = model.params();
        due.add_scaled(-0.5, &whole).unwrap();
        model.descend(&whole, &PassStep::new(0, 1)).unwrap();
        let off = model.params().zip(&due, |a, b| a - b).unwrap().norm();
        assert!(off < 1e-6, "{net}: {off}");
    }
}

/// SCAFFOLD and FedNova divide by it.
#[test]
fn only_plain_gradient_descent_has_a_step_size() {
    let size = |how: &str| {
        let yaml = format!("{{net: logistic, {how}}}");
        trainer(&yaml, &[4], TaskKind::Classes(2)).step_size()
    };
    assert_eq!(
        size("optimiser: {sgd: {lr: 0.1, weight-decay: 0.01}}"),
        Some(0.1)
    );
    assert_eq!(size("optimiser: {sgd: {lr: 0.1, momentum: 0.5}}"), None);
    assert_eq!(size("optimiser: {adam: {lr: 0.1}}"), None);
    assert_eq!(size("optimiser: {sgd: {lr: 0.1}}, schedule: cosine"), None);
    let momentum = |how: &str| {
        let yaml = format!("{{net: logistic, {how}}}");
        let model = trainer(&yaml, &[4], TaskKind::Classes(2));
        model.abilities().step_momentum
    };
    let sgd = "optimiser: {sgd: {lr: 0.1, momentum: 0.5}}";
    assert_eq!(momentum(sgd), Some(0.5));
    assert_eq!(momentum(&format!("{sgd}, schedule: cosine")), None);
    let ahead = "optimiser: {sgd: {lr: 0.1, momentum: 0.5, nesterov: true}}";
    assert_eq!(momentum(ahead), None);
    assert_eq!(momentum("optimiser: {adam: {lr: 0.1}}"), None);
}

#[test]
fn what_training_does_beside_gradients_is_said() {
    let beside = |net: &str, more: &str| {
        let yaml = format!("{{net: {net}, {more}}}");
        let model = trainer(&yaml, &[1, 4, 4], TaskKind::Classes(2));
        let abilities = model.abilities();
        (
            abilities.beside_gradient.join(" "),
            abilities.decays_weights,
        )
    };
    let (plain, sgd) = ("[outputs]", "optimiser: {sgd: {lr: 0.1}}");
    assert_eq!(beside(plain, sgd), (String::new(), false));
    assert_eq!(beside("[{dropout: 0.0}, outputs]", sgd).0, "");
    let deep = "[flatten, {residual: {body: [{dropout: 0.5}, {linear: 16}]}}, outputs]";
    assert_eq!(beside(deep, sgd).0, "dropout");
    let flipped = format!("{sgd}, augment: [flip]");
    assert_eq!(beside(plain, &flipped).0, "augment");
    let decay = "optimiser: {adam: {lr: 0.1, weight-decay: 0.1}}";
    assert_eq!(beside(plain, decay), (String::new(), true));
}

/// Networks with every layer that has weights, and the shape of their inputs.
const WEIGHTED: [(&str, &[usize]); 8] = [
    ("lenet", &[1, 28, 28]),
    (
        "[{conv: {out: 4, kernel: 3}}, batch-norm, relu, {max-pool: {kernel: 2, stride: 2}}, {linear: 5}, relu, outputs]",
        &[1, 28, 28],
    ),
    ("[{linear: 6}, layer-norm, tanh, outputs]", &[784]),
    (
        "[{conv: {out: 4, kernel: 3}}, {group-norm: 2}, relu, {pool: 2}, {linear: 5}, relu, outputs]",
        &[1, 28, 28],
    ),
    // more inputs than are unfolded
    (
        "[{conv: {out: 12, kernel: 3, pad: 1}}, tanh, {conv: {out: 3, kernel: 3}}, outputs]",
        &[1, 28, 28],
    ),
    ("[{linear: 7}, tanh, {dropout: 0.5}, outputs]", &[784]),
    (
        "[{residual: {body: [{conv: {out: 2, kernel: 3, stride: 2, pad: 1, bias: false}}, relu], shortcut: [{conv: {out: 2, kernel: 1, stride: 2}}]}}, outputs]",
        &[1, 28, 28],
    ),
    (
        "[{embedding: {vocabulary: 20, width: 3}}, {branches: [[{conv1d: {out: 4, kernel: 2}}, relu, max-over-time], [{conv1d: {out: 3, kernel: 3}}, relu, max-over-time]]}, outputs]",
        &[12],
    ),
];

/// Returns a model and `n` samples for it; those of texts are numbers of words.
fn weighted((net, input): (&str, &[usize]), n: usize) -> (Dfdx, Array2<f32>, Vec<u32>) {
    let optimiser = "optimiser: {sgd: {lr: 0.5}}";
    let model = trainer(
        &format!("{{net: {net}, {optimiser}}}"),
        input,
        TaskKind::Classes(4),
    );
    let (mut draws, width) = (Stream::root(2).draws(), input.iter().product());
    let x = Array2::from_shape_simple_fn((n, width), || {
        if net.contains("embedding") {
            draws.below(21) as f32
        } else {
            draws.normal() as f32
        }
    });
    let classes = (0..n).map(|at| (at % 4) as u32).collect();
    (model, x, classes)
}

#[test]
fn close_clipped_gradients_are_the_sum_of_single_ones_that_are_clipped() {
    for of in WEIGHTED {
        for clip in [0.01, 1.3, 1e9] {
            let (mut model, x, classes) = weighted(of, 9);
            let x = Samples::fresh(x, of.1.to_vec()).unwrap();
            let loss = Loss::CrossEntropy;
            let found = model
                .clipped_gradients(&x, Target::Classes(&classes), loss, clip)
                .unwrap()
                .unwrap();
            let mut due = found.zeros_like();
            for (at, class) in classes.iter().enumerate() {
                let one = model
                    .gradient(&x.pick(&[at]), Target::Classes(&[*class]), loss)
                    .unwrap();
                due.add_scaled((clip / one.norm()).min(1.0), &one).unwrap();
            }
            let off = found.zip(&due, |a, b| a - b).unwrap().norm();
            assert!(off < 1e-5 * due.norm(), "{}, {clip}: {off}", of.0);
        }
    }
}

/// Its numbers are infinite, and it is left out: all others give the bits that they give without
/// it, in other groups and at other positions.
#[test]
fn exact_the_gradient_of_an_example_does_not_depend_on_other_examples() {
    for of in WEIGHTED
        .iter()
        .filter(|(net, _)| !net.contains("embedding"))
    {
        for n in [2, 40, 70] {
            let (mut model, mut x, classes) = weighted(*of, n);
            let mut sum = |x: Array2<f32>, classes: &[u32]| {
                let x = Samples::fresh(x, of.1.to_vec()).unwrap();
                let target = Target::Classes(classes);
                let sum = model.clipped_gradients(&x, target, Loss::CrossEntropy, 0.7);
                sum.unwrap().unwrap()
            };
            let rest = x.slice(s![1.., ..]).to_owned();
            let without = sum(rest, &classes[1..]);
            for wild in [f32::INFINITY, f32::NAN, f32::MAX] {
                x.row_mut(0).fill(wild);
                let found = sum(x.clone(), &classes);
                if wild == f32::MAX {
                    let moved = found.zip(&without, |a, b| a - b).unwrap().norm();
                    // each number of both sums is rounded once
                    let most = 0.7 + 1e-6 * without.norm();
                    assert!(moved <= most, "{}, {n}: moved by {moved}", of.0);
                } else {
                    let bits =
                        |of: &Params| -> Vec<u32> { of.iter().map(|x| x.to_bits()).collect() };
                    assert!(bits(&found) == bits(&without), "{}, {n}, {wild}", of.0);
                }
            }
        }
    }
}

#[test]
fn no_clipped_gradient_is_longer_than_its_bound() {
    for of in WEIGHTED
        .iter()
        .filter(|(net, _)| !net.contains("embedding"))
    {
        for scale in [1e-20, 1e-3, 1.0, 1e5, 1e15] {
            for clip in [1e-30, 1e-12, 0.1, 1.0, 3.7, 1e6, 1e30] {
                let (mut model, x, classes) = weighted(*of, 3);
                let x = Samples::fresh(x * scale, of.1.to_vec()).unwrap();
                for at in 0..3 {
                    let target = Target::Classes(&classes[at..=at]);
                    let one = x.pick(&[at]);
                    let found = model.clipped_gradients(&one, target, Loss::CrossEntropy, clip);
                    let norm = found.unwrap().unwrap().norm();
                    assert!(norm <= clip, "{}, {scale}: {norm} for {clip}", of.0);
                }
            }
        }
    }
}
