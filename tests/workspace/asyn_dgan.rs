//! What a client answers of images that were painted of label maps, beside the derivative of the
//! loss written down once more.

use crate::federation::part;
use fl_core::message::{Message, Nothing, decode};
use fl_core::settings::read_yaml;
use fl_core::{
    Answer, Body, BuildContext, Client, ClientState, Examples, FitOptions, Inputs, Labels, Length,
    Loss, Masks, Parametric as _, Parts, Payload, Protocol, Request, Role, Samples, Stream, Target,
    Task, TaskKind, Trainer as _,
};
use fl_plugin_fediod::{
    Answers, AsynDgan, ClassCounts, GenerateAndDistill, ImagesOfMaps, InputValues, SlopeRequest,
    aim, channels, odds,
};
use fl_plugin_trainer_dfdx::Dfdx;
use ndarray::{Array1, Array2, Axis, array, concatenate};
use std::sync::Arc;

const SIDE: usize = 4;
const PIXELS: usize = SIDE * SIDE;
const N: usize = 3;

/// Six images of one channel; a pixel is of class 1 where its number is at least 8.
fn examples() -> Examples {
    let number = |i: usize, at: usize| (7 * i + 3 * at) % 16;
    let all = (0..6).flat_map(|i| (0..PIXELS).map(move |at| number(i, at)));
    let inputs = Inputs::Dense {
        shape: vec![1, SIDE, SIDE],
        data: all.map(|x| x as f32 / 8.0 - 1.0).collect(),
    };
    let of = Array2::from_shape_fn((6, PIXELS), |(i, at)| u8::from(number(i, at) >= 8));
    let masks = Masks::new(2, (SIDE, SIDE), of, None).unwrap();
    Examples::all(Arc::new(inputs), Arc::new(Labels::Pixels(masks))).unwrap()
}

/// A client whose models, once made, hardly move: what it says before a step is what it says after
/// it.
fn client() -> ClientState {
    let still = "optimiser: {sgd: {lr: 1.0e-30}}";
    let judge = format!(
        "{{net: [{{conv: {{out: 3, kernel: 3, pad: 1}}}}, tanh, {{conv: {{out: 1, kernel: 2, stride: 2}}}}], {still}}}"
    );
    let teacher =
        format!("{{net: [{{conv: {{out: 3, kernel: 3, pad: 1}}}}, tanh, outputs], {still}}}");
    let parts = Parts::new(vec![
        part("discriminator", Role::Trainer, "dfdx", &judge),
        part("teacher", Role::Trainer, "dfdx", &teacher),
        part("student", Role::Trainer, "dfdx", &teacher),
    ]);
    let protocol: GenerateAndDistill = read_yaml(
        "{patches: 2x2, made-of: label-maps, weights: uniform, local: {epochs: 1, batch: 6}}",
    )
    .unwrap();
    let parts = parts.in_slots((&protocol as &dyn Protocol).slots());
    ClientState::new(0, examples(), None, Arc::new(parts), Stream::root(4))
}

fn ask(protocol: &dyn Protocol, me: &mut ClientState, label: &str, sent: Payload<'_>) -> Answer {
    let stream = Stream::root(5).child(label, 0);
    let question = Request::new(label, 1, sent, stream, Default::default());
    fl_core::answer(protocol, me, question).unwrap()
}

fn body<M: Message>(answer: &Answer) -> M {
    let seen = match &answer.body {
        Body::Here(message) => message.encode(),
        Body::Wire(bytes) => bytes.clone(),
    };
    decode(&seen).unwrap()
}

fn values() -> Array2<f32> {
    let mut draws = Stream::root(6).draws();
    Array2::from_shape_simple_fn((N, PIXELS), || draws.normal() as f32)
}

/// What the discriminator says of `x`, images of these label maps.
fn scores(me: &mut Client, x: &Array2<f32>, rows: &[usize]) -> Array2<f64> {
    let maps = channels(examples().pick(rows).masks().unwrap().of(), 2);
    let x = concatenate(Axis(1), &[x.view(), maps.view()]).unwrap();
    let x = Samples::fresh(x, vec![3, SIDE, SIDE]).unwrap();
    let judge = me.model("discriminator").unwrap();
    judge.predict(&x).unwrap().mapv(f64::from)
}

/// `ln(1 + e^s)`: the generator's loss for a score of "made".
fn cost(score: f64) -> f64 {
    libm::log1p(libm::exp(score))
}

fn differences(x: &Array2<f32>, mut of: impl FnMut(&Array2<f32>) -> f64) -> Array2<f64> {
    Array2::from_shape_fn(x.dim(), |place| {
        let mut at = |d: f32| {
            let mut moved = x.clone();
            moved[place] += d;
            of(&moved)
        };
        (at(1e-2) - at(-1e-2)) / 2e-2
    })
}

fn close(found: &Array2<f32>, due: &Array2<f64>, what: &str) {
    let size = due.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    assert!(size > 1e-4, "{what}: a slope of nothing");
    for (place, due) in due.indexed_iter() {
        let found = f64::from(found[place]);
        let off = (found - due).abs();
        assert!(
            off < 5e-3 * size,
            "{what} {place:?}: {found}, differences {due}"
        );
    }
}

