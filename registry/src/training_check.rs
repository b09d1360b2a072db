//! Does the training that a protocol plans do anything with the models of a spec?

use crate::check::{CheckedProtocol, Fill};
use fl_core::message::{Message, Params};
use fl_core::{ClientId, Length, PlannedTraining, Role, SlotSpec, Trainer, parametric};
use std::collections::BTreeSet;

/// The most clients that a note names.
const NAMED: usize = 20;

/// What is remembered from one model to the next.
pub(crate) struct TrainingCheck<'f> {
    protocol: Option<&'f CheckedProtocol>,
    /// How many examples each client has.
    sizes: &'f dyn Fn() -> Option<Vec<usize>>,
    /// Whether that is the clients' secret.
    accounts: bool,
    /// The slots that are filled with mechanisms.
    mechanisms: BTreeSet<&'f str>,
    notes: Vec<(&'f Fill, String)>,
}

impl<'f> TrainingCheck<'f> {
    pub fn new(
        protocol: Option<&'f CheckedProtocol>,
        sizes: &'f dyn Fn() -> Option<Vec<usize>>,
        filled: &'f [Fill],
    ) -> Self {
        let of_role = |role| {
            filled
                .iter()
                .filter(move |fill| fill.part.decl.role == role)
        };
        let mechanisms = of_role(Role::Privacy).map(|fill| &fill.slot[..]);
        Self {
            accounts: of_role(Role::Accountant).next().is_some(),
            mechanisms: mechanisms.collect(),
            protocol,
            sizes,
            notes: Vec::new(),
        }
    }

    /// Notes `text`, unless that has been noted.
    pub fn note_once(&mut self, fill: &'f Fill, text: String) {
        if self.notes.iter().all(|(_, known)| *known != text) {
            self.notes.push((fill, text));
        }
    }

    /// Returns the notes so far, and forgets them.
    pub fn take_notes(&mut self) -> Vec<(&'f Fill, String)> {
        std::mem::take(&mut self.notes)
    }

    /// What is in vain in the training of this model.
    pub fn model(
        &mut self,
        slot: &SlotSpec,
        fill: &'f Fill,
        model: &mut dyn Trainer,
    ) -> Option<String> {
        self.noise(slot, fill, model);
        let planned = slot.training.as_ref()?;
        let abilities = model.abilities();
        let least = if self.by_examples(slot) {
            1
        } else {
            abilities.least_batch
        };
        let schedule = abilities.schedule_length;
        if planned.batch < least {
            return Some(format!(
                "its batch normalisation needs {least} examples in a mini-batch, and `protocol.{}.batch` is {}, so no client would take a step: set it to {least} or more, or use `layer-norm`",
                planned.setting, planned.batch
            ));
        }
        let by_size = schedule.is_some() && matches!(planned.length, Length::Epochs(_));
        let sizes = (least > 1 || by_size).then(|| self.sizes_of(fill));
        let sizes = sizes.flatten();
        if let Some(sizes) = &sizes {
            let few = |(_, n): &&(ClientId, usize)| (1..least).contains(n);
            let few: Vec<ClientId> = sizes.iter().filter(few).map(|(id, _)| *id).collect();
            let own = sizes.iter().filter(|(_, n)| *n > 0).count();
            if own > 0 && few.len() == own {
                return Some(format!(
                    "its batch normalisation needs {least} examples in a mini-batch, and no client has them, so none would take a step: use fewer clients, or `layer-norm`"
                ));
            }
            if !few.is_empty() && !self.accounts {
                let note = format!(
                    "{} {} fewer than the {least} examples that batch normalisation needs in a mini-batch, and will take no training step",
                    named(&few),
                    if few.len() == 1 { "has" } else { "have" }
                );
                self.notes.push((fill, note));
            }
        }
        let largest = sizes.iter().flatten().map(|(_, n)| *n).max();
        never(planned, schedule?, largest)
    }

