//! `fl attack made`: how like private examples is what a run's generator makes?

use super::{Common, attack};
use crate::{Done, print};
use clap::Args;
use fl_attack::{GeneratorOptions, NearestPrivate, attack_generator};
use fl_registry::Catalogue;
use fl_report::Run;
use std::path::PathBuf;

#[derive(Args)]
pub struct GeneratorArgs {
    /// The folder of a run that is done and has kept a generator.
    #[arg(value_name = "RUN")]
    dir: PathBuf,
    /// Inputs that are made, and private and test examples that they are compared with, at most.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    inputs: u32,
    /// Draw what was made and is nearest to a private example, and below it that example: a PNG
    /// file.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

pub fn made(args: &GeneratorArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    Run::open(&args.dir).map_err(crate::report::unreadable)?;
    let options = GeneratorOptions {
        dir: args.dir.clone(),
        inputs: args.inputs as usize,
        picture: args.picture.clone(),
    };
    let all = attack(&args.common, catalogue, line, |run| {
        attack_generator(&options, run)
    })?;
    match args.common.json {
        true => print(serde_json::json!({
            "run": args.dir, "seed": args.common.seed, "private": all.private, "features": all.features, "found": all.found,
        })),
        false => print(text(&all.found, all.private, &all.features)),
    }
}

fn text(found: &[NearestPrivate], private: usize, about: &str) -> String {
    let mut out = String::from("inputs     n  PSNR, dB    most   SSIM  Frechet\n");
    for NearestPrivate {
        inputs,
        like,
        frechet,
    } in found
    {
        let (most, ssim) = (like.most_psnr(), like.mean_ssim());
        out += &format!(
            "{inputs:6} {:5}  {:8.1}  {most:6.1}  {ssim:>5}  {frechet:7.2}\n",
            like.psnr.len(),
            like.mean_psnr()
        );
    }
    out + &format!(
        "each is compared with the nearest of {private} private examples; the Frechet distance is that of {about}. Inputs that are nearer than test examples may be memorised"
    )
}
