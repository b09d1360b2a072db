//! `fl account`: what releases cost, without a run.

mod noise;
mod pate;
mod price;

use crate::Done;
use clap::Subcommand;
use fl_registry::Catalogue;

#[derive(Subcommand)]
pub enum AccountCommand {
    /// Price the winners of votes: PATE, and FedKT at the server (L1) or in one partition of a
    /// party (L2).
    #[command(after_help = "Example:\n  fl account pate --votes votes.csv --gamma 0.05")]
    Pate(pate::PateArgs),
    /// Price Laplace noise, or find the noise that an epsilon needs.
    #[command(after_help = "Example:\n  fl account laplace --scale 2 --times 10")]
    Laplace(noise::LaplaceArgs),
    /// Price Gaussian noise on everything or on a random part, or find the noise that an epsilon
    /// needs.
    #[command(after_help = "Example:\n  fl account gaussian --target 2 --rate 0.01 --times 1000")]
    Gaussian(noise::GaussianArgs),
    /// Price randomised response, or find the epsilon that each answer may have.
    #[command(after_help = "Example:\n  fl account randomised-response --epsilon 1 --times 20")]
    RandomisedResponse(noise::RandomisedResponseArgs),
    /// Price training on a random sample and nothing else (FedMD-NFDP), or find how many draws an
    /// epsilon allows.
    #[command(after_help = "Example:\n  fl account nfdp --draws 100 --of 1000")]
    Nfdp(noise::NfdpArgs),
}

pub fn account(command: &AccountCommand, catalogue: &Catalogue) -> Done {
    match command {
        AccountCommand::Pate(args) => pate::pate(args, catalogue),
        AccountCommand::Laplace(args) => noise::laplace(args, catalogue),
        AccountCommand::Gaussian(args) => noise::gaussian(args, catalogue),
        AccountCommand::RandomisedResponse(args) => noise::randomised_response(args, catalogue),
        AccountCommand::Nfdp(args) => noise::nfdp(args, catalogue),
    }
}
