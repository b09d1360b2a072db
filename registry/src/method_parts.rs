//! Whether a spec has the parts of the method that its protocol is called after.

use crate::aliases::parts;
use crate::check::{CheckedPart, CheckedProtocol, Checker, Fill};
use crate::docs::table::yaml;
use crate::spanned_value::{below, key};
use fl_core::settings::to_json;
use serde_yaml::Mapping;

impl Checker<'_> {
    /// Tells the user of parts that differ from those of the method that the protocol is called
    /// after.
    pub fn alias_parts(&mut self, protocol: &CheckedProtocol, filled: &[Fill]) {
        let decl = protocol.decl;
        let at = below(&protocol.path, key("use"));
        let Some(alias) = decl.alias(&protocol.used) else {
            return;
        };
        let due = parts(alias).into_iter().filter_map(|(slot, due)| {
            let (slot, due) = (slot.as_str()?, due.as_mapping()?);
            let mut of_slot = filled.iter().filter(|fill| fill.slot == slot).peekable();
            let empty = of_slot.peek().is_none();
            let part = if due.is_empty() {
                String::new()
            } else {
                format!(": {}", yaml(&to_json(&due.clone().into())))
            };
            let differs = empty || of_slot.any(|fill| !is(&fill.part, due));
            differs.then(|| format!("`parts.{slot}{part}`"))
        });
        let due: Vec<String> = due.collect();
        if !due.is_empty() {
            let text = format!(
                "`{}` is a method with {}, and this spec has another part there: the run is `{}` with the settings of `{}`",
                alias.name,
                due.join(" and "),
                decl.name,
                alias.name
            );
            self.tell(&at, text);
        }
    }
}

/// Is a part the one that a method has?
fn is(part: &CheckedPart, due: &Mapping) -> bool {
    due.iter().all(|(name, value)| match name.as_str() {
        Some("use") => value.as_str() == Some(part.decl.name),
        Some(name) => part.settings.value.get(name) == Some(value),
        None => false,
    })
}