#[test]
fn asyn_dgan_answers_the_slope_of_what_its_generator_loses() {
    let rows = [4usize, 0, 5];
    for l1 in [0.0, 2.0] {
        let yaml = format!("{{patches: 2x2, l1: {l1}}}");
        let protocol: AsynDgan = read_yaml(&yaml).unwrap();
        let (mut me, x) = (client(), values());
        let of = rows.iter().map(|row| *row as u32).collect();
        let sent = ImagesOfMaps {
            values: x.clone(),
            of,
        };
        let label = "slopes by images of its label maps";
        let answer = ask(&protocol, &mut me, label, Payload::Here(&sent));
        let own = examples().pick(&rows).samples.values();
        let due = differences(&x, |x| {
            let lost = scores(&mut me, x, &rows).mapv(cost).mean().unwrap();
            lost + l1 * f64::from((x - &own).mapv(f32::abs).mean().unwrap())
        });
        close(&body::<InputValues>(&answer).values, &due, &yaml);
    }
}

/// The client judges what was made of its own maps, and its teacher all.
#[test]
fn fediod_answers_slopes_of_images_of_its_own_maps_and_of_others() {
    let yaml =
        "{patches: 2x2, made-of: label-maps, weights: uniform, local: {epochs: 1, batch: 6}}";
    let protocol: GenerateAndDistill = read_yaml(yaml).unwrap();
    let (mut me, x) = (client(), values());
    let counts = ask(&protocol, &mut me, "training", Payload::Here(&Nothing));
    assert_eq!(
        body::<ClassCounts>(&counts).counts,
        array![6u32],
        "its examples"
    );
    let of = array![2, ImagesOfMaps::ANOTHERS, 1];
    let sent = ImagesOfMaps {
        values: x.clone(),
        of,
    };
    let label = "scores of inputs made of label maps";
    let said = ask(&protocol, &mut me, label, Payload::Here(&sent));
    let said: Answers = body(&said);
    let pair = x.select(Axis(0), &[0, 2]);
    let due = odds(scores(&mut me, &pair, &[2, 1]).view());
    assert_eq!(said.odds, array![due[0] as f32, 0.0, due[1] as f32]);

    let mut draws = Stream::root(9).draws();
    let by_scores = Array2::from_shape_simple_fn((N, 2 * PIXELS), || draws.normal() as f32);
    let wanted = SlopeRequest {
        scores: by_scores.clone(),
        odds: array![0.7, 0.4, -0.3],
        share: Array1::zeros(0),
    };
    let answer = ask(
        &protocol,
        &mut me,
        "slopes by made inputs",
        Payload::Here(&wanted),
    );
    let due = differences(&x, |x| {
        let all = Samples::fresh(x.clone(), vec![1, SIDE, SIDE]).unwrap();
        let told = me.model("teacher").unwrap().predict(&all).unwrap();
        let told: f64 = told
            .iter()
            .zip(&by_scores)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum();
        let pair = x.select(Axis(0), &[0, 2]);
        let of = odds(scores(&mut me, &pair, &[2, 1]).view());
        told + 0.7 * of[0] - 0.3 * of[1]
    });
    close(
        &body::<InputValues>(&answer).values,
        &due,
        "teacher and judge",
    );
}

/// A step of the painter is one of gradient descent on whatever loss the slope is of.
#[test]
fn a_painter_steps_against_the_slope() {
    let kind = TaskKind::Classes(PIXELS);
    let make = BuildContext {
        task: Task {
            input: vec![2, SIDE, SIDE],
            kind,
        },
        stream: Stream::root(7),
    };
    let yaml = "{net: [{conv: {out: 3, kernel: 3, pad: 1}}, tanh, {conv: {out: 1, kernel: 1}}], optimiser: {sgd: {lr: 1.0}}}";
    let mut net = Dfdx::new(read_yaml(yaml).unwrap(), &make).unwrap();
    let mut draws = Stream::root(8).draws();
    let canvas = Array2::from_shape_simple_fn((N, 2 * PIXELS), || draws.normal() as f32);
    let canvas = Samples::fresh(canvas, vec![2, SIDE, SIDE]).unwrap();
    let slope = Array2::from_shape_simple_fn((N, PIXELS), || draws.normal() as f32 / 50.0);
    let before = net.params();
    let images = net.predict(&canvas).unwrap();
    let aim = aim(&images, slope.view());
    let pass = FitOptions::new(Length::Steps(1), N, Loss::Mse);
    net.fit(&canvas, Target::Scores(aim.view()), &pass, &Stream::root(9))
        .unwrap();
    let after = net.params();
    for (name, tensor) in &before.0 {
        for (place, value) in tensor.indexed_iter() {
            let mut at = |d: f32| {
                let mut moved = before.clone();
                moved.0.get_mut(name).unwrap()[&place] += d;
                net.set_params(&moved).unwrap();
                let made = net.predict(&canvas).unwrap();
                made.iter()
                    .zip(&slope)
                    .map(|(a, b)| f64::from(*a) * f64::from(*b))
                    .sum::<f64>()
            };
            let due = (at(1e-2) - at(-1e-2)) / 2e-2;
            let moved = f64::from(value - after.0[name][&place]);
            assert!(
                (moved - due).abs() < 2e-3,
                "{name} {place:?}: {moved}, {due}"
            );
        }
    }
}
