//! The exchanges of the protocol, and their slots.
use crate::labels::{RoundLabels, hard, soft};
use crate::settings::{CoDistill, FilterOn, Labels, Order, Reply, Teacher};
use crate::slots::{CLIENT_FILTER, MODEL, SAMPLING, SERVER_FILTER, STUDENT};
use crate::{filter_metrics, label_metrics};
use fl_core::message::{Mask, SoftLabels, Votes};
use fl_core::prelude::*;

const COMBINES: &str = "Combines the clients' answers.";
const NOISE: &str = "Noise on a client's answer.";
const FORGES: &str = "Replaces the labels of attackers; name the attackers with `clients`.";
/// The aggregator gets each hard label as a one-hot row.
const ENSEMBLE: AggregatorSlot<SoftLabels, SoftLabels> = AggregatorSlot::new("ensemble", COMBINES);
const ENSEMBLE_OF_SCORES: AggregatorSlot<Logits, Logits> =
    AggregatorSlot::new("ensemble", COMBINES);
const SOFT_PRIVACY: MechanismSlot<SoftLabels> = MechanismSlot::new("privacy", NOISE);
const HARD_PRIVACY: MechanismSlot<Votes> = MechanismSlot::new("privacy", NOISE);
const SCORE_PRIVACY: MechanismSlot<Logits> = MechanismSlot::new("privacy", NOISE);
const SOFT_ATTACK: AttackSlot<SoftLabels> = AttackSlot::new("attack", FORGES);
const HARD_ATTACK: AttackSlot<Votes> = AttackSlot::new("attack", FORGES);
const SCORE_ATTACK: AttackSlot<Logits> = AttackSlot::new("attack", FORGES);

pub(crate) const WARM_UP: Exchange<Nothing, Nothing> = Exchange::new("warm-up");
pub(crate) const KNOWN: Exchange<Nothing, Mask> =
    Exchange::new("public samples that a client knows");
pub(crate) const SOFT: Exchange<Ids, SoftLabels> = Exchange::new("soft labels of public samples");
pub(crate) const HARD: Exchange<Ids, Votes> = Exchange::new("hard labels of public samples");
pub(crate) const SCORES: Exchange<Ids, Logits> = Exchange::new("scores of public samples");
pub(crate) const LEARN_SOFT: Exchange<SoftLabels, Nothing> =
    Exchange::new("learning from soft labels");
pub(crate) const LEARN_SCORES: Exchange<Logits, Nothing> = Exchange::new("learning from scores");
pub(crate) const LEARN_HARD: Exchange<Votes, Nothing> = Exchange::new("learning from hard labels");

/// Lets attackers answer with what their attack makes of their honest labels.
fn forged<'p, M: Message>(
    labels: Declared<'p, Ids, M>,
    slot: &'static AttackSlot<M>,
) -> Declared<'p, Ids, M> {
    labels.forged_by(slot, |client, _, honest| {
        let own = ClientMessage::new(client.id(), 1.0, honest);
        client.attack(slot, None, &Inbox::new(vec![own])?)
    })
}

