//! `fl attack made`: how like private examples is what a run's generator makes?

use super::{AttackArgs, attack};
use crate::Done;
use fl_attack::{GeneratorOptions, NearestPrivate, attack_generator};
use fl_registry::Catalogue;
use fl_report::Run;

pub fn made(args: &AttackArgs<GeneratorOptions>, catalogue: &Catalogue, line: &[String]) -> Done {
    let options = &args.options;
    Run::open(&options.dir).map_err(crate::report::unreadable)?;
    attack(&args.common, catalogue, line, |run| {
        let all = attack_generator(options, run)?;
        let json = serde_json::json!({
            "run": options.dir, "seed": args.common.seed, "private": all.private, "features": all.features, "found": all.found,
        });
        Ok((json, text(&all.found, all.private, &all.features)))
    })
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
