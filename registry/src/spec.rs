//! A spec that has been read, checked and resolved.

use crate::answers::asked;
use crate::catalogue::Catalogue;
use crate::check::{Checker, Fill};
use crate::data_section::DataSection;
use crate::diagnostics::Mistakes;
use crate::document::Document;
use crate::library::Library;
use crate::rounds_check::last_round;
use crate::sections::{Keep, LedgerUse, Top};
use crate::sinks::Sink;
use crate::slots::in_order;
use crate::spanned_value::key;
use crate::stages::{self, CheckedStage, Method, SpecStage};
use fl_core::privacy::Noise;
use fl_core::settings::{Setting, Value};
use fl_core::{
    Budget, BuildContext, Checkpoints, ClientId, Fault, Faults, Measured, Parts, Protocol, Result,
    Role, Stages, StopWhen, Stream, Task, Trainer,
};
use serde_yaml::Mapping;
use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

/// Everything that a run needs to know.
#[derive(Clone)]
pub struct Spec<D> {
    /// Names the run and its folder.
    pub name: String,
    /// The seed.
    pub seed: u64,
    /// The host's section.
    pub data: D,
    /// The protocol, or those that follow one another.
    pub stages: Vec<SpecStage>,
    /// The part's name, or those of all stages: `fedavg, then solo`.
    pub protocol_name: String,
    /// As [`Spec::protocol_name`], by the names that the spec uses, such as `fedper`.
    pub method: String,
    /// What fills its slots.
    pub parts: Arc<Parts>,
    /// Evaluate after every `evaluate_every` rounds, and after the last.
    pub evaluate_every: usize,
    /// When to end the rounds early.
    pub stop_when: Option<StopWhen>,
    /// Where the events of the run go while it runs.
    pub sinks: Vec<Sink>,
    /// The policy for answers that cannot be used.
    pub faults: Faults,
    /// When the run is written down.
    pub checkpoints: Checkpoints,
    /// What may be spent.
    pub budget: Option<Budget>,
    /// The ledger over all runs; its path is absolute.
    pub ledger: Option<LedgerUse>,
    /// What the run folder keeps besides results.
    pub keep: Option<Keep>,
    /// Where the noise of releases comes from.
    pub noise: Noise,
    /// The libraries that were loaded for it, each with its hash.
    pub libraries: Vec<Library>,
    /// Whether the command line isolates libraries; `None`: it does not say.
    pub isolates: Option<bool>,
    /// The whole spec with every default filled in; it reads back as the same spec.
    pub resolved: Value,
    /// What a user should know of the spec.
    pub notes: Vec<String>,
    /// What the run will tell the user, as far as it is known before.
    pub foreseen: Vec<String>,
    /// What the run measures, as far as it is known before.
    pub measured: Measured,
}

impl<D> Spec<D> {
    /// What its parts are made with, for this task.
    pub fn part_context(&self, task: &Task) -> BuildContext {
        BuildContext::new(task.clone(), Stream::root(self.seed))
    }

    /// Makes the protocol.
    ///
    /// # Errors
    /// When the protocol refuses `make`.
    pub fn make_protocol(&self, make: &BuildContext) -> Result<Box<dyn Protocol>> {
        stages::make(&self.stages, make)
    }

    /// Returns the slot of the model that a run kept under this name, and its client; `None` if it
    /// fills no slot of a trainer.
    pub fn kept_slot(&self, name: &str) -> Option<(String, Option<ClientId>)> {
        slot_of_kept(name, |slot| {
            let mut parts = self.parts.iter();
            parts.any(|part| part.slot == slot && part.decl.role == Role::Trainer)
        })
    }

    /// Makes the model that a run kept under this name, from its content; `None` if it fills no
    /// slot of a trainer.
    ///
    /// # Errors
    /// If its part cannot be made, or the content is no model of it.
    pub fn kept_model(
        &self,
        make: &BuildContext,
        name: &str,
        bytes: &[u8],
    ) -> Result<Option<Box<dyn Trainer>>> {
        let Some((slot, client)) = self.kept_slot(name) else {
            return Ok(None);
        };
        let mut model: Box<dyn Trainer> = self.parts.build(Role::Trainer, &slot, client, make)?;
        model.load(bytes)?;
        Ok(Some(model))
    }

    /// [`Spec::resolved`] as text, for the run's folder.
    ///
    /// # Errors
    /// When it cannot be written as YAML.
    pub fn yaml(&self) -> Result<String> {
        fl_core::settings::to_yaml(&self.resolved)
    }
}

