//! The protocol of a spec, or its stages: protocols that follow one another, each with parts of its
//! own.

use crate::catalogue::any_make;
use crate::check::{CheckedPart, CheckedProtocol, Checker, Fill};
use crate::data_section::DataSection;
use crate::slots::written;
use crate::spanned_value::{below, key};
use fl_core::settings::{Step, Value, show};
use fl_core::{
    BuildContext, CheckedSettings, Declaration, PartDecl, Protocol, Result, Role, SLOTS_OF_RUN,
    SlotSpec, Stage, Stages,
};
use serde_yaml::Mapping;
use std::collections::BTreeSet;

/// One protocol of a run.
#[derive(Clone)]
pub struct SpecStage {
    /// The protocol.
    pub protocol: &'static PartDecl,
    /// What it is made from.
    pub settings: CheckedSettings,
    /// The slots that hold a part of this stage alone.
    pub own: BTreeSet<String>,
}

/// Makes the protocol of a run: the only one, or the stages.
///
/// # Errors
/// When a protocol refuses `make`.
pub(crate) fn make(stages: &[SpecStage], make: &BuildContext) -> Result<Box<dyn Protocol>> {
    let of = |stage: &SpecStage| fl_core::protocol(stage.protocol, &stage.settings, make);
    if let [only] = stages
        && only.own.is_empty()
    {
        return of(only);
    }
    let all = stages.iter().map(|stage| {
        Ok(Stage {
            protocol: of(stage)?,
            own: stage.own.clone(),
        })
    });
    Ok(Box::new(Stages::new(all.collect::<Result<_>>()?)))
}

/// One protocol of a spec.
pub(crate) struct CheckedStage {
    /// Counted from 1; 0 if the spec has no stages.
    pub number: usize,
    pub of: CheckedProtocol,
    /// The parts of its own, as they are given. What is null is empty in this stage.
    parts: Mapping,
    own: BTreeSet<String>,
}

impl CheckedStage {
    /// The parts in its slots, by the names that it knows.
    pub fn sees(&self, filled: &[Fill]) -> Vec<Fill> {
        let has = |slot: &str| self.of.slots.iter().any(|s| s.name == slot);
        let seen = filled.iter().filter_map(|fill| {
            let own = self
                .own
                .iter()
                .find(|own| Stages::slot(own, self.number) == fill.slot);
            match own {
                Some(own) => Some(Fill {
                    slot: own.clone(),
                    ..fill.clone()
                }),
                None => {
                    let shared = !self.own.contains(&fill.slot) && has(&fill.slot);
                    (self.number == 0 || shared).then(|| fill.clone())
                }
            }
        });
        seen.collect()
    }

    /// Where the parts of its own stand.
    pub fn path(&self) -> [Step; 3] {
        let at = self.number.saturating_sub(1);
        [key("stages"), Step::Item(at), key("parts")]
    }

    /// Does it alone have a part in this slot?
    pub fn owns(&self, slot: &str) -> bool {
        self.parts.get(slot).is_some_and(|part| !part.is_null())
    }

    /// Is something given for this slot, in a spec with these parts for all stages?
    pub fn gives(&self, all: Option<&Value>, slot: &str) -> bool {
        let shared = || all.and_then(|all| all.get(slot));
        let given = self.parts.get(slot).or_else(shared);
        given.is_some_and(|part| !part.is_null())
    }

    fn spec(&self) -> Option<SpecStage> {
        let CheckedPart { decl, settings } = self.of.part.clone()?;
        Some(SpecStage {
            protocol: decl,
            settings,
            own: self.own.clone(),
        })
    }
}

/// All that a spec says of its method.
pub(crate) struct Method {
    pub stages: Vec<CheckedStage>,
    /// All stages as one protocol, if the spec has stages.
    together: Option<CheckedProtocol>,
}

impl Method {
    /// The protocol of the whole run. Its slots are those that `parts` fills.
    pub fn whole(&self) -> &CheckedProtocol {
        self.together.as_ref().unwrap_or(&self.stages[0].of)
    }

