//! [`Stages`]: protocols that follow one another in one run.

use crate::client::ClientSide;
use crate::exchange::declaration::Declaration;
use crate::exchange::spec::ExchangeSpec;
use crate::kept_text::kept;
use crate::privacy::DataDependence;
use crate::{
    ACCOUNTANT, Answer, BEFORE_AGGREGATOR, COUNTS, Client, Measurement, Protocol, Request, Result,
    Role, Server, SlotSpec, TaskKind,
};
use anyhow::Context;
use std::collections::BTreeSet;

/// One protocol of a run that has several.
pub struct Stage {
    /// The protocol.
    pub protocol: Box<dyn Protocol>,
    /// The slots that hold a part of this stage alone. The others are those of the whole run: what
    /// is in them goes on from one stage to the next.
    pub own: BTreeSet<String>,
}

/// Protocols that follow one another in one run, with one journal, one ledger and one digest.
///
/// A slot that several stages have is one slot: its models and the states of its parts go on. The
/// first stage takes place as if it were alone. The labels of later stages end with the stage, as
/// in `training of stage 2`, and so do the slots of a stage's own.
pub struct Stages(Vec<Stage>);

/// The slots that no stage can have for itself: the whole run has one ledger, and one step before
/// all its aggregators.
pub const SLOTS_OF_RUN: [&str; 3] = [ACCOUNTANT.name(), COUNTS.name(), BEFORE_AGGREGATOR.name()];

/// Returns a label or a slot as that of a stage, counted from 1.
pub(crate) fn of_stage(name: &str, stage: usize) -> String {
    format!("{name} of stage {stage}")
}

/// Returns the label of an exchange in this stage; the first keeps its own labels.
pub(crate) fn label_in(label: &str, stage: usize) -> String {
    match stage {
        0 | 1 => label.into(),
        stage => of_stage(label, stage),
    }
}

/// Returns the stage of a label, and the label that its protocol knows.
fn read_label(label: &str) -> (usize, &str) {
    let later = Stages::owner(label).filter(|(stage, _)| *stage > 1);
    later.unwrap_or((1, label))
}

/// What a stage calls by names of its own, by those of the whole run.
struct Names<'a> {
    stage: usize,
    own: &'a BTreeSet<String>,
}

impl Names<'_> {
    fn slot(&self, slot: &mut &'static str) {
        if self.own.contains(*slot) {
            *slot = kept(&of_stage(slot, self.stage));
        }
    }

    fn label(&self, label: &mut &'static str) {
        if self.stage > 1 {
            *label = kept(&of_stage(label, self.stage));
        }
    }

    fn of_slot(&self, mut spec: SlotSpec) -> SlotSpec {
        self.slot(&mut spec.name);
        spec.through.iter_mut().for_each(|slot| self.slot(slot));
        spec
    }

    fn of_exchange(&self, mut spec: ExchangeSpec) -> ExchangeSpec {
        self.label(&mut spec.label);
        self.slot(&mut spec.model);
        let slots = [
            &mut spec.cohort,
            &mut spec.aggregator,
            &mut spec.sums_into,
            &mut spec.needs,
            &mut spec.unless,
            &mut spec.requested_by,
        ];
        slots.into_iter().flatten().for_each(|slot| self.slot(slot));
        let flow = &mut spec.flow;
        let lists = [
            &mut flow.through,
            &mut flow.learnt_through,
            &mut flow.releases,
            &mut flow.within,
            &mut flow.beside,
            &mut flow.at_server,
        ];
        lists.into_iter().flatten().for_each(|slot| self.slot(slot));
        if let Some((slot, _)) = &mut flow.steps {
            self.slot(slot);
        }
        if let Some(label) = &mut flow.released_with {
            self.label(label);
        }
        spec
    }

    fn of_measurement(&self, mut of: Measurement) -> Measurement {
        let slots = [Some(&mut of.name), of.if_filled.as_mut()];
        for slot in slots.into_iter().flatten() {
            if self.own.contains(slot) {
                *slot = of_stage(slot, self.stage);
            }
        }
        of
    }
}

impl Stages {
    /// Returns a run of these stages, one after the other.
    pub fn new(stages: Vec<Stage>) -> Self {
        Self(stages)
    }

    /// Returns the stage, counted from 1, that has this slot of the whole run for itself, and the
    /// stage's name for it; `None` if the slot is shared.
    pub fn owner(slot: &str) -> Option<(usize, &str)> {
        let (slot, stage) = slot.rsplit_once(" of stage ")?;
        Some((stage.parse().ok().filter(|stage| *stage > 0)?, slot))
    }

    /// Returns the name of a slot of a stage's own in the whole run. Stages count from 1.
    pub fn slot(slot: &str, stage: usize) -> String {
        of_stage(slot, stage)
    }

    fn named(&self) -> impl Iterator<Item = (&Stage, Names<'_>)> {
        let numbered = self.0.iter().zip(1..);
        numbered.map(|(stage, number)| {
            let own = &stage.own;
            (stage, Names { stage: number, own })
        })
    }
}

