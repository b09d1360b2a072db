//! The parts in a protocol's slots: what is checked where they meet.

use crate::catalogue::{names, takes};
use crate::check::{CheckedPart, CheckedProtocol, Checker, Fill};
use crate::client_groups;
use crate::compatibility::CompatibilityCheck;
use crate::data_section::{DataSection, DataSizes};
use crate::sections::Clients;
use crate::spanned_value::{below, key};
use crate::training_check::TrainingCheck;
use fl_core::settings::{Setting, Step, Value, nearest, show, show_path};
use fl_core::{
    BuildContext, Certainty, ExchangeSpec, Measured, Role, SlotAssignment, SlotSpec, Stream, Task,
    TaskKind,
};
use serde_yaml::Mapping;
use std::collections::{BTreeMap, HashSet};

impl Checker<'_> {
    /// The parts in the protocol's slots, in the order of the spec.
    pub fn parts<D: DataSection>(
        &mut self,
        value: Option<&Value>,
        protocol: Option<&CheckedProtocol>,
        data: Option<&D>,
    ) -> Vec<Fill> {
        let path = [key("parts")];
        let mut filled = Vec::new();
        let empty = Mapping::new();
        let map = match value {
            None | Some(Value::Null) => &empty,
            Some(Value::Mapping(map)) => map,
            Some(other) => {
                let text = format!("must be a mapping from slots to parts, got {}", show(other));
                self.note(&path, text);
                return filled;
            }
        };
        for (name, value) in map {
            let Some(name) = name.as_str() else { continue };
            let at = below(&path, key(name));
            if !value.is_null() {
                self.part(&at, (name, value), protocol, data, &mut filled);
            } else if let Some(protocol) = protocol {
                // a study that names another protocol may empty a slot that this one has not
                let mut slots = protocol.slots.iter().map(|slot| slot.name);
                let known = slots.clone().any(|slot| slot == name);
                if !known && nearest(name, &mut slots).is_some() {
                    self.unknown_slot(&at, name, protocol);
                }
            }
        }
        let Some(protocol) = protocol else {
            return filled;
        };
        let given = |slot: &str| map.get(slot).is_some_and(|part| !part.is_null());
        for slot in protocol.slots.iter().filter(|slot| !given(slot.name)) {
            self.missing(&below(&path, key(slot.name)), slot);
        }
        filled
    }

    /// A slot of a protocol that is empty in one of its stages.
    pub fn emptied(&mut self, path: &[Step], name: &str, protocol: &CheckedProtocol) {
        match protocol.slots.iter().find(|slot| slot.name == name) {
            Some(slot) => self.missing(path, slot),
            None => self.unknown_slot(path, name, protocol),
        }
    }

    /// Notes that a slot is empty, if the protocol needs a part there.
    fn missing(&mut self, path: &[Step], slot: &SlotSpec) {
        if !slot.optional {
            let fit = names(self.catalogue.fitting(slot));
            let text = format!(
                "is missing ({}): {} These fit: {fit}",
                takes(slot),
                slot.doc
            );
            self.note(path, text);
        }
    }

    /// What stands in the slot `name` of a protocol.
    pub fn part<D: DataSection>(
        &mut self,
        path: &[Step],
        (name, value): (&str, &Value),
        protocol: Option<&CheckedProtocol>,
        data: Option<&D>,
        filled: &mut Vec<Fill>,
    ) {
        let slot = protocol.and_then(|p| p.slots.iter().find(|s| s.name == name));
        if let (Some(protocol), None) = (protocol, slot) {
            self.unknown_slot(path, name, protocol);
            // a slot that is misspelt in `--set` has nothing but the setting
            if value.get("use").is_none() {
                return;
            }
        }
        // what the server releases through, it needs
        let slot = slot.map(|slot| SlotSpec {
            server: slot.server || protocol.is_some_and(|p| p.releases_at_server(slot.name)),
            ..slot.clone()
        });
        let all = protocol.map_or(&[][..], |p| &p.slots);
        self.slot(path, (name, value), (slot.as_ref(), all), data, filled);
    }

    /// Mechanisms in slots that the protocol, set as it is, releases nothing through.
    pub fn unused_mechanisms(
        &mut self,
        parts: &[Step],
        given: &dyn Fn(&str) -> bool,
        protocol: &CheckedProtocol,
    ) {
        for slot in protocol.slots.iter().filter(|s| s.role == Role::Privacy) {
            let released = |q: &ExchangeSpec| q.goes_through(slot.name);
            if given(slot.name) && protocol.part.is_some() && !protocol.asked.iter().any(released) {
                let text = format!(
                    "protocol `{}` releases nothing through this slot with these settings: a mechanism here would protect nothing",
                    protocol.name
                );
                self.note_key(&below(parts, key(slot.name)), text);
            }
        }
    }

    fn unknown_slot(&mut self, path: &[Step], name: &str, protocol: &CheckedProtocol) {
        let slots = || protocol.slots.iter().map(|s| s.name);
        let hint = match nearest(name, slots()) {
            Some(near) => format!("did you mean `{near}`? its"),
            None => "its".into(),
        };
        let text = format!(
            "protocol `{}` has no slot {}; {hint} slots: {}",
            protocol.name,
            show(&name.into()),
            slots().collect::<Vec<_>>().join(", ")
        );
        self.note_key(path, text);
    }

    /// What stands in one slot of `all`: a part, or a list of parts for groups of clients.
    fn slot<D: DataSection>(
        &mut self,
        path: &[Step],
        (name, value): (&str, &Value),
        (slot, all): (Option<&SlotSpec>, &[SlotSpec]),
        data: Option<&D>,
        filled: &mut Vec<Fill>,
    ) {
        let items: Vec<(Vec<Step>, &Value)> = match value {
            Value::Sequence(list) if !list.is_empty() => list
                .iter()
                .enumerate()
                .map(|(at, item)| (below(path, Step::Item(at)), item))
                .collect(),
            other => vec![(path.to_vec(), other)],
        };
        let fitting = slot.map_or(Vec::new(), |slot| self.catalogue.fitting(slot));
        let mut shares = Vec::new();
        for (path, item) in items {
            let clients = match item.get("clients") {
                None => Some(None),
                Some(value) => self
                    .settings(&below(&path, key("clients")), None, |r| {
                        Clients::read(value, r)
                    })
                    .map(Some),
            };
            shares.push((path.clone(), clients.clone()));
            let chosen = self.choose(
                item,
                &path,
                slot.map(|s| (s.role, &fitting[..])),
                &["use", "clients"],
            );
            let Some((decl, settings)) = chosen else {
                continue;
            };
            if let Some(slot) = slot.filter(|_| !fitting.iter().any(|p| p.name == decl.name)) {
                let its = all.iter().find(|other| {
                    let mut parts = self.catalogue.fitting(other).into_iter();
                    parts.any(|p| p.name == decl.name)
                });
                let its = its.map(|other| format!("; it fits parts.{}", other.name));
                let text = format!(
                    "must be {}, but `{}` is {}{}; these fit: {}",
                    slot.signature,
                    decl.name,
                    (decl.describe)().signature,
                    its.unwrap_or_default(),
                    names(fitting.iter().copied())
                );
                self.note_use(&path, text, None);
                continue;
            }
            if let (Some(_), Some(clients), Some(settings)) = (slot, clients, settings) {
                filled.push(Fill {
                    slot: name.into(),
                    path,
                    clients,
                    part: CheckedPart { decl, settings },
                });
            }
        }
        if let Some(slot) = slot {
            for (path, text) in client_groups::check(slot, path, &shares, data.map(D::clients)) {
                self.note(&path, text);
            }
        }
    }

    /// Checks that a budget has an accountant.
    pub fn budget(&mut self, spec: &Value, protocol: Option<&CheckedProtocol>) {
        let accountant = spec.get("parts").and_then(|p| p.get("accountant"));
        let budget = spec.get("budget").is_some_and(|b| !b.is_null());
        let Some(protocol) = protocol.filter(|_| budget && accountant.is_none()) else {
            return;
        };
        let text = match protocol.slots.iter().find(|s| s.role == Role::Accountant) {
            Some(slot) => format!(
                "a privacy budget needs an accountant: fill parts.{}; these fit: {}",
                slot.name,
                names(self.catalogue.fitting(slot))
            ),
            None => format!(
                "a privacy budget needs an accountant, and protocol `{}` has no slot for one",
                protocol.name
            ),
        };
        self.note_key(&[key("budget")], text);
    }

    /// Checks that rounds which end because of results have no price to keep, and that a run
    /// measures what decides.
    pub fn stop_when(&mut self, spec: &Value, measured: Option<&Measured>) {
        let given = |value: Option<&Value>| value.is_some_and(|v| !v.is_null());
        let accountant = spec.get("parts").and_then(|p| p.get("accountant"));
        let stop = spec.get("stop-when");
        if given(stop) && given(spec.get("stages")) {
            let text = "ends the rounds of one protocol, and this spec has `stages`: leave it out, or give the stages fewer rounds";
            self.note_key(&[key("stop-when")], text);
        }
        if given(stop) && given(accountant) {
            let text = "does not go with parts.accountant: the epsilon of a number of rounds that \
                        follows from results is no guarantee; give the run fewer rounds, or a `budget`";
            self.note_key(&[key("stop-when")], text);
        }
        let metric = stop.and_then(|stop| stop.get("metric"));
        let metric = metric.and_then(Value::as_str);
        let (Some(metric), Some(measured)) = (metric, measured) else {
            return;
        };
        let path = [key("stop-when"), key("metric")];
        match measured.has(metric) {
            Certainty::Yes => {}
            Certainty::Perhaps => self.tell(
                &path,
                format!(
                    "nothing declares that it measures `{metric}`: if no part does, the rounds do not end early"
                ),
            ),
            Certainty::No => return self.note(&path, measured.lacks(metric)),
        }
        let better = stop.and_then(|stop| stop.get("better"));
        if better.is_none_or(Value::is_null) && fl_core::metrics::better(metric).is_none() {
            let text = format!(
                "fl does not know which values of `{metric}` are better, and takes larger ones; say `better: higher` or `better: lower`"
            );
            self.tell(&path, text);
        }
    }

    /// Makes every part once for each slot, to see whether it fits the task and can do what the
    /// protocol needs. `words`: the largest number of a word in the rows, 0 without words. `drops`:
    /// a client that cannot answer is left out.
    pub fn build(
        &mut self,
        filled: &[Fill],
        protocol: Option<&CheckedProtocol>,
        (task, words, seed, drops): (&Task, Option<usize>, u64, bool),
        sizes: &dyn Fn() -> Option<DataSizes>,
    ) {
        let trainings = TrainingCheck::new(protocol, sizes, filled);
        let mut fit = CompatibilityCheck::new(protocol, trainings, drops);
        let mut made = HashSet::new();
        for fill in filled {
            let slot = protocol.and_then(|p| p.slots.iter().find(|s| s.name == fill.slot));
            let decl = fill.part.decl;
            if !made.insert((&fill.slot, decl.name, &fill.part.settings.value)) {
                continue;
            }
            let own = slot.map_or_else(|| task.clone(), |slot| slot.task.of(task));
            fit.words = words.filter(|_| own == *task);
            let make = BuildContext::new(own.clone(), Stream::root(seed).child("check", 0));
            match fill.part.settings.build(&make) {
                Err(error) => {
                    let text = format!("cannot be made for {}: {error:#}", describe(&own));
                    self.note_use(&fill.path, text, Some(decl));
                }
                Ok(part) => {
                    let Some(slot) = slot else { continue };
                    for text in fit.part(slot, fill, part, &own) {
                        self.note_use(&fill.path, text, Some(decl));
                    }
                }
            }
        }
        for (fill, text) in fit.trainings.take_notes() {
            self.remark(&fill.path, text, fill.part.decl);
        }
        let budget = self.root.get("budget");
        let budget = budget.is_some_and(|budget| !budget.value().is_null());
        for (fill, text) in fit.prices(budget) {
            self.note_use(&fill.path, text, Some(fill.part.decl));
        }
        for (fill, text) in differing(protocol, filled) {
            self.note_use(&fill.path, text, Some(fill.part.decl));
        }
    }
}

