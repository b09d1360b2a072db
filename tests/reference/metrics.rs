//! How good predictions are.

use crate::replay::{Op, maybe, number};
use anyhow::{Result, ensure};
use fl_core::metrics;
use fl_plugin_dense_prediction::images::{Window, mse, psnr, ssim};
use fl_plugin_dense_prediction::masks::{Directions, Overlap, hausdorff};
use fl_plugin_dense_prediction::objects::{Objects, Pairing, Partner};
use ndarray::Array2;
use serde_json::{Value, json};

pub const OPS: &[Op] = &[
    ("accuracy", |i| {
        let (scores, labels): (Array2<f32>, Vec<u32>) = (i.table("scores")?, i.get("labels")?);
        let top2 = metrics::top_k(scores.view(), &labels, 2);
        Ok(
            json!({ "accuracy": number(metrics::accuracy(scores.view(), &labels)), "top2": number(top2) }),
        )
    }),
    ("auc", |i| {
        let (scores, labels): (Vec<f32>, Vec<i8>) = (i.get("scores")?, i.get("labels")?);
        Ok(json!({ "auc": maybe(metrics::auc(scores, labels)) }))
    }),
    ("mauc", |i| {
        let (each, mean) = metrics::mauc(i.table("scores")?.view(), i.table("labels")?.view());
        let valid = each.iter().flatten().count();
        Ok(
            json!({ "auc": each.into_iter().map(maybe).collect::<Value>(), "mauc": maybe(mean), "n_valid": valid }),
        )
    }),
    ("mean_std", |i| {
        let values: Vec<f64> = i.get("values")?;
        ensure!(!values.is_empty(), "no values");
        let (mean, std) = metrics::mean_std(&values);
        let sample = number(metrics::sample_std(&values));
        Result::Ok(
            json!({ "mean": number(mean), "std_population": number(std), "std_sample": sample }),
        )
    }),
    ("segmentation", |i| {
        let mask = |name: &str| i.table::<u8>(name).map(|mask| mask.mapv(|x| x != 0));
        let (truth, prediction) = (mask("truth")?, mask("prediction")?);
        let (truth, prediction) = (truth.view(), prediction.view());
        let overlap = Overlap::of(truth, prediction)?;
        let distance = |quantile, directions| hausdorff(truth, prediction, quantile, directions);
        Ok(json!({
            "dice": overlap.dice(), "iou": overlap.iou(), "sensitivity": maybe(overlap.sensitivity()),
            "specificity": maybe(overlap.specificity()), "hd": maybe(distance(1.0, Directions::Larger)?),
            "hd95_max_of_directed": maybe(distance(0.95, Directions::Larger)?),
            "hd95_pooled": maybe(distance(0.95, Directions::Pooled)?),
            "hd95_all_pixels_max_of_directed": maybe(distance(0.95, Directions::LargerOfAllPixels)?),
        }))
    }),
    ("instances", |i| {
        let (truth, prediction): (Array2<u32>, Array2<u32>) =
            (i.table("truth")?, i.table("prediction")?);
        let objects = Objects::of(truth.view(), prediction.view())?;
        Ok(json!({
            "object_dice_iou_match": maybe(objects.object_dice(Partner::Iou)),
            "object_dice_area_match": maybe(objects.object_dice(Partner::Overlap)),
            "aji_sorted_unique": maybe(objects.aji(Pairing::Sorted)),
            "aji_reuse_allowed": maybe(objects.aji(Pairing::Reuse)),
            "aji_sequential_unique": maybe(objects.aji(Pairing::Sequential)),
            "aji_hungarian": maybe(objects.aji(Pairing::Best)),
        }))
    }),
    ("image_similarity", |i| {
        let (a, b): (Array2<f64>, Array2<f64>) = (i.table("a")?, i.table("b")?);
        let (a, b, range) = (a.view(), b.view(), i.get("data_range")?);
        Ok(json!({
            "ssim_uniform7": number(ssim(a, b, range, Window::Uniform)?),
            "ssim_gaussian": number(ssim(a, b, range, Window::Gaussian)?),
            "mse": number(mse(a, b)?), "psnr": number(psnr(a, b, range)?),
        }))
    }),
];