/// Returns a slot that two stages have, with the requirements of both.
fn both(one: SlotSpec, other: SlotSpec) -> SlotSpec {
    SlotSpec {
        optional: one.optional && other.optional,
        lasts: one.lasts || other.lasts,
        needs: [one.needs, other.needs].concat(),
        alike: one.alike || other.alike,
        alike_features: one.alike_features || other.alike_features,
        server: one.server || other.server,
        for_some: one.for_some || other.for_some,
        only_clips: one.only_clips && other.only_clips,
        shown: one.shown || other.shown,
        // what one stage teaches past a mechanism, any other may show
        through: (one.through.into_iter())
            .filter(|slot| other.through.contains(slot))
            .collect(),
        scores: one.scores || other.scores,
        from_server: one.from_server || other.from_server,
        several: one.several || other.several,
        training: one.training.or(other.training),
        trainings: [one.trainings, other.trainings].concat(),
        steps_alone: one.steps_alone && other.steps_alone,
        named: [one.named, other.named].concat(),
        ..one
    }
}

/// Returns how a stage with these exchanges may teach the models in a slot: for each training the
/// slots of the mechanisms that it goes through.
fn ways(slot: &SlotSpec, exchanges: &[ExchangeSpec]) -> Vec<(&'static str, Vec<&'static str>)> {
    let of_flow = |flow: &DataDependence| {
        let steps = flow.steps.iter().map(|(slot, _)| *slot);
        let all = flow.through.iter().chain(&flow.learnt_through).copied();
        all.chain(steps).collect()
    };
    if !slot.through.is_empty() {
        return vec![(slot.name, slot.through.clone())];
    }
    // a model that no client keeps, and none sends, is the server's
    let at_clients = slot.lasts || exchanges.iter().any(|spec| spec.model == slot.name);
    // what a selector asks for is a number of a model, which learns nothing by it
    let teaches = |spec: &&ExchangeSpec| at_clients && spec.requested_by.is_none();
    let taught = exchanges.iter().filter(teaches);
    let taught = taught.map(|spec| (slot.name, of_flow(&spec.flow)));
    taught.collect()
}

impl Protocol for Stages {
    fn declare(&self) -> Declaration<'_> {
        let mut slots: Vec<SlotSpec> = Vec::new();
        let mut exchanges = Vec::new();
        let mut measures = Some(Vec::new());
        let (mut begins_with, mut loads, mut pooled) = (None, None, false);
        let mut taught: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
        for (stage, names) in self.named() {
            let declared = stage.protocol.declare();
            begins_with = begins_with.or(declared.begins_with.clone());
            loads = loads.or(declared.loads.clone());
            pooled |= declared.pooled;
            measures = measures.zip(declared.measures.clone()).map(|(all, own)| {
                let own = own.into_iter().map(|of| names.of_measurement(of));
                all.into_iter().chain(own).collect()
            });
            let specs = declared.specs().cloned();
            let mut specs: Vec<_> = specs.map(|spec| names.of_exchange(spec)).collect();
            let own = declared.into_slots();
            let own: Vec<_> = own.into_iter().map(|slot| names.of_slot(slot)).collect();
            let trainers = own.iter().filter(|slot| slot.role == Role::Trainer);
            let trainers: Vec<&SlotSpec> = trainers.collect();
            let known = |(model, _): &&(&str, _)| trainers.iter().any(|slot| slot.name == *model);
            let before: Vec<_> = taught.iter().filter(known).map(|of| of.1.clone()).collect();
            taught.extend(trainers.iter().flat_map(|slot| ways(slot, &specs)));
            for spec in &mut specs {
                spec.flow.taught_before.clone_from(&before);
            }
            exchanges.extend(specs);
            for slot in own {
                match slots.iter_mut().find(|known| known.name == slot.name) {
                    Some(known) => *known = both(known.clone(), slot),
                    None => slots.push(slot),
                }
            }
        }
        let mut all = Declaration::of_specs(slots, exchanges, |_, client, request| {
            self.answer_request(client, request)
        });
        (all.begins_with, all.loads) = (begins_with, loads);
        (all.pooled, all.measures) = (pooled, measures);
        all
    }

    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        for (stage, names) in self.named() {
            if server.0.begin_stage(names.stage, &*stage.protocol)? {
                stage.protocol.lead(server)?;
            }
        }
        Ok(())
    }

    fn suits(&self, kind: TaskKind, has: &dyn Fn(&str) -> bool) -> std::result::Result<(), String> {
        self.named().try_for_each(|(stage, names)| {
            let has = |slot: &str| {
                if names.own.contains(slot) {
                    has(&of_stage(slot, names.stage))
                } else {
                    has(slot)
                }
            };
            let suits = stage.protocol.suits(kind, &has);
            suits.map_err(|why| format!("stage {}: {why}", names.stage))
        })
    }

    fn answer_request(&self, client: &mut Client, request: Request<'_>) -> Result<Answer> {
        let (stage, label) = read_label(request.label);
        let of = self.0.get(stage - 1);
        let of = of.with_context(|| format!("this run has no stage {stage} to answer for"))?;
        if let ClientSide::Here(core) = &mut client.0 {
            core.store.enter(stage);
        }
        of.protocol
            .answer_request(client, Request { label, ..request })
    }
}
