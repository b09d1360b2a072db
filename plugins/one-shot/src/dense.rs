//! DENSE (Zhang et al. 2022, algorithm 1).
use crate::generator_loss::{Emphasis, Seen};
use crate::one_shot::{OneShot, OneShotRule, Shared};
use fl_core::prelude::*;

settings! {
    /// Clients train alone and send their models once. A generator at the server makes inputs that
    /// the ensemble of the models is sure of and the student is not, and the student learns from
    /// them (DENSE; Zhang et al. 2022).
    pub struct Dense {}
}

impl OneShotRule for Dense {
    /// The divergence counts only where student and ensemble name different classes.
    fn emphasis(&self, seen: &Seen) -> Emphasis {
        Emphasis {
            cross_entropy: 1.0,
            divergence: f64::from(u8::from(!seen.agreed)),
        }
    }
}
plugin!(protocol "dense" => Shared<Dense> as OneShot<Dense>, papers: ["Zhang et al. 2022"]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_the_divergence_counts_where_the_classes_differ() {
        let counts = |agreed| {
            Dense {}.emphasis(&Seen {
                likely: 0.3,
                agreed,
            })
        };
        assert_eq!(
            (counts(true).divergence, counts(false).divergence),
            (0.0, 1.0)
        );
        assert_eq!(counts(true).cross_entropy, 1.0);
    }
}
