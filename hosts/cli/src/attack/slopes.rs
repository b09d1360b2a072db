//! `fl attack slopes`: what the slopes with which clients answer give away of their examples.

use super::{Common, attack, weight};
use crate::{Done, Overrides, print};
use clap::Args;
use fl_attack::{ClientResult, SlopesOptions, attack_slopes};
use fl_registry::Catalogue;
use std::path::PathBuf;

#[derive(Args)]
pub struct SlopesArgs {
    /// A spec of `generate-and-distill`, or the folder of a run of one. It is run twice: as it is,
    /// and led by the attacker.
    #[arg(value_name = "SPEC")]
    spec: PathBuf,
    #[command(flatten)]
    set: Overrides,
    /// Steps of the search; each asks every client twice.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// The weight of an image's total variation per pixel against the loss: larger finds smoother
    /// images.
    #[arg(long, value_name = "WEIGHT", default_value_t = 1.0, value_parser = weight)]
    smooth: f64,
    /// Draw what asking has found of the first client, a column a class, below it the private image
    /// that is nearest, and the class's mean over test images: a PNG file.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

pub fn slopes(args: &SlopesArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    let options = SlopesOptions {
        spec: args.spec.clone(),
        set: args.set.set.clone(),
        steps: args.steps,
        smooth: args.smooth,
        picture: args.picture.clone(),
    };
    let found = attack(&args.common, catalogue, line, |run| {
        attack_slopes(&options, run)
    })?;
    match args.common.json {
        true => print(serde_json::json!({
            "spec": args.spec, "seed": args.common.seed, "attacks": found,
        })),
        false => print(text(&found)),
    }
}

fn text(found: &[ClientResult]) -> String {
    let mut out = String::from("attack  client    loss  PSNR, dB   SSIM  without: PSNR   SSIM\n");
    for ClientResult {
        attack,
        client,
        loss,
        like,
        known,
    } in found
    {
        let loss = loss.map_or("-".into(), |loss| format!("{loss:.4}"));
        out += &format!(
            "{attack:6}  {client:>6}  {loss:>6}  {:8.1}  {:>5}  {:13.1}  {:>5}\n",
            like.mean_psnr(),
            like.mean_ssim(),
            known.mean_psnr(),
            known.mean_ssim()
        );
    }
    out + "follow: an honest server's generated inputs, moved along a client's slopes; without the slopes: not moved
ask: a malicious server asks about inputs of its own, and keeps the one of each class that the teacher is surest of; without the slopes: the class mean
each is compared with the client's nearest example (for `ask`, of the class); the loss is the mean over clients"
}
