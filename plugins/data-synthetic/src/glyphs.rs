//! `glyphs`: grey images of ten classes, drawn with a pen that never moves twice alike.

use crate::synthetic::{bell, between, check_rows};
use anyhow::{Context, Result};
use fl_core::{Draws, Inputs, Labels, Stream, Task};
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, check_ranges, class_task};

/// Height and width of an image.
pub const SIDE: usize = 28;
/// Number of classes.
pub const CLASSES: usize = 10;
/// Mean and standard deviation of the training pixels, on the scale 0 to 1.
pub const STATISTICS: (f32, f32) = (0.148, 0.239);

type Point = [f64; 2];

/// One line of the pen, through points on a square from -1 to 1 (y points down).
struct Stroke {
    /// Are the corners rounded off?
    smooth: bool,
    points: &'static [Point],
}

const fn smooth(points: &'static [Point]) -> Stroke {
    Stroke {
        smooth: true,
        points,
    }
}

const fn straight(points: &'static [Point]) -> Stroke {
    Stroke {
        smooth: false,
        points,
    }
}

#[rustfmt::skip]
static SHAPES: [&[Stroke]; CLASSES] = [
    &[smooth(&[[0.0, -1.0], [0.6, -0.95], [0.7, 0.0], [0.6, 0.95], [0.0, 1.0], [-0.6, 0.95], [-0.7, 0.0], [-0.6, -0.95], [0.0, -1.0]])],
    &[straight(&[[-0.35, -0.6], [0.1, -1.0], [0.1, 1.0]])],
    &[smooth(&[[-0.6, -0.5], [-0.45, -1.05], [0.55, -1.1], [0.7, -0.35], [0.0, 0.35], [-0.65, 0.95]]), straight(&[[-0.65, 0.95], [0.7, 0.95]])],
    &[smooth(&[[-0.55, -0.8], [0.1, -1.2], [0.75, -0.8], [0.5, -0.1], [-0.15, -0.05]]), smooth(&[[-0.15, -0.05], [0.65, 0.0], [0.8, 0.65], [0.1, 1.2], [-0.6, 0.75]])],
    &[straight(&[[0.35, 1.0], [0.35, -1.0], [-0.7, 0.35], [0.75, 0.35]])],
    &[straight(&[[0.6, -0.95], [-0.45, -0.95], [-0.5, -0.1]]), smooth(&[[-0.5, -0.1], [0.3, -0.4], [0.8, 0.2], [0.6, 1.05], [-0.1, 1.1], [-0.6, 0.75]])],
    &[smooth(&[[0.45, -0.95], [-0.3, -0.8], [-0.7, 0.1], [-0.6, 1.0], [0.2, 1.15], [0.75, 0.65], [0.5, -0.05], [-0.1, -0.15], [-0.6, 0.45]])],
    &[straight(&[[-0.65, -0.95], [0.65, -0.95], [-0.15, 1.0]])],
    &[smooth(&[[0.0, -0.05], [-0.6, -0.2], [-0.6, -0.95], [0.0, -1.1], [0.6, -0.95], [0.6, -0.2], [0.0, -0.05]]), smooth(&[[0.0, -0.05], [-0.8, 0.1], [-0.7, 1.0], [0.0, 1.15], [0.7, 1.0], [0.8, 0.1], [0.0, -0.05]])],
    &[smooth(&[[0.5, -0.5], [0.4, -1.1], [-0.4, -1.1], [-0.7, -0.4], [-0.2, 0.15], [0.45, 0.0], [0.5, -0.5]]), smooth(&[[0.5, -0.6], [0.6, 0.2], [0.25, 1.0]])],
];

fl_core::settings! {
    /// Made here: ten hand-drawn glyphs, 28 x 28 grey.
    #[check(Glyphs::fits)]
    pub struct Glyphs {
        /// Training images; image `i` is of class `i % 10`.
        train: usize = 4000, in 1..;
        /// Test images.
        test: usize = 1000, in 1..;
        /// Standard deviation of the noise on each pixel, on the scale 0 to 1.
        noise: f64 = 0.15, in 0.0..;
        /// The set with another seed is another set.
        seed: u64 = 0;
    }
}

fl_data_kit::data_set!("glyphs" => Glyphs);

impl DataSet for Glyphs {
    fn facts(&self) -> DataSetFacts {
        DataSetFacts {
            statistics: Some((&[STATISTICS.0], &[STATISTICS.1])),
            ..DataSetFacts::made(self.train, self.test)
        }
    }

    fn task(&self) -> Option<Task> {
        class_task(&[1, SIDE, SIDE], CLASSES)
    }

    fn load(&self, _: &Folder<'_>) -> Result<Rows> {
        check_ranges(self).context("glyphs")?;
        let stream = Stream::root(self.seed).child("glyphs", 0);
        let part = |name: &str, rows: usize| {
            let mut data = Vec::new();
            for row in 0..rows {
                let mut draws = stream.child(name, row as u64).draws();
                let mut canvas = Canvas::default();
                let shift = [
                    between(&mut draws, -2.5, 2.5),
                    between(&mut draws, -2.5, 2.5),
                ];
                let style = Style::draw(&mut draws, 9.0, 0.2, shift);
                canvas.write(row % CLASSES, &style, &mut draws);
                canvas.scan(self.noise, &mut draws, &mut data);
            }
            let of = (0..rows).map(|row| (row % CLASSES) as u32).collect();
            (
                images(data, STATISTICS),
                Labels::Classes {
                    of,
                    classes: CLASSES,
                },
            )
        };
        Ok(Rows::new(
            part("train", self.train),
            part("test", self.test),
        ))
    }
}

