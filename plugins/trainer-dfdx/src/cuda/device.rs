//! [`Device`]: where a network runs, as a spec names it.

use fl_core::settings::{Reader, Setting, Value, ValueType};

/// A processor or a card. Results do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// One thread of the processor.
    #[default]
    Cpu,
    /// An NVIDIA card, by its number.
    Cuda(usize),
}

impl Setting for Device {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let text = value.as_str().unwrap_or_default();
        match (text, text.strip_prefix("cuda:").map(str::parse)) {
            ("cpu", _) => Some(Self::Cpu),
            ("cuda", _) => Some(Self::Cuda(0)),
            (_, Some(Ok(index))) => Some(Self::Cuda(index)),
            _ => {
                let found = fl_core::settings::show(value);
                reader.wrong(format!(
                    "must be cpu, cuda, or cuda:1 and so on, got {found}"
                ))
            }
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Cpu => "cpu".into(),
            Self::Cuda(0) => "cuda".into(),
            Self::Cuda(index) => format!("cuda:{index}").into(),
        }
    }

    fn value_type() -> ValueType {
        ValueType::Text(Some("^(cpu|cuda(:[0-9]+)?)$".into()))
            .described("`cpu`, `cuda` or `cuda:1` ..")
    }
}
