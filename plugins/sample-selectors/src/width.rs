//! The width of the Gaussian kernel.

use anyhow::{Result, ensure};
use fl_core::settings::{Range, Reader, Setting, Value, ValueType, Word, above};
use fl_core::{Samples, Stream};

/// Number of own samples for the median distance: 124,750 pairs.
const MEDIAN_OF: usize = 500;

/// The width (sigma) of the Gaussian kernel: a number above 0, or `median`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Width {
    /// This number.
    Fixed(f64),
    /// The median distance between two of the client's own samples.
    Median,
}

impl Setting for Width {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match (value.as_f64(), value.as_str()) {
            (Some(sigma), _) if check(sigma).is_ok() => Some(Self::Fixed(sigma)),
            (_, Some("median")) => Some(Self::Median),
            _ => reader.unlike("a finite number above 0, or `median`", value),
        }
    }
    fn write(&self) -> Value {
        match self {
            Self::Fixed(sigma) => Value::from(*sigma),
            Self::Median => Value::from("median"),
        }
    }
    fn value_type() -> ValueType {
        ValueType::Choice {
            doc: String::new(),
            words: vec![Word {
                name: "median".into(),
                doc: "The median distance between two of the client's own samples.".into(),
                value: None,
            }],
            others: vec![f64::value_type().within(Range::of(&above(0.0)))],
        }
        .described("number above 0, or `median`")
    }
}

/// Checks that `sigma` and its square are valid widths.
pub(crate) fn check(sigma: f64) -> Result<()> {
    ensure!(
        sigma > 0.0 && (0.5 / (sigma * sigma)).is_normal(),
        "`width` must be above 0 and finite, and so must its square be; got {sigma}"
    );
    Ok(())
}

impl Width {
    /// Returns the width for a client with these samples. The median is over all pairs of different
    /// samples among at most 500 that `stream` draws. Without such a pair every width ranks
    /// equally, and it is 1.
    pub(crate) fn of(self, own: &Samples, stream: &Stream) -> f64 {
        let Self::Fixed(sigma) = self else {
            return median_distance(own, stream);
        };
        sigma
    }
}

fn median_distance(own: &Samples, stream: &Stream) -> f64 {
    let chosen = stream.draws().choose(own.len(), MEDIAN_OF);
    let values = own.pick(&chosen).values();
    let mut distances = Vec::new();
    for (i, a) in values.outer_iter().enumerate() {
        for b in values.outer_iter().take(i) {
            let square: f64 = a
                .iter()
                .zip(b)
                .map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2))
                .sum();
            distances.push(square.sqrt());
        }
    }
    distances.retain(|d| check(*d).is_ok());
    crate::quantile(&distances, 0.5).unwrap_or(1.0)
}
