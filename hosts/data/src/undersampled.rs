//! Reconstruction: images are to be made again of a part of their frequencies.

use anyhow::{Context, Result, bail};
use fl_core::{Examples, Images, Inputs, Labels, Samples, Stream, Task, TaskKind, metrics};
use ndarray::Array2;
use std::f64::consts::TAU;
use std::sync::Arc;

fl_core::settings! {
    /// Images are to be made again of a part of their frequencies, as a scanner for magnetic
    /// resonance takes to be quicker; classes are used to share them out, and then forgotten. Of
    /// the columns of an image's two-dimensional Fourier transform those in the centre are kept and
    /// others at random, for each image anew (and the same whatever the seed), so that one in
    /// `factor` is expected to be left; the input is the magnitude of what these transform back to,
    /// in whole bytes (fastMRI, Zbontar et al. 2018: random Cartesian masks).
    pub struct Undersampled {
        /// One column of this many is kept.
        factor: f64 = 4.0, in 1.0..=64.0;
        /// Share of the columns that are always kept, those of the lowest frequencies; at least one
        /// column is. fastMRI: 0.08 with a factor of 4, 0.04 with one of 8.
        centre: f64 = 0.08, in 0.0..=1.0;
    }
}

impl Undersampled {
    /// What is to be learnt of images that were for this.
    pub(crate) fn task(&self, of: &Task) -> Result<Task> {
        match (&of.input[..], of.kind) {
            (_, TaskKind::Pixels { .. }) => {
                bail!(
                    "these images are there for the classes of their pixels; take a set of images that are not, such as `mnist`"
                )
            }
            (_, TaskKind::Image { .. }) => {
                bail!(
                    "these images have target images already, which `undersampled` would replace; leave it out"
                )
            }
            (&[channels, height, width], _) => Ok(Task::new(
                of.input.clone(),
                TaskKind::Image {
                    channels,
                    height,
                    width,
                },
            )),
            (other, _) => {
                bail!("only images have frequencies to leave out, and these inputs are {other:?}")
            }
        }
    }

    /// A client's own examples, as those of the spec are.
    ///
    /// # Errors
    /// When they are not images of bytes.
    pub fn of(&self, own: &Examples) -> Result<Examples> {
        Undersampler::new(self, &[&own.samples])?.examples(own)
    }

    /// Which columns of the transform are kept, by frequency 0 to `width - 1`.
    fn kept(&self, width: usize, stream: &Stream) -> Vec<bool> {
        let low = ((width as f64 * self.centre).round() as usize).clamp(1, width);
        let due = width as f64 / self.factor - low as f64;
        let odds = due / (width - low).max(1) as f64;
        let (mut draws, first) = (stream.draws(), (width - low).div_ceil(2));
        let mut kept = vec![false; width];
        for at in 0..width {
            // lowest frequency in the middle, as fastMRI counts
            let frequency = (at + width.div_ceil(2)) % width;
            let drawn = draws.uniform() < odds;
            kept[frequency] = drawn || (first..first + low).contains(&at);
        }
        kept
    }

    /// Every line of an image without the frequencies that are left out, in place.
    fn leave_out(&self, image: &mut [u8], width: usize, stream: &Stream) {
        let kept = self.kept(width, stream);
        // cos and sin as this library has them: the same on every host, and so are the bytes
        let turn = |at: usize| TAU * at as f64 / width as f64;
        let (cos, sin): (Vec<f64>, Vec<f64>) = (0..width)
            .map(|at| (libm::cos(turn(at)), libm::sin(turn(at))))
            .unzip();
        let kernel = |wave: &[f64]| -> Vec<f64> {
            let at = |shift: usize| {
                let each = (0..width).filter(|k| kept[*k]);
                each.map(|k| wave[k * shift % width]).sum::<f64>() / width as f64
            };
            (0..width).map(at).collect()
        };
        let (real, imaginary) = (kernel(&cos), kernel(&sin));
        for line in image.chunks_mut(width) {
            let before: Vec<f64> = line.iter().map(|byte| f64::from(*byte)).collect();
            for (i, byte) in line.iter_mut().enumerate() {
                let sum = |kernel: &[f64]| {
                    let each = before.iter().enumerate();
                    each.map(|(j, v)| v * kernel[(i + width - j) % width])
                        .sum::<f64>()
                };
                // beyond 255 there is no byte: `as` stops there
                *byte = libm::hypot(sum(&real), sum(&imaginary)).round() as u8;
            }
        }
    }
}

