//! Measures of a run for tasks with a class or a value for every pixel, besides the Dice
//! coefficient and the peak signal-to-noise ratio.

use crate::images::{Window, ssim};
use crate::masks::{Directions, Overlap, hausdorff};
use crate::objects::{Objects, Pairing, Partner};
use anyhow::{Context, Result, ensure};
use fl_core::{Examples, Images, TaskKind, metrics};
use ndarray::{Array2, ArrayView1, ArrayView2};

/// Returns `sensitivity`, `specificity` and `hd95` (pixels; the larger direction), each averaged
/// over images and over the classes except the background, if defined. Of pairs of masks that are
/// not both empty, `hd95-share` is the share where neither is, which `hd95` is of. If the data
/// separate objects, also `object-dice` (partner by intersection over union) and `aji` (pairs
/// sorted by it, each object once), averaged over images. Objects of a prediction are its connected
/// foreground pixels (four neighbours). For made images, returns their `ssim`.
///
/// # Errors
/// If scores and examples are of different sizes.
pub fn measure(scores: ArrayView2<'_, f32>, examples: &Examples) -> Result<Vec<(String, f64)>> {
    if let Some(truth) = examples.images() {
        return of_images(scores, &truth);
    }
    let Some(truth) = examples.masks() else {
        return Ok(Vec::new());
    };
    let predicted = metrics::masks(scores, truth.classes())?;
    let size = truth.size();
    let mut all = [const { Vec::new() }; OF_MASKS.len()];
    for (row, of) in truth.of().rows().into_iter().enumerate() {
        let guess = predicted
            .rows()
            .into_iter()
            .nth(row)
            .context("fewer predictions than images")?;
        for class in 1..truth.classes() {
            let mask = |of: ArrayView1<'_, u8>| -> Result<Array2<bool>> {
                let pixels = of.iter().map(|c| usize::from(*c) == class).collect();
                Ok(Array2::from_shape_vec(size, pixels)?)
            };
            let (truth, guess) = (mask(of)?, mask(guess)?);
            let overlap = Overlap::of(truth.view(), guess.view())?;
            all[0].extend(overlap.sensitivity());
            all[1].extend(overlap.specificity());
            // two empty masks have no distance
            if overlap.both + overlap.missed + overlap.added > 0 {
                let (truth, guess) = (truth.view(), guess.view());
                let distance = hausdorff(truth, guess, 0.95, Directions::Larger)?;
                all[2].extend(distance);
                all[3].push(f64::from(u8::from(distance.is_some())));
            }
        }
        if let Some(objects) = truth.objects() {
            let numbers = objects.row(row).iter().map(|n| u32::from(*n)).collect();
            let numbers = Array2::from_shape_vec(size, numbers)?;
            let inside = guess.iter().map(|class| *class > 0).collect();
            let found = connected(&Array2::from_shape_vec(size, inside)?);
            let objects = Objects::of(numbers.view(), found.view())?;
            all[4].extend(objects.object_dice(Partner::Iou));
            all[5].extend(objects.aji(Pairing::Sorted));
        }
    }
    let means = OF_MASKS
        .into_iter()
        .zip(all)
        .filter(|(_, of)| !of.is_empty());
    Ok(means
        .map(|(name, of)| (name.into(), of.iter().sum::<f64>() / of.len() as f64))
        .collect())
}

/// The names of the measures of masks.
const OF_MASKS: [&str; 6] = [
    "sensitivity",
    "specificity",
    "hd95",
    "hd95-share",
    "object-dice",
    "aji",
];

fn names(kind: TaskKind) -> Vec<String> {
    let names: &[&str] = match kind {
        TaskKind::Pixels { .. } => &OF_MASKS,
        TaskKind::Image { .. } => &["ssim"],
        _ => &[],
    };
    names.iter().map(|name| name.to_string()).collect()
}

fl_core::measures!(measure, names);

/// Returns `ssim` with a uniform window of 7 x 7 and a range of 1, averaged over images and
/// channels. Values outside 0 to 1 count as the nearest of them. Returns nothing for images smaller
/// than the window.
fn of_images(scores: ArrayView2<'_, f32>, truth: &Images) -> Result<Vec<(String, f64)>> {
    let ([channels, height, width], values) = (truth.shape(), truth.values());
    ensure!(
        scores.dim() == values.dim(),
        "predictions of {:?} values for images of {:?}",
        scores.dim(),
        values.dim()
    );
    if height.min(width) < 7 {
        return Ok(Vec::new());
    }
    let planes = |of: ArrayView2<'_, f32>| {
        let of = of.mapv(|value| f64::from(value.clamp(0.0, 1.0)));
        of.into_shape_with_order((truth.of().nrows() * channels, height, width))
    };
    let (made, values) = (planes(scores)?, planes(values.view())?);
    let each = made.outer_iter().zip(values.outer_iter());
    let each = each.map(|(a, b)| ssim(a, b, 1.0, Window::Uniform));
    let each: Vec<f64> = each.collect::<Result<_>>()?;
    Ok(vec![(
        "ssim".into(),
        each.iter().sum::<f64>() / each.len() as f64,
    )])
}

