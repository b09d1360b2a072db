//! `fl attack gradient`: what a client's update gives away of the examples that it was made of.

use super::{Common, attack, weight};
use crate::{Done, Overrides, print};
use clap::{Args, ValueEnum};
use fl_attack::{GradientOptions, RecoveredImages, attack_gradient};
use fl_core::ClientId;
use fl_registry::Catalogue;
use std::path::PathBuf;

#[derive(Args)]
pub struct GradientArgs {
    /// The spec, or the folder of a run. As much of it is run as the attacker needs to see.
    #[arg(value_name = "SPEC")]
    spec: PathBuf,
    #[command(flatten)]
    set: Overrides,
    /// The client whose update is attacked.
    #[arg(long, value_name = "ID", default_value_t = 0)]
    client: ClientId,
    /// Which of the client's updates, from 1.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    update: u32,
    /// Steps of the search.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// The weight of an image's total variation per pixel against the distance: larger finds
    /// smoother images.
    #[arg(long, value_name = "WEIGHT", default_value_t = 0.1, value_parser = weight)]
    smooth: f64,
    /// How the attacker comes by the classes of the images: found in the slopes by the last layer,
    /// or given.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Labels::Found)]
    labels: Labels,
    /// Draw the private images, below them the images of each attack, and below those the class
    /// means: a PNG file.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, ValueEnum)]
enum Labels {
    Given,
    Found,
}

pub fn gradient(args: &GradientArgs, catalogue: &Catalogue, line: &[String]) -> Done {
    let labels = match args.labels {
        Labels::Given => fl_attack::Labels::Given,
        Labels::Found => fl_attack::Labels::Found,
    };
    let options = GradientOptions {
        spec: args.spec.clone(),
        set: args.set.set.clone(),
        client: args.client,
        update: args.update,
        steps: args.steps,
        smooth: args.smooth,
        labels,
        picture: args.picture.clone(),
    };
    let all = attack(&args.common, catalogue, line, |run| {
        attack_gradient(&options, run)
    })?;
    match args.common.json {
        true => print(serde_json::json!({
            "spec": args.spec, "client": args.client, "update": args.update, "seed": args.common.seed,
            "examples": all.examples, "labels": labels, "labels_right": all.labels_right, "attacks": all.attacks,
        })),
        false => print(text(args, all.examples, all.labels_right, &all.attacks)),
    }
}

fn text(args: &GradientArgs, examples: usize, right: usize, found: &[RecoveredImages]) -> String {
    let labels = match args.labels {
        Labels::Given => "given".into(),
        Labels::Found => format!("{right} of {examples} right"),
    };
    let mut out = format!(
        "update {} of client {}, made of {examples} examples\nlabels       {labels}\n\nattack       distance  PSNR, dB   least    most   SSIM\n",
        args.update, args.client
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
    out + "anyone with test images can compute the class mean: an attack that is no better has found nothing"
}
