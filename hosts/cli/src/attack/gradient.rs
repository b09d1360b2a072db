//! `fl attack gradient`: what a client's update gives away of the examples that it was made of.

use super::{AttackArgs, attack};
use crate::Done;
use fl_attack::{GradientOptions, Labels, RecoveredImages, attack_gradient};
use fl_registry::Catalogue;

pub fn gradient(
    args: &AttackArgs<GradientOptions>,
    catalogue: &Catalogue,
    line: &[String],
) -> Done {
    let options = &args.options;
    attack(&args.common, catalogue, line, |run| {
        let all = attack_gradient(options, run)?;
        let json = serde_json::json!({
            "spec": options.spec, "client": options.client, "update": options.update, "seed": args.common.seed,
            "examples": all.examples, "labels": options.labels, "labels_right": all.labels_right, "attacks": all.attacks,
        });
        let text = text(options, all.examples, all.labels_right, &all.attacks);
        Ok((json, text))
    })
}

fn text(
    options: &GradientOptions,
    examples: usize,
    right: usize,
    found: &[RecoveredImages],
) -> String {
    let labels = match options.labels {
        Labels::Given => "given".into(),
        Labels::Found => format!("{right} of {examples} right"),
    };
    let mut out = format!(
        "update {} of client {}, which has {examples} examples\nlabels       {labels}\n\nattack       distance  PSNR, dB   least    most   SSIM\n",
        options.update, options.client
    );
    for RecoveredImages {
        attack,
        distance,
        like,
        ..
    } in found
    {
        let distance = distance.map_or("-".into(), |d| format!("{d:.4}"));
        let least = like.psnr.iter().copied().fold(f64::INFINITY, f64::min);
        let (most, ssim) = (like.most_psnr(), like.mean_ssim());
        out += &format!(
            "{attack:11}  {distance:>8}  {:8.1}  {least:6.1}  {most:6.1}  {ssim:>5}\n",
            like.mean_psnr()
        );
    }
    out += "an update may be made of some of its examples only; the others count as not found\n";
    out + "anyone with test images can compute the class mean: an attack that is no better has found nothing"
}
