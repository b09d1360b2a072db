//! `fl attack`: what a run gives away.

mod generator;
mod gradient;
mod inversion;
mod membership;
mod search;
mod slopes;
mod substitute;
mod target;

use crate::Done;
use clap::Subcommand;
use fl_registry::Catalogue;

#[derive(Subcommand)]
pub enum AttackCommand {
    /// Tell from the models that a run kept who was among those they learnt from: by their loss,
    /// and beside shadow runs.
    #[command(after_help = "Example:\n  fl attack membership runs/hello-1 --shadows 16")]
    Membership(membership::MembershipArgs),
    /// Find, from parameters that a client sends, the examples that it trained on: by search
    /// (gradient inversion), and read off a dense first layer.
    #[command(after_help = "Example:\n  fl attack gradient hello.yaml --client 3")]
    Gradient(gradient::GradientArgs),
    /// Find, from the models that a run kept, what they take each class to look like (model
    /// inversion), and how like private examples that is.
    #[command(after_help = "Example:\n  fl attack inversion runs/hello-1 --picture found.png")]
    Inversion(inversion::InversionArgs),
    /// Find, from the slopes with which clients of `generate-and-distill` answer, what their
    /// teachers take each class to look like: for a server that asks about inputs of its own, and
    /// for one that follows the protocol.
    #[command(after_help = "Example:\n  fl attack slopes specs/quick/fedgen.yaml")]
    Slopes(slopes::SlopesArgs),
    /// Find, from what a client answers about public samples in distillation, what its model takes
    /// each class to look like: a substitute network learns the answers, and is inverted. With
    /// `--ask` the substitute is made without any data, of answers about inputs of the attacker's
    /// own (IDEAL).
    #[command(after_help = "Example:\n  fl attack substitute specs/quick/fedkd.yaml --ask 5000")]
    Substitute(substitute::SubstituteArgs),
    /// Compare what the generator of a run makes with private examples: how near, and how alike as
    /// a whole (Frechet distance), beside test examples.
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
