//! A spec that has been read, checked and resolved.

use crate::catalogue::Catalogue;
use crate::check::Checker;
use crate::diagnostics::Mistakes;
use crate::document::Document;
use crate::library::Library;
use crate::sections::{DataSection, Keep, LedgerUse, Top};
use crate::sinks::Sink;
use crate::slots::{in_order, written};
use crate::spanned_value::key;
use fl_core::privacy::Noise;
use fl_core::settings::{Setting, Value};
use fl_core::{
    Budget, BuildContext, CheckedSettings, Checkpoints, Faults, Measured, PartDecl, Parts,
    Protocol, Result, StopWhen,
};
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
    /// The protocol.
    pub protocol: &'static PartDecl,
    /// What it is made from.
    pub protocol_settings: CheckedSettings,
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
    /// Makes the protocol.
    ///
    /// # Errors
    /// When the protocol refuses `make`.
    pub fn make_protocol(&self, make: &BuildContext) -> Result<Box<dyn Protocol>> {
        fl_core::protocol(self.protocol, &self.protocol_settings, make)
    }

    /// [`Spec::resolved`] as text, for the run's folder.
    ///
    /// # Errors
    /// When it cannot be written as YAML.
    pub fn yaml(&self) -> Result<String> {
        fl_core::settings::to_yaml(&self.resolved)
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
        let data = value
            .get("data")
            .and_then(|data| check.settings(&[key("data")], None, |r| D::read(data, r)))
            .and_then(|data| check.files(data));
        let protocol = value
            .get("protocol")
            .and_then(|p| check.protocol(p, data.as_ref()));
        let filled = check.parts(value.get("parts"), protocol.as_ref(), data.as_ref());
        check.budget(&value, protocol.as_ref());
        let measured = protocol.as_ref().and_then(|of| {
            let parts = value.get("parts");
            let has = |slot: &str| {
                parts
                    .and_then(|p| p.get(slot))
                    .is_some_and(|p| !p.is_null())
            };
            let kind = data.as_ref().and_then(D::task).map(|task| task.kind);
            let measured = Measured::of(of.protocol.as_deref()?, &has, kind);
            Some(match data.as_ref().is_some_and(D::own_tests) {
                true => measured.on_own_rows(),
                false => measured,
            })
        });
        check.stop_when(&value, measured.as_ref());
        if let Some(protocol) = &protocol {
            check.alias_parts(&value, protocol, &filled);
            let seed = top.as_ref().map_or(0, |top| top.seed);
            let faults = top.as_ref().map(|top| &top.faults);
            check.answers(&filled, protocol, (data.as_ref(), faults, seed));
        }
        let conflicts = check.conflicts(&value, protocol.as_ref(), data.as_ref());
        // a slot without releases may follow from a setting that is wrong
        if let Some(protocol) = protocol.as_ref().filter(|_| !conflicts) {
            check.unused_mechanisms(&value, protocol);
        }
        if let (Some(top), Some(task)) = (&top, data.as_ref().and_then(D::task)) {
            let sizes = || data.as_ref().and_then(|data| data.client_sizes(top.seed));
            check.build(&filled, protocol.as_ref(), (&task, top.seed), &sizes);
            if let Some(protocol) = &protocol {
                let parts = Parts::new(in_order(filled.clone()));
                let limits = (top.budget.as_ref(), &top.faults);
                check.promises(limits, protocol, &parts, &task);
            }
        }
        let protocol = protocol.and_then(|p| p.part);
        let all = top.zip(data).zip(protocol);
        let notes = std::mem::take(&mut check.notes);
        let foreseen = std::mem::take(&mut check.foreseen);
        let ((mut top, data), protocol) = check.finish(all)?;
        if let Some(ledger) = &mut top.ledger {
            let folder = Path::new(&self.file).parent().unwrap_or(Path::new(""));
            let path = folder.join(&ledger.path);
            let path = std::path::absolute(&path).unwrap_or(path);
            ledger.path = path.to_string_lossy().into_owned();
        }

        let folder = Path::new(&self.file).parent().unwrap_or(Path::new(""));
        top.sinks.iter_mut().for_each(|sink| sink.locate(folder));

        let mut resolved = top.write();
        if let Value::Mapping(map) = &mut resolved {
            map.insert("data".into(), data.write());
            map.insert("protocol".into(), protocol.write());
            map.insert("parts".into(), written(&filled));
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
            match catalogue.libraries.as_slice() {
                [] => map.remove("plugins"),
                all => map.insert("plugins".into(), all.iter().map(Library::write).collect()),
            };
        }
        Ok(Spec {
            name: top.name.0,
            seed: top.seed,
            data,
            protocol: protocol.decl,
            protocol_settings: protocol.settings,
            parts: Arc::new(Parts::new(in_order(filled)).led_by(protocol.decl)),
            evaluate_every: top.evaluate.every,
            stop_when: top.stop_when,
            sinks: top.sinks,
            faults: top.faults,
            checkpoints: top.checkpoint,
            budget: top.budget,
            ledger: top.ledger,
            keep: top.keep,
            noise: top.noise.into(),
            libraries: catalogue.libraries.clone(),
            resolved,
            notes,
            foreseen,
            measured: measured.unwrap_or_default(),
        })
    }
}
