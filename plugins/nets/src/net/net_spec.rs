//! [`NetSpec`]: a network as a spec says it.

use super::layers::Layer;
use super::presets::{KnownNet, known};
use fl_core::settings::{Reader, Setting, Value, ValueType, nearest};

/// A network: the name of a known one, or its layers.
#[derive(Clone, Debug, PartialEq)]
pub enum NetSpec {
    /// By its name.
    Named(KnownNet),
    /// Layer by layer.
    Layers(Vec<Layer>),
}

impl Setting for NetSpec {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let Some(name) = value.as_str() else {
            return Vec::read(value, reader).map(Self::Layers);
        };
        if let Some(net) = KnownNet::named(name) {
            return Some(Self::Named(net));
        }
        let known = known();
        let known: Vec<&str> = known.iter().map(|word| &*word.name).collect();
        let near = nearest(name, known.iter().copied());
        let hint = near
            .map(|n| format!("; did you mean `{n}`?"))
            .unwrap_or(";".into());
        reader.wrong(format!(
            "no network is called `{name}`{hint} known: {}; or give a list of layers",
            known.join(", ")
        ))
    }
    fn write(&self) -> Value {
        match self {
            Self::Named(net) => net.write(),
            Self::Layers(layers) => layers.write(),
        }
    }
    fn value_type() -> ValueType {
        ValueType::Choice {
            doc: String::new(),
            words: known(),
            others: vec![Vec::<Layer>::value_type()],
        }
        .described("name of a network, or list of layers")
    }
}
