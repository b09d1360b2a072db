//! [`NetSpec`]: a network as a spec says it.

use super::layers::Layer;
use super::presets;
use fl_core::settings::{Reader, Setting, Value, ValueType, Word};

/// A network: the name of a known one, or its layers.
#[derive(Clone, Debug, PartialEq)]
pub enum NetSpec {
    /// One of [`presets::NAMES`].
    Named(String),
    /// Layer by layer.
    Layers(Vec<Layer>),
}

impl Setting for NetSpec {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let Some(name) = value.as_str() else {
            return Vec::read(value, reader).map(Self::Layers);
        };
        if presets::layers(name).is_some() {
            return Some(Self::Named(name.to_string()));
        }
        let near = fl_core::settings::nearest(name, presets::NAMES.iter().map(|(n, _)| *n));
        let hint = near
            .map(|n| format!("; did you mean `{n}`?"))
            .unwrap_or(";".into());
        let known: Vec<&str> = presets::NAMES.iter().map(|(n, _)| *n).collect();
        reader.wrong(format!(
            "no network is called `{name}`{hint} known: {}; or give a list of layers",
            known.join(", ")
        ))
    }
    fn write(&self) -> Value {
        match self {
            Self::Named(name) => name.write(),
            Self::Layers(layers) => layers.write(),
        }
    }
    fn value_type() -> ValueType {
        let named = presets::NAMES.iter().map(|(name, doc)| Word {
            name: (*name).into(),
            doc: (*doc).into(),
            value: None,
        });
        ValueType::Choice {
            doc: String::new(),
            words: named.collect(),
            others: vec![Vec::<Layer>::value_type()],
        }
        .described("name of a network, or list of layers")
    }
}
