//! Do aggregators and selectors get what they need: single answers, enough of them, and losses?

use crate::catalogue::{any_make, sample};
use crate::check::{CheckedProtocol, Checker, Fill};
use crate::data_section::{DataSection, DataSizes};
use crate::sections::Clients;
use crate::slots::in_order;
use fl_core::settings::Value;
use fl_core::{
    AnyAggregator, BEFORE_AGGREGATOR, BoxedSelector, BuildContext, Candidate, ClientId, ClientStat,
    DataFacts, ExchangeSpec, Fault, FaultKind, Faults, IdRanges, LogEvent, PartDecl, Parts, Pool,
    Role, Roster, Round, SamplingScheme, SlotSpec, Stream,
};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Does its result follow from the mean of the answers alone?
fn is_of_mean(part: &PartDecl, settings: &Value) -> Option<bool> {
    let made = part.make::<Box<dyn AnyAggregator>>(settings, &any_make());
    Some(made.ok()?.claims().of_mean)
}

/// The policy for answers with this fault, and the name of its setting; `None` if they can be used.
pub(crate) fn policy<'f>(
    faults: &'f Faults,
    what: &FaultKind,
) -> Option<(&'static str, &'f Fault)> {
    let [on_error, on_nan, on_shape, on_weight] = faults.policies();
    match what {
        FaultKind::Crash | FaultKind::Straggle | FaultKind::NeverAnswers => Some(on_error),
        FaultKind::Nan => Some(on_nan),
        FaultKind::Shape => Some(on_shape),
        FaultKind::Weight => Some(on_weight),
        // it is finite
        FaultKind::Huge => None,
    }
}

/// The number of clients, of `n`, whose answers `faults` take out and the policies leave out.
fn silent(faults: &Faults, n: usize) -> usize {
    let leaves_out = |what| policy(faults, what).is_some_and(|(_, policy)| *policy != Fault::Fail);
    let among = |of: &Option<IdRanges>, id| of.as_ref().is_none_or(|of| of.has(id));
    let hit = |id: &u32| {
        let mut lines = faults.inject.iter();
        lines.any(|line| line.share > 0.0 && leaves_out(&line.what) && among(&line.clients, *id))
    };
    (0..n as u32).filter(hit).count()
}

/// What the selector in `slot` would note about these clients in a first round.
fn notes_of_selector(
    parts: &Parts,
    slot: &str,
    roster: &Roster,
    context: &BuildContext,
) -> Vec<String> {
    let round = Round::first().with_stream(context.stream.child(slot, 0));
    let made = parts.build::<BoxedSelector<Roster>>(Role::Selector, slot, None, context);
    let Ok(mut selector) = made else {
        return Vec::new();
    };
    // one that asks clients first decides by what they say
    if let Ok(None) = selector.poll(&round, roster) {
        selector.select(&round, roster).ok();
    }
    let note = |said| match said {
        LogEvent::Note(text) => Some(text),
        LogEvent::Number(..) => None,
    };
    round.take_log().into_iter().filter_map(note).collect()
}

/// Returns those of `clients` clients that attack.
fn attackers(filled: &[Fill], clients: usize) -> Vec<ClientId> {
    let attacks = filled
        .iter()
        .filter(|fill| fill.part.decl.role == Role::Attack);
    let attacks: Vec<_> = attacks.map(|fill| fill.clients.as_ref()).collect();
    let attacks = |id: &u32| {
        let here = |of: &&Clients| of.0.iter().any(|range| range.contains(id));
        attacks.iter().any(|of| of.as_ref().is_none_or(here))
    };
    (0..clients as ClientId).filter(attacks).collect()
}

/// The parts of a stage, how to make them, and the exchanges that take place with them.
pub(crate) fn asked<'p>(
    filled: &[Fill],
    protocol: &'p CheckedProtocol,
    seed: u64,
) -> (Parts, BuildContext, Vec<&'p ExchangeSpec>) {
    let parts = Parts::new(in_order(filled.to_vec())).in_slots(protocol.slots.clone());
    // aggregators and selectors of clients do not look at the task
    let context = BuildContext {
        stream: Stream::root(seed),
        ..any_make()
    };
    let asked = protocol.asked.iter();
    let asked = asked.filter(|q| parts.asks(q, &context)).collect();
    (parts, context, asked)
}

