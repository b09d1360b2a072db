//! Settings of a protocol that do not go together.

use crate::check::{CheckedProtocol, Checker};
use crate::sections::DataSection;
use crate::spanned_value::key;
use fl_core::Conflict;
use fl_core::settings::{Step, Value};

impl Checker<'_> {
    /// At the setting at fault, or at the protocol.
    pub fn conflict(&mut self, Conflict { setting, text }: Conflict) {
        let steps = setting.iter().flat_map(|name| name.split('.'));
        let path: Vec<Step> = ["protocol"].into_iter().chain(steps).map(key).collect();
        self.note(&path, text);
    }

    /// Each at the setting at fault, or at the protocol. Says whether there is any.
    pub fn conflicts<D: DataSection>(
        &mut self,
        spec: &Value,
        protocol: Option<&CheckedProtocol>,
        data: Option<&D>,
    ) -> bool {
        let Some(protocol) = protocol.and_then(|p| p.protocol.as_ref()) else {
            return false;
        };
        let slots = spec.get("parts").and_then(Value::as_mapping);
        // an unknown slot is taken to be filled: its own mistake is already reported
        let has = |name: &str| match name {
            "data.public" => data.is_none_or(D::has_public),
            "data.public.labelled" => data.is_none_or(D::has_public_labels),
            slot => slots
                .and_then(|s| s.get(slot))
                .is_some_and(|part| !part.is_null()),
        };
        let conflicts = protocol.conflicts(&has);
        let any = !conflicts.is_empty();
        conflicts
            .into_iter()
            .for_each(|conflict| self.conflict(conflict));
        if let Some(task) = data.and_then(D::task)
            && let Err(why) = protocol.suits(task.kind, &has)
        {
            let text = format!("it does not work for {}: {why}", task.kind);
            self.note(&[key("protocol")], text);
        }
        any
    }
}
