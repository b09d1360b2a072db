//! The slope by a made batch, through frozen teachers, discriminators and the student, is what
//! differences say.

use fl_core::Differentiable as _;
use fl_core::TaskKind;
use fl_core::prelude::*;
use fl_core::settings::read_yaml;
use fl_plugin_fediod::{ClientAnswers, GenerateAndDistill, Objective, by_patch, odds};
use fl_plugin_trainer_dfdx::Dfdx;
use ndarray::{Array2, ArrayView2};

const INPUT: [usize; 3] = [1, 6, 6];

fn network(net: &str, kind: TaskKind, at: u64) -> Dfdx {
    let make = fl_core::BuildContext {
        task: Task {
            input: INPUT.to_vec(),
            kind,
        },
        stream: Stream::root(7).child("network", at),
    };
    Dfdx::new(read_yaml(&format!("{{net: {net}}}")).unwrap(), &make).unwrap()
}

fn samples(x: &Array2<f32>) -> Samples {
    Samples::fresh(x.clone(), INPUT.to_vec()).unwrap()
}

fn wide(x: ArrayView2<'_, f32>) -> Array2<f64> {
    x.mapv(f64::from)
}

/// What the server and two clients do in one step, in one place.
struct World {
    teachers: Vec<Dfdx>,
    judges: Vec<Dfdx>,
    student: Dfdx,
}

impl World {
    fn said(&mut self, x: &Array2<f32>) -> (ClientAnswers, Array2<f64>) {
        let x = samples(x);
        let said = ClientAnswers {
            scores: self
                .teachers
                .iter_mut()
                .map(|t| wide(t.predict(&x).unwrap().view()))
                .collect(),
            odds: self
                .judges
                .iter_mut()
                .map(|d| odds(d.predict(&x).unwrap().view()))
                .collect(),
            real: vec![0.4, 0.6],
        };
        (said, wide(self.student.predict(&x).unwrap().view()))
    }
}

#[test]
fn slopes_through_frozen_models_match_finite_differences() {
    let smooth = "[{conv: {out: 3, kernel: 3, pad: 1}}, batch-norm, tanh, outputs]";
    let parts =
        "[{conv: {out: 4, kernel: 2, stride: 2}}, tanh, {conv: {out: 1, kernel: 2, pad: 1}}]";
    for (judge, kind, yaml) in [
        (
            "[{linear: 6}, tanh, outputs]",
            TaskKind::MultiLabel(1),
            "{}",
        ),
        (
            parts,
            TaskKind::MultiLabel(16),
            "{mimic: kl, tau: 1.5, game: linear, terms: {balance: 2.0}}",
        ),
        (
            "[outputs]",
            TaskKind::MultiLabel(1),
            "{divergence: published, weights: sizes}",
        ),
    ] {
        let of: GenerateAndDistill = read_yaml(yaml).unwrap();
        let counts = [vec![30, 10, 0], vec![5, 25, 30]];
        let objective = Objective::new(&of, &counts);
        let mut world = World {
            teachers: (0..2)
                .map(|k| network(smooth, TaskKind::Classes(3), k))
                .collect(),
            judges: (0..2).map(|k| network(judge, kind, 10 + k)).collect(),
            student: network("[{linear: 5}, tanh, outputs]", TaskKind::Classes(3), 20),
        };
        let mut draws = Stream::root(8).draws();
        let x = Array2::from_shape_simple_fn((4, 36), || draws.normal() as f32);
        let (said, student) = world.said(&x);
        let loss = objective.of(&said, &objective.wanted(&said), &student, false);
        // as the clients and the server do it
        let narrow = |g: &Array2<f64>| g.mapv(|g| g as f32);
        let at = samples(&x);
        let mut slope = wide(
            world
                .student
                .vjp(&at, narrow(&loss.by_student).view())
                .unwrap()
                .view(),
        );
        for k in 0..2 {
            slope += &wide(
                world.teachers[k]
                    .vjp(&at, narrow(&loss.by_scores[k]).view())
                    .unwrap()
                    .view(),
            );
            let scores = world.judges[k].predict(&at).unwrap();
            let wanted = loss.by_odds[k].mapv(|g| g as f32);
            let by_scores = by_patch(scores.view(), wanted.view());
            slope += &wide(world.judges[k].vjp(&at, by_scores.view()).unwrap().view());
        }
        let size = slope.iter().map(|g| g.abs()).fold(0.0, f64::max);
        let mut value = |x: &Array2<f32>| {
            let (said, student) = world.said(x);
            objective
                .of(&said, &objective.wanted(&said), &student, false)
                .value
        };
        for place in ndarray::indices((4, 36)) {
            let mut by = |d: f32| {
                let mut moved = x.clone();
                moved[place] += d;
                value(&moved)
            };
            let n = (by(5e-3) - by(-5e-3)) / 1e-2;
            let off = (slope[place] - n).abs();
            assert!(
                off < 4e-3 * size,
                "{yaml} {place:?}: {}, differences {n} (largest {size})",
                slope[place]
            );
        }
    }
}
