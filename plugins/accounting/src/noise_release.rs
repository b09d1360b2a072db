//! Events of plain noise as releases, each in terms of noise of standard deviation 1.

use crate::losses::Release;
use crate::priced_ledger::{ratio, unpriced};
use fl_core::Problem;
use fl_core::prelude::*;
use fl_core::privacy::Unit;

/// The most units of a sample, because the sizes of a larger one take too long to add.
const MOST_UNITS: usize = 10_000_000;

/// Returns an event as one release, the number of times, and its unit.
///
/// # Errors
/// The refusal of the accountant of this name, if the event is none of plain noise, or its numbers
/// make no sense.
pub(crate) fn release(accountant: &str, event: &PrivacyEvent) -> Result<(Release, usize, Unit)> {
    let wrong = |why: &str| Problem::Unpriced(format!("{event}: {why}"));
    let release = match event {
        PrivacyEvent::Gaussian {
            sensitivity, sigma, ..
        } => {
            let shift = ratio(event, *sensitivity, *sigma)?;
            Release::Poisson { rate: 1.0, shift }
        }
        PrivacyEvent::SubsampledGaussian {
            rate,
            sensitivity,
            sigma,
            ..
        } => {
            ensure!(
                (0.0..=1.0).contains(rate),
                wrong("the probability must be in 0..=1")
            );
            let (rate, shift) = (*rate, ratio(event, *sensitivity, *sigma)?);
            Release::Poisson { rate, shift }
        }
        PrivacyEvent::FixedSizeGaussian {
            k,
            of,
            sensitivity,
            sigma,
            ..
        } => {
            ensure!(
                *of > 0 && k <= of,
                wrong("no more can be drawn than there are")
            );
            let shift = ratio(event, *sensitivity, *sigma)?;
            let rate = *k as f64 / *of as f64;
            Release::Fixed { rate, shift }
        }
        PrivacyEvent::PublicSizeGaussian {
            rate,
            of,
            sensitivity,
            sigma,
            unit,
        } => {
            let shift = ratio(event, *sensitivity, *sigma)?;
            let (of, rate) = (*of, *rate);
            ensure!(
                *unit == Unit::Party,
                wrong(
                    "an example added or removed changes how many there are; only a party, with its data or with none, has a price"
                )
            );
            ensure!(
                (1..=MOST_UNITS).contains(&of) && (0.0..=1.0).contains(&rate),
                wrong(&format!(
                    "there must be 1 to {MOST_UNITS} units, and the probability must be in 0..=1"
                ))
            );
            Release::PublicSize { of, rate, shift }
        }
        PrivacyEvent::Laplace {
            sensitivity, scale, ..
        } => Release::Laplace(ratio(event, *sensitivity, *scale)?),
        PrivacyEvent::Pure { epsilon, .. } => Release::Pure(ratio(event, *epsilon, 1.0)?),
        _ => {
            return unpriced(
                accountant,
                "Gaussian and Laplace noise and randomised response; for votes use `pate-moments` or `pate-gnmax`",
                event,
            );
        }
    };
    let times = match event {
        PrivacyEvent::Pure { times, .. } => *times,
        _ => 1,
    };
    let unit = event.unit().context("plain noise is about a unit")?;
    Ok((release, times, unit))
}
