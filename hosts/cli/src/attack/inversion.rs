//! `fl attack inversion`: what the models of a run take each class to look like.

use super::{AttackArgs, attack};
use crate::Done;
use clap::Args;
use fl_attack::{InversionOptions, InversionResult, attack_models};
use fl_registry::Catalogue;
use fl_report::Run;
use std::path::PathBuf;

#[derive(Args)]
pub struct ModelsOptions {
    /// The folder of a run that is done.
    #[arg(value_name = "RUN")]
    dir: PathBuf,
    /// Of which kept model, such as `student`; otherwise of each.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    how: InversionOptions,
}

pub fn inversion(args: &AttackArgs<ModelsOptions>, catalogue: &Catalogue, line: &[String]) -> Done {
    let ModelsOptions { dir, model, how } = &args.options;
    Run::open(dir).map_err(crate::report::unreadable)?;
    attack(&args.common, catalogue, line, |run| {
        let found = attack_models(dir, model.as_deref(), how, run)?;
        let json = serde_json::json!({ "run": dir, "seed": args.common.seed, "attacks": found });
        Ok((json, text(&found)))
    })
}

pub fn text(found: &[InversionResult]) -> String {
    let width = found.iter().map(|f| f.model.len()).fold(5, usize::max);
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