/// Mechanisms that differ from the first of a slot that the server releases through: it has one of
/// them, and clients that bound what they send by another would not bound what it prices.
fn differing<'f>(
    protocol: Option<&CheckedProtocol>,
    filled: &'f [Fill],
) -> Vec<(&'f Fill, String)> {
    let mut first: BTreeMap<&str, &Fill> = BTreeMap::new();
    let mut wrong = Vec::new();
    let server = |fill: &&Fill| protocol.is_some_and(|p| p.releases_at_server(&fill.slot));
    for fill in filled.iter().filter(server) {
        let one = *first.entry(&fill.slot).or_insert(fill);
        let part = |fill: &'f Fill| (fill.part.decl.name, &fill.part.settings.value);
        if part(one) != part(fill) {
            let text = format!(
                "it differs from {}: the server releases through this slot, and all clients must clip alike; give the slot one mechanism for all clients",
                show_path(&one.path)
            );
            wrong.push((fill, text));
        }
    }
    wrong
}

/// `inputs of 1x28x28 and 10 classes`
fn describe(task: &Task) -> String {
    let shape: Vec<String> = task.input.iter().map(usize::to_string).collect();
    let outputs = match task.kind {
        TaskKind::Classes(n) => format!("{n} classes"),
        TaskKind::MultiLabel(n) => format!("{n} findings"),
        kind => kind.to_string(),
    };
    format!("inputs of {} and {outputs}", shape.join("x"))
}

