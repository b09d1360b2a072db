//! [`Device`]: where a network runs, as a spec names it.

use super::Card;
use fl_core::Result;
use fl_core::settings;
use fl_core::settings::{Reader, Setting, Value, ValueType, above};

/// A processor or a card. Results do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// One thread of the processor.
    #[default]
    Cpu,
    /// An NVIDIA card.
    Cuda {
        /// Its number.
        index: usize,
        /// The most bytes that all models on it hold together.
        memory: Option<u64>,
    },
}

impl Device {
    /// Checks that this machine has it and its driver.
    ///
    /// # Errors
    /// What is missing.
    pub fn ensure_there(&self) -> Result<()> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda { index, .. } => Card::ensure_there(*index),
        }
    }
}

settings! {
    /// An NVIDIA card with a bound on its memory.
    pub struct CardSettings {
        /// Number of the card.
        cuda: usize = 0;
        /// The most memory that all models of this program on the card may hold together, in GiB.
        memory: f64, in above(0.0);
    }
}

const GIB: f64 = (1u64 << 30) as f64;

impl Setting for Device {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        if value.is_mapping() {
            let card = CardSettings::read(value, reader)?;
            return Some(Self::Cuda {
                index: card.cuda,
                memory: Some((card.memory * GIB) as u64),
            });
        }
        let text = value.as_str().unwrap_or_default();
        let card = |index| {
            Some(Self::Cuda {
                index,
                memory: None,
            })
        };
        match (text, text.strip_prefix("cuda:").map(str::parse)) {
            ("cpu", _) => Some(Self::Cpu),
            ("cuda", _) => card(0),
            (_, Some(Ok(index))) => card(index),
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
            Self::Cuda {
                index,
                memory: Some(bytes),
            } => CardSettings {
                cuda: *index,
                memory: *bytes as f64 / GIB,
            }
            .write(),
            Self::Cuda { index: 0, .. } => "cuda".into(),
            Self::Cuda { index, .. } => format!("cuda:{index}").into(),
        }
    }

    fn value_type() -> ValueType {
        ValueType::Choice {
            doc: String::new(),
            words: Vec::new(),
            others: vec![
                ValueType::Text(Some("^(cpu|cuda(:[0-9]+)?)$".into())),
                CardSettings::value_type(),
            ],
        }
        .described("`cpu`, `cuda`, `cuda:1` .., or a card with a bound on its memory")
    }
}
