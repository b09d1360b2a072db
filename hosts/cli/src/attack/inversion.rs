//! `fl attack inversion`: what the models of a run take each class to look like.

use super::{Common, attack, weight};
use crate::{Done, print};
use clap::Args;
use fl_attack::{InversionOptions, InversionResult, attack_models};
use fl_registry::Catalogue;
use fl_report::Run;
use std::path::PathBuf;

#[derive(Args)]
pub struct InversionArgs {
    /// The folder of a run that is done.
    #[arg(value_name = "RUN")]
    dir: PathBuf,
    /// Of which kept model, such as `student`; otherwise of each.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    how: InversionArguments,
}

/// How models are inverted.
#[derive(Args)]
pub struct InversionArguments {
    /// Steps of the search.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// The weight of an image's total variation per pixel against the loss: larger finds smoother
    /// images.
    #[arg(long, value_name = "WEIGHT", default_value_t = 1.0, value_parser = weight)]
    smooth: f64,
    /// Search among a generator's images (GMI). It first trains for STEPS steps on images
    /// that the attacker has too: the run's public samples, or test examples if there are none.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    prior: Option<u32>,
    /// Draw what was found, a column a class, below it the private image that is nearest, and the
    /// class's mean over test images: a PNG file. Of the last model, if there are several.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    pub common: Common,
}

impl InversionArguments {
    pub fn options(&self) -> InversionOptions {
        InversionOptions {
            steps: self.steps,
            smooth: self.smooth,
            prior: self.prior,
            picture: self.picture.clone(),
        }
    }
}

pub fn inversion(args: &InversionArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    Run::open(&args.dir).map_err(crate::report::unreadable)?;
    let (dir, model, how) = (&args.dir, args.model.as_deref(), args.how.options());
    let common = &args.how.common;
    let found = attack(common, catalogue, line, |run| {
        attack_models(dir, model, &how, run)
    })?;
    match common.json {
        true => print(serde_json::json!({ "run": dir, "seed": common.seed, "attacks": found })),
        false => print(text(&found)),
    }
}

pub fn text(found: &[InversionResult]) -> String {
    let width = found
        .iter()
        .map(|f| f.model.len())
        .max()
        .unwrap_or(0)
        .max(5);
    let prior = found.iter().any(|f| f.unsearched.is_some());
    let mut out = format!(
        "{:width$}    loss  PSNR, dB   SSIM  class mean: PSNR   SSIM{}\n",
        "model",
        if prior {
            "  by chance: PSNR   SSIM"
        } else {
            ""
        }
    );
    for one in found {
        out += &format!(
            "{:width$}  {:.4}  {:8.1}  {:>5}  {:16.1}  {:>5}",
            one.model,
            one.loss,
            one.like.mean_psnr(),
            one.like.mean_ssim(),
            one.known.mean_psnr(),
            one.known.mean_ssim()
        );
        if let Some(by_chance) = &one.unsearched {
            let (psnr, ssim) = (by_chance.mean_psnr(), by_chance.mean_ssim());
            out += &format!("  {psnr:15.1}  {ssim:>5}");
        }
        out.push('\n');
    }
    out += "the image found for each class, and the nearest private example; anyone with test images can compute the class mean";
    if prior {
        out +=
            "\nby chance: a generated input that the model assigns to the class, without a search";
    }
    out
}
