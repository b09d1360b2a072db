//! Does the training that a protocol plans do anything with the models of a spec?

use crate::check::{CheckedProtocol, Fill};
use crate::data_section::DataSizes;
use fl_core::message::{Message, Params};
use fl_core::{
    Abilities, Ability, ClientId, Length, PlannedTraining, Role, SlotSpec, Trainer, named_clients,
    parametric,
};
use std::collections::BTreeSet;

/// A schedule ends long before the training if more than one in this many mini-batches is left.
const LEFT_ONE_IN: usize = 10;

/// What is remembered from one model to the next.
pub(crate) struct TrainingCheck<'f> {
    protocol: Option<&'f CheckedProtocol>,
    /// How many examples each client has.
    sizes: &'f dyn Fn() -> Option<DataSizes>,
    /// Whether that is the clients' secret.
    pub accounts: bool,
    /// The slots that are filled with mechanisms.
    mechanisms: BTreeSet<&'f str>,
    /// The slots that are filled with selectors.
    drawing: BTreeSet<&'f str>,
    notes: Vec<(&'f Fill, String)>,
}

impl<'f> TrainingCheck<'f> {
    pub fn new(
        protocol: Option<&'f CheckedProtocol>,
        sizes: &'f dyn Fn() -> Option<DataSizes>,
        filled: &'f [Fill],
    ) -> Self {
        let of_role = |role| {
            filled
                .iter()
                .filter(move |fill| fill.part.decl.role == role)
        };
        let slots = |role| of_role(role).map(|fill| &fill.slot[..]).collect();
        Self {
            accounts: of_role(Role::Accountant).next().is_some(),
            mechanisms: slots(Role::Privacy),
            drawing: slots(Role::Selector),
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
        if slot.steps_alone {
            let name = self.protocol.map_or("", |p| &p.name);
            let note = format!(
                "its optimiser and learning rate have no effect: protocol `{name}` takes all steps itself, by its own rates along the model's gradients"
            );
            self.note_once(fill, note);
        }
        let abilities = model.abilities();
        if self.by_examples(slot) && !abilities.beside_gradient.is_empty() {
            let note = format!(
                "its training leaves out {}: the steps of DP-SGD follow the gradients of single examples, which do without",
                abilities.beside_gradient.join(" and ")
            );
            self.note_once(fill, note);
        }
        if abilities.schedules_pass && slot.needs.contains(&Ability::ByEpoch) {
            let note = "its learning-rate schedule begins again in each epoch, since the protocol gives it one epoch at a time: to let it fall once, say after how many `steps` it ends (`schedule: { cosine: { steps: .. } }`)";
            self.note_once(fill, note.into());
        }
        let least = if self.by_examples(slot) {
            1
        } else {
            abilities.least_batch
        };
        if let Some(wrong) = small_batch(slot, least) {
            return Some(wrong);
        }
        let Some(planned) = &slot.training else {
            // a protocol's further trainings may be of any length
            if let Some(note) = self.schedule(slot, fill, &abilities, None) {
                self.note_once(fill, note);
            }
            return None;
        };
        if least > 1
            && let Some(wrong) = self.few_examples(fill, least)
        {
            return Some(wrong);
        }
        self.schedule(slot, fill, &abilities, Some(planned))
    }

    /// Why no client has the `least` examples of a mini-batch, if so. Notes those that have fewer.
    fn few_examples(&mut self, fill: &'f Fill, least: usize) -> Option<String> {
        let sizes = self.sizes_of(fill)?;
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
                named_clients(&few),
                if few.len() == 1 { "has" } else { "have" }
            );
            self.notes.push((fill, note));
        }
        None
    }

    /// Why the schedule of a model never takes effect, if it does not. Notes one that ends long
    /// before the training.
    fn schedule(
        &mut self,
        slot: &SlotSpec,
        fill: &'f Fill,
        abilities: &Abilities,
        planned: Option<&PlannedTraining>,
    ) -> Option<String> {
        let scheduled = abilities.schedule_length.is_some() || abilities.schedules_pass;
        if slot.steps_alone || !scheduled {
            return None;
        }
        if planned.is_none() && slot.trainings.is_empty() {
            return None;
        }
        let (longest, further) = self.further(slot, fill)?;
        let steps = match planned.map(|planned| (planned.length, planned.batch)) {
            None => 0,
            Some((Length::Steps(steps), _)) => steps,
            Some((Length::Epochs(epochs), batch)) => {
                let largest = self.sizes_of(fill)?.into_iter().map(|(_, n)| n).max()?;
                epochs.saturating_mul(largest.div_ceil(batch.max(1)))
            }
        };
        if abilities.schedules_pass {
            let why = "its learning-rate schedule spans each training, and none has more than one mini-batch, so it has no effect: say after how many `steps` it ends, or train longer";
            return (longest.max(steps) < 2).then(|| why.into());
        }
        let schedule = abilities.schedule_length?;
        let (most, whose, instead) = most_batches(planned, steps, further);
        if most < schedule {
            return Some(format!(
                "its learning-rate schedule needs {schedule} mini-batches to fall and never has them: {whose}: {instead}, or train longer"
            ));
        }
        let rest = most - schedule;
        let epochs = |length: &Length| matches!(length, Length::Epochs(_));
        let of_sizes = planned.is_some_and(|planned| epochs(&planned.length))
            || slot.trainings.iter().any(|(length, _)| epochs(length));
        let secret = self.accounts && of_sizes;
        // the check does not know how many mini-batches a client that misses rounds has
        if let Some(end) = abilities.schedule_end
            && rest > most / LEFT_ONE_IN
            && !secret
            && !self.is_drawn(slot)
        {
            let note = format!(
                "its learning-rate schedule ends after {schedule} mini-batches, and the rate stays {end}: {whose}, so up to {rest} of {most} are at that rate: let the schedule end later, or train less"
            );
            self.note_once(fill, note);
        }
        None
    }

    /// May a client that trains the model of `slot` be left out of a round?
    fn is_drawn(&self, slot: &SlotSpec) -> bool {
        let mut asked = self.protocol.into_iter().flat_map(|p| &p.asked);
        asked.any(|q| q.model == slot.name && q.cohort.is_some_and(|of| self.drawing.contains(of)))
    }

    /// The mini-batches of one further training of a slot's model at most, and of all of them;
    /// `None` if that is not known.
    fn further(&self, slot: &SlotSpec, fill: &Fill) -> Option<(usize, usize)> {
        let protocol = self.protocol.and_then(|p| p.protocol.as_ref());
        let rounds = protocol.and_then(|protocol| protocol.declare().rounds);
        let mut asked = self.protocol.into_iter().flat_map(|p| &p.asked);
        let at_clients = !slot.server || slot.lasts || asked.any(|q| q.model == slot.name);
        let mut longest = 0;
        let mut once = 0usize;
        for (length, batch) in &slot.trainings {
            let steps = match length {
                Length::Steps(steps) => *steps,
                Length::Epochs(epochs) => {
                    let own = self.sizes_of(fill)?.into_iter().map(|(_, n)| n).max();
                    let own = own.filter(|_| at_clients).unwrap_or(0);
                    let all = own + (self.sizes)()?.public;
                    epochs.saturating_mul(all.div_ceil((*batch).max(1)))
                }
            };
            longest = longest.max(steps);
            once = once.saturating_add(steps);
        }
        Some((longest, once.saturating_mul(rounds.unwrap_or(1).max(1))))
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

    /// The clients with the part of `fill`, each with its number of examples.
    pub fn sizes_of(&self, fill: &Fill) -> Option<Vec<(ClientId, usize)>> {
        let sizes = (self.sizes)()?.clients;
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

/// How many mini-batches a schedule has at most, who has them, and what gives it more of them.
/// `steps` are those of one planned training, and `further` those of all other trainings.
fn most_batches(
    planned: Option<&PlannedTraining>,
    steps: usize,
    further: usize,
) -> (usize, String, String) {
    let shorten = String::from("shorten the schedule");
    let Some(PlannedTraining {
        fresh,
        times,
        setting,
        ..
    }) = planned
    else {
        let whose = format!("its trainings have {further} in the whole run at most");
        return (further, whose, shorten);
    };
    let once = steps.saturating_add(further);
    let all = steps.saturating_mul(*times).saturating_add(further);
    match (fresh, times) {
        (_, 0 | 1) => {
            let whose = format!("a client's training has {once} mini-batches at most");
            (once, whose, shorten)
        }
        (true, _) => {
            let most = steps.max(further);
            let whose = format!(
                "it begins anew in each round (`protocol.fresh: true`), so one training has {most} mini-batches of a client at most"
            );
            let instead = format!(
                "{shorten}, set `protocol.fresh: false`, so that each client counts its own over the run, let `protocol.{setting}.rate` follow the round"
            );
            (most, whose, instead)
        }
        (false, _) => {
            let whose = format!("a client has {all} mini-batches at most in the whole run");
            (all, whose, shorten)
        }
    }
}

/// Why a training of this slot's models takes no step, if none of its mini-batches has `least`
/// examples.
fn small_batch(slot: &SlotSpec, least: usize) -> Option<String> {
    let planned = slot.training.as_ref().map(|planned| {
        let setting = format!("`protocol.{}.batch` is {}", planned.setting, planned.batch);
        (setting, planned.batch)
    });
    let further = slot.trainings.iter().map(|(_, batch)| {
        let batches = format!("a training of the protocol has a `batch` of {batch}");
        (batches, *batch)
    });
    let (setting, _) = planned
        .into_iter()
        .chain(further)
        .find(|(_, batch)| *batch < least)?;
    Some(format!(
        "its batch normalisation needs {least} examples in a mini-batch, and {setting}, so it would take no step: set it to {least} or more, or use `layer-norm`"
    ))
}
