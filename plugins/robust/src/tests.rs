use super::*;
use fl_conformance::snapshot;
use fl_core::message::ParamsList;
use fl_core::settings::{Settings, read_yaml};
use fl_core::squared_distance;

fn part<S: Settings>(settings: &str) -> S {
    read_yaml(settings).unwrap()
}

fn krum(settings: &str) -> MultiKrum {
    part::<Krum>(settings).into()
}

#[test]
fn they_keep_their_claims() {
    for settings in ["{}", "{weigh: samples, passes: 2}"] {
        fl_conformance::aggregator(|| part::<GeometricMedian>(settings));
    }
    for settings in ["{}", "{byzantine-share: 0.49}", "{byzantine-share: 0}"] {
        fl_conformance::aggregator(|| krum(settings));
        fl_conformance::aggregator(|| part::<MultiKrum>(settings));
    }
    fl_conformance::aggregator(|| part::<MultiKrum>("{keep: 2}"));
    for settings in ["{}", "{byzantine-share: 0.24}", "{byzantine-share: 0}"] {
        fl_conformance::aggregator(|| part::<Bulyan>(settings));
    }
    fl_conformance::aggregator(|| part::<NormBounding>("{}"));
    fl_conformance::aggregator(|| part::<NormBounding>("{bound: 100, weigh: uniform}"));
    fl_conformance::aggregator(|| part::<Fltrust>("{}"));
    for settings in ["{}", "{passes: 3}", "{radius: 50}"] {
        fl_conformance::aggregator(|| Clipping::from(part::<CentredClipping>(settings)));
    }
}

/// Returns a round in which the server sent two zeros to clients.
fn round() -> Round {
    let sent = fl_conformance::params(&[&[0.0, 0.0]]);
    Round::first().showing(sent.iter().next().unwrap().body.clone())
}

#[test]
fn exact_one_wild_client() {
    let sent = fl_conformance::params(&[
        &[1.0, 2.0],
        &[2.0, 2.0],
        &[3.0, 2.0],
        &[2.0, 3.0],
        &[1e9, -1e9],
    ]);
    snapshot!(krum("{byzantine-share: 0.2}"), round(), sent, @"w [2] 2 2");
    snapshot!(part::<MultiKrum>("{byzantine-share: 0.2}"), round(), sent, @"w [2] 2 2.25");
    snapshot!(part::<Bulyan>("{byzantine-share: 0.2}"), round(), sent, @"w [2] 2 2");
    // changes of norms sqrt(5), sqrt(8), sqrt(13) ..: none is longer than 1 afterwards
    snapshot!(part::<NormBounding>("{weigh: uniform}"), round(), sent, @"w [2] 0.649636 0.456236");
    snapshot!(Clipping::from(part::<CentredClipping>("{}")), round(), sent, @"w [2] 0.649636 0.456236");
}

/// Changes as long as the trusted client's, weighted by cosines: 1 for (2, 0), 0.6 for (3, 4), 0
/// for the opposite direction.
#[test]
fn exact_who_points_another_way_than_the_trusted_client_does_not_count() {
    let all: [&[f32]; 5] = [
        &[5.0, 0.0],
        &[2.0, 0.0],
        &[3.0, 4.0],
        &[-1e9, 1e9],
        &[0.0, 7.0],
    ];
    let sent = fl_conformance::params(&all);
    // (1 * (5, 0) + 0.6 * (3, 4)) / 1.6
    snapshot!(part::<Fltrust>("{}"), round(), sent, @"w [2] 4.25 1.5");
    // no client agrees: the parameters stay as they were
    let alone = fl_conformance::params(&[all[0], all[1], all[3]]);
    snapshot!(part::<Fltrust>("{trusted: 2}"), round(), alone, @"w [2] 0 0");
    // without the trusted client the model stays as it was
    snapshot!(part::<Fltrust>("{trusted: 9}"), round(), sent, @"w [2] 0 0");
}

