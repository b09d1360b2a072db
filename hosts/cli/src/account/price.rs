//! The price of releases by one accountant.

use crate::Failure;
use anyhow::Context;
use fl_core::privacy::{Guarantee, Unit};
use fl_core::settings::Value;
use fl_core::{PrivacyEvent, Role};
use fl_privacy::made_accountant;
use fl_registry::Catalogue;

/// The most releases that are added up.
pub const MOST: u64 = 1_000_000;

/// An option that must be above 0 and below `below`.
pub fn number(what: &str, x: f64, below: f64) -> Result<(), Failure> {
    let range = if below.is_finite() {
        format!("above 0 and below {below}")
    } else {
        "a finite number above 0".into()
    };
    if x > 0.0 && x < below {
        Ok(())
    } else {
        Err(Failure::usage(format!(
            "--{what}: must be {range}, got {x}"
        )))
    }
}

/// The guarantee of one accountant for `times` of one event. It gets those of the settings that
/// it has.
pub fn ask(
    catalogue: &Catalogue,
    name: &str,
    delta: f64,
    unit: Unit,
    more: &[(&str, &str)],
    event: &PrivacyEvent,
    times: u64,
) -> Result<Guarantee, Failure> {
    let decl = catalogue
        .find(Role::Accountant, name)
        .map_err(Failure::usage)?;
    let mut settings = serde_yaml::Mapping::new();
    let known = (decl.describe)().fields;
    let mut set = |key: &str, value: Value| {
        if known.iter().any(|field| field.name == key) {
            settings.insert(key.into(), value);
        }
    };
    set("delta", delta.into());
    set("unit", unit.to_string().into());
    for (key, value) in more {
        set(key, (*value).into());
    }
    let what = format!("{} `{name}`", Role::Accountant);
    let mut accountant = made_accountant(decl, &Value::Mapping(settings), &what)?;
    (0..times).try_for_each(|_| accountant.charge(event))?;
    Ok(accountant.guarantee(None).context("what that guarantees")?)
}
