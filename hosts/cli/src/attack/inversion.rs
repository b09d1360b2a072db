//! `fl attack inversion`: what the models of a run take each class to look like.

use super::{Common, attack};
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
    how: InversionOptions,
    #[command(flatten)]
    common: Common,
}

pub fn inversion(args: &InversionArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    Run::open(&args.dir).map_err(crate::report::unreadable)?;
    let (dir, model, common) = (&args.dir, args.model.as_deref(), &args.common);
    let found = attack(common, catalogue, line, |run| {
        attack_models(dir, model, &args.how, run)
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
