//! Adaptive optimisers at the server: Algorithm 2 of Reddi et al. 2021. They differ only in the
//! second moment.
use crate::{Moments, Rule, ServerOptimiser};
use fl_core::Weigh;
use fl_core::prelude::*;

/// `m <- beta1 m + (1 - beta1) d`, `v <- second(v, d^2)`, `x <- x + lr m / (sqrt(v) + tau)`, with
/// `d = mean - sent`.
fn adaptive(
    (lr, beta1, tau): (f64, f64, f64),
    (sent, mean): (f64, f64),
    [m, v]: &mut Moments,
    second: impl Fn(f64, f64) -> f64,
) -> f64 {
    let d = mean - sent;
    *m = beta1 * *m + (1.0 - beta1) * d;
    *v = second(*v, d * d);
    sent + lr * *m / (v.sqrt() + tau)
}

macro_rules! adaptive {
    ($(#[doc = $doc:literal])* $name:ident, $part:literal, beta1: $beta1:literal, { $($setting:tt)* }, $second:expr) => {
        settings! {
            $(#[doc = $doc])*
            pub struct $name {
                /// The server's learning rate.
                lr: f64 = 0.1, in above(0.0);
                /// Decay of the mean of changes.
                beta1: f64 = $beta1, in 0.0..1.0;
                $($setting)*
                /// Degree of adaptivity, more for smaller values: added to the root of the mean
                /// square, whose first value is `tau^2`.
                tau: f64 = 1e-3, in above(0.0);
                /// The weight of a client.
                weigh: Weigh = Weigh::Samples;
            }
        }

        impl Rule for $name {
            fn weigh(&self) -> &Weigh {
                &self.weigh
            }
            fn start(&self) -> Moments {
                [0.0, self.tau * self.tau]
            }
            fn step(&self, sent: f64, mean: f64, kept: &mut Moments) -> f64 {
                let second: fn(&Self, f64, f64) -> f64 = $second;
                adaptive((self.lr, self.beta1, self.tau), (sent, mean), kept, |v, dd| second(self, v, dd))
            }
        }
        plugin!(aggregator $part => $name as ServerOptimiser<$name>, papers: ["Reddi et al. 2021"]);
    };
}

adaptive!(
    /// Adagrad at the server (FedAdagrad; Reddi et al. 2021): squares of changes add up, so steps
    /// only shrink.
    FedAdagrad, "fed-adagrad", beta1: 0.0, {}, |_, v, dd| v + dd
);

adaptive!(
    /// Adam at the server (FedAdam; Reddi et al. 2021), without correction of the first rounds'
    /// bias, as in the paper.
    FedAdam, "fed-adam", beta1: 0.9, {
        /// Decay of the mean of squared changes.
        beta2: f64 = 0.99, in 0.0..1.0;
    }, |rule, v, dd| rule.beta2 * v + (1.0 - rule.beta2) * dd
);

adaptive!(
    /// Yogi at the server (FedYogi; Reddi et al. 2021): the mean square moves by a bounded step, so
    /// the effect of one large change fades slowly.
    FedYogi, "fed-yogi", beta1: 0.9, {
        /// Decay of the mean of squared changes.
        beta2: f64 = 0.99, in 0.0..1.0;
    }, |rule, v, dd| {
        let towards = if v > dd { 1.0 } else if v < dd { -1.0 } else { 0.0 };
        v - (1.0 - rule.beta2) * dd * towards
    }
);