    /// The names that the spec uses for its protocols.
    pub fn used(&self) -> String {
        let names: Vec<&str> = self.stages.iter().map(|stage| &*stage.of.used).collect();
        names.join(", then ")
    }

    /// The stages of a spec without mistakes.
    pub fn spec(&self) -> Option<Vec<SpecStage>> {
        self.stages.iter().map(CheckedStage::spec).collect()
    }

    /// Is something given for this slot of the whole run?
    pub fn gives(&self, all: Option<&Value>, slot: &str) -> bool {
        let own = |stage: &CheckedStage| {
            let mut own = stage.own.iter().filter(|own| stage.owns(own));
            own.any(|own| Stages::slot(own, stage.number) == slot)
        };
        let shared = all.and_then(|all| all.get(slot));
        shared.is_some_and(|part| !part.is_null()) || self.stages.iter().any(own)
    }

    /// The sections `protocol` and `parts`, or `stages` and `parts`, with every default filled in.
    pub fn write(&self, filled: &[Fill]) -> Option<Mapping> {
        let mut map = Mapping::new();
        if self.together.is_none() {
            map.insert("protocol".into(), self.stages[0].of.part.as_ref()?.write());
            map.insert("parts".into(), written(filled).into());
            return Some(map);
        }
        let (shared, own): (Vec<_>, Vec<_>) = filled
            .iter()
            .cloned()
            .partition(|f| f.path[0] == key("parts"));
        let stage = |stage: &CheckedStage| {
            let mut map = Mapping::new();
            map.insert("protocol".into(), stage.of.part.as_ref()?.write());
            if !stage.own.is_empty() {
                let mut parts = written(&stage.sees(&own));
                let empty = stage.own.iter().filter(|slot| !stage.owns(slot));
                parts.extend(empty.map(|slot| (slot.as_str().into(), Value::Null)));
                map.insert("parts".into(), parts.into());
            }
            Some(Value::from(map))
        };
        let stages: Option<Vec<Value>> = self.stages.iter().map(stage).collect();
        map.insert("stages".into(), stages?.into());
        map.insert("parts".into(), written(&shared).into());
        Some(map)
    }
}

