//! The numbers of a network, drawn when they are first needed: a check of a spec, which makes every model, draws none.

use super::Net;
use fl_core::Stream;
use std::sync::{Arc, OnceLock};

/// Weights and running statistics.
pub struct Numbers {
    /// What the first weights are drawn from.
    first: Stream,
    there: OnceLock<There>,
}

/// Numbers that are there.
pub struct There {
    /// The weights, in the order of the network's entries.
    pub weights: Arc<Vec<f32>>,
    /// Running statistics.
    pub buffers: Vec<f32>,
}

impl Numbers {
    /// To be drawn from `first`.
    pub fn new(first: Stream) -> Self {
        Self {
            first,
            there: OnceLock::new(),
        }
    }

    /// These instead.
    pub fn set(&mut self, (weights, buffers): (Vec<f32>, Vec<f32>)) {
        let weights = Arc::new(weights);
        self.there = OnceLock::from(There { weights, buffers });
    }

    /// Those of `net`.
    pub fn of(&self, net: &Net) -> &There {
        self.there.get_or_init(|| {
            let (weights, buffers) = net.start(&self.first);
            let weights = Arc::new(weights);
            There { weights, buffers }
        })
    }

    /// As [`Numbers::of`], to be changed.
    pub fn of_mut(&mut self, net: &Net) -> &mut There {
        self.of(net);
        match self.there.get_mut() {
            Some(there) => there,
            None => unreachable!("`of` has just drawn them"),
        }
    }
}
