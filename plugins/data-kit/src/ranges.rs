//! Settings that a program wrote.

use fl_core::settings::{Setting, read_value};

/// Checks that these settings are in their ranges, as those that are read from a spec are.
///
/// # Errors
/// Says which setting is not, and its range.
pub fn check_ranges<T: Setting>(settings: &T) -> anyhow::Result<()> {
    read_value::<T>(&settings.write()).map(drop)
}