#[test]
fn the_geometric_median_minimises_the_sum_of_distances() {
    let sent: [&[f32]; 6] = [
        &[0.0, 0.0],
        &[4.0, 1.0],
        &[1.0, 3.0],
        &[2.0, -1.0],
        &[5.0, 5.0],
        &[900.0, 0.0],
    ];
    let inbox = fl_conformance::params(&sent);
    let median = |passes: &str| {
        let mut part = part::<GeometricMedian>(&format!("{{passes: {passes}}}"));
        part.aggregate(&Round::first(), &inbox).unwrap().flat()
    };
    let cost = |at: &[f32]| -> f64 { sent.iter().map(|s| squared_distance(s, at).sqrt()).sum() };
    let found = median("200");
    for (dx, dy) in [(0.01, 0.0), (-0.01, 0.0), (0.0, 0.01), (0.0, -0.01)] {
        assert!(
            cost(&found) < cost(&[found[0] + dx, found[1] + dy]),
            "{found:?}"
        );
    }
    assert!(cost(&median("1")) > cost(&median("8")));
}

#[test]
fn the_geometric_median_does_not_care_how_far_away_bad_ones_are() {
    for away in [1e3, 1e9, 1e30] {
        let sent: [&[f32]; 5] = [&[1.0], &[1.1], &[0.9], &[away], &[away]];
        let inbox = fl_conformance::params(&sent);
        let mut part = part::<GeometricMedian>("{}");
        let found = part.aggregate(&Round::first(), &inbox).unwrap().flat()[0];
        assert!((1.0..=1.11).contains(&found), "{away}: {found}");
    }
}

/// The median of each number is the first answer, and `f32` has few digits left at 1000.
#[test]
fn the_geometric_median_leaves_an_answer_that_is_not_it() {
    for offset in [0.0, 30.0, 100.0, 1000.0] {
        let sent = [
            [0.0, 0.0],
            [1.0, -0.01],
            [1.0, -0.01],
            [-0.01, 1.0],
            [-0.01, 1.0f32],
        ];
        let sent = sent.map(|of| of.map(|x| x + offset));
        let inbox = fl_conformance::params(&sent.each_ref().map(|of| &of[..]));
        let found = part::<GeometricMedian>("{}").aggregate(&Round::first(), &inbox);
        for x in found.unwrap().flat() {
            assert!((x - offset - 0.3646).abs() < 1e-3, "{offset}: {x}");
        }
    }
    // three of five are there, so it is the median
    let sent: [&[f32]; 5] = [&[100.0], &[100.0], &[100.0], &[101.0], &[107.0]];
    let found =
        part::<GeometricMedian>("{}").aggregate(&Round::first(), &fl_conformance::params(&sent));
    assert_eq!(found.unwrap().flat(), [100.0]);
}

#[test]
fn exact_equally_near_answers_are_chosen_by_their_numbers() {
    for sent in [[[0.0], [1.0], [-1.0f32]], [[0.0], [-1.0], [1.0]]] {
        let step = part::<NearestNeighbourMixing>("{byzantine-share: 0.34}");
        let mixed = changed(Box::new(step), &sent.each_ref().map(|of| &of[..]));
        assert_eq!(mixed[0].1, [-0.5]);
    }
}

#[test]
fn they_tell_how_many_answers_they_need() {
    type Part = dyn Aggregator<In = Params, Out = Params>;
    let takes = |part: &Part, n| {
        part.robustness()?
            .shortfall(n)?
            .rsplit(' ')
            .next()?
            .parse()
            .ok()
    };
    let few = |part: &Part, n| -> Option<usize> { takes(part, n) };
    let few_bad = krum("{byzantine-share: 0.2}");
    assert_eq!((few(&few_bad, 4), few(&few_bad, 5)), (Some(5), None));
    // 4 bad ones of 10 take 11
    let many_bad = krum("{byzantine-share: 0.4}");
    assert_eq!(few(&many_bad, 10), Some(11));
    assert_eq!(few(&part::<Bulyan>("{byzantine-share: 0.2}"), 5), Some(7));
    assert_eq!(few(&part::<GeometricMedian>("{}"), 2), Some(3));
    assert_eq!(few(&part::<MultiKrum>("{byzantine-share: 0}"), 1), None);
}

#[test]
fn a_mean_of_more_than_the_good_clients_is_told() {
    let inbox = fl_conformance::params(&[&[1.0], &[2.0], &[3.0], &[4.0]]);
    let round = Round::first();
    let mut part = part::<MultiKrum>("{byzantine-share: 0.25, keep: 4}");
    part.aggregate(&round, &inbox).unwrap();
    let told = round.take_log().into_iter().any(|said| {
        matches!(said, fl_core::LogEvent::Note(text) if text.contains("`keep` 4 of 4 leaves bad clients in the mean"))
    });
    assert!(told);
}

