//! A bound of updates that follows a quantile of their norms (Andrew, Thakkar, McMahan, Ramaswamy
//! 2021, algorithm 1).
use crate::rounds::Family;
use crate::server_sum::{SERVER_PRIVACY, sum, summed, update};
use fl_core::prelude::*;
use fl_plugin_dp_sgd::finite;
use std::f64::consts::FRAC_1_SQRT_2;

settings! {
    /// The bound of the clients' updates in DP-FedAvg follows a quantile of their norms (Andrew et
    /// al. 2021). Each client also reports whether its update was within the bound; the server
    /// learns only the number of those, with noise.
    pub struct AdaptiveClip {
        /// The bound of the first round.
        first: f64 = 0.1, in above(0.0);
        /// The target share of updates within the bound.
        quantile: f64 = 0.5, in 0.0..=1.0;
        /// The speed of the bound: each round multiplies it by
        /// `exp(-rate (share within - quantile))`.
        rate: f64 = 0.2, in above(0.0);
        /// Share of the norm bound that goes to the report whether the update was within the bound.
        /// The count then has noise of `noise-multiplier / (2 effort)`, and the updates have
        /// `1 / sqrt(1 - effort^2)` times their usual noise. The paper's `sigma_b`, a twentieth of
        /// the clients of a round, is an effort of `10 noise-multiplier / clients`.
        effort: f64 = 0.1, in above_to(0.0, FRAC_1_SQRT_2);
    }
}

message! {
    /// A model or a change of it, and the bound or the report about it (adaptive clipping).
    pub struct Bounded: "params-and-bound" { params: Params, bound: Scalar }
}

const UPDATE: Exchange<Bounded, Bounded> =
    Exchange::new("clipped update, and whether it was within the bound");

/// Name of the report about the bound among the numbers of an update, while both are bounded and
/// perturbed together.
const WITHIN: &str = "within-bound";

/// The mechanism must pass a norm of 1 unchanged, up to this rounding.
const ROUNDING: f64 = 1e-3;

fn join(Bounded { mut params, bound }: Bounded) -> Params {
    let bound = ndarray::arr1(&[bound.value()]).into_dyn();
    params.0.insert(WITHIN.into(), bound);
    params
}

fn split(mut joint: Params) -> Result<Bounded> {
    let bound = joint.0.remove(WITHIN).and_then(|t| t.first().copied());
    let bound = Scalar::new(bound.context("nothing is said of the bound")?);
    Ok(Bounded {
        params: joint,
        bound,
    })
}

/// Clamps a bound to the range of its wire form; never 0.
fn within_32_bits(bound: f64) -> f64 {
    bound.clamp(f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX) / 2.0)
}

impl AdaptiveClip {
    /// Returns the part of a norm of 1 that is left for updates.
    fn left(&self) -> f64 {
        (1.0 - self.effort * self.effort).sqrt()
    }

    /// Declares the exchange whose sum the server releases.
    pub(crate) fn declared<'p>(&'p self, family: Family<'p>) -> Declared<'p, Bounded, Bounded> {
        summed(&UPDATE, move |client, sent| {
            self.answer(family, client, sent)
        })
    }

    /// Returns the sum of the cohort's updates with noise, in their scale, and the average number of
    /// clients in a round. Moves the bound.
    pub(crate) fn sum(
        &self,
        server: &mut Server<'_>,
        round: &Round,
        model: &Params,
        state: &mut Option<f64>,
    ) -> Result<(Params, f64)> {
        let bound = within_32_bits(state.unwrap_or(self.first));
        let sent = |params| Bounded {
            params,
            bound: Scalar::new(bound as f32),
        };
        let like = join(sent(model.zeros_like()));
        let sent = sent(model.clone());
        let (sum, expected) = sum(server, round, &UPDATE, &sent, like, join)?;
        let Bounded {
            mut params,
            bound: within,
        } = split(sum)?;
        let within = f64::from(within.value());
        let share = within / (2.0 * self.effort * expected) + 0.5;
        server.record(round, "clip", bound)?;
        *state = Some(self.next(bound, share));
        params.scale(bound / self.left());
        Ok((params, expected))
    }

    /// Returns the bound of the next round for this share within the bound.
    fn next(&self, bound: f64, share: f64) -> f64 {
        within_32_bits(bound * libm::exp(-self.rate * (share - self.quantile)))
    }

