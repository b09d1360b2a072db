//! What networks learn. Bounds, never snapshots.

use crate::common::*;
use fl_core::{FitOptions, Inputs, Length, Loss, Samples, Stream, Target, TaskKind, Trainer};
use ndarray::Array2;
use std::sync::Arc;

#[test]
fn bounds_a_small_network_learns_bars() {
    let ((x, classes), (test, truth)) = (bars(300, 1), bars(200, 2));
    let mut model = cnn();
    let first = model
        .fit(
            &x,
            Target::Classes(&classes),
            &pass(Length::Epochs(1), 32),
            &Stream::root(1),
        )
        .unwrap();
    let last = model
        .fit(
            &x,
            Target::Classes(&classes),
            &pass(Length::Epochs(8), 32),
            &Stream::root(2),
        )
        .unwrap();
    assert_eq!((first.steps, last.steps), (10, 80));
    assert!(last.loss < 0.5 * first.loss, "{first:?} {last:?}");
    let right = accuracy(&mut model, &test, &truth);
    assert!(right > 0.9, "{right}");
}

#[test]
fn bounds_findings_are_learnt_where_they_are_known() {
    let mut draws = Stream::root(1).draws();
    let values = Array2::from_shape_fn((400, 6), |_| draws.normal() as f32);
    let truth = Array2::from_shape_fn((400, 3), |(i, j)| {
        i8::from(values[[i, j]] > values[[i, j + 3]])
    });
    let seen = Array2::from_shape_fn(
        (400, 3),
        |(i, j)| if (i + j) % 3 == 0 { -1 } else { truth[[i, j]] },
    );
    let x = Samples::fresh(values, vec![6]).unwrap();
    let mut model = trainer(
        "{net: [linear: 16, relu, outputs], optimiser: {adam: {lr: 0.02}}}",
        &[6],
        TaskKind::MultiLabel(3),
    );
    model
        .fit(
            &x,
            Target::MultiLabel(seen.view()),
            &pass(Length::Epochs(20), 32),
            &Stream::root(1),
        )
        .unwrap();
    let scores = model.predict(&x).unwrap();
    let hidden = scores
        .iter()
        .zip(&truth)
        .zip(&seen)
        .filter(|(_, seen)| **seen == -1);
    let (all, right) = hidden.fold((0, 0), |(n, r), ((z, y), _)| {
        (n + 1, r + usize::from((*z > 0.0) == (*y == 1)))
    });
    assert!(right * 100 > all * 93, "{right} of {all} unknown findings");
}

#[test]
fn bounds_a_resnet_8_remembers_a_few_images() {
    let (x, classes) = bars(24, 1);
    let mut model = trainer(
        "{net: resnet-8, optimiser: {adam: {lr: 0.003}}}",
        &[3, 8, 8],
        TaskKind::Classes(4),
    );
    model
        .fit(
            &x,
            Target::Classes(&classes),
            &pass(Length::Epochs(25), 8),
            &Stream::root(1),
        )
        .unwrap();
    assert!(accuracy(&mut model, &x, &classes) > 0.95);
}

#[test]
fn distilled_scores_are_met() {
    let (x, _) = bars(60, 1);
    let wanted = cnn().predict(&x).unwrap();
    for loss in [Loss::Mae, Loss::Mse, Loss::Norm, Loss::Kl { tau: 3.0 }] {
        let mut model = trainer(
            "{net: [linear: 32, relu, outputs], optimiser: {adam: {lr: 0.003}}}",
            &[3, 8, 8],
            TaskKind::Classes(4),
        );
        let pass = |epochs| FitOptions::new(Length::Epochs(epochs), 20, loss);
        let first = model
            .fit(
                &x,
                Target::Scores(wanted.view()),
                &pass(1),
                &Stream::root(1),
            )
            .unwrap();
        let last = model
            .fit(
                &x,
                Target::Scores(wanted.view()),
                &pass(40),
                &Stream::root(2),
            )
            .unwrap();
        assert!(last.loss < 0.5 * first.loss, "{loss:?} {first:?} {last:?}");
    }
}

/// The folder of data sets that `FL_DATA_DIR` names, if it does.
fn mnist(kind: &str, n: usize) -> Option<(Samples, Vec<u32>)> {
    let Some(folder) = std::env::var_os("FL_DATA_DIR") else {
        eprintln!("skipped: FL_DATA_DIR does not say where MNIST is");
        return None;
    };
    let read = |what: &str| {
        let path = std::path::Path::new(&folder)
            .join("mnist")
            .join(format!("{kind}-{what}-ubyte.gz"));
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).unwrap();
        bytes
    };
    let data = read("images-idx3")[16..][..n * 784].to_vec();
    let classes = read("labels-idx1")[8..][..n]
        .iter()
        .map(|c| u32::from(*c))
        .collect();
    let inputs = Inputs::Bytes {
        shape: [1, 28, 28],
        data,
        mean: vec![0.1307],
        std: vec![0.3081],
    };
    Some((Samples::all(Arc::new(inputs)), classes))
}

#[test]
fn bounds_lenet_learns_mnist() {
    let (Some((x, classes)), Some((test, truth))) = (mnist("train", 5000), mnist("t10k", 10_000))
    else {
        return;
    };
    let mut model = trainer("{net: lenet}", &[1, 28, 28], TaskKind::Classes(10));
    model
        .fit(
            &x,
            Target::Classes(&classes),
            &pass(Length::Epochs(4), 32),
            &Stream::root(1),
        )
        .unwrap();
    let right = accuracy(&mut model, &test, &truth);
    assert!(right > 0.9, "{right}");
    eprintln!("LeNet, 5,000 images, 4 epochs: {right}");
}
