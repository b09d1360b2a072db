//! `fl attack`: what a run gives away.

mod generator;
mod gradient;
mod inversion;
mod membership;
mod slopes;
mod substitute;

use crate::{DataDir, Done, Failure, either};
use clap::{Args, Subcommand};
use fl_attack::{
    AttackRun, GeneratorOptions, GradientOptions, MembershipOptions, Progress, SlopesOptions,
    Stopped, SubstituteOptions,
};
use fl_registry::Catalogue;
use indicatif::ProgressBar;
use serde_json::Value;
use std::sync::Arc;

/// What an attack takes.
#[derive(Args)]
pub struct AttackArgs<T: Args> {
    #[command(flatten)]
    options: T,
    #[command(flatten)]
    common: Common,
}

/// What all attacks take.
#[derive(Args)]
pub struct Common {
    /// What the attack draws follows from it.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub data: DataDir,
}

/// A bar at the terminal.
struct Bar(ProgressBar);

impl Progress for Bar {
    fn step(&self) {
        self.0.inc(1);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// Runs an attack, shows how far it is, and prints what it found: for machines, and for people.
fn attack(
    common: &Common,
    catalogue: &Catalogue,
    line: &[String],
    of: impl FnOnce(&AttackRun<'_>) -> anyhow::Result<(Value, String)>,
) -> Done {
    let progress =
        |steps| Arc::new(Bar(crate::log::bar(ProgressBar::new(steps)))) as Arc<dyn Progress>;
    let found = of(&AttackRun {
        catalogue,
        line,
        data_dir: common.data.path(),
        seed: common.seed,
        progress: &progress,
    });
    let (json, text) = found.map_err(|error| match error.downcast::<Stopped>() {
        Ok(Stopped(code)) => Failure::Stopped(code),
        Err(error) => error.into(),
    })?;
    either(common.json, json, text)
}

#[derive(Subcommand)]
pub enum AttackCommand {
    /// Tell from a run's kept models which examples the clients have: by their loss, and by
    /// shadow runs.
    #[command(after_help = "Example:\n  fl attack membership runs/hello-1 --shadows 16")]
    Membership(AttackArgs<MembershipOptions>),
    /// Find, from parameters that a client sends, the examples that it trained on: by search
    /// (gradient inversion), and read off a dense first layer.
    #[command(after_help = "Example:\n  fl attack gradient hello.yaml --client 3")]
    Gradient(AttackArgs<GradientOptions>),
    /// Reconstruct an input of each class from a run's kept models (model inversion), and
    /// compare it with private examples.
    #[command(after_help = "Example:\n  fl attack inversion runs/hello-1 --picture found.png")]
    Inversion(AttackArgs<inversion::ModelsOptions>),
    /// Reconstruct an input of each class from the slopes that clients of `generate-and-distill`
    /// send: for a server that asks about inputs of its own, and for one that follows the protocol.
    #[command(after_help = "Example:\n  fl attack slopes specs/quick/fedgen.yaml")]
    Slopes(AttackArgs<SlopesOptions>),
    /// Reconstruct an input of each class from a client's answers about public samples in
    /// distillation: a substitute network learns the answers, and is inverted. With
    /// `--ask` the substitute learns from answers about the attacker's own inputs, without data
    /// (IDEAL).
    #[command(after_help = "Example:\n  fl attack substitute specs/quick/fedkd.yaml --ask 5000")]
    Substitute(AttackArgs<SubstituteOptions>),
    /// Compare a generator's inputs with private examples: how near, and how alike as
    /// a whole (Frechet distance), with test examples for comparison.
    #[command(after_help = "Example:\n  fl attack made runs/fedgen-1")]
    Made(AttackArgs<GeneratorOptions>),
}

pub fn run(command: &AttackCommand, catalogue: &Catalogue, line: &[String]) -> Done {
    match command {
        AttackCommand::Membership(args) => membership::membership(args, catalogue, line),
        AttackCommand::Gradient(args) => gradient::gradient(args, catalogue, line),
        AttackCommand::Inversion(args) => inversion::inversion(args, catalogue, line),
        AttackCommand::Slopes(args) => slopes::slopes(args, catalogue, line),
        AttackCommand::Substitute(args) => substitute::substitute(args, catalogue, line),
        AttackCommand::Made(args) => generator::made(args, catalogue, line),
    }
}