#[test]
fn the_centre_follows_the_model() {
    // all clients move by one in each round; the second round's centre has moved as well
    let mut part = Clipping::from(part::<CentredClipping>("{radius: 0.5}"));
    let params = |x: f32| fl_conformance::params(&[&[x], &[x]]);
    let sent = |x: f32| Round::first().showing(params(x).iter().next().unwrap().body.clone());
    assert_eq!(
        part.aggregate(&sent(0.0), &params(1.0)).unwrap().flat(),
        [0.5]
    );
    assert_eq!(
        part.aggregate(&sent(0.5), &params(1.5)).unwrap().flat(),
        [1.5]
    );
}

/// Parameters with a weight and a running variance.
fn normed(weight: f32, variance: f32) -> Params {
    let of = |x: f32| fl_conformance::params(&[&[x]]);
    let tensor = |x: f32| of(x).iter().next().unwrap().body.0["w"].clone();
    Params(
        [
            ("variance".into(), tensor(variance)),
            ("w".into(), tensor(weight)),
        ]
        .into(),
    )
}

#[test]
fn close_a_buffer_is_never_extrapolated() {
    let round = |sent| {
        let buffers = std::collections::BTreeSet::from(["variance".to_string()]);
        Round::first().with_buffers(buffers).showing(sent)
    };
    let inbox = |all: &[Params]| {
        let mail = (0..)
            .zip(all)
            .map(|(id, of)| fl_core::ClientMessage::new(id, 1.0, of.clone()));
        Inbox::new(mail.collect()).unwrap()
    };
    // the centre of the second round is the variance sent, and not the last change further
    let mut clipping = Clipping::from(part::<CentredClipping>("{radius: 0.125}"));
    for (sent, answer, due) in [(1.0, 0.875, 0.875), (0.875, 0.25, 0.75)] {
        let answers = inbox(&[normed(0.0, answer)]);
        let next = clipping.aggregate(&round(normed(0.0, sent)), &answers);
        assert_eq!(next.unwrap(), normed(0.0, due));
    }
    // the trusted client's change is twice as long as the other's
    let mut trust = part::<Fltrust>("{trusted: 0}");
    let answers = inbox(&[normed(10.0, 1.0), normed(4.0, -2.0)]);
    let next = trust.aggregate(&round(normed(0.0, 1.0)), &answers).unwrap();
    let off = next.zip(&normed(8.0, -2.0), |found, due| found - due);
    assert!(off.unwrap().norm() < 1e-6, "{next:?}");
}

type Step = dyn Aggregator<In = Params, Out = ParamsList>;

/// The weights and the answers that a step makes of these, sent 0, as numbers.
fn changed(mut step: Box<Step>, clients: &[&[f32]]) -> Vec<(f64, Vec<f32>)> {
    let sent = fl_conformance::params(&[&vec![0.0; clients[0].len()]]);
    let round = Round::first().showing(sent.iter().next().unwrap().body.clone());
    let list = step.aggregate(&round, &fl_conformance::params(clients));
    let answers = list.unwrap().answers().into_iter();
    answers
        .map(|(weight, body)| (weight, body.flat()))
        .collect()
}

#[test]
fn steps_before_an_aggregator_keep_their_claims() {
    for settings in ["{}", "{size: 1}", "{size: 100}"] {
        fl_conformance::aggregator(|| part::<Bucketing>(settings));
    }
    for settings in ["{}", "{byzantine-share: 0}", "{byzantine-share: 0.49}"] {
        fl_conformance::aggregator(|| part::<NearestNeighbourMixing>(settings));
        fl_conformance::aggregator(|| part::<AdaptiveClipping>(settings));
        fl_conformance::aggregator(|| part::<Sketching>(settings));
    }
    fl_conformance::aggregator(|| part::<Sketching>("{columns: 1}"));
    fl_conformance::aggregator(|| part::<UpdateClipping>("{}"));
}

