//! Numbers of a run besides its measurements: what it cost.

use fl_report::observer_of;

/// The numbers besides measurements that a table of runs shows.
pub const COSTS: [&str; 7] = [
    "bytes.up",
    "bytes.down",
    "seconds",
    "epsilon.server",
    "epsilon.clients",
    "epsilon.readers",
    "data-epsilon.readers",
];

/// Returns whether every run has a number of this name besides measurements, or every run with an
/// accountant does; `None` if it is the name of a measurement.
pub fn cost_of(name: &str, accounts: bool) -> Option<bool> {
    match name {
        "bytes.up" | "bytes.down" | "seconds" => Some(true),
        _ => observer_of(name).map(|_| accounts),
    }
}