/// Numbers the connected parts of a mask from 1, row by row; two pixels are connected over a side.
pub fn connected(mask: &Array2<bool>) -> Array2<u32> {
    let mut numbers = Array2::zeros(mask.dim());
    let (mut next, mut open) = (0, Vec::new());
    for (at, inside) in mask.indexed_iter() {
        if !*inside || numbers[at] > 0 {
            continue;
        }
        next += 1;
        numbers[at] = next;
        open.push(at);
        while let Some((r, c)) = open.pop() {
            // 0 - 1 wraps to an index outside every picture
            let around = [
                (r.wrapping_sub(1), c),
                (r + 1, c),
                (r, c.wrapping_sub(1)),
                (r, c + 1),
            ];
            for near in around {
                if mask.get(near) == Some(&true) && numbers[near] == 0 {
                    numbers[near] = next;
                    open.push(near);
                }
            }
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use fl_core::{Inputs, Labels, Masks};
    use ndarray::array;
    use std::sync::Arc;

    fn examples(of: Array2<u8>, objects: Option<Array2<u16>>) -> Examples {
        let inputs = Inputs::Dense {
            shape: vec![1, 2, 4],
            data: vec![0.0; of.len()],
        };
        let masks = Masks::new(2, (2, 4), of, objects).unwrap();
        Examples::all(Arc::new(inputs), Arc::new(Labels::Pixels(masks))).unwrap()
    }

    /// Returns scores that are certain of the given class at each pixel.
    fn scores(of: &Array2<u8>) -> Array2<f32> {
        let (rows, pixels) = of.dim();
        Array2::from_shape_fn((rows, 2 * pixels), |(i, at)| {
            f32::from(u8::from(usize::from(of[[i, at % pixels]]) == at / pixels))
        })
    }

    #[test]
    fn close_made_images_are_compared_plane_by_plane() {
        let bytes = Array2::from_shape_fn((2, 2 * 64), |(i, at)| (i * 40 + at * 3 % 200) as u8);
        let images = Images::new([2, 8, 8], bytes).unwrap();
        let inputs = Arc::new(Inputs::Dense {
            shape: vec![1],
            data: vec![0.0; 2],
        });
        let truth = images.values();
        let examples = Examples::all(inputs, Arc::new(Labels::Images(images))).unwrap();
        let of = |made: &Array2<f32>| measure(made.view(), &examples).unwrap();
        assert_eq!(of(&truth), [("ssim".to_string(), 1.0)]);
        // values beyond black and white count as black or white
        let beyond = truth.mapv(|v| if v == 0.0 { -7.0 } else { v });
        assert_eq!(of(&beyond), of(&truth));
        // by scikit-image's rule, for each plane separately
        let off = &truth * 0.5;
        let plane = |of: &Array2<f32>, i: usize, c: usize| {
            let values = of.slice(ndarray::s![i, 64 * c..64 * (c + 1)]);
            values
                .mapv(f64::from)
                .into_shape_with_order((8, 8))
                .unwrap()
        };
        let each = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(i, c)| {
            let (a, b) = (plane(&off, i, c), plane(&truth, i, c));
            ssim(a.view(), b.view(), 1.0, Window::Uniform).unwrap()
        });
        assert!((of(&off)[0].1 - each.iter().sum::<f64>() / 4.0).abs() < 1e-12);
        assert!(measure(Array2::zeros((2, 5)).view(), &examples).is_err());
    }

    #[test]
    fn two_images_by_hand() {
        // two objects side by side, predicted as one that lacks a pixel; and an empty mask,
        // predicted empty
        let truth = array![[1, 1, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]];
        let objects = array![[1, 2, 0, 0, 1, 2, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]];
        let found = array![[1, 1, 0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]];
        let scores = scores(&found);
        let own = examples(truth.clone(), Some(objects));
        let all = measure(scores.view(), &own).unwrap();
        let of = |name: &str| all.iter().find(|m| m.0 == name).map(|m| m.1);
        assert_eq!(of("sensitivity"), Some(0.75)); // undefined for the empty mask
        assert_eq!(of("specificity"), Some(1.0));
        // the quantile of 0, 0, 0, 1 is 0.85; two empty masks have no distance
        assert!((of("hd95").unwrap() - 0.85).abs() < 1e-9);
        assert_eq!(of("hd95-share"), Some(1.0));
        // object 1 (IoU 2/3) is the partner; Dice 4/5. Object 2 has the same partner: Dice 2/5
        let due = 0.5 * (0.5 * 0.8 + 0.5 * 0.4 + 0.8);
        assert!((of("object-dice").unwrap() - due).abs() < 1e-9);
        // 2 shared of a union of 3, and 2 pixels of the object without a partner
        assert!((of("aji").unwrap() - 0.4).abs() < 1e-9);
        let score = metrics::score(scores.view(), &own).unwrap().unwrap();
        assert!((score - (6.0 / 7.0 + 1.0) / 2.0).abs() < 1e-9);

        let all = measure(scores.view(), &examples(truth, None)).unwrap();
        assert_eq!(all.len(), 4, "nobody told objects apart: {all:?}");
        assert_eq!(metrics::further(scores.view(), &own).unwrap().len(), 6);
    }

    #[test]
    fn an_object_without_a_prediction_lowers_the_share_of_distances() {
        let truth = array![[1, 1, 0, 0, 1, 1, 0, 0], [1, 1, 0, 0, 1, 1, 0, 0]];
        let found = array![[1, 1, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]];
        let of = |found: &Array2<u8>| {
            let own = examples(truth.clone(), None);
            measure(scores(found).view(), &own).unwrap()
        };
        let both = [("hd95".to_string(), 0.0), ("hd95-share".into(), 0.5)];
        assert_eq!(of(&found)[2..], both);
        let nothing = of(&Array2::zeros((2, 8)));
        assert_eq!(nothing[2..], [("hd95-share".to_string(), 0.0)]);
    }

    #[test]
    fn corners_do_not_connect() {
        let mask = array![[true, false, true], [true, true, false]];
        assert_eq!(connected(&mask), array![[1, 0, 2], [1, 1, 0]]);
    }
}
