use crate::{Afl, AgnosticMean, LossWeightedMean, QFairMean, agnostic::project_to_simplex};
use fl_conformance::{close, params, snapshot, weigh, with_losses};
use fl_core::Weigh;
use fl_core::prelude::*;

fn q_fair(q: f64) -> QFairMean {
    QFairMean {
        q,
        lr: 0.5,
        weigh: Weigh::Uniform,
    }
}

fn afl(lr: f64) -> AgnosticMean {
    Afl { lr }.into()
}

/// Returns a round in which the server sent this number to clients.
fn round(sent: f32) -> Round {
    let sent = params(&[&[sent]]).iter().next().unwrap().body.clone();
    Round::first().showing(sent)
}

/// Returns two answers with these losses.
fn of(losses: [f64; 2]) -> Inbox<Params> {
    with_losses(&params(&[&[1.0], &[3.0]]), &losses)
}

#[test]
fn they_keep_their_claims() {
    for q in [0.0, 0.001, 1.0, 5.0, 100.0] {
        fl_conformance::aggregator(|| q_fair(q));
    }
    fl_conformance::aggregator(|| QFairMean {
        weigh: Weigh::Samples,
        ..q_fair(2.0)
    });
    for lr in [1e-3, 0.1, 1e6] {
        fl_conformance::aggregator(|| afl(lr));
    }
    for power in [-4.0, -1.0, 0.0, 0.5, 4.0] {
        fl_conformance::aggregator(|| LossWeightedMean {
            power,
            weigh: Weigh::Samples,
        });
    }
}

/// With `L = 1 / 0.5` and `w = 0`: the changes are `L (w - w_k) = -2, -6`, so the numerator is
/// `1 * -2 + 2 * -6 = -14`, the denominators are `1 * 2^2 + 2 * 1 = 6` and `1 * 6^2 + 2 * 2 = 40`,
/// and the result is `0 + 14 / 46`.
#[test]
fn close_q_fedavg_is_algorithm_2() {
    close().bind(|| {
        snapshot!(q_fair(1.0), round(0.0), of([1.0, 2.0]), @"w [1] 0.304348");
        // q = 2: numerator 1 * -2 + 4 * -6 = -26, denominators 2 * 1 * 4 + 2 * 1 = 10 and
        // 2 * 2 * 36 + 2 * 4 = 152
        snapshot!(q_fair(2.0), round(0.0), of([1.0, 2.0]), @"w [1] 0.160494");
        // q = 0: the mean, for any losses
        snapshot!(q_fair(0.0), round(7.0), of([1.0, 2.0]), @"w [1] 2");
        // twice as many examples count twice: numerator 2 * -2 + 2 * -6 = -16, denominators
        // 2 * 6 = 12 and 40
        let inbox = with_losses(&weigh(&params(&[&[1.0], &[3.0]]), &[2.0, 1.0]), &[1.0, 2.0]);
        snapshot!(q_fair(1.0), round(0.0), inbox, @"w [1] 0.307692");
    });
}

/// The weights begin at 1/2 each, and the step is 0.1.
#[test]
fn close_afl_moves_its_weights_towards_the_largest_loss() {
    let mut part = afl(0.1);
    close().bind(|| {
        snapshot!(part, round(0.0), of([1.0, 3.0]), @"w [1] 2");
        // 0.5 + 0.1 = 0.6 and 0.5 + 0.3 = 0.8, minus 0.2 each: 0.4 and 0.6
        snapshot!(part, round(0.0), of([0.0, 9.0]), @"w [1] 2.2");
        // 0.4 and 1.5: the nearest point is 0 and 1
        snapshot!(part, round(0.0), of([0.0, 0.0]), @"w [1] 3");
        // the client of weight 0 alone leaves the result unchanged, and its loss of 5 adds 0.5:
        // 0.25, 0.75
        let alone = with_losses(&params(&[&[1.0]]), &[5.0]);
        snapshot!(part, round(4.0), alone, @"w [1] 4");
        snapshot!(part, round(0.0), of([0.0, 0.0]), @"w [1] 2.5");
    });
}

#[test]
fn close_a_client_that_comes_later_gets_the_mean_weight() {
    let mut part = afl(0.1);
    let two = with_losses(&params(&[&[1.0], &[3.0]]), &[1.0, 3.0]);
    part.aggregate(&round(0.0), &two).unwrap();
    let three = with_losses(&params(&[&[1.0], &[3.0], &[9.0]]), &[0.0; 3]);
    // 2/3 of 0.4 and 0.6, and 1/3
    close().bind(|| snapshot!(part, round(0.0), three, @"w [1] 4.466667"));
}

#[test]
fn close_projections_are_the_nearest_points() {
    let of = |point: &[f64]| project_to_simplex(point);
    let near = |found: Vec<f64>, due: &[f64]| {
        let all =
            found.len() == due.len() && found.iter().zip(due).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(all, "{found:?}, {due:?}");
    };
    near(of(&[0.6, 0.8]), &[0.4, 0.6]);
    near(of(&[0.5, 0.5]), &[0.5, 0.5]);
    near(of(&[-3.0, 0.9, 0.9]), &[0.0, 0.5, 0.5]);
    near(of(&[1e40, 1e40, 0.0]), &[0.5, 0.5, 0.0]);
    near(of(&[]), &[]);
}

#[test]
fn close_a_power_of_the_loss_is_a_weight() {
    let of_power = |power| LossWeightedMean {
        power,
        weigh: Weigh::Samples,
    };
    close().bind(|| {
        snapshot!(of_power(1.0), round(0.0), of([1.0, 3.0]), @"w [1] 2.5");
        snapshot!(of_power(-1.0), round(0.0), of([1.0, 3.0]), @"w [1] 1.5");
        snapshot!(of_power(0.0), round(0.0), of([1.0, 3.0]), @"w [1] 2");
    });
}

#[test]
fn without_losses_they_say_what_is_missing() {
    let inbox = params(&[&[1.0], &[3.0]]);
    let error = q_fair(1.0).aggregate(&round(0.0), &inbox).unwrap_err();
    assert_eq!(
        error.to_string(),
        "client 0: its answer came without a training loss"
    );
}