/// Views of sets whose images are to be made again; sets that views share they still share.
pub(crate) struct Undersampler<'a> {
    how: &'a Undersampled,
    /// Each set, and what became of it.
    done: Vec<(Arc<Inputs>, Arc<Inputs>, Arc<Labels>)>,
}

impl<'a> Undersampler<'a> {
    /// The rows that `views` show are changed, and no others of their sets.
    pub(crate) fn new(how: &'a Undersampled, views: &[&Samples]) -> Result<Self> {
        let mut all = Self {
            how,
            done: Vec::new(),
        };
        for view in views {
            if all.find(view.inputs()).is_err() {
                let same = |other: &&&Samples| Arc::ptr_eq(other.inputs(), view.inputs());
                let ids = views.iter().filter(same).flat_map(|view| view.ids().iter());
                let mut rows: Vec<u32> = ids.copied().collect();
                rows.sort_unstable();
                rows.dedup();
                all.add(view.inputs(), &rows)?;
            }
        }
        Ok(all)
    }

    fn add(&mut self, of: &Arc<Inputs>, rows: &[u32]) -> Result<()> {
        let Inputs::Bytes {
            shape,
            data,
            mean,
            std,
        } = &**of
        else {
            bail!(
                "`undersampled` leaves out frequencies of images, and these inputs are no images of bytes"
            );
        };
        let volume: usize = shape.iter().product();
        // one for every run: methods and seeds are compared on the same images
        let stream = Stream::root(0).child("undersampled", self.done.len() as u64);
        let mut less = data.clone();
        let mut images = less.chunks_mut(volume).enumerate();
        for row in rows {
            let found = images.find(|(at, _)| *at == *row as usize);
            let (_, image) = found.context("a row beyond its set")?;
            let stream = stream.child("image", u64::from(*row));
            self.how.leave_out(image, shape[2], &stream);
        }
        let whole = Array2::from_shape_vec((data.len() / volume, volume), data.clone())?;
        let inputs = Inputs::Bytes {
            shape: *shape,
            data: less,
            mean: mean.clone(),
            std: std.clone(),
        };
        let labels = Labels::Images(Images::new(*shape, whole)?);
        self.done
            .push((of.clone(), Arc::new(inputs), Arc::new(labels)));
        Ok(())
    }

    fn find(&self, of: &Arc<Inputs>) -> Result<(&Arc<Inputs>, &Arc<Labels>)> {
        let found = self
            .done
            .iter()
            .find(|(before, ..)| Arc::ptr_eq(before, of));
        let (_, inputs, labels) = found.context("a view of an unknown set")?;
        Ok((inputs, labels))
    }

    pub(crate) fn examples(&self, of: &Examples) -> Result<Examples> {
        let (inputs, labels) = self.find(of.samples.inputs())?;
        let rows: Vec<usize> = of.samples.ids().iter().map(|id| *id as usize).collect();
        Ok(Examples::all(inputs.clone(), labels.clone())?.pick(&rows))
    }

    pub(crate) fn samples(&self, of: &Samples) -> Result<Samples> {
        let (inputs, _) = self.find(of.inputs())?;
        let rows: Vec<usize> = of.ids().iter().map(|id| *id as usize).collect();
        Ok(Samples::all(inputs.clone()).pick(&rows))
    }
}

