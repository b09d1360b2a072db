use super::*;
use fl_conformance::snapshot;
use fl_core::ClientMessage;
use fl_core::message::{SoftLabels, Votes};
use fl_core::prelude::*;
use fl_core::settings::{Settings, read_yaml};
use ndarray::arr2;

fn part<S: Settings>(settings: &str) -> S {
    read_yaml(settings).unwrap()
}

fn attacker<A: Forge + Settings>(settings: &str) -> Attacker<A> {
    part::<A>(settings).into()
}

#[test]
fn they_are_aggregators() {
    fl_conformance::aggregator(|| attacker::<SignFlip>("{}"));
    fl_conformance::aggregator(|| attacker::<Gaussian>("{}"));
    fl_conformance::aggregator(|| attacker::<LittleIsEnough>("{}"));
    fl_conformance::aggregator(|| attacker::<InnerProduct>("{}"));
    fl_conformance::aggregator(|| attacker::<Replacement>("{}"));
    fl_conformance::aggregator(|| part::<LabelFlip>("{}"));
    fl_conformance::aggregator(|| part::<LabelFlip>("{flip: next}"));
    fl_conformance::aggregator(|| part::<SoftLabelFlip>("{}"));
    fl_conformance::aggregator(|| part::<ScoreFlip>("{flip: next}"));
}

#[test]
fn exact_what_is_answered_instead() {
    let sent = fl_conformance::params(&[&[1.0, 1.0]]);
    let round = Round::first().showing(sent.iter().next().unwrap().body.clone());
    // honest training went to (2, 1), give or take (0.5, 0)
    let trained = fl_conformance::params(&[&[1.5, 1.0], &[2.5, 1.0]]);
    snapshot!(attacker::<SignFlip>("{scale: 3}"), round, trained, @"w [2] -2 1");
    snapshot!(attacker::<LittleIsEnough>("{z: 2}"), round, trained, @"w [2] 3 1");
    snapshot!(attacker::<InnerProduct>("{epsilon: 0.5}"), round, trained, @"w [2] 0.5 1");
    snapshot!(attacker::<Replacement>("{scale: 4}"), round, trained, @"w [2] 5 1");
    let drawn = attacker::<Gaussian>("{}").aggregate(&round, &trained);
    assert_ne!(fl_conformance::show(&drawn.unwrap()), "w [2] 1 1");
}

#[test]
fn exact_labels_are_flipped() {
    let mail = |labels| {
        Inbox::new(vec![ClientMessage::new(
            0,
            1.0,
            Votes::new(vec![7, 8, 9], labels, 3),
        )])
    };
    let inbox = mail(arr2(&[[0], [1], [2]])).unwrap();
    let flipped = |settings: &str| {
        let votes = part::<LabelFlip>(settings).aggregate(&Round::first(), &inbox)?;
        Ok::<_, anyhow::Error>(votes.labels.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(flipped("{}").unwrap(), [2, 1, 0]);
    assert_eq!(flipped("{flip: next}").unwrap(), [1, 2, 0]);
    assert_eq!(
        flipped("{flip: {pair: {from: 1, to: 0}}}").unwrap(),
        [0, 0, 2]
    );
    let error = flipped("{flip: {pair: {from: 1, to: 3}}}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "flip: there is no class 3; there are 3, from 0"
    );
}

#[test]
fn exact_probabilities_and_scores_go_to_wrong_classes() {
    let values = arr2(&[[0.5, 0.25, 0.125], [1.0, 0.0, 0.0]]);
    let flipped = |settings: &str| {
        let soft = SoftLabels::new(vec![3, 9], values.clone());
        let inbox = Inbox::new(vec![ClientMessage::new(0, 1.0, soft)])?;
        let soft = part::<SoftLabelFlip>(settings).aggregate(&Round::first(), &inbox)?;
        let scores = Logits::new(vec![3, 9], values.clone());
        let inbox = Inbox::new(vec![ClientMessage::new(0, 1.0, scores)])?;
        let scores = part::<ScoreFlip>(settings).aggregate(&Round::first(), &inbox)?;
        assert_eq!((&soft.rows, &soft.values), (&scores.rows, &scores.values));
        Ok::<_, anyhow::Error>(soft.values)
    };
    let opposite = arr2(&[[0.125, 0.25, 0.5], [0.0, 0.0, 1.0]]);
    assert_eq!(flipped("{}").unwrap(), opposite);
    let next = arr2(&[[0.125, 0.5, 0.25], [0.0, 1.0, 0.0]]);
    assert_eq!(flipped("{flip: next}").unwrap(), next);
    let pair = arr2(&[[0.25, 0.5, 0.125], [0.0, 1.0, 0.0]]);
    assert_eq!(flipped("{flip: {pair: {from: 0, to: 1}}}").unwrap(), pair);
    let error = flipped("{flip: {pair: {from: 4, to: 1}}}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "flip: there is no class 4; there are 3, from 0"
    );
}
