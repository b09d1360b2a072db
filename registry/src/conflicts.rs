//! Settings of a protocol that do not go together.

use crate::check::Checker;
use crate::data_section::DataSection;
use crate::spanned_value::key;
use crate::stages::CheckedStage;
use fl_core::Conflict;
use fl_core::settings::{Step, Value};

impl Checker<'_> {
    /// At the setting at fault, or at the protocol.
    pub fn conflict(&mut self, protocol: &[Step], Conflict { setting, text }: Conflict) {
        let steps = setting.iter().flat_map(|name| name.split('.')).map(key);
        let path: Vec<Step> = protocol.iter().cloned().chain(steps).collect();
        self.note(&path, text);
    }

    /// Each at the setting at fault, or at the protocol. Says whether there is any.
    pub fn conflicts<D: DataSection>(
        &mut self,
        parts: Option<&Value>,
        stage: &CheckedStage,
        data: Option<&D>,
    ) -> bool {
        let Some(protocol) = &stage.of.protocol else {
            return false;
        };
        // an unknown slot is taken to be filled: its own mistake is already reported
        let has = |name: &str| match name {
            "data.public" => data.is_none_or(D::has_public),
            "data.public.labelled" => data.is_none_or(D::has_public_labels),
            slot => stage.gives(parts, slot),
        };
        let conflicts = protocol.conflicts(&has);
        let any = !conflicts.is_empty();
        conflicts
            .into_iter()
            .for_each(|conflict| self.conflict(&stage.of.path, conflict));
        if let Some(task) = data.and_then(D::task)
            && let Err(why) = protocol.suits(task.kind, &has)
        {
            let text = format!("it does not work for {}: {why}", task.kind);
            self.note(&stage.of.path, text);
        }
        any
    }
}