    /// Notes that a mechanism adds noise to buffers too.
    fn noise(&mut self, slot: &SlotSpec, fill: &'f Fill, model: &mut dyn Trainer) {
        let buffers = parametric(model, slot.name).map_or(0, |model| model.buffers().len());
        let asked = self.protocol.into_iter().flat_map(|p| &p.asked);
        let of_slot = asked.filter(|asked| asked.model == slot.name && asked.flow.steps.is_none());
        let mut through = of_slot.flat_map(|asked| asked.flow.slots());
        let noisy = through.find(|name| {
            let on_params = |slot: &SlotSpec| slot.name == *name && slot.signature == Params::KIND;
            let mut slots = self.protocol.into_iter().flat_map(|p| &p.slots);
            self.mechanisms.contains(name) && slots.any(on_params)
        });
        if let Some(mechanism) = noisy.filter(|_| buffers > 0) {
            let note = format!(
                "parts.{mechanism} adds noise to its {buffers} buffers too, such as running variances of batch normalisation; `layer-norm` has none"
            );
            self.notes.push((fill, note));
        }
    }

    /// Does the model learn by the gradients of single examples, which normalise no batch (DP-SGD)?
    fn by_examples(&self, slot: &SlotSpec) -> bool {
        let asked = self.protocol.into_iter().flat_map(|p| &p.asked);
        let mut of_slot = asked.filter(|asked| asked.model == slot.name);
        of_slot.any(|asked| asked.flow.steps.is_some())
    }

    /// The clients that train the model of `fill`, each with its number of examples.
    fn sizes_of(&self, fill: &Fill) -> Option<Vec<(ClientId, usize)>> {
        let sizes = (self.sizes)()?;
        let protocol = self.protocol.and_then(|p| p.protocol.as_ref());
        // one client may have the data of all
        let sizes = if protocol.is_some_and(|protocol| protocol.pools_data()) {
            vec![sizes.iter().sum()]
        } else {
            sizes
        };
        let all = (0..).zip(sizes);
        let groups = fill.clients.as_ref();
        let own = all.filter(|(id, _)| {
            groups.is_none_or(|groups| groups.0.iter().any(|range| range.contains(id)))
        });
        Some(own.collect())
    }
}

/// Why a schedule of this length never takes effect, if it does not: `largest` is the largest
/// number of examples of a client.
fn never(planned: &PlannedTraining, schedule: usize, largest: Option<usize>) -> Option<String> {
    let steps = match planned.length {
        Length::Steps(steps) => steps,
        Length::Epochs(epochs) => epochs.saturating_mul(largest?.div_ceil(planned.batch.max(1))),
    };
    let (fresh, times, setting) = (planned.fresh, planned.times, &planned.setting);
    let all = steps.saturating_mul(times);
    let (most, text) = match (fresh, times) {
        (_, 0 | 1) => (
            steps,
            format!(
                "a client's training has {steps} mini-batches at most: shorten the schedule, or train longer"
            ),
        ),
        (true, _) => (
            steps,
            format!(
                "it begins anew in each round (`protocol.fresh: true`), which has {steps} mini-batches of a client at most: shorten the schedule, set `protocol.fresh: false`, so that each client counts its own over the run, or let `protocol.{setting}.rate` follow the round"
            ),
        ),
        (false, _) => (
            all,
            format!(
                "a client has {all} mini-batches at most in the whole run: shorten the schedule, or train longer"
            ),
        ),
    };
    (most < schedule).then(|| {
        format!("its learning-rate schedule needs {schedule} mini-batches to fall and never has them: {text}")
    })
}

/// `client 3`, `clients 1, 2 and 5`, or the first of many and how many more there are.
fn named(ids: &[ClientId]) -> String {
    let (shown, rest) = ids.split_at(ids.len().min(NAMED));
    let mut names: Vec<String> = shown.iter().map(ToString::to_string).collect();
    if !rest.is_empty() {
        names.push(format!("{} more", rest.len()));
    }
    match &names[..] {
        [one] => format!("client {one}"),
        [first @ .., last] => format!("clients {} and {last}", first.join(", ")),
        [] => "no client".into(),
    }
}