/// What images without all their frequencies score by themselves.
pub(crate) fn psnr(of: &Examples) -> Result<f64> {
    let (Inputs::Bytes { data, .. }, Some(truth)) = (&**of.samples.inputs(), of.images()) else {
        bail!(
            "`undersampled` leaves out frequencies of images, and these inputs are no images of bytes"
        );
    };
    let volume = of.samples.width();
    let rows = of.samples.ids().iter().map(|id| *id as usize * volume);
    let bytes = rows.flat_map(|start| &data[start..start + volume]);
    let values = bytes.map(|byte| f32::from(*byte) / 255.0).collect();
    let values = Array2::from_shape_vec((of.len(), volume), values)?;
    metrics::psnr(truth.values().view(), values.view())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(columns: bool) -> Undersampled {
        Undersampled {
            factor: if columns { 1.0 } else { 4.0 },
            centre: 0.08,
        }
    }

    #[test]
    fn one_column_in_four_is_left_and_always_the_lowest() {
        let kept = |at| all(false).kept(32, &Stream::root(at));
        let mut sum = 0;
        for at in 0..400 {
            let kept = kept(at);
            // round(32 * 0.08) = 3 in the middle
            assert!(kept[31] && kept[0] && kept[1], "{kept:?}");
            sum += kept.iter().filter(|k| **k).count();
        }
        assert!((sum as f64 / 400.0 - 8.0).abs() < 0.4, "{sum}");
        assert_ne!(kept(1), kept(2));
        assert!(all(true).kept(32, &Stream::root(1)).iter().all(|k| *k));
        let whole = Undersampled {
            factor: 64.0,
            centre: 1.0,
        };
        assert!(whole.kept(5, &Stream::root(1)).iter().all(|k| *k));
        let least = Undersampled {
            factor: 64.0,
            centre: 0.0,
        };
        let kept = least.kept(28, &Stream::root(1));
        assert!(kept[0] && kept.iter().filter(|k| **k).count() == 1);
    }

    #[test]
    fn a_line_is_what_its_kept_frequencies_transform_back_to() {
        let before: Vec<u8> = (0..24).map(|at| (at * 37 % 251) as u8).collect();
        let mut same = before.clone();
        all(true).leave_out(&mut same, 12, &Stream::root(3));
        assert_eq!(same, before);

        let (mut less, stream) = (before.clone(), Stream::root(4));
        all(false).leave_out(&mut less, 12, &stream);
        let kept = all(false).kept(12, &stream);
        // by the definition: there, leave out, and back
        for (line, found) in before.chunks(12).zip(less.chunks(12)) {
            let turn = |k: usize, n: usize| TAU * (k * n) as f64 / 12.0;
            let there: Vec<(f64, f64)> = (0..12)
                .map(|k| {
                    let each = || line.iter().enumerate();
                    let re: f64 = each()
                        .map(|(n, v)| f64::from(*v) * libm::cos(turn(k, n)))
                        .sum();
                    let im: f64 = each()
                        .map(|(n, v)| -f64::from(*v) * libm::sin(turn(k, n)))
                        .sum();
                    if kept[k] { (re, im) } else { (0.0, 0.0) }
                })
                .collect();
            for (n, byte) in found.iter().enumerate() {
                let back = there.iter().enumerate().map(|(k, (re, im))| {
                    let (sin, cos) = libm::sincos(turn(k, n));
                    (re * cos - im * sin, re * sin + im * cos)
                });
                let (re, im) = back.fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d));
                let due = (libm::hypot(re, im) / 12.0).min(255.0);
                assert!((f64::from(*byte) - due).abs() < 0.51, "{byte} for {due}");
            }
        }
    }

    #[test]
    fn images_that_have_others_to_make_are_refused() {
        let kind = TaskKind::Image {
            channels: 1,
            height: 28,
            width: 28,
        };
        let input = vec![1, 28, 28];
        let error = all(false).task(&Task { input, kind }).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("which `undersampled` would replace"),
            "{error}"
        );
    }
}
