//! `cells`: colour images of cell nuclei, and which pixel belongs to which of them, from
//! laboratories that stain differently.

use crate::synthetic::{bell, between, check_rows};
use anyhow::{Context, Result};
use fl_core::{Draws, Inputs, Labels, Masks, Stream, Task, TaskKind};
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, check_ranges, dataset::Source, format};
use ndarray::Array2;

/// What is taken from the values of each channel, and what they are divided by: about their mean
/// and deviation, on the scale 0 to 1.
const STATISTICS: (&[f32], &[f32]) = (&[0.545, 0.5, 0.598], &[0.32, 0.27, 0.25]);

/// How images of one laboratory look: colours of the background and of a nucleus, radii in pixels,
/// nuclei in 1000 pixels.
struct Laboratory {
    name: &'static str,
    ground: [f64; 3],
    nucleus: [f64; 3],
    radius: [f64; 2],
    many: f64,
}

static LABORATORIES: [Laboratory; 3] = [
    Laboratory {
        name: "haematoxylin and eosin",
        ground: [0.92, 0.76, 0.86],
        nucleus: [0.42, 0.30, 0.60],
        radius: [2.6, 4.6],
        many: 7.0,
    },
    Laboratory {
        name: "immunostain",
        ground: [0.80, 0.82, 0.86],
        nucleus: [0.48, 0.32, 0.22],
        radius: [2.0, 3.4],
        many: 11.0,
    },
    Laboratory {
        name: "fluorescence",
        ground: [0.06, 0.07, 0.14],
        nucleus: [0.30, 0.45, 0.85],
        radius: [3.0, 5.6],
        many: 5.0,
    },
];

fl_core::settings! {
    /// Made here: nuclei of cells on slides of laboratories that stain differently, in colour; each
    /// pixel is background or nucleus, and touching nuclei are separate objects. With `split:
    /// by-file` each laboratory is a client.
    #[check(Cells::fits)]
    pub struct Cells {
        /// Laboratories: haematoxylin and eosin, an immunostain, fluorescence.
        domains: usize = 3, in 1..=3;
        /// Training images, the same number from each laboratory.
        train: usize = 240, in 1..;
        /// Test images, the same number from each laboratory.
        test: usize = 60, in 1..;
        /// Rows and columns of an image.
        side: usize = 32, in 16..=512;
        /// Standard deviation of the noise on each value, on the scale 0 to 1.
        noise: f64 = 0.06, in 0.0..;
        /// The set with another seed is another set.
        seed: u64 = 0;
    }
}

fl_data_kit::data_set!("cells" => Cells);

impl DataSet for Cells {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            statistics: Some(STATISTICS),
            ..DataSetFacts::made(self.train, self.test)
        }
    }

    fn task(&self) -> Option<Task> {
        Some(Task::new(
            vec![3, self.side, self.side],
            TaskKind::Pixels {
                classes: 2,
                height: self.side,
                width: self.side,
            },
        ))
    }

    fn load(&self, _: &Folder<'_>) -> Result<Rows> {
        check_ranges(self).context("cells")?;
        let sources = |rows| {
            let source = |(domain, laboratory): (usize, &Laboratory)| Source {
                name: laboratory.name.into(),
                rows: self.rows_of(domain, rows),
            };
            let all = LABORATORIES.iter().take(self.domains).enumerate();
            all.map(source).collect()
        };
        Ok(Rows {
            sources: sources(self.train),
            test_sources: sources(self.test),
            classes: ["background", "nucleus"].map(String::from).to_vec(),
            ..Rows::new(
                self.part("train", self.train)?,
                self.part("test", self.test)?,
            )
        })
    }

    fn sources(&self) -> Option<usize> {
        Some(self.domains)
    }
}

impl Cells {
    fn fits(&self) -> Result<(), String> {
        check_rows(&[self.train, self.test], 3 * self.side * self.side)?;
        match [self.train, self.test].into_iter().min() {
            Some(least) if least < self.domains => Err(format!(
                "{least} images of {} laboratories; each needs one",
                self.domains
            )),
            _ => Ok(()),
        }
    }

    /// How many of `rows` images a laboratory has.
    fn rows_of(&self, domain: usize, rows: usize) -> usize {
        rows * (domain + 1) / self.domains - rows * domain / self.domains
    }

    fn part(&self, name: &str, rows: usize) -> Result<(Inputs, Labels)> {
        let stream = Stream::root(self.seed).child("cells", 0).child(name, 0);
        let (mut data, mut objects) = (Vec::new(), Vec::new());
        for (domain, laboratory) in LABORATORIES.iter().take(self.domains).enumerate() {
            for row in 0..self.rows_of(domain, rows) {
                let stream = stream.child(laboratory.name, row as u64);
                let mut slide = Slide::new(self.side, laboratory, stream.draws());
                slide.draw();
                slide.scan(self.noise, &mut data);
                objects.extend(slide.objects);
            }
        }
        let objects = Array2::from_shape_vec((rows, self.side * self.side), objects)?;
        let of = objects.mapv(|object| u8::from(object > 0));
        let masks = Masks::new(2, (self.side, self.side), of, Some(objects))?;
        let shape = [3, self.side, self.side];
        Ok((format::images(shape, data), Labels::Pixels(masks)))
    }
}