/// The `parts` section with every default filled in.
pub(crate) fn written(filled: &[Fill]) -> Mapping {
    let mut slots = Mapping::new();
    for fill in filled {
        let mut part = Mapping::new();
        if let Some(clients) = &fill.clients {
            part.insert("clients".into(), clients.write());
        }
        part.extend(fill.part.write().as_mapping().cloned().unwrap_or_default());
        match (fill.path.last(), slots.get_mut(fill.slot.as_str())) {
            (_, Some(Value::Sequence(list))) => list.push(part.into()),
            (Some(Step::Item(_)), _) => {
                slots.insert(fill.slot.as_str().into(), vec![Value::from(part)].into());
            }
            _ => {
                slots.insert(fill.slot.as_str().into(), part.into());
            }
        }
    }
    slots
}

/// As a run looks them up: the first that fits a client is taken, so what is for all comes last in
/// its slot.
pub(crate) fn in_order(filled: Vec<Fill>) -> Vec<SlotAssignment> {
    let (groups, rest): (Vec<_>, Vec<_>) = filled.into_iter().partition(|f| f.clients.is_some());
    groups
        .into_iter()
        .chain(rest)
        .map(|fill| SlotAssignment {
            slot: fill.slot,
            clients: fill.clients.map(|c| c.0),
            decl: fill.part.decl,
            settings: fill.part.settings,
        })
        .collect()
}