/// Returns the slot of the model that a run kept under this name, and its client. The name is
/// `SLOT`, for a client's own `SLOT-CLIENT`, and `centre-N` for one of several of slot `model`, or
/// `centre-N of stage S` if that slot is of a stage alone.
pub fn slot_of_kept(
    name: &str,
    is_slot: impl Fn(&str) -> bool,
) -> Option<(String, Option<ClientId>)> {
    let numbered = |name: &str| {
        let (slot, number) = name.rsplit_once('-')?;
        Some((slot.to_string(), number.parse().ok()?))
    };
    let (stage, plain) = match Stages::owner(name) {
        Some((stage, plain)) => (Some(stage), plain),
        None => (None, name),
    };
    let centres = stage.map_or("model".into(), |stage| Stages::slot("model", stage));
    match (numbered(name), numbered(plain)) {
        _ if is_slot(name) => Some((name.into(), None)),
        (Some((slot, client)), _) if is_slot(&slot) => Some((slot, Some(client))),
        (_, Some((centre, _))) if centre == "centre" && is_slot(&centres) => Some((centres, None)),
        _ => None,
    }
}

/// A key of earlier specs.
pub(crate) const LEVEL: &str = "plugins-trust";

/// What to write in its place.
pub const NO_LEVELS: &str = "fl has no index of plugins and no levels of trust; leave this out, and \
    pin each plugin by `sha256`, or all by `fl lock`";

impl Document {
    /// Checks the spec with these parts and fills in every default.
    ///
    /// # Errors
    /// Every mistake of the spec at once.
    pub fn read<D: DataSection>(&self, catalogue: &Catalogue) -> Result<Spec<D>, Mistakes> {
        let mut check = Checker::new(self, catalogue)?;
        let mut value = check.root.value();
        if self.has(LEVEL) {
            check.note_key(&[key(LEVEL)], NO_LEVELS);
            value.as_mapping_mut().map(|map| map.shift_remove(LEVEL));
        }

        let top = check.settings(&[], None, |r| Top::read(&value, r));
        let plugins = Some(key("plugins"));
        let mut mistakes = check.mistakes.iter();
        check.wrong_plugins = mistakes.any(|mistake| mistake.path.first() == plugins.as_ref());
        let data = value
            .get("data")
            .and_then(|data| check.settings(&[key("data")], None, |r| D::read(data, r)))
            .and_then(|data| check.files(data));
        let method = check.method(&value, data.as_ref());
        let protocol = method.as_ref().map(Method::whole);
        let parts = value.get("parts");
        let mut filled = check.parts(parts, protocol, data.as_ref());
        if let Some(method) = &method {
            check.own_parts(method, data.as_ref(), &mut filled);
        }
        check.budget(&value, protocol);
        let own = data.as_ref();
        let measured = method
            .as_ref()
            .and_then(|method| measured(method, parts, own));
        check.stop_when(&value, measured.as_ref());
        if let (Some(protocol), Some(measured)) = (protocol, &measured) {
            check.unmeasured(protocol, measured);
        }
        let keeps = top
            .as_ref()
            .is_some_and(|top| top.keep == Some(Keep::Messages));
        if let Some(protocol) = protocol.filter(|_| keeps) {
            check.unkept(protocol);
        }
        check.together((top.as_ref(), own), method.as_ref(), (parts, &filled));
        let written = method.as_ref().and_then(|method| method.write(&filled));
        let stages = method.as_ref().and_then(Method::spec);
        let protocol_name = protocol.map_or(String::new(), |of| of.name.clone());
        let used = method.as_ref().map_or(String::new(), Method::used);
        let all = top.zip(data).zip(written.zip(stages));
        let notes = std::mem::take(&mut check.notes);
        let foreseen = std::mem::take(&mut check.foreseen);
        let ((mut top, data), (written, stages)) = check.finish(all, &D::value_type())?;
        let folder = Path::new(&self.file).parent().unwrap_or(Path::new(""));
        if let Some(ledger) = &mut top.ledger {
            let path = folder.join(&ledger.path);
            let path = std::path::absolute(&path).unwrap_or(path);
            ledger.path = path.to_string_lossy().into_owned();
        }
        top.sinks.iter_mut().for_each(|sink| sink.locate(folder));

        let resolved = resolved(&top, &data, written, &catalogue.libraries);
        Ok(Spec {
            name: top.name.0,
            seed: top.seed,
            data,
            parts: Arc::new(
                Parts::new(in_order(filled)).led_by(stages.iter().map(|s| s.protocol).collect()),
            ),
            stages,
            protocol_name,
            method: used,
            evaluate_every: top.evaluate.every,
            stop_when: top.stop_when,
            sinks: top.sinks,
            faults: top.faults,
            checkpoints: top.checkpoint,
            budget: top.budget,
            ledger: top.ledger,
            keep: top.keep,
            noise: top.noise,
            libraries: catalogue.libraries.clone(),
            isolates: catalogue.isolates(),
            resolved,
            notes,
            foreseen,
            measured: measured.unwrap_or_default(),
        })
    }
}

