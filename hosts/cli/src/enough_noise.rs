//! The noise that keeps a budget to the end of a run.

use fl_core::settings::Value;
use fl_core::{Budget, Parts, Role};
use fl_data::{Assembled, DataSpec};
use fl_engine::Plan;
use fl_registry::Spec;
use std::sync::Arc;

/// Settings of mechanisms of which a larger value is more noise.
const NOISE: [&str; 2] = ["noise-multiplier", "scale"];
/// By how much, relative to it, the noise found may be above the least.
const CLOSE: f64 = 0.01;
/// How often the noise is doubled at most.
const DOUBLINGS: usize = 20;

/// Returns the setting of the spec's only mechanism that has such a setting, and the value of it
/// that keeps `budget` to the last round.
pub fn enough_noise(
    spec: &Spec<DataSpec>,
    data: &Assembled,
    budget: &Budget,
) -> Option<(String, f64)> {
    if spec.stages.len() != 1 {
        return None;
    }
    let noise = |at: usize| {
        let settings = &spec.parts.iter().nth(at)?.settings.value;
        let mut names = NOISE.into_iter();
        names.find_map(|name| Some((name, settings.get(name)?.as_f64()?)))
    };
    let parts = spec.parts.iter().enumerate();
    let mut noisy =
        parts.filter(|(at, part)| part.decl.role == Role::Privacy && noise(*at).is_some());
    let ((at, part), None) = (noisy.next()?, noisy.next()) else {
        return None;
    };
    // one of some clients alone is a place in a list
    if part.clients.is_some() {
        return None;
    }
    let (name, given) = noise(at).filter(|(_, noise)| *noise > 0.0)?;
    let keeps = |noise: f64| with_noise(spec, data, (at, name, noise), budget);
    let mut most = given;
    let mut doubled = 0;
    while !keeps(most)? {
        if doubled == DOUBLINGS {
            return None;
        }
        (most, doubled) = (2.0 * most, doubled + 1);
    }
    let mut least = most / 2.0;
    while most > least * (1.0 + CLOSE) {
        let middle = least.midpoint(most);
        let bound = if keeps(middle)? {
            &mut most
        } else {
            &mut least
        };
        *bound = middle;
    }
    // three digits, rounded up
    let mut digit = 1.0;
    while most * digit < 100.0 {
        digit *= 10.0;
    }
    while most * digit >= 1000.0 {
        digit /= 10.0;
    }
    let rounded = (most * digit).ceil() / digit;
    let kept = keeps(rounded)?;
    kept.then(|| (format!("parts.{}.{name}", part.slot), rounded))
}

/// Whether a run with this value of the setting `name` of part `at` keeps `budget`; `None` if that
/// cannot be planned.
fn with_noise(
    spec: &Spec<DataSpec>,
    data: &Assembled,
    (at, name, noise): (usize, &str, f64),
    budget: &Budget,
) -> Option<bool> {
    let mut parts: Vec<_> = spec.parts.iter().cloned().collect();
    let part = parts.get_mut(at)?;
    let mut settings = part.settings.value.clone();
    let map = settings.as_mapping_mut()?;
    map.insert(name.into(), Value::from(noise));
    part.settings = part.decl.read(&settings).ok()?;
    let protocols = spec.stages.iter().map(|stage| stage.protocol).collect();
    let spec = Spec {
        parts: Arc::new(Parts::new(parts).led_by(protocols)),
        ..spec.clone()
    };
    let plan = Plan::new(&spec, data).ok()?;
    let observer = budget.against;
    let mut reached = plan.reached.iter();
    let (_, guarantee) = reached.find(|(of, _)| *of == observer)?;
    Some(budget.allows(guarantee.as_ref()?.epsilon))
}
