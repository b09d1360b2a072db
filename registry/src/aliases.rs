//! Names of methods that stand for a part with other settings.

use fl_core::settings::{Field, Value};
use fl_core::{Alias, PartDecl};
use serde_yaml::Mapping;

/// The settings that an alias stands for.
pub(crate) fn preset(alias: &Alias) -> Mapping {
    serde_yaml::from_str(alias.preset).unwrap_or_default()
}

/// The parts of the method, by slot.
pub(crate) fn parts(alias: &Alias) -> Mapping {
    serde_yaml::from_str(alias.parts).unwrap_or_default()
}

/// The settings of a part under an alias: as those of the part, with the alias's defaults.
pub(crate) fn fields(part: &PartDecl, alias: &Alias) -> Vec<Field> {
    let given = preset(alias);
    let read = part.read(&Value::Mapping(given.clone()));
    let full = read.map_or(Value::Null, |read| read.value);
    let own = |mut field: Field| {
        let value = full
            .get(&field.name)
            .filter(|_| given.contains_key(&field.name));
        if let Some(value) = value {
            field.default = Some(value.clone());
        }
        field
    };
    (part.describe)().fields.into_iter().map(own).collect()
}