impl Checker<'_> {
    /// Refuses parts that cannot get what they need from clients, and settings that need more
    /// clients or samples than there are; remarks on robust aggregators that get too few answers.
    pub fn answers<D: DataSection>(
        &mut self,
        filled: &[Fill],
        protocol: &CheckedProtocol,
        (data, faults, seed): (Option<&D>, Option<&Faults>, u64),
        sizes: &dyn Fn() -> Option<DataSizes>,
    ) {
        let (parts, context, asked) = asked(filled, protocol, seed);
        for exchange in &asked {
            self.of_sums(filled, protocol, exchange);
        }
        self.before_aggregator(filled, &parts, &context);
        for fill in filled {
            self.losses(fill, protocol, &parts, &context);
        }
        let (Some(data), Some(faults)) = (data, faults) else {
            return;
        };
        let clients = if protocol.protocol.as_ref().is_none_or(|p| p.pools_data()) {
            1
        } else {
            data.clients()
        };
        let roster: Vec<Candidate> = (0..clients as u32).map(Candidate::new).collect();
        // by the slot of their selector, how many clients a round has, at least and at most
        let mut cohorts = BTreeMap::new();
        for exchange in &asked {
            let selected = exchange.cohort.filter(|slot| parts.has(slot));
            if let Some(slot) = selected.filter(|slot| !cohorts.contains_key(slot)) {
                let sizes = parts.cohort_sizes(slot, exchange.times, &roster, &context);
                cohorts.insert(slot, sizes.map(RangeInclusive::into_inner));
                let fill = filled.iter().find(|fill| fill.slot == slot);
                for text in notes_of_selector(&parts, slot, &roster, &context) {
                    fill.inspect(|fill| self.remark(&fill.path, text.clone(), fill.part.decl));
                }
            }
        }
        let most = |(slot, sizes): (&&'static str, &Option<(usize, usize)>)| {
            let (_, most) = (*sizes)?;
            let selector =
                parts.build::<BoxedSelector<Roster>>(Role::Selector, slot, None, &context);
            // a Poisson draw may take everyone
            let bounded = !matches!(selector.ok()?.draw(), SamplingScheme::Poisson { .. });
            bounded.then_some((*slot, most))
        };
        let facts = DataFacts {
            clients,
            cohorts: cohorts.iter().filter_map(most).collect(),
            input: data.task().map(|task| task.input),
            public: data.most_public(),
            other_public: data.has_other_public(),
            public_truth: data.has_public_truth(),
            examples: &|| {
                let open = !parts.has("accountant");
                open.then(sizes).flatten().map(|of| of.clients)
            },
        };
        let conflicts = protocol.protocol.iter();
        for conflict in conflicts.flat_map(|of| of.data_conflicts(&facts)) {
            self.conflict(&protocol.path, conflict);
        }
        let attackers = attackers(filled, clients);
        let mut seen = Vec::new();
        for exchange in asked.iter().filter(|_| clients > 1) {
            let Some(slot) = exchange.aggregator else {
                continue;
            };
            let fill = filled.iter().find(|fill| fill.slot == slot);
            let (Some(fill), false) = (fill, seen.contains(&slot)) else {
                continue;
            };
            seen.push(slot);
            let part =
                parts.build::<Box<dyn AnyAggregator>>(Role::Aggregator, slot, None, &context);
            let Some(robust) = part.ok().and_then(|part| part.robustness()) else {
                continue;
            };
            let sizes = match exchange.cohort.filter(|slot| parts.has(slot)) {
                Some(slot) => cohorts.get(slot).copied().flatten(),
                None => Some((clients, clients)),
            };
            if let Some(id) = robust.relies_on.filter(|id| *id as usize >= clients) {
                let text = format!("it relies on client {id}, and there are {clients}, from 0");
                self.note_use(&fill.path, text, Some(fill.part.decl));
            } else if let (Some(id), Some((least, _))) = (robust.relies_on, sizes)
                && least < clients
            {
                let text = format!(
                    "it relies on client {id}, which `parts.{}` may leave out of a round",
                    exchange.cohort.unwrap_or_default()
                );
                self.remark(&fill.path, text, fill.part.decl);
            }
            if let Some(id) = robust.relies_on.filter(|id| attackers.contains(id)) {
                let text = format!("it relies on client {id}, which attacks");
                self.remark(&fill.path, text, fill.part.decl);
            }
            if let Some((least, most)) = sizes {
                let worst = least.saturating_sub(silent(faults, clients));
                let worst = worst.max(faults.min_answers.min(least));
                let at_worst = || Some(format!("at worst, {}", robust.shortfall(worst)?));
                if let Some(few) = robust.shortfall(most).or_else(at_worst) {
                    self.remark(&fill.path, few, fill.part.decl);
                } else if let Some(bad) = robust.withstands(most)
                    && bad < attackers.len().min(most)
                {
                    let text = format!(
                        "of {most} answers it withstands {bad} bad ones, and {} clients attack",
                        attackers.len()
                    );
                    self.remark(&fill.path, text, fill.part.decl);
                }
            }
        }
    }

    /// Refuses selectors that choose by losses where no exchange asks for them.
    fn losses(&mut self, fill: &Fill, of: &CheckedProtocol, parts: &Parts, context: &BuildContext) {
        let slot = of.slots.iter().find(|slot| slot.name == fill.slot);
        let selects =
            |slot: &&SlotSpec| slot.role == Role::Selector && slot.signature == Roster::NAME;
        let Some(slot) = slot.filter(selects) else {
            return;
        };
        if of.protocol.is_none() || of.asked.iter().any(|q| q.requested_by == Some(slot.name)) {
            return;
        }
        let selector = parts.build::<BoxedSelector<Roster>>(slot.role, slot.name, None, context);
        let Ok(mut selector) = selector else { return };
        let known = |id| Candidate {
            samples: Some(10),
            ..Candidate::new(id)
        };
        let unknown = [Candidate::new(0), Candidate::new(1)];
        let wants = [unknown, [known(0), known(1)]].iter().any(|roster| {
            let query = selector.poll(&Round::first(), roster).ok().flatten();
            query.is_some_and(|query| query.wanted == ClientStat::Loss)
        });
        if wants {
            let text = format!(
                "it chooses by the clients' losses, and protocol `{}` has no global model to measure them with: use another selector, or a protocol such as `fedavg`",
                of.name
            );
            self.note_use(&fill.path, text, Some(fill.part.decl));
        }
    }

    /// Refuses a step before an aggregator that needs single clients' answers.
    fn before_aggregator(&mut self, filled: &[Fill], parts: &Parts, context: &BuildContext) {
        let is_step = |fill: &&Fill| fill.slot == BEFORE_AGGREGATOR.name();
        let Some(step) = filled.iter().find(is_step) else {
            return;
        };
        let rules = filled
            .iter()
            .filter(|fill| fill.part.decl.role == Role::Aggregator && !is_step(fill));
        for rule in rules {
            // without the step it can be made: otherwise that mistake is reported already
            let alone = rule.part.settings.build(context);
            let both =
                parts.build::<Box<dyn AnyAggregator>>(Role::Aggregator, &rule.slot, None, context);
            if let (Ok(_), Err(error)) = (alone, both) {
                let text = error.root_cause().to_string();
                self.note_use(&step.path, text, Some(step.part.decl));
            }
        }
    }

    fn of_sums(&mut self, filled: &[Fill], protocol: &CheckedProtocol, exchange: &ExchangeSpec) {
        let slots = &protocol.slots;
        let slot = |name: &str| slots.iter().find(|slot| slot.name == name);
        let Some(summed) = exchange.sums_into.and_then(slot) else {
            return;
        };
        let before = BEFORE_AGGREGATOR.name();
        let both = [summed.name, before];
        for fill in filled.iter().filter(|fill| both.contains(&&*fill.slot)) {
            let part = &fill.part;
            if fill.slot != before && is_of_mean(part.decl, &part.settings.value) != Some(false) {
                self.idle_weights(fill, protocol);
                continue;
            }
            let by = match exchange.needs {
                Some(needs) => format!("with parts.{needs} "),
                None => String::new(),
            };
            let without = match exchange.needs.and_then(slot) {
                Some(SlotSpec {
                    name,
                    optional: true,
                    ..
                }) => format!(", or leave parts.{name} out"),
                _ => String::new(),
            };
            let fitting = self.catalogue.fitting(summed).into_iter();
            let fitting = fitting
                .filter(|part| is_of_mean(part, &sample(&(part.describe)().group())) == Some(true));
            let (does, instead) = if fill.slot == before {
                ("changes", format!("leave parts.{before} out"))
            } else {
                (
                    "combines",
                    format!(
                        "use a part that claims `of_mean` ({})",
                        crate::catalogue::names(fitting)
                    ),
                )
            };
            let text = format!(
                "it {does} single answers, and {by}protocol `{}` adds the answers up and gives it their sum as one message, \
                 of which it would be no more than the mean: {instead}{without}",
                protocol.name
            );
            self.note_use(&fill.path, text, Some(part.decl));
        }
    }
}
