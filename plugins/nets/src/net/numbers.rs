//! [`Numbers`]: the numbers of a network, drawn on first use. A check of a spec makes every model
//! and draws none.

use super::Net;
use crate::tape::{Key, Weights};
use fl_core::Stream;
use std::sync::{Arc, OnceLock};

/// Weights and running statistics.
pub struct Numbers {
    /// The source of the initial weights.
    first: Stream,
    there: OnceLock<There>,
}

/// Numbers that have been drawn or set.
pub struct There {
    /// The weights, in the order of the network's entries.
    pub weights: Arc<Vec<f32>>,
    /// Running statistics.
    pub buffers: Vec<f32>,
}

impl Numbers {
    /// Returns numbers to draw from `first`.
    pub fn new(first: Stream) -> Self {
        Self {
            first,
            there: OnceLock::new(),
        }
    }

    /// Sets these numbers.
    pub fn set(&mut self, (weights, buffers): (Vec<f32>, Vec<f32>)) {
        let weights = Arc::new(weights);
        self.there = OnceLock::from(There { weights, buffers });
    }

    /// Returns the numbers of `net`.
    pub fn of(&self, net: &Net) -> &There {
        self.there.get_or_init(|| {
            let (weights, buffers) = net.start(&self.first);
            let weights = Arc::new(weights);
            There { weights, buffers }
        })
    }

    /// Returns the weights of `net`; `key` names their gradient, if they learn.
    pub fn weights(&self, net: &Net, key: Option<Key>) -> Weights {
        let data = self.of(net).weights.clone();
        Weights { data, key }
    }

    /// As [`Numbers::of`], mutable.
    pub fn of_mut(&mut self, net: &Net) -> &mut There {
        self.of(net);
        match self.there.get_mut() {
            Some(there) => there,
            None => unreachable!("`of` has just drawn them"),
        }
    }
}
