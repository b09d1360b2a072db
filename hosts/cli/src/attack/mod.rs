//! `fl attack`: what a run gives away.

mod generator;
mod gradient;
mod inversion;
mod membership;
mod search;
mod slopes;
mod substitute;

use crate::Done;
use clap::Subcommand;
use fl_registry::Catalogue;

#[derive(Subcommand)]
pub enum AttackCommand {
    /// Tell from a run's kept models which examples they were trained on: by their loss,
    /// and by shadow runs.
    #[command(after_help = "Example:\n  fl attack membership runs/hello-1 --shadows 16")]
    Membership(membership::MembershipArgs),
    /// Find, from parameters that a client sends, the examples that it trained on: by search
    /// (gradient inversion), and read off a dense first layer.
    #[command(after_help = "Example:\n  fl attack gradient hello.yaml --client 3")]
    Gradient(gradient::GradientArgs),
    /// Reconstruct an input of each class from a run's kept models (model inversion), and
    /// compare it with private examples.
    #[command(after_help = "Example:\n  fl attack inversion runs/hello-1 --picture found.png")]
    Inversion(inversion::InversionArgs),
    /// Reconstruct an input of each class from the slopes that clients of `generate-and-distill`
    /// send: for a server that asks about inputs of its own, and for one that follows the protocol.
    #[command(after_help = "Example:\n  fl attack slopes specs/quick/fedgen.yaml")]
    Slopes(slopes::SlopesArgs),
    /// Reconstruct an input of each class from a client's answers about public samples in
    /// distillation: a substitute network learns the answers, and is inverted. With
    /// `--ask` the substitute learns from answers about the attacker's own inputs, without data
    /// (IDEAL).
    #[command(after_help = "Example:\n  fl attack substitute specs/quick/fedkd.yaml --ask 5000")]
    Substitute(substitute::SubstituteArgs),
    /// Compare a generator's inputs with private examples: how near, and how alike as
    /// a whole (Frechet distance), with test examples for comparison.
    #[command(after_help = "Example:\n  fl attack made runs/fedgen-1")]
    Made(generator::GeneratorArgs),
}

pub fn attack(command: &AttackCommand, catalogue: &Catalogue, line: &[String]) -> Done {
    match command {
        AttackCommand::Membership(args) => membership::membership(args, catalogue, line),
        AttackCommand::Gradient(args) => gradient::gradient(args, catalogue, line),
        AttackCommand::Inversion(args) => inversion::inversion(args, catalogue, line),
        AttackCommand::Slopes(args) => slopes::slopes(args, catalogue, line),
        AttackCommand::Substitute(args) => substitute::substitute(args, catalogue, line),
        AttackCommand::Made(args) => generator::made(args, catalogue, line),
    }
}
