use super::*;
use fl_core::settings::read_yaml;
use std::collections::BTreeSet;

fn part<R: Rule + fl_core::settings::Settings>(settings: &str) -> ServerOptimiser<R> {
    read_yaml::<R>(settings).unwrap().into()
}

#[test]
fn they_keep_their_claims() {
    fl_conformance::aggregator(|| part::<FedAvgM>("{}"));
    fl_conformance::aggregator(|| part::<FedAvgM>("{beta: 0, weigh: uniform}"));
    fl_conformance::aggregator(|| part::<FedAdagrad>("{}"));
    fl_conformance::aggregator(|| part::<FedAdam>("{beta1: 0}"));
    fl_conformance::aggregator(|| part::<FedYogi>("{lr: 1}"));
}

/// Returns the values of a model of one number over several rounds, if the clients' mean is
/// `towards` away from the value sent.
fn walk<R: Rule>(mut part: ServerOptimiser<R>, towards: &[f32]) -> Vec<String> {
    let params = |x: f32| {
        fl_conformance::params(&[&[x]])
            .iter()
            .next()
            .unwrap()
            .body
            .clone()
    };
    let mut w = params(0.0);
    let mut step = |d: &f32| {
        let at = w.flat()[0];
        let inbox = fl_conformance::params(&[&[at + d - 1.0], &[at + d + 1.0]]);
        w = part
            .aggregate(&Round::first().showing(w.clone()), &inbox)
            .unwrap();
        format!("{:.4}", w.flat()[0])
    };
    towards.iter().map(&mut step).collect()
}

/// By hand, from Algorithm 2 of the paper with lr 0.1, tau 0.001, beta2 0.99.
#[test]
fn close_the_papers_steps() {
    let changes = [1.0, 0.5, -0.25];
    // v = 1, 1.25, 1.3125
    assert_eq!(
        walk(part::<FedAdagrad>("{}"), &changes),
        ["0.0999", "0.1446", "0.1228"]
    );
    // m = 0.1, 0.14, 0.101; v = 0.01, 0.0124, 0.0129
    assert_eq!(
        walk(part::<FedAdam>("{}"), &changes),
        ["0.0990", "0.2236", "0.3117"]
    );
    // v = 0.01, 0.0125, 0.013125
    assert_eq!(
        walk(part::<FedYogi>("{}"), &changes),
        ["0.0990", "0.2231", "0.3105"]
    );
}

#[test]
fn exact_without_momentum_it_is_the_mean_and_with_it_goes_on() {
    assert_eq!(
        walk(part::<FedAvgM>("{beta: 0}"), &[1.0, 0.5]),
        ["1.0000", "1.5000"]
    );
    assert_eq!(
        walk(part::<FedAvgM>("{beta: 0.5}"), &[1.0, 0.0, 0.0]),
        ["1.0000", "1.5000", "1.7500"]
    );
}

#[test]
fn exact_buffers_are_the_mean_and_have_no_state() {
    let of = |w: f32, variance: f32| {
        let of = |x: f32| fl_conformance::params(&[&[x, x]]);
        let tensor = |x: f32| of(x).iter().next().unwrap().body.0["w"].clone();
        Params(
            [
                ("norm.running_var".into(), tensor(variance)),
                ("w".into(), tensor(w)),
            ]
            .into(),
        )
    };
    let buffers = BTreeSet::from(["norm.running_var".to_string()]);
    let round = Round::first().with_buffers(buffers);
    fn steps<R: Rule + fl_core::settings::Settings>(
        round: &Round,
        of: &dyn Fn(f32, f32) -> Params,
    ) {
        let mut optimiser = part::<R>("{}");
        let mut alone = part::<R>("{}");
        let (mut both, mut w) = (of(0.0, 1.0), of(0.0, 0.0));
        for (to, variance) in [(1.0, 0.1), (-0.5, 0.01), (0.25, 0.2)] {
            both = optimiser
                .update(&round.showing(both), of(to, variance))
                .unwrap();
            assert_eq!(
                both.0["norm.running_var"],
                of(0.0, variance).0["norm.running_var"]
            );
            // the other numbers take the step that they take alone
            w.0.remove("norm.running_var");
            let mut mean = of(to, 0.0);
            mean.0.remove("norm.running_var");
            w = alone.update(&Round::first().showing(w), mean).unwrap();
            assert_eq!(both.0["w"], w.0["w"]);
        }
        assert_eq!(optimiser.save(), alone.save());
    }
    steps::<FedAvgM>(&round, &of);
    steps::<FedAdagrad>(&round, &of);
    steps::<FedAdam>(&round, &of);
    steps::<FedYogi>(&round, &of);
}

#[test]
fn what_does_not_fit_is_refused() {
    let inbox = |numbers: &[f32]| fl_conformance::params(&[numbers]);
    let round = |numbers: &[f32]| {
        let sent = inbox(numbers).iter().next().unwrap().body.clone();
        Round::first().showing(sent)
    };
    let mut adam = part::<FedAdam>("{}");
    let error = adam.aggregate(&Round::first(), &inbox(&[1.0])).unwrap_err();
    assert!(error.to_string().contains("there are none"), "{error}");
    let error = adam
        .aggregate(&round(&[0.0, 0.0]), &inbox(&[1.0]))
        .unwrap_err();
    assert!(format!("{error:#}").contains("the message sent and the answer"));
    let error = adam.load(&[0; 24]).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("a state of 24 bytes is cut short")
    );
}