    /// Returns a client's update as a point in the ball of norm 1, with one more number for the
    /// side of the bound that it was on.
    fn bounded(&self, mut update: Params, bound: f64) -> Params {
        finite(&mut update);
        let norm = update.norm();
        update.scale(self.left() / norm.max(bound));
        let side = if norm <= bound { 1.0 } else { -1.0 };
        join(Bounded {
            params: update,
            bound: Scalar::new((side * self.effort) as f32),
        })
    }

    /// Answers at a client.
    fn answer(&self, family: Family<'_>, client: &mut Client, sent: &Bounded) -> Result<Bounded> {
        let update = update(family, client, &sent.params)?;
        let mut joint = self.bounded(update, f64::from(sent.bound.value()));
        if client.own().is_empty() {
            // nor does it report a side of the bound
            joint = joint.zeros_like();
        }
        // tested on a public point: a test on the update would reveal something about it
        let mut known = join(Bounded {
            params: sent.params.zeros_like(),
            bound: Scalar::new(2.0),
        });
        client.clip(&SERVER_PRIVACY, &mut known, None)?;
        ensure!(
            (known.norm() - 1.0).abs() <= ROUNDING,
            "parts.{}: `adaptive` gives it updates of norm 1 at most, and it bounds them by {:.3}: set its `clip` to 1",
            SERVER_PRIVACY.name(),
            known.norm()
        );
        client.clip(&SERVER_PRIVACY, &mut joint, None)?;
        split(joint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(effort: f64) -> AdaptiveClip {
        AdaptiveClip {
            first: 1.0,
            quantile: 0.5,
            rate: 0.2,
            effort,
        }
    }

    fn update(norm: f32) -> Params {
        Params(
            [(
                "w".to_string(),
                ndarray::arr1(&[0.6 * norm, -0.8 * norm]).into_dyn(),
            )]
            .into(),
        )
    }

    #[test]
    fn what_leaves_lies_in_the_ball_and_says_which_side_it_was() {
        for effort in [1e-3, 0.1, 0.7] {
            for (norm, bound) in [
                (0.0, 1.0),
                (0.5, 1.0),
                (0.999, 1.0),
                (7.0, 2.0),
                (1e20, 1e-3),
            ] {
                let joint = part(effort).bounded(update(norm), bound);
                assert!(joint.norm() <= 1.0 + 1e-6, "{}", joint.norm());
                let Bounded {
                    mut params,
                    bound: side,
                } = split(joint).unwrap();
                assert_eq!(side.value() > 0.0, f64::from(norm) <= bound);
                // scaled back, it is the update, shortened to the bound
                params.scale(bound / part(effort).left());
                let due = f64::from(norm).min(bound);
                assert!((params.norm() - due).abs() <= 1e-5 * due, "{norm} {bound}");
            }
        }
    }

    /// Aims at the median of the norms, without noise.
    #[test]
    fn the_bound_goes_to_the_quantile_of_the_norms() {
        let norms: Vec<f64> = (1..=100).map(|k| k as f64 / 10.0).collect();
        for (quantile, due) in [(0.5, 5.0), (0.9, 9.0), (0.0, 0.1)] {
            let part = AdaptiveClip {
                quantile,
                ..part(0.1)
            };
            let mut bound = 0.1;
            for _ in 0..1000 {
                let within = norms.iter().filter(|norm| **norm <= bound).count();
                bound = part.next(bound, within as f64 / 100.0);
            }
            assert!((bound - due).abs() < 0.15, "{quantile}: {bound}");
        }
    }

    #[test]
    fn what_is_no_number_leaves_as_nothing() {
        for norm in [f32::NAN, f32::INFINITY] {
            let joint = part(0.1).bounded(update(norm), 1.0);
            let Bounded { params, bound } = split(joint).unwrap();
            assert_eq!((params.norm(), bound.value()), (0.0, 0.1));
        }
        let (mut state_bound, part) = (part(0.1), 1e-300);
        state_bound.first = part;
        let joint = state_bound.bounded(update(0.0), within_32_bits(part));
        assert!(joint.norm() <= 1.0);
    }

    #[test]
    fn the_bound_stays_a_number_whatever_the_noise_says() {
        let part = part(0.1);
        for share in [-1e9, 1e9] {
            let mut bound = 1.0;
            for _ in 0..10 {
                bound = part.next(bound, share);
            }
            assert!(bound as f32 > 0.0 && (bound as f32).is_finite(), "{bound}");
        }
    }
}