impl Glyphs {
    fn fits(&self) -> Result<(), String> {
        check_rows(&[self.train, self.test], SIDE * SIDE)
    }
}

/// Bytes as images of this size, with this mean and standard deviation.
pub(super) fn images(data: Vec<u8>, (mean, std): (f32, f32)) -> Inputs {
    Inputs::Bytes {
        shape: [1, SIDE, SIDE],
        data,
        mean: vec![mean],
        std: vec![std],
    }
}

/// How one glyph is written: where, how large, how slanted, how thick and how dark.
pub(super) struct Style {
    /// Linear part of the map from the square to pixels, by rows.
    map: [f64; 4],
    centre: Point,
    /// Half the width of the line, in pixels.
    radius: f64,
    ink: f64,
}

impl Style {
    /// `size` is half the height of a glyph in pixels, `slant` bounds the tangent of half the angle
    /// it is turned by.
    pub(super) fn draw(draws: &mut Draws, size: f64, slant: f64, shift: Point) -> Self {
        // a rotation by the tangent of the half angle: no sine, no cosine
        let t = between(draws, -slant, slant);
        let (cos, sin) = ((1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t));
        let (sx, sy) = (
            size * between(draws, 0.7, 1.1),
            size * between(draws, 0.8, 1.1),
        );
        let shear = between(draws, -0.3, 0.3);
        Self {
            map: [
                cos * sx,
                (cos * shear - sin) * sy,
                sin * sx,
                (sin * shear + cos) * sy,
            ],
            centre: shift.map(|s| (SIDE as f64 - 1.0) / 2.0 + s),
            radius: size / 9.0 * between(draws, 0.6, 1.6),
            ink: between(draws, 0.6, 1.0),
        }
    }

    fn place(&self, [x, y]: Point) -> Point {
        let [a, b, c, d] = self.map;
        [
            a * x + b * y + self.centre[0],
            c * x + d * y + self.centre[1],
        ]
    }
}

/// An image while it is drawn, on the scale 0 to 1.
pub(super) struct Canvas([f64; SIDE * SIDE]);

impl Default for Canvas {
    fn default() -> Self {
        Self([0.0; SIDE * SIDE])
    }
}

impl Canvas {
    /// Writes the glyph of a class with a trembling hand.
    pub(super) fn write(&mut self, class: usize, style: &Style, draws: &mut Draws) {
        for stroke in SHAPES[class] {
            let mut path: Vec<Point> = stroke
                .points
                .iter()
                .map(|p| p.map(|v| v + 0.09 * bell(draws, 4)))
                .collect();
            if stroke.smooth {
                path = round_off(&round_off(&path));
            }
            let path: Vec<Point> = path.into_iter().map(|p| style.place(p)).collect();
            path.windows(2)
                .for_each(|ends| self.line(ends[0], ends[1], style));
        }
    }

    fn line(&mut self, from: Point, to: Point, style: &Style) {
        let reach = style.radius + 1.0;
        let bounds = |axis: usize| {
            let (low, high) = (
                from[axis].min(to[axis]) - reach,
                from[axis].max(to[axis]) + reach,
            );
            (
                low.max(0.0) as usize,
                (high + 1.0).clamp(0.0, SIDE as f64) as usize,
            )
        };
        let ((left, right), (top, bottom)) = (bounds(0), bounds(1));
        let [dx, dy] = [to[0] - from[0], to[1] - from[1]];
        let length = dx * dx + dy * dy;
        for y in top..bottom {
            for x in left..right {
                let [px, py] = [x as f64 - from[0], y as f64 - from[1]];
                let along = if length > 0.0 {
                    ((px * dx + py * dy) / length).clamp(0.0, 1.0)
                } else {
                    0.0
                };
                let [ex, ey] = [px - along * dx, py - along * dy];
                // full ink inside the line, fading over the pixel at its edge
                let ink =
                    style.ink * (style.radius + 0.5 - (ex * ex + ey * ey).sqrt()).clamp(0.0, 1.0);
                let pixel = &mut self.0[y * SIDE + x];
                *pixel = pixel.max(ink);
            }
        }
    }

    /// Appends the image as bytes, with noise.
    pub(super) fn scan(&self, noise: f64, draws: &mut Draws, out: &mut Vec<u8>) {
        out.extend(self.0.iter().map(|ink| {
            let value = ink + noise * bell(draws, 4);
            (255.0 * value.clamp(0.0, 1.0) + 0.5) as u8
        }));
    }
}

/// One step of Chaikin's corner cutting; the ends stay.
fn round_off(path: &[Point]) -> Vec<Point> {
    let mix = |a: Point, b: Point, t: f64| [a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t];
    let mut out = vec![path[0]];
    for ends in path.windows(2) {
        out.push(mix(ends[0], ends[1], 0.25));
        out.push(mix(ends[0], ends[1], 0.75));
    }
    out.push(path[path.len() - 1]);
    out
}

#[cfg(test)]
#[path = "glyphs_tests.rs"]
mod tests;
