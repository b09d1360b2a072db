//! Attacks on runs as a whole: from a spec or a run folder to what the attacker has found.

mod generator;
mod gradient;
mod inversion;
mod membership;
mod search;
mod slopes;
mod substitute;

pub use generator::{GeneratorFound, GeneratorOptions, NearestPrivate, attack_generator};
pub use gradient::{GradientFound, GradientOptions, Labels, RecoveredImages, attack_gradient};
pub use inversion::{InversionOptions, InversionResult, attack_models};
pub use membership::{AttackResult, MembershipFound, MembershipOptions, attack_membership};
pub use slopes::{ClientResult, SlopesOptions, attack_slopes};
pub use substitute::{ModelResult, SubstituteFound, SubstituteOptions, attack_answers};

use clap::Args;
use fl_engine::NotRun;
use fl_registry::Catalogue;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

/// What every attack is given.
pub struct AttackRun<'a> {
    /// The known parts.
    pub catalogue: &'a Catalogue,
    /// The command line, which the folders of the attack's own runs state.
    pub line: &'a [String],
    /// The data directory.
    pub data_dir: PathBuf,
    /// What the attack draws follows from it.
    pub seed: u64,
    /// Shows a search or a series of runs of so many steps.
    pub progress: &'a dyn Fn(u64) -> Arc<dyn Progress>,
}

/// Changes to the spec that an attack runs.
#[derive(Args, Clone, Debug)]
pub struct Overrides {
    /// Change a value of the spec: `--set protocol.rounds=5`. May be given several times.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
}

/// How far something is.
pub trait Progress: Send + Sync {
    /// One more step is done.
    fn step(&self);
    /// No more will follow.
    fn end(&self);
}

/// A signal stopped the attack: the exit code of the program.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a signal stopped the attack")]
pub struct Stopped(pub u8);

/// Reads the weight of the total variation of images.
fn weight(text: &str) -> Result<f64, String> {
    let weight = text.parse().ok();
    let weight = weight.filter(|w: &f64| w.is_finite() && *w >= 0.0);
    weight.ok_or_else(|| "must be a number, at least 0".into())
}

fn usage(text: impl Display) -> anyhow::Error {
    NotRun::Usage(text.to_string()).into()
}
