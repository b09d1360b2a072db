//! The questions of the protocol, and the slots that a spec fills.
use crate::settings::{CoDistill, FilterOn, Labels, Reply, Teacher};
use fl_core::message::{Mask, SoftLabels, Votes};
use fl_core::prelude::*;

pub(crate) const WARM_UP: Ask<Nothing, Nothing> = Ask::new("warm-up");
pub(crate) const KNOWN: Ask<Nothing, Mask> = Ask::new("public samples that a client knows");
pub(crate) const SOFT: Ask<Ids, SoftLabels> = Ask::new("soft labels of public samples");
pub(crate) const HARD: Ask<Ids, Votes> = Ask::new("hard labels of public samples");
pub(crate) const SCORES: Ask<Ids, Logits> = Ask::new("scores of public samples");
pub(crate) const LEARN_SOFT: Ask<SoftLabels, Nothing> = Ask::new("learning from soft labels");
pub(crate) const LEARN_SCORES: Ask<Logits, Nothing> = Ask::new("learning from scores");
pub(crate) const LEARN_HARD: Ask<Votes, Nothing> = Ask::new("learning from hard labels");

impl CoDistill {
    /// What a spec fills.
    pub(crate) fn parts(&self) -> Vec<Slot> {
        let (combines, noise) = (
            "Combines what the clients say.",
            "Noise on what a client says.",
        );
        let soft = || Slot::aggregator::<SoftLabels, SoftLabels>("ensemble", combines);
        let (ensemble, privacy) = match self.labels {
            Labels::Soft => (soft(), Slot::privacy::<SoftLabels>("privacy", noise)),
            // each vote reaches the ensemble as a one-hot row
            Labels::Hard => (soft(), Slot::privacy::<Votes>("privacy", noise)),
            Labels::Scores(_) => (
                Slot::aggregator::<Logits, Logits>("ensemble", combines),
                Slot::privacy::<Logits>("privacy", noise),
            ),
        };
        let sampling = "Draws the examples that a client trains on (FedMD-NFDP).";
        let knows = "Picks the public samples that a client knows enough of to label.";
        let clear = "Picks the labels that are worth learning.";
        let mut student = Slot::trainer(
            "student",
            "The server's model, which learns from the ensemble.",
        )
        .at_server();
        let mut model =
            Slot::trainer("model", "A client's model; each client may have another.").lasting();
        model = model.shown_if(true).through("sampling");
        if let Labels::Scores(_) = self.labels {
            let imitates = Ability::Loss(self.labels.score_loss());
            student = student.needs(imitates);
            if self.reply == Reply::Ensemble {
                model = model.needs(imitates);
            }
        }
        if self.order.weight().is_some() {
            model = model.needs(Ability::Parameters);
        }
        let looks = self.filter_on.clone().unwrap_or(FilterOn::Inputs);
        if looks == FilterOn::Features {
            model = model.needs(Ability::Features);
        }
        vec![
            model,
            ensemble,
            privacy.optional(),
            Slot::privacy::<Ids>("sampling", sampling).optional(),
            Slot::counts(),
            Slot::accountant(),
            // one that is fitted and asked before round 1 only need not be kept
            Slot::selector::<Samples>("client-filter", knows)
                .optional()
                .lasting_if(!self.client_filter().once())
                .hands_scores(looks == FilterOn::Scores),
            Slot::selector::<SoftLabels>("server-filter", clear).optional(),
            match self.teacher {
                Teacher::Student => student,
                Teacher::Ensemble => student.optional(),
            },
        ]
    }

    /// Every question, how often it is asked and about how many samples.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let mut all = vec![WARM_UP.asked().through("sampling")];
        if self.filter_on != Some(FilterOn::Scores) {
            let known = KNOWN.asked().all_public().needs("client-filter");
            all.push(known.through("sampling"));
        }
        let said = match self.labels {
            Labels::Soft => SOFT.asked(),
            Labels::Hard => HARD.asked(),
            Labels::Scores(_) => SCORES.asked(),
        };
        let learnt = match (&self.reply, &self.labels) {
            (Reply::Hard, _) => LEARN_HARD.asked(),
            (Reply::Ensemble, Labels::Scores(_)) => LEARN_SCORES.asked(),
            (Reply::Ensemble, _) => LEARN_SOFT.asked(),
        };
        let every_round = |asked: Asked| asked.times(self.rounds).rows(self.batch());
        let said = every_round(said).through("sampling");
        // noise on labels does not hide which samples they are about
        let said = said.releases("privacy").beside("client-filter");
        all.push(said.aggregated_in("ensemble"));
        all.push(every_round(learnt));
        all
    }
}