impl CoDistill {
    pub(crate) fn declared(&self) -> Declaration<'_> {
        let on_scores = self.filter_on == Some(FilterOn::Scores);
        let known = || {
            let known = KNOWN.answered_by(|client, _| self.client_filter().mask(client));
            let known = known.all_public().if_filled(&CLIENT_FILTER);
            known.through(&SAMPLING)
        };
        let judged = ["ensemble", "taught"].into_iter();
        let judged = judged.filter(|_| self.judge_labels);
        let all = Declaration::new()
            .rounds(self.rounds)
            .grows_by("rounds")
            .measures([
                Measurement::server(&STUDENT),
                Measurement::number("taught.samples"),
            ])
            .measures(self.evaluate_clients.then(|| Measurement::clients(&MODEL)))
            .measures(judged.flat_map(label_metrics::measures))
            .measures(filter_metrics::measures())
            .slot(self.model())
            .slot(self.student())
            // a filter that is fitted and used only before round 1 need not be kept
            .slot(
                CLIENT_FILTER
                    .spec()
                    .lasting_if(!self.client_filter().once())
                    .selects_from_scores(on_scores),
            )
            .slot(&SERVER_FILTER)
            .exchange(
                WARM_UP
                    .answered_by(|client, _| self.warm_up(client))
                    .draws(&SAMPLING),
            )
            .exchange_if(!on_scores, known);
        let all = match self.labels {
            Labels::Soft => {
                let labels = SOFT.answered_by(|client, ids| self.label(client, ids, soft));
                let labels = self.sampled(labels).releases(&SOFT_PRIVACY).into(&ENSEMBLE);
                all.exchange(forged(labels, &SOFT_ATTACK))
            }
            Labels::Hard => {
                let labels = HARD.answered_by(|client, ids| self.label(client, ids, hard));
                let labels = self.sampled(labels).releases(&HARD_PRIVACY).into(&ENSEMBLE);
                all.exchange(forged(labels, &HARD_ATTACK))
            }
            Labels::Scores(_) => {
                let labels =
                    SCORES.answered_by(|client, ids| self.label(client, ids, |scores| scores));
                let labels = self.sampled(labels).releases(&SCORE_PRIVACY);
                all.exchange(forged(labels.into(&ENSEMBLE_OF_SCORES), &SCORE_ATTACK))
            }
        };
        let learn = |client: &mut Client, labels| self.learn(client, &labels);
        match (&self.reply, &self.labels) {
            (Reply::Hard, _) => {
                let hard = move |client: &mut Client, votes: &Votes| {
                    learn(client, RoundLabels::Hard(votes.clone()))
                };
                all.exchange(self.every_round(LEARN_HARD.answered_by(hard)))
            }
            (Reply::Ensemble, Labels::Scores(_)) => {
                let scores = move |client: &mut Client, scores: &Logits| {
                    learn(client, RoundLabels::Scores(scores.clone()))
                };
                all.exchange(self.every_round(LEARN_SCORES.answered_by(scores)))
            }
            (Reply::Ensemble, _) => {
                let soft = move |client: &mut Client, soft: &SoftLabels| {
                    learn(client, RoundLabels::Soft(soft.clone()))
                };
                all.exchange(self.every_round(LEARN_SOFT.answered_by(soft)))
            }
        }
    }

    fn every_round<'p, D: Message, U: Message>(
        &self,
        exchange: Declared<'p, D, U>,
    ) -> Declared<'p, D, U> {
        exchange.each_round().rows(self.batch())
    }

    /// Declares the properties that all kinds of labels share.
    fn sampled<'p, U: Message>(&self, labels: Declared<'p, Ids, U>) -> Declared<'p, Ids, U> {
        // noise on labels does not hide which samples they label
        let labels = self.every_round(labels).leaks_besides(&CLIENT_FILTER);
        if self.resample {
            labels.draws(&SAMPLING)
        } else {
            labels.through(&SAMPLING)
        }
    }

    fn model(&self) -> SlotSpec {
        let model = MODEL.spec().lasting().through(&SAMPLING);
        let model = model.published_if(self.evaluate_clients);
        let model = self.local.needs(self.distil.needs(model));
        // in a single round that ends with the labels of the others each training may start again
        let overwrites = matches!(self.order, Order::PublicFirst | Order::Turns);
        let model = model.needs(Ability::TaskLoss);
        let model = model.needs_if(self.rounds > 1 || overwrites, Ability::GoesOn);
        let first = [&self.pretrain, &self.warm_up].into_iter().flatten();
        let model = first.fold(model, |model, training| training.needs(model));
        let model = match self.reply {
            Reply::Hard => model,
            Reply::Ensemble => self.needs_labels(model),
        };
        let by_features = self.filter_on == Some(FilterOn::Features);
        model
            .needs_if(self.order.weight().is_some(), Ability::Parameters)
            .needs_if(self.order.weight().is_some(), Ability::ByGradient)
            .needs_if(matches!(self.order, Order::Turns), Ability::ByStep)
            .needs_if(by_features, Ability::Features)
    }

    /// Requires of a model that it learns what the ensemble makes of the clients' labels.
    fn needs_labels(&self, slot: SlotSpec) -> SlotSpec {
        slot.needs(match self.labels {
            Labels::Scores(_) => Ability::Loss(self.labels.score_loss()),
            Labels::Soft | Labels::Hard => Ability::SoftTargets,
        })
    }

    fn student(&self) -> SlotSpec {
        let training = self.student.as_ref().unwrap_or(&self.distil);
        let student = self.needs_labels(training.needs(STUDENT.spec().at_server()));
        match self.teacher {
            Teacher::Student => student,
            Teacher::Ensemble | Teacher::Truth => student.optional(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::settings::read_yaml;

    #[test]
    fn models_go_on_from_round_to_round_and_one_round_needs_none() {
        for (settings, due) in [
            ("rounds: 1", false),
            ("rounds: 2", true),
            ("rounds: 1, order: public-first", true),
            ("rounds: 1, order: turns", true),
        ] {
            let read: CoDistill = read_yaml(&format!("{{{settings}}}")).unwrap();
            let needs = read.model().needs;
            assert_eq!(
                needs.contains(&Ability::GoesOn),
                due,
                "{settings}: {needs:?}"
            );
        }
    }
}
