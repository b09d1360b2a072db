//! What a spec gives and its run does not use.

use crate::catalogue::any_make;
use crate::check::{CheckedProtocol, Checker, Fill, is_about_public};
use crate::data_section::DataSection;
use crate::spanned_value::{Node, below, key};
use crate::stages::CheckedStage;
use fl_core::settings::{Value, ValueType, show};
use fl_core::{AnyAggregator, Measured, PartDecl, TRAINING_LOSS, metrics};

/// The setting by which many protocols test the clients' own models.
const HIDES: &str = "evaluate-clients";

/// Does a part with these settings ask clients for their numbers of examples?
fn asks_for_counts(part: &PartDecl, settings: &Value) -> Option<bool> {
    let made = part.make::<Box<dyn AnyAggregator>>(settings, &any_make());
    let needs = made.ok()?.needs();
    Some(needs.samples || needs.class_counts)
}

/// The words of a setting that can stand alone.
fn words(accepts: &ValueType) -> Vec<&str> {
    match accepts.plain().0 {
        ValueType::Choice { words, .. } => {
            let plain = words.iter().filter(|word| word.value.is_none());
            plain.map(|word| &*word.name).collect()
        }
        _ => Vec::new(),
    }
}

/// Can a run of this protocol read public samples? Of one that is loaded nothing is known.
fn reads_public(of: &CheckedProtocol, has: &dyn Fn(&str) -> bool) -> bool {
    let Some(protocol) = &of.protocol else {
        return true;
    };
    let with = |given: bool| {
        let has = |name: &str| match name {
            "data.public" | "data.public.labelled" => given,
            slot => has(slot),
        };
        protocol.conflicts(&has)
    };
    let loaded = of.decl.origin != of.decl.package;
    loaded || of.asked.iter().any(is_about_public) || with(true) != with(false)
}

impl Checker<'_> {
    /// Tells of public samples, and of rows set aside, that no stage uses.
    pub fn idle_rows<D: DataSection>(
        &mut self,
        parts: Option<&Value>,
        stages: &[CheckedStage],
        data: Option<&D>,
    ) {
        if let Some((name, text)) = data.and_then(D::sets_aside) {
            self.tell(&[key("data"), key(name)], text);
        }
        let Some(takes) = data.and_then(D::takes_public) else {
            return;
        };
        let reads =
            |stage: &CheckedStage| reads_public(&stage.of, &|slot| stage.gives(parts, slot));
        if stages.is_empty() || stages.iter().any(reads) {
            return;
        }
        let names: Vec<String> = stages.iter().map(|s| format!("`{}`", s.of.name)).collect();
        let text = format!(
            "{takes}, and {} uses no public samples: leave it out, unless this run is to have the rows of another that uses them",
            names.join(", then ")
        );
        self.tell(&[key("data"), key("public")], text);
    }

    /// Tells of `keep: messages` where no aggregator gets any.
    pub fn unkept(&mut self, of: &CheckedProtocol) {
        if of.protocol.is_some() && of.asked.iter().all(|asked| asked.aggregator.is_none()) {
            let text = format!(
                "has no effect: protocol `{}` combines answers itself, or asks for none, so there is no aggregation that `fl verify` could repeat",
                of.name
            );
            self.tell(&[key("keep")], text);
        }
    }

    /// Tells of a run that measures nothing.
    pub fn unmeasured(&mut self, of: &CheckedProtocol, measured: &Measured) {
        let tells = |name: &str| name != TRAINING_LOSS && metrics::better(name).is_some();
        if measured.names().any(tells) {
            return;
        }
        let hidden = of
            .part
            .as_ref()
            .and_then(|part| part.settings.value.get(HIDES));
        let shown = match hidden {
            Some(Value::Bool(false)) => {
                format!(": set `{HIDES}: true`, or fill the slot of a model at the server")
            }
            _ => String::new(),
        };
        let text = format!(
            "with these settings and parts protocol `{}` tests no model, so the run measures no score{shown}",
            of.name
        );
        self.tell(&of.path, text);
    }

    /// Tells of a setting that weighs clients in `fill`, which gets their sum as one message. It is
    /// no mistake: a resolved spec has it as a default.
    pub fn idle_weights(&mut self, fill: &Fill, protocol: &CheckedProtocol) {
        let part = &fill.part;
        if asks_for_counts(part.decl, &part.settings.value) != Some(true) {
            return;
        }
        let mut given = Some(&self.root);
        for step in &fill.path {
            given = given.and_then(|node| node.below(step));
        }
        let given = given.map(Node::value);
        let fields = (part.decl.describe)().fields;
        for field in &fields {
            let Some(value) = given.as_ref().and_then(|given| given.get(&field.name)) else {
                continue;
            };
            let without = |word: &&str| {
                let mut other = part.settings.value.clone();
                let map = other.as_mapping_mut();
                map.map(|map| map.insert(field.name.as_str().into(), (*word).into()));
                asks_for_counts(part.decl, &other) == Some(false)
            };
            if let Some(word) = words(&field.accepts).into_iter().find(without) {
                let text = format!(
                    "{} has no effect: protocol `{}` adds the clients' answers up, each with the same weight, and gives their sum as one message: write `{word}`",
                    show(value),
                    protocol.name
                );
                self.tell(&below(&fill.path, key(&field.name)), text);
            }
        }
    }
}