/// What the run measures, as far as it is known before.
fn measured<D: DataSection>(
    method: &Method,
    parts: Option<&Value>,
    data: Option<&D>,
) -> Option<Measured> {
    let (of, has) = (method.whole(), |slot: &str| method.gives(parts, slot));
    let kind = data.and_then(D::task).map(|task| task.kind);
    let measured = Measured::of(of.protocol.as_deref()?, &has, kind);
    Some(if data.is_some_and(D::own_tests) {
        measured.on_own_rows()
    } else {
        measured
    })
}

impl Checker<'_> {
    /// Checks what follows from several sections.
    fn together<D: DataSection>(
        &mut self,
        (top, data): (Option<&Top>, Option<&D>),
        method: Option<&Method>,
        (parts, filled): (Option<&Value>, &[Fill]),
    ) {
        let stages = method.map_or(&[][..], |method| &method.stages);
        self.idle_rows(parts, stages, data);
        if let Some(top) = top {
            let (rounds, clients) = (last_round(stages), data.map(D::clients));
            self.injected(&top.faults, clients, rounds);
            let answers = |stage: &CheckedStage| {
                let (.., asked) = asked(&stage.sees(filled), &stage.of, top.seed);
                asked.into_iter().map(|q| q.answer).collect::<Vec<_>>()
            };
            let answers: Vec<_> = stages.iter().flat_map(answers).collect();
            self.certain(&top.faults, clients, rounds, &answers);
            self.idle_quorum(&top.faults, clients);
            // stages refuse the rule
            if let (Some(rule), [_]) = (&top.stop_when, stages) {
                self.idle_rule(rule, top.evaluate.every, rounds);
            }
        }
        let mut conflicts = false;
        let seed = top.map_or(0, |top| top.seed);
        // the data are loaded once, and only if something asks
        let known = OnceCell::new();
        let load = || data.and_then(|data| data.sizes(seed));
        let sizes = || known.get_or_init(load).clone();
        for stage in stages {
            let seen = stage.sees(filled);
            self.alias_parts(&stage.of, &seen);
            let faults = top.map(|top| &top.faults);
            self.answers(&seen, &stage.of, (data, faults, seed), &sizes);
            conflicts |= self.conflicts(parts, stage, data);
        }
        // a slot without releases may follow from a setting that is wrong
        if let Some(method) = method.filter(|_| !conflicts) {
            let given = |slot: &str| method.gives(parts, slot);
            self.unused_mechanisms(&[key("parts")], &given, method.whole());
            for stage in stages {
                let own = |slot: &str| stage.owns(slot);
                self.unused_mechanisms(&stage.path(), &own, &stage.of);
            }
        }
        if let (Some(top), Some(task)) = (top, data.and_then(D::task)) {
            let drops = top.faults.on_error != Fault::Fail;
            let words = data.and_then(D::vocabulary);
            let make = (&task, words, top.seed, drops);
            for stage in stages {
                let seen = stage.sees(filled);
                self.build(&seen, Some(&stage.of), make, &sizes);
            }
            if stages.is_empty() {
                self.build(filled, None, make, &sizes);
            }
            if let Some(protocol) = method.map(Method::whole) {
                let parts = Parts::new(in_order(filled.to_vec()));
                let limits = (top.budget.as_ref(), &top.faults);
                self.promises(limits, protocol, &parts, &task);
            }
        }
    }
}

/// The whole spec with every default filled in.
fn resolved<D: DataSection>(top: &Top, data: &D, written: Mapping, libraries: &[Library]) -> Value {
    let mut resolved = top.write();
    if let Value::Mapping(map) = &mut resolved {
        map.insert("data".into(), data.write());
        map.shift_remove("stages");
        if written.contains_key("stages") {
            map.shift_remove("protocol");
        }
        map.extend(written);
        // in the order of earlier versions, which the keys of kept runs depend on
        for (key, given) in [
            ("stop-when", top.stop_when.is_some()),
            ("sinks", !top.sinks.is_empty()),
            ("ledger", top.ledger.is_some()),
            ("budget", top.budget.is_some()),
            ("keep", top.keep.is_some()),
        ] {
            if !given {
                map.shift_remove(key);
            }
        }
        // those of the command line too, and from wherever the run goes on
        match libraries {
            [] => map.remove("plugins"),
            all => map.insert("plugins".into(), all.iter().map(Library::write).collect()),
        };
    }
    resolved
}
