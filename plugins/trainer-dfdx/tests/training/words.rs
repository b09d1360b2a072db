//! Networks that read texts.

use crate::common::*;
use fl_core::{Length, Loss, Samples, Stream, Target, TaskKind, Trainer};
use fl_plugin_trainer_dfdx::Dfdx;
use ndarray::{Array2, array};

const NET: &str = "{net: [{embedding: {vocabulary: 20, width: 8}}, {branches: [[{conv1d: {out: 8, kernel: 2}}, relu, max-over-time], \
                   [{conv1d: {out: 8, kernel: 3}}, relu, max-over-time]]}, outputs], optimiser: {adam: {lr: 0.02}}}";

fn reader() -> Dfdx {
    trainer(NET, &[12], TaskKind::Classes(2))
}

/// Texts of 3 to 12 words in which word 1 stands right before word 2, or right behind it: a bag of
/// words cannot tell.
fn orders(n: usize, seed: u64) -> (Samples, Vec<u32>) {
    let mut draws = Stream::root(seed).draws();
    let mut values = Array2::zeros((n, 12));
    let classes: Vec<u32> = (0..n).map(|_| draws.below(2) as u32).collect();
    for (mut row, class) in values.rows_mut().into_iter().zip(&classes) {
        let length = 3 + draws.below(10);
        for at in 0..length {
            row[at] = 3.0 + draws.below(18) as f32;
        }
        let at = draws.below(length - 1);
        (row[at], row[at + 1]) = if *class == 0 { (1.0, 2.0) } else { (2.0, 1.0) };
    }
    (Samples::fresh(values, vec![12]).unwrap(), classes)
}

const MEMORY: &str = "{net: [{embedding: {vocabulary: 20, width: 8}}, {lstm: 12}, {lstm: 12}, last-over-time, outputs], \
                      optimiser: {adam: {lr: 0.02}}}";

/// Texts whose class is whether word 1 stands before word 2, with words between: no window of a few
/// words can tell.
fn distant(n: usize, seed: u64) -> (Samples, Vec<u32>) {
    let (x, classes) = orders(n, seed);
    let mut values = x.values();
    for (mut row, class) in values.rows_mut().into_iter().zip(&classes) {
        let length = row.iter().filter(|word| **word > 0.0).count();
        for at in 0..length {
            row[at] = row[at].max(3.0);
        }
        let (first, second) = if *class == 0 { (1.0, 2.0) } else { (2.0, 1.0) };
        (row[0], row[length - 1]) = (first, second);
    }
    (Samples::fresh(values, vec![12]).unwrap(), classes)
}

#[test]
fn an_lstm_remembers_the_first_word_at_the_last() {
    let (x, classes) = distant(300, 1);
    let mut model = trainer(MEMORY, &[12], TaskKind::Classes(2));
    let fit = pass(Length::Epochs(12), 16);
    model
        .fit(&x, Target::Classes(&classes), &fit, &Stream::root(1))
        .unwrap();
    let (x, classes) = distant(200, 2);
    let right = accuracy(&mut model, &x, &classes);
    assert!(right > 0.95, "{right}");
    assert_eq!(model.features(&x).unwrap().unwrap().dim(), (200, 12));
    let params = model.parametric().unwrap().params();
    assert_eq!(params.0["1.weight_ih"].shape(), [48, 8]);
    assert_eq!(params.0["2.weight_hh"].shape(), [48, 12]);
    assert_eq!(params.0["2.bias"].shape(), [48]);
    let card = MEMORY.replace("{net:", "{device: cuda, net:");
    let error = try_trainer(&card, &[12], TaskKind::Classes(2)).err();
    assert_eq!(
        error.unwrap().to_string(),
        "`device`: no card computes `lstm` and `last-over-time` yet; use `device: cpu`"
    );
}

#[test]
fn a_convolution_learns_the_order_of_words() {
    let (x, classes) = orders(400, 1);
    let mut model = reader();
    let fit = pass(Length::Epochs(12), 16);
    model
        .fit(&x, Target::Classes(&classes), &fit, &Stream::root(1))
        .unwrap();
    let (x, classes) = orders(200, 2);
    let right = accuracy(&mut model, &x, &classes);
    assert!(right > 0.95, "{right}");
    assert_eq!(model.features(&x).unwrap().unwrap().dim(), (200, 16));
    assert_eq!(model.head().unwrap().weight.dim(), (2, 16));
}

/// Whole models, states, parameters, and the gradients of single examples as DP-SGD takes them.
#[test]
fn it_is_kept_averaged_and_differentiated_by_its_weights_as_others_are() {
    let (x, classes) = orders(6, 3);
    let target = Target::Classes(&classes);
    let mut model = reader();
    let fit = |model: &mut Dfdx, seed| {
        let pass = pass(Length::Steps(3), 4);
        model
            .fit(&x, Target::Classes(&classes), &pass, &Stream::root(seed))
            .unwrap()
    };
    fit(&mut model, 1);
    let (mut copy, mut other) = (reader(), reader());
    copy.load_state(&model.save_state().unwrap()).unwrap();
    assert_eq!(fit(&mut model, 2), fit(&mut copy, 2));
    assert_eq!(model.save_state().unwrap(), copy.save_state().unwrap());
    let params = model.parametric().unwrap().params();
    assert_eq!(params.0["0.weight"].shape(), [20, 8]);
    assert_eq!(params.0["1.1.0.weight"].shape(), [8, 3, 8]);
    other.parametric().unwrap().set_params(&params).unwrap();
    assert_eq!(other.predict(&x).unwrap(), model.predict(&x).unwrap());

    let able = model.parametric().unwrap();
    let whole = able.gradient(&x, target, Loss::CrossEntropy).unwrap();
    let mut sum = whole.zeros_like();
    for (at, class) in classes.iter().enumerate() {
        let one = able
            .gradient(
                &x.pick(&[at]),
                Target::Classes(&[*class]),
                Loss::CrossEntropy,
            )
            .unwrap();
        sum.add_scaled(1.0 / 6.0, &one).unwrap();
    }
    let off = sum.zip(&whole, |a, b| a - b).unwrap().norm();
    assert!(whole.norm() > 0.0 && off < 1e-5 * whole.norm(), "{off}");
}

#[test]
fn words_have_no_slope_and_what_is_none_is_an_error() {
    let mut model = reader();
    assert!(model.differentiable().is_none());
    assert!(cnn().differentiable().is_some());
    let mut words = Array2::zeros((2, 12));
    words
        .slice_mut(ndarray::s![1, ..2])
        .assign(&array![4.0, 20.5]);
    let x = Samples::fresh(words, vec![12]).unwrap();
    let due = "embedding: word 1 of sample 1 of the batch is 20.5; it must be a whole number from 0 (no word) to 20";
    assert_eq!(model.predict(&x).unwrap_err().to_string(), due);
    assert_eq!(model.features(&x).unwrap_err().to_string(), due);
    let (pass, target) = (pass(Length::Steps(1), 2), Target::Classes(&[0, 1]));
    let before = model.save_state().unwrap();
    let error = model.fit(&x, target, &pass, &Stream::root(1)).unwrap_err();
    assert!(format!("{error:#}").starts_with("step 0: embedding: word 1 of sample"));
    assert_eq!(model.save_state().unwrap(), before);
}