#[test]
fn exact_each_answer_is_in_one_bucket() {
    let sent: [&[f32]; 5] = [&[1.0], &[2.0], &[4.0], &[8.0], &[16.0]];
    let buckets = |size: &str| {
        let step = part::<Bucketing>(&format!("{{size: {size}}}"));
        changed(Box::new(step), &sent)
    };
    for (size, n) in [("1", 5), ("2", 3), ("3", 2), ("5", 1), ("9", 1)] {
        let made = buckets(size);
        assert_eq!(made.len(), n, "{size}");
        let weights: f64 = made.iter().map(|(weight, _)| weight).sum();
        let total: f64 = made.iter().map(|(w, x)| w * f64::from(x[0])).sum();
        let inbox = fl_conformance::params(&sent);
        let due: f64 = inbox
            .iter()
            .map(|mail| mail.weight * f64::from(mail.body.flat()[0]))
            .sum();
        assert_eq!(weights, inbox.total_weight());
        assert!((total - due).abs() < 1e-5, "{size}: {total} {due}");
    }
    // another round draws other buckets
    let mut step = part::<Bucketing>("{}");
    let inbox = fl_conformance::params(&sent);
    let mut drawn = |round: u64| {
        let round = Round::first().with_stream(fl_core::Stream::root(round));
        step.aggregate(&round, &inbox).unwrap()
    };
    assert_eq!(drawn(3), drawn(3));
    assert!((0..5).any(|round| drawn(round) != drawn(round + 1)));
}

#[test]
fn exact_mixing_takes_the_nearest() {
    let sent: [&[f32]; 5] = [&[0.0], &[1.0], &[3.0], &[4.0], &[1e9]];
    let step = part::<NearestNeighbourMixing>("{byzantine-share: 0.4}");
    let made = changed(Box::new(step), &sent).into_iter();
    let made: Vec<f32> = made.map(|(_, answer)| answer[0]).collect();
    // three each: 0 1 3, 0 1 3, 1 3 4, 1 3 4; the wild one cannot leave itself out
    let third = |x: f64| (x / 3.0) as f32;
    let due = [4.0, 4.0, 8.0, 8.0, 1e9 + 7.0].map(third);
    assert_eq!(made, due);
}

/// Answers of 2,000 numbers in two groups: three around 0 and two around `away`.
fn groups(away: f64) -> Vec<Vec<f32>> {
    let answer = |k: u64| {
        let (mut draws, centre) = (
            fl_core::Stream::root(k).draws(),
            if k < 3 { 0.0 } else { away },
        );
        (0..2000)
            .map(|_| (centre + draws.normal()) as f32)
            .collect()
    };
    (0..5).map(answer).collect()
}

#[test]
fn exact_sketches_find_the_neighbours_that_distances_find() {
    let groups = groups(1.0);
    let sent: Vec<&[f32]> = groups.iter().map(Vec::as_slice).collect();
    let settings = "byzantine-share: 0.4";
    let mixing = part::<NearestNeighbourMixing>(&format!("{{{settings}}}"));
    let due = changed(Box::new(mixing), &sent);
    let found = |columns: usize| {
        let step = part::<Sketching>(&format!("{{{settings}, columns: {columns}}}"));
        changed(Box::new(step), &sent)
    };
    // within the group of three; the two others have no third neighbour of their own
    assert!(found(1024)[..3] == due[..3]);
    // a few columns keep too little
    assert!(found(2)[..3] != due[..3]);
}

#[test]
fn exact_clipping_shortens_the_longest() {
    let sent: [&[f32]; 5] = [
        &[3.0, 4.0],
        &[0.0, 1.0],
        &[0.0, 2.0],
        &[-8.0, 6.0],
        &[0.0, 0.5],
    ];
    let shown = |step: Box<Step>| -> Vec<Vec<f32>> {
        let made = changed(step, &sent).into_iter();
        made.map(|(_, answer)| answer).collect()
    };
    let fixed = shown(Box::new(part::<UpdateClipping>("{radius: 2.5}")));
    let due = [[1.5, 2.0], [0.0, 1.0], [0.0, 2.0], [-2.0, 1.5], [0.0, 0.5]];
    assert_eq!(fixed, due);
    // one bad of five: floor(2 / 5 * 4) = 1 is shortened to the next norm, 5
    let one = shown(Box::new(part::<AdaptiveClipping>("{}")));
    assert_eq!(one[0], [3.0, 4.0]);
    assert_eq!(one[3], [-4.0, 3.0]);
    // two of five: floor(4 / 5 * 3) = 2, to 2
    let two = shown(Box::new(part::<AdaptiveClipping>("{byzantine-share: 0.4}")));
    assert_eq!(two[0], [3.0 * 0.4, 4.0 * 0.4].map(|x: f64| x as f32));
    assert_eq!(two[2], [0.0, 2.0]);
}