/// An ellipse.
struct Blob {
    centre: [f64; 2],
    radii: [f64; 2],
    /// Cosine and sine of its angle.
    turn: [f64; 2],
}

/// An image while it is made.
struct Slide<'a> {
    side: usize,
    laboratory: &'a Laboratory,
    /// Pixel after pixel, on the scale 0 to 1.
    colours: Vec<[f64; 3]>,
    objects: Vec<u16>,
    draws: Draws,
}

impl<'a> Slide<'a> {
    fn new(side: usize, laboratory: &'a Laboratory, draws: Draws) -> Self {
        Self {
            side,
            laboratory,
            colours: vec![laboratory.ground; side * side],
            objects: vec![0; side * side],
            draws,
        }
    }

    /// A radius of the stain's, with the other a little different, at any angle.
    fn blob(&mut self, scale: f64) -> Blob {
        let [low, high] = self.laboratory.radius;
        let radius = scale * between(&mut self.draws, low, high);
        let t = between(&mut self.draws, -1.0, 1.0);
        Blob {
            centre: [0.0; 2].map(|_: f64| between(&mut self.draws, 0.0, self.side as f64)),
            radii: [radius, radius * between(&mut self.draws, 0.6, 1.0)],
            turn: [(1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t)],
        }
    }

    /// Mixes `colour` in, full inside and fading at the edge; its pixels are those of `object`, if
    /// there is one.
    fn paint(&mut self, blob: &Blob, colour: [f64; 3], dye: f64, object: Option<u16>) {
        let reach = blob.radii[0] + 1.0;
        let range = |centre: f64| {
            let low = (centre - reach).max(0.0) as usize;
            low..((centre + reach + 1.0).max(0.0) as usize).min(self.side)
        };
        let [cos, sin] = blob.turn;
        for y in range(blob.centre[1]) {
            for x in range(blob.centre[0]) {
                let (dx, dy) = (x as f64 - blob.centre[0], y as f64 - blob.centre[1]);
                let (u, v) = (cos * dx + sin * dy, cos * dy - sin * dx);
                let (u, v) = (u / blob.radii[0], v / blob.radii[1]);
                // 1 on the edge
                let far = (u * u + v * v).sqrt();
                let share = dye * ((1.0 - far) * blob.radii[1] + 0.5).clamp(0.0, 1.0);
                let at = y * self.side + x;
                for (value, colour) in self.colours[at].iter_mut().zip(colour) {
                    *value += share * (colour - *value);
                }
                if let Some(object) = object.filter(|_| far <= 1.0) {
                    self.objects[at] = object;
                }
            }
        }
    }

    fn draw(&mut self) {
        let (laboratory, area) = (self.laboratory, (self.side * self.side) as f64);
        let mean = laboratory.many * area / 1000.0;
        let count = (mean * between(&mut self.draws, 0.6, 1.4) + 0.5) as u16;
        // cytoplasm: larger than nuclei, of a colour on the way to theirs, and nothing to find
        for _ in 0..count.div_ceil(2) {
            let (blob, dye) = (self.blob(1.8), between(&mut self.draws, 0.1, 0.35));
            self.paint(&blob, laboratory.nucleus, dye, None);
        }
        let mut last: Option<[f64; 3]> = None;
        for object in 1..=count {
            let mut blob = self.blob(1.0);
            // some touch the one before
            if let (Some([x, y, radius]), true) = (last, self.draws.uniform() < 0.35) {
                let t = between(&mut self.draws, -1.0, 1.0);
                let apart = 0.9 * (radius + blob.radii[0]);
                let [cos, sin] = [(1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t)];
                let side = if self.draws.uniform() < 0.5 {
                    -1.0
                } else {
                    1.0
                };
                blob.centre = [x + side * apart * cos, y + apart * sin];
            }
            let dye = between(&mut self.draws, 0.55, 1.0);
            let tint = laboratory
                .nucleus
                .map(|c| (c + 0.06 * bell(&mut self.draws, 4)).clamp(0.0, 1.0));
            self.paint(&blob, tint, dye, Some(object));
            last = Some([blob.centre[0], blob.centre[1], blob.radii[0]]);
        }
    }

    /// Appends the image as bytes, channel after channel, unevenly lit and with noise.
    fn scan(&mut self, noise: f64, out: &mut Vec<u8>) {
        let [right, down] = [0.0; 2].map(|_: f64| between(&mut self.draws, -0.12, 0.12));
        let (side, half) = (self.side, self.side as f64 / 2.0);
        for channel in 0..3 {
            for at in 0..side * side {
                let (x, y) = (
                    (at % side) as f64 / half - 1.0,
                    (at / side) as f64 / half - 1.0,
                );
                let lit = self.colours[at][channel] * (1.0 + right * x + down * y);
                let value = lit + noise * bell(&mut self.draws, 4);
                out.push((255.0 * value.clamp(0.0, 1.0) + 0.5) as u8);
            }
        }
    }
}

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;