impl Checker<'_> {
    /// The protocol of a spec, or its stages.
    pub fn method<D: DataSection>(&mut self, spec: &Value, data: Option<&D>) -> Option<Method> {
        let protocol = spec.get("protocol").filter(|value| !value.is_null());
        let stages = spec.get("stages").filter(|value| !value.is_null());
        match (protocol, stages) {
            (None, None) => {
                let text = "is missing (mapping): a spec has a `protocol`, or `stages`";
                self.note(&[key("protocol")], text);
                None
            }
            (Some(_), Some(_)) => {
                let text = "does not go with `protocol`: make that the first stage";
                self.note_key(&[key("stages")], text);
                None
            }
            (Some(value), None) => {
                let of = self.protocol(value, &[key("protocol")], data)?;
                let only = CheckedStage {
                    number: 0,
                    of,
                    parts: Mapping::new(),
                    own: BTreeSet::new(),
                };
                Some(Method {
                    stages: vec![only],
                    together: None,
                })
            }
            (None, Some(value)) => {
                // whatever is no list of stages has been noted with the top level
                let all = value.as_sequence()?;
                if all.is_empty() {
                    let text = "must have a stage: leave this out and give a `protocol`";
                    self.note(&[key("stages")], text);
                    return None;
                }
                let read = all.iter().zip(1..);
                let read: Vec<_> = read
                    .map(|(value, number)| self.stage(value, number, data))
                    .collect();
                let stages: Vec<CheckedStage> = read.into_iter().collect::<Option<_>>()?;
                self.fit_together(&stages, spec.get("parts"));
                let together = together(&stages);
                Some(Method {
                    stages,
                    together: Some(together),
                })
            }
        }
    }

    fn stage<D: DataSection>(
        &mut self,
        value: &Value,
        number: usize,
        data: Option<&D>,
    ) -> Option<CheckedStage> {
        let path = vec![key("stages"), Step::Item(number - 1)];
        let at = below(&path, key("protocol"));
        let protocol = value.get("protocol")?;
        let parts = match value.get("parts") {
            None | Some(Value::Null) => Mapping::new(),
            Some(Value::Mapping(parts)) => parts.clone(),
            Some(other) => {
                let text = format!("must be a mapping from slots to parts, got {}", show(other));
                self.note(&below(&path, key("parts")), text);
                Mapping::new()
            }
        };
        let of = self.protocol(protocol, &at, data)?;
        let names = parts.keys().filter_map(Value::as_str).map(String::from);
        Some(CheckedStage {
            number,
            of,
            own: names.collect(),
            parts,
        })
    }

    /// The parts that stages have of their own.
    pub fn own_parts<D: DataSection>(
        &mut self,
        method: &Method,
        data: Option<&D>,
        filled: &mut Vec<Fill>,
    ) {
        for stage in &method.stages {
            let path = stage.path();
            for name in &stage.own {
                let at = below(&path, key(name));
                if SLOTS_OF_RUN.contains(&&**name) {
                    let text = "is for the whole run: put it into the spec's `parts`";
                    self.note_key(&at, text);
                    continue;
                }
                if !stage.owns(name) {
                    self.emptied(&at, name, &stage.of);
                    continue;
                }
                let mut own = Vec::new();
                let given = (&**name, &stage.parts[&**name]);
                self.part(&at, given, Some(&stage.of), data, &mut own);
                filled.extend(own.into_iter().map(|fill| Fill {
                    slot: Stages::slot(name, stage.number),
                    ..fill
                }));
            }
        }
    }

    /// Says what a stage does not go on with of a model that `before` had, stage by stage.
    fn hand_on(&mut self, stage: &CheckedStage, slot: &SlotSpec, before: &[(usize, &SlotSpec)]) {
        let Some((number, last)) = before.last() else {
            return;
        };
        if last.several {
            let text = format!(
                "stage {number} ends with several models of slot `{}`, so this stage has none to go on with: make that stage the last, or give this one a model of its own (`parts`)",
                slot.name
            );
            self.note_use(&stage.of.path, text, None);
        }
        let kept = before.iter().find(|(_, same)| same.lasts && same.shown);
        if let Some((number, _)) = kept.filter(|_| slot.from_server) {
            let text = format!(
                "`{}` begins with the server's model at all clients: what they kept of slot `{}` in stage {number} is lost",
                stage.of.used, slot.name
            );
            self.tell(&stage.of.path, text);
        }
        let clients_have_it = last.lasts && last.shown;
        if last.server && !last.several && !clients_have_it && slot.lasts && !slot.alike {
            let text = format!(
                "`{}` does not begin with the server's model: a client goes on with its own last model of slot `{}`, or with an untrained one; a stage `solo` with `from-server: true` before this one sends the server's to all clients",
                stage.of.used, slot.name
            );
            self.tell(&stage.of.path, text);
        }
    }

    /// Refuses stages that cannot follow one another, in a spec with these parts for all stages.
    fn fit_together(&mut self, stages: &[CheckedStage], all: Option<&Value>) {
        let made = |stage: &CheckedStage| Some(stage.of.protocol.as_ref()?.pools_data());
        let first = made(&stages[0]);
        for stage in &stages[1..] {
            let Some(protocol) = &stage.of.protocol else {
                continue;
            };
            if first.is_some_and(|first| first != protocol.pools_data()) {
                let text = format!(
                    "one of `{}` and `{}` trains on all clients' data in one place, so they cannot be stages of one run",
                    stages[0].of.name, stage.of.name
                );
                self.note_use(&stage.of.path, text, None);
            }
            let Declaration {
                loads, begins_with, ..
            } = protocol.declare();
            let setting = loads.map(|loads| loads.setting);
            if setting.is_some() || begins_with.is_some() {
                let at = setting.map_or(stage.of.path.clone(), |s| below(&stage.of.path, key(s)));
                self.note(&at, "a later stage begins with what the one before it has learnt: leave this out, or give it to the first stage");
            }
            for slot in &stage.of.slots {
                if stage.own.contains(slot.name) && !stage.owns(slot.name) {
                    continue;
                }
                let earlier = stages.iter().take_while(|s| s.number < stage.number);
                let has = |s: &CheckedStage| s.of.slots.iter().any(|o| o.name == slot.name);
                let before = earlier.clone().find(|s| has(s)).map(|s| s.number);
                let own = slot.role == Role::Trainer && stage.owns(slot.name);
                if let Some(before) = before.filter(|_| own) {
                    let text = format!(
                        "a model of stage {} alone: it begins anew, and not with what stage {before} has learnt; leave it out to go on",
                        stage.number
                    );
                    self.tell(&below(&stage.path(), key(slot.name)), text);
                }
                let mut earlier = earlier.filter(|s| !s.own.contains(slot.name));
                if slot.role == Role::Trainer && !own {
                    let before = earlier.clone().filter_map(|s| {
                        let same = s.of.slots.iter().find(|same| same.name == slot.name)?;
                        Some((s.number, same))
                    });
                    self.hand_on(stage, slot, &before.collect::<Vec<_>>());
                }
                let other = earlier.find_map(|s| {
                    let same = s.of.slots.iter().find(|other| other.name == slot.name)?;
                    // what is empty in both stages fits both
                    let filled = stage.gives(all, slot.name) || !(slot.optional && same.optional);
                    (filled && differ(same, slot)).then_some((s.number, same))
                });
                let Some((number, same)) = other.filter(|_| !stage.own.contains(slot.name)) else {
                    continue;
                };
                let text = format!(
                    "its slot `{}` takes {}, and that of stage {number} takes {}: give one of the two stages `parts` of its own",
                    slot.name,
                    crate::catalogue::takes(slot),
                    crate::catalogue::takes(same)
                );
                self.note_use(&stage.of.path, text, None);
            }
        }
    }
}

