//! Networks that give every pixel a class.

use crate::common::trainer;
use fl_core::message::Params;
use fl_core::{
    BuildContext, Differentiable, FitOptions, Length, Loss, Parametric, Samples, Stream, Target,
    Task, TaskKind, Trainer, metrics,
};
use fl_plugin_trainer_dfdx::Dfdx;
use ndarray::Array2;

const PIXELS: TaskKind = TaskKind::Pixels {
    classes: 2,
    height: 16,
    width: 16,
};

/// Bright and dark discs on noise, 1x16x16; only the bright ones count, and each has a dark rim
/// that tells nothing by itself.
fn discs(n: usize, seed: u64) -> (Samples, Array2<u8>) {
    let mut draws = Stream::root(seed).draws();
    let (mut values, mut masks) = (Array2::zeros((n, 256)), Array2::zeros((n, 256)));
    for i in 0..n {
        for bright in [true, false] {
            let place: Vec<f64> = (0..2).map(|_| 3.0 + 10.0 * draws.uniform()).collect();
            let radius = 2.0 + 2.0 * draws.uniform();
            for at in 0..256 {
                let (y, x) = ((at / 16) as f64 - place[0], (at % 16) as f64 - place[1]);
                if x * x + y * y <= radius * radius {
                    values[[i, at]] = if bright { 1.0 } else { -1.0 };
                    masks[[i, at]] = u8::from(bright);
                }
            }
        }
    }
    values.mapv_inplace(|v: f32| v + 0.4 * draws.normal() as f32);
    (Samples::fresh(values, vec![1, 16, 16]).unwrap(), masks)
}

fn dice(model: &mut Dfdx, x: &Samples, truth: &Array2<u8>) -> f64 {
    let found = metrics::masks(model.predict(x).unwrap().view(), 2).unwrap();
    let pairs = truth.rows().into_iter().zip(found.rows());
    pairs.map(|(t, p)| metrics::dice(t, p, 2)).sum::<f64>() / truth.nrows() as f64
}

#[test]
fn a_unet_learns_what_is_in_a_picture_and_one_pixel_does_not_say() {
    let ((x, masks), (other, truth)) = (discs(48, 1), discs(24, 2));
    let learnt = |net: &str| {
        let yaml = format!("{{net: {net}, optimiser: {{adam: {{lr: 0.01}}}}, dice: 1.0}}");
        let mut model = trainer(&yaml, &[1, 16, 16], PIXELS);
        let pass = FitOptions::new(Length::Epochs(8), 8, Loss::CrossEntropy);
        let stream = Stream::root(3);
        let fitted = model.fit(&x, Target::Pixels(masks.view()), &pass, &stream);
        assert!(fitted.unwrap().loss.is_finite());
        dice(&mut model, &other, &truth)
    };
    let (unet, pixel) = (learnt("unet"), learnt("logistic"));
    assert!(unet > 0.85, "U-Net: Dice {unet}");
    assert!(
        pixel < unet - 0.05,
        "pixel by pixel: Dice {pixel}, U-Net {unet}"
    );
}

#[test]
fn the_gradients_of_a_unet_are_those_of_differences() {
    let (x, masks) = discs(2, 5);
    let net = "[{conv: {out: 3, kernel: 3, pad: 1}}, tanh, {skip: [{average-pool: 2}, {conv: {out: 4, kernel: 3, pad: 1}}, tanh, \
               {transposed-conv: {out: 3, kernel: 2, stride: 2}}]}, {conv: {out: 3, kernel: 3, pad: 1}}, tanh, outputs]";
    let yaml = format!("{{net: {net}, dice: 0.5}}");
    let mut model = trainer(&yaml, &[1, 16, 16], PIXELS);
    let start = model.params();
    let target = Target::Pixels(masks.view());
    let exact = model.gradient(&x, target, Loss::CrossEntropy).unwrap();
    let mut at = |params: &Params| {
        model.set_params(params).unwrap();
        let scores = model.predict(&x).unwrap();
        let loss = Loss::CrossEntropy;
        fl_core::loss::of_task(PIXELS, 0.5, loss, target, scores.view())
            .unwrap()
            .0
    };
    for (name, slope) in &exact.0 {
        let i = slope.len() / 2;
        let g = f64::from(slope.as_slice().unwrap()[i]);
        let mut moved = |d: f32| {
            let mut params = start.clone();
            params.0.get_mut(name).unwrap().as_slice_mut().unwrap()[i] += d;
            at(&params)
        };
        let n = (moved(1e-2) - moved(-1e-2)) / 2e-2;
        assert!(
            (n - g).abs() < 2e-3 * (1.0 + n.abs()),
            "{name}[{i}]: {g}, by differences {n}"
        );
    }
    assert!(exact.0.contains_key("2.1.weight"), "{:?}", exact.0.keys());
    model.set_params(&start).unwrap();
    let slope = Array2::from_shape_fn((2, 512), |(i, j)| libm::sinf((i + j) as f32));
    let exact = model.vjp(&x, slope.view()).unwrap();
    for (row, at) in [(0, 0), (0, 100), (1, 255)] {
        let mut score = |d: f32| {
            let mut values = x.values();
            values[[row, at]] += d;
            let moved = Samples::fresh(values, vec![1, 16, 16]).unwrap();
            let scores = model.predict(&moved).unwrap();
            (&scores * &slope)
                .iter()
                .map(|v| f64::from(*v))
                .sum::<f64>()
        };
        let n = (score(1e-2) - score(-1e-2)) / 2e-2;
        let g = f64::from(exact[[row, at]]);
        assert!(
            (n - g).abs() < 2e-3 * (1.0 + n.abs()),
            "{row} {at}: {g}, {n}"
        );
    }
}

#[test]
fn networks_and_settings_that_do_not_fit_pixels_are_refused() {
    let refused = |yaml: &str, kind: TaskKind| {
        let make = BuildContext {
            task: Task {
                input: vec![1, 16, 16],
                kind,
            },
            stream: Stream::root(1),
        };
        let made = Dfdx::new(fl_core::settings::read_yaml(yaml).unwrap(), &make);
        format!("{:#}", made.err().unwrap())
    };
    for (net, said) in [
        (
            "lenet",
            "needs an image [channels, height, width], got [84]",
        ),
        (
            "[{pool: 2}, outputs]",
            "gives [2, 8, 8] where [2, 16, 16] is due",
        ),
        (
            "[{conv: {out: 3, kernel: 1}}]",
            "gives [3, 16, 16] where [2, 16, 16] is due",
        ),
        (
            "[{skip: [{pool: 2}]}, outputs]",
            "skip: the input is [1, 16, 16]",
        ),
        ("[{skip: [flatten]}, outputs]", "its layers give [256]"),
    ] {
        let text = refused(&format!("{{net: {net}}}"), PIXELS);
        assert!(text.contains(said), "{net}: {text}");
    }
    assert!(
        refused("{net: unet, augment: [flip]}", PIXELS)
            .contains("but not their masks or target images")
    );
    let classes = TaskKind::Classes(2);
    assert!(refused("{net: logistic, dice: 1.0}", classes).contains("`dice` is for tasks"));
}
