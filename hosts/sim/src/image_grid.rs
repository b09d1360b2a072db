//! Images in one picture.

use anyhow::{Context, bail};
use fl_core::{Result, Samples};

/// Grey between two images.
const LINE: u8 = 128;

/// Returns the images, with 1 or 3 channels each, as a PNG: row by row, `across` per row or about
/// as many as there are rows. The smallest number of all is black and the largest white.
///
/// # Errors
/// If they are no images.
pub fn picture(images: &Samples, across: Option<usize>) -> Result<Vec<u8>> {
    let [channels @ (1 | 3), height, width] = images.shape()[..] else {
        bail!("inputs of shape {:?} are no images", images.shape());
    };
    let values = images.values();
    let finite = || values.iter().copied().filter(|x| x.is_finite());
    let least = finite().fold(f32::INFINITY, f32::min);
    let range = finite().fold(f32::NEG_INFINITY, f32::max) - least;
    // NaN becomes black, and so does everything if all numbers are equal
    let byte = |x: f32| ((x - least) / range.max(f32::MIN_POSITIVE) * 255.0).round() as u8;
    let square = || (images.len() as f64).sqrt().ceil() as usize;
    let across = across.unwrap_or_else(square).max(1);
    let down = images.len().div_ceil(across);
    let (rows, columns) = (down * (height + 1) + 1, across * (width + 1) + 1);
    let mut all = vec![LINE; rows * columns * channels];
    for (at, image) in values.rows().into_iter().enumerate() {
        let (top, left) = (
            at / across * (height + 1) + 1,
            at % across * (width + 1) + 1,
        );
        for (i, x) in image.iter().enumerate() {
            let (channel, y, x0) = (i / (height * width), i / width % height, i % width);
            all[((top + y) * columns + left + x0) * channels + channel] = byte(*x);
        }
    }
    let mut bytes = Vec::new();
    let mut png = png::Encoder::new(&mut bytes, columns as u32, rows as u32);
    png.set_color(match channels {
        1 => png::ColorType::Grayscale,
        _ => png::ColorType::Rgb,
    });
    let written = png.write_header();
    let written = written.and_then(|mut writer| writer.write_image_data(&all));
    written.context("drawing images")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;

    #[test]
    fn exact_every_number_of_an_image_is_where_it_belongs() {
        // three images of two rows and three columns, so two across and two down
        let values = Array2::from_shape_fn((3, 6), |(image, at)| (image * 6 + at) as f32);
        let images = Samples::fresh(values, vec![1, 2, 3]).unwrap();
        let bytes = picture(&images, None).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes))
            .read_info()
            .unwrap();
        let mut found = vec![0; reader.output_buffer_size().unwrap()];
        let about = reader.next_frame(&mut found).unwrap();
        assert_eq!((about.width, about.height), (9, 7));
        let at = |x: usize, y: usize| found[y * 9 + x];
        assert_eq!((at(1, 1), at(2, 1), at(1, 2)), (0, 15, 45));
        assert_eq!((at(5, 1), at(7, 2)), (90, 165)); // beside it
        assert_eq!((at(1, 4), at(3, 5)), (180, 255)); // below
        assert_eq!((at(0, 0), at(4, 1), at(5, 4)), (LINE, LINE, LINE));
        let flat = Samples::fresh(Array2::from_elem((1, 12), f32::NAN), vec![3, 2, 2]).unwrap();
        assert!(picture(&flat, Some(1)).is_ok());
        assert!(
            picture(
                &Samples::fresh(Array2::zeros((1, 4)), vec![4]).unwrap(),
                None
            )
            .is_err()
        );
    }
}