/// Do two slots of one name take different parts?
fn differ(one: &SlotSpec, other: &SlotSpec) -> bool {
    one.role != other.role || one.signature != other.signature
}

/// All stages as one protocol, as far as their settings are right.
fn together(stages: &[CheckedStage]) -> CheckedProtocol {
    let specs: Option<Vec<SpecStage>> = stages.iter().map(CheckedStage::spec).collect();
    let protocol = specs.and_then(|specs| make(&specs, &any_make()).ok());
    let names: Vec<&str> = stages.iter().map(|stage| &*stage.of.name).collect();
    let mut slots: Vec<SlotSpec> = Vec::new();
    for stage in stages {
        for slot in stage
            .of
            .slots
            .iter()
            .filter(|s| !stage.own.contains(s.name) || SLOTS_OF_RUN.contains(&s.name))
        {
            match slots.iter_mut().find(|known| known.name == slot.name) {
                Some(known) => known.optional &= slot.optional,
                None => slots.push(slot.clone()),
            }
        }
    }
    let asked = protocol.as_ref().map_or(Vec::new(), |p| p.exchanges());
    if let Some(protocol) = &protocol {
        // with the requirements of all stages
        let of_all = protocol.slots();
        slots.iter_mut().for_each(|slot| {
            let known = of_all.iter().find(|known| known.name == slot.name);
            *slot = known.unwrap_or(slot).clone();
        });
    }
    CheckedProtocol {
        path: vec![key("stages")],
        name: names.join(", then "),
        used: String::new(),
        decl: stages[0].of.decl,
        part: stages[0].of.part.clone(),
        slots,
        protocol,
        asked,
    }
}
