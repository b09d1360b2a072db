//! Faults and rules that the clients and rounds of a run never meet.

use crate::answers::policy;
use crate::check::Checker;
use crate::client_groups::no_client;
use crate::spanned_value::key;
use crate::stages::CheckedStage;
use fl_core::message::MessageType;
use fl_core::settings::Step;
use fl_core::{Fault, FaultKind, Faults, InjectedFault, StopWhen};
use std::collections::BTreeSet;

/// The most beginnings of faults that are looked at for too few answers.
const ROUNDS: usize = 100;

/// The number of the last round, which stages count on; `None` if a stage does not declare it, or
/// could not be read.
pub(crate) fn last_round(stages: &[CheckedStage]) -> Option<usize> {
    let rounds = |stage: &CheckedStage| stage.of.protocol.as_ref()?.declare().rounds;
    let all: Option<Vec<usize>> = stages.iter().map(rounds).collect();
    all.filter(|all| !all.is_empty())
        .map(|all| all.iter().sum())
}

impl Checker<'_> {
    /// Refuses faults of clients and of rounds that the run does not have.
    pub fn injected(&mut self, faults: &Faults, clients: Option<usize>, rounds: Option<usize>) {
        for (line, fault) in faults.inject.iter().enumerate() {
            let at = |name| [key("faults"), key("inject"), Step::Item(line), key(name)];
            if let (Some(some), Some(n)) = (&fault.clients, clients) {
                let last = some.0.iter().map(|range| *range.end()).max();
                if let Some(last) = last.filter(|last| *last as usize >= n) {
                    self.note(&at("clients"), no_client(last, n));
                }
            }
            if let (Some(some), Some(n)) = (&fault.rounds, rounds) {
                let first = some.0.iter().map(|range| *range.start()).min();
                if let Some(first) = first.filter(|first| *first as usize > n) {
                    let text = format!(
                        "has no effect: there is no round {first}, since the run has {n}, from 1"
                    );
                    self.note(&at("rounds"), text);
                }
            }
        }
    }

    /// Refuses faults that no client escapes, so that nobody answers. Tells of those that change no
    /// answer of these kinds, and of those that are sure to end the run.
    pub fn certain(
        &mut self,
        faults: &Faults,
        clients: Option<usize>,
        rounds: Option<usize>,
        answers: &[&MessageType],
    ) {
        let lines = || faults.inject.iter().enumerate();
        let acts = |fault: &InjectedFault| {
            answers.is_empty() || answers.iter().any(|answer| fault.what.changes(answer))
        };
        let kinds: BTreeSet<&str> = answers.iter().map(|answer| answer.kind).collect();
        let kinds = Vec::from_iter(kinds).join("`, `");
        for (line, _) in lines().filter(|(_, fault)| !acts(fault)) {
            let text = format!(
                "has no effect: it leaves answers of these kinds as they are: `{kinds}`; inject \
                 another fault, such as `crash`"
            );
            self.tell(&[key("faults"), key("inject"), Step::Item(line)], text);
        }
        let sure = || lines().filter(|(_, fault)| fault.share >= 1.0 && acts(fault));
        let silent = [
            FaultKind::Crash,
            FaultKind::Straggle,
            FaultKind::NeverAnswers,
        ];
        // the first line that hits a client counts
        let gone = |id: u32, round: Option<u32>| {
            let within = |fault: &InjectedFault| {
                let rounds = fault.rounds.as_ref();
                rounds.is_none_or(|some| round.is_some_and(|round| some.has(round)))
            };
            let own = |fault: &&InjectedFault| {
                fault.share > 0.0 && fault.clients.as_ref().is_none_or(|some| some.has(id))
            };
            let first = faults.inject.iter().filter(own).find(|fault| {
                !silent.contains(&fault.what) || (fault.share >= 1.0 && within(fault))
            });
            first.is_some_and(|fault| silent.contains(&fault.what))
        };
        let clients = clients.unwrap_or(0);
        let left = |round| (0..clients as u32).filter(|id| !gone(*id, round)).count();
        let always = left(None);
        if clients > 0 && always == 0 {
            let text = "no client ever answers, so the run stops at its first exchange: give a \
                        fault a `share` below 1, `clients` or `rounds`";
            return self.note(&[key("faults"), key("inject")], text);
        }
        let least = faults.min_answers.min(clients);
        // who is silent changes where rounds of a fault begin
        let ranges = faults.inject.iter().filter_map(|f| f.rounds.as_ref());
        let begins: BTreeSet<u32> = ranges
            .flat_map(|some| &some.0)
            .map(|of| *of.start())
            .collect();
        let within = |round: &u32| rounds.is_none_or(|last| *round as usize <= last);
        let mut begins = begins.into_iter().filter(within).take(ROUNDS);
        let short = (always < least).then(|| (always, "ever answer".into()));
        let short = short.or_else(|| {
            begins.find_map(|round| {
                let left = left(Some(round));
                (left < least).then(|| (left, format!("answer in round {round}")))
            })
        });
        let fails = |(_, fault): (usize, &InjectedFault)| {
            let ends = matches!(policy(faults, &fault.what), Some((_, Fault::Fail)));
            ends && silent.contains(&fault.what)
        };
        if let Some((left, when)) = short.filter(|_| !sure().any(fails)) {
            let text = format!(
                "at most {left} of {clients} clients {when}, below `faults.min-answers` \
                 ({}): an exchange with all of them ends the run; lower `min-answers`, or inject \
                 fewer faults",
                faults.min_answers
            );
            self.tell(&[key("faults"), key("inject")], text);
        }
        for (line, fault) in sure() {
            if let Some((name, Fault::Fail)) = policy(faults, &fault.what) {
                let text = format!(
                    "the first client that it hits ends the run, since `faults.{name}` is `fail`: \
                     set that to `drop` to see the run go on"
                );
                self.tell(&[key("faults"), key("inject"), Step::Item(line)], text);
            }
        }
    }

    /// Tells of a least number of answers that decides nothing.
    pub fn idle_quorum(&mut self, faults: &Faults, clients: Option<usize>) {
        let least = faults.min_answers;
        let path = [key("faults"), key("min-answers")];
        let fails = |(_, policy): &(&str, &Fault)| **policy == Fault::Fail;
        if least > 1 && faults.policies().iter().all(fails) {
            let text = "has no effect: the first answer that cannot be used ends the run; set a \
                        policy such as `on-error: drop`, or leave it out";
            self.tell(&path, text.into());
        } else if let Some(n) = clients.filter(|n| least > *n) {
            let text = format!("is {least}, above the number of clients, {n}: it counts as {n}");
            self.tell(&path, text);
        }
    }

    /// Tells of a rule that cannot end these rounds before the last.
    pub fn idle_rule(&mut self, rule: &StopWhen, every: usize, rounds: Option<usize>) {
        let Some(rounds) = rounds else { return };
        let before = rounds.saturating_sub(1) / every.max(1);
        let patience = rule.patience;
        // a first evaluation that is a number is an improvement
        if patience >= before {
            let text = format!(
                "has no effect: a run of {rounds} rounds has {before} evaluations before its last \
                 round, the first of them has nothing to improve on, and `patience` is {patience}; \
                 lower `patience` or `evaluate.every`, or leave `stop-when` out"
            );
            self.tell(&[key("stop-when"), key("patience")], text);
        }
    }
}
