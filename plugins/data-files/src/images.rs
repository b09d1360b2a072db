//! PNG and JPEG files, with a folder per class or a table of labels.

use crate::classes::Classes;
use crate::content::{Budget, content};
use crate::format::{Colours, ImageFiles, Resize, ResizeBy};
use crate::paths::{Pair, Source};
use crate::read_table;
use crate::rows::Part;
use crate::settings::Files;
use crate::table::WrongRows;
use anyhow::{Context, Result, bail, ensure};
use fl_core::Inputs;
use fl_data_kit::format;
use resize::{Pixel, Type};
use rgb::FromSlice;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Images wider or higher than this are refused before they are decoded.
const MAX_SIDE: usize = 4096;

/// Channels, height, width; and bytes, pixel after pixel.
type Image = ([usize; 3], Vec<u8>);

/// What files of images hold that does not become a number of their rows: how many files.
#[derive(Default)]
pub(crate) struct Lost {
    files: usize,
    /// Some pixel lets something shine through.
    transparent: usize,
    /// Channels have 16 bits.
    deep: usize,
    /// The file says that its pixels are to be shown turned or mirrored.
    turned: usize,
    /// `resize` cuts something off.
    cropped: usize,
}

impl Lost {
    /// A line for each loss.
    pub fn notes(&self) -> Vec<String> {
        let all = [
            (
                self.transparent,
                "have transparent pixels; they get the colour that stands in the file",
            ),
            (self.deep, "have 16 bits a channel; fl reads the upper 8"),
            (
                self.turned,
                "say that they are to be shown turned or mirrored (EXIF); fl reads them as they are stored",
            ),
            (
                self.cropped,
                "have another shape than `resize`, which cuts off their sides; `by: stretch` keeps them",
            ),
        ];
        let told = all.iter().filter(|(count, _)| *count > 0);
        told.map(|(count, what)| format!("{count} of {} images {what}", self.files))
            .collect()
    }
}

/// The images of a source, with the label that the name of its folder or a table gives to each.
pub(crate) fn read(
    source: &Source,
    files: &Files,
    how: &ImageFiles,
    classes: &mut Classes,
    (lost, budget): (&mut Lost, &mut Budget),
) -> Result<Part> {
    let paths = source.inputs(&files.format);
    let of = match source {
        Source::Path(_) => {
            let of_folder = |path: &PathBuf| {
                let class = path.parent().and_then(Path::file_name).unwrap_or_default();
                let class = classes.of(&class.to_string_lossy());
                class.with_context(|| path.display().to_string())
            };
            paths.iter().map(of_folder).collect::<Result<_>>()?
        }
        Source::Pair(pair) => of_table(pair, &paths, files, &how.file, classes, budget)?,
    };
    Ok(Part {
        inputs: stacked(&paths, how, lost, budget)?,
        of,
    })
}

/// The label of each image in the row of a table that names it.
fn of_table(
    Pair { inputs, labels }: &Pair,
    paths: &[PathBuf],
    files: &Files,
    file: &str,
    classes: &mut Classes,
    budget: &mut Budget,
) -> Result<Vec<u32>> {
    let table = read_table::by_ending(labels.as_ref(), budget)?;
    let label = files.label_column().context("`label` names no column")?;
    let (name, label) = (table.find(file)?, table.find(&label.0)?);
    let index: BTreeMap<&Path, usize> = (0..).zip(paths).map(|(at, path)| (&**path, at)).collect();
    let (mut of, mut wrong) = (vec![None; paths.len()], WrongRows::default());
    let mut take = |row| -> Result<()> {
        let image = Path::new(inputs).join(table.cell(row, name));
        let Some(at) = index.get(&*image) else {
            let text = format!("there is no image {}", image.display());
            bail!(table.wrong(row, name, text));
        };
        let cell = table.cell(row, label);
        if files.is_missing(cell) {
            bail!(table.wrong(row, label, "the label is missing"));
        }
        if of[*at].is_some() {
            let text = format!("an earlier row names {}, too", image.display());
            bail!(table.wrong(row, name, text));
        }
        let class = classes.of(cell);
        of[*at] = Some(class.map_err(|error| table.wrong(row, label, error))?);
        Ok(())
    };
    for row in 0..table.len() {
        wrong.take(take(row));
    }
    wrong.none()?;
    let found = |(path, of): (&PathBuf, Option<u32>)| {
        of.with_context(|| {
            format!(
                "{}: no row of {labels} has its name in the column `{file}`",
                path.display()
            )
        })
    };
    paths.iter().zip(of).map(found).collect()
}

/// Images of one size, one after the other.
pub(crate) fn stacked(
    paths: &[PathBuf],
    how: &ImageFiles,
    lost: &mut Lost,
    budget: &mut Budget,
) -> Result<Inputs> {
    let mut data = Vec::new();
    let mut first: Option<([usize; 3], &Path)> = None;
    for path in paths {
        let name = || path.display().to_string();
        let file = content(path, budget)?;
        lost.files += 1;
        let mut image = decoded(&file, lost).with_context(name)?;
        if let Some(colours) = &how.colours {
            image = coloured(image, colours);
        }
        if let Some(size) = &how.resize {
            image = resized(image, size, lost).with_context(name)?;
        }
        let (shape, pixels) = image;
        budget.give(file.len() as u64);
        budget.take(pixels.len() as u64, path)?;
        let (wanted, example) = *first.get_or_insert((shape, path));
        ensure!(
            shape == wanted,
            "{}: {}, but {} is {}; all images must be alike{}",
            name(),
            described(shape),
            example.display(),
            described(wanted),
            if shape[0] == wanted[0] {
                ", or get one size by `resize` of `images`"
            } else {
                ", or get the same colours by `colours` of `images`: grey or rgb"
            }
        );
        let (channels, plane) = (shape[0], shape[1] * shape[2]);
        let planes = (0..channels).flat_map(|c| (0..plane).map(move |at| at * channels + c));
        data.extend(planes.map(|at| pixels[at]));
    }
    let (shape, _) = first.context("there are no images")?;
    Ok(format::images(shape, data))
}

/// An image in these colours.
fn coloured(([channels, height, width], pixels): Image, to: &Colours) -> Image {
    let (channels, pixels) = match (to, channels) {
        (Colours::Grey, 3) => {
            // in whole numbers, as Pillow has it
            let grey = |[r, g, b]: &[u8; 3]| {
                let [r, g, b] = [*r, *g, *b].map(u32::from);
                ((19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16) as u8
            };
            (1, pixels.as_chunks().0.iter().map(grey).collect())
        }
        (Colours::Rgb, 1) => (3, pixels.iter().flat_map(|grey| [*grey; 3]).collect()),
        (_, channels) => (channels, pixels),
    };
    ([channels, height, width], pixels)
}

/// An image in another size.
fn resized(
    ([channels, height, width], pixels): Image,
    to: &Resize,
    lost: &mut Lost,
) -> Result<Image> {
    let (high, wide) = match to.by {
        ResizeBy::Stretch => (to.height, to.width),
        // the side that needs more decides, and the other then stands out
        ResizeBy::Crop => {
            if to.height * width > to.width * height {
                (to.height, (to.height * width).div_ceil(height))
            } else {
                ((to.width * height).div_ceil(width), to.width)
            }
        }
    };
    lost.cropped += usize::from((high, wide) != (to.height, to.width));
    ensure!(
        high.max(wide) <= 4 * MAX_SIDE,
        "an image of {height} x {width} would be cut from one of {high} x {wide}: use `by: stretch`"
    );
    let mut large = vec![0; channels * high * wide];
    match channels {
        1 => resize::new(width, height, wide, high, Pixel::Gray8, Type::Triangle)?
            .resize(pixels.as_gray(), large.as_gray_mut())?,
        _ => resize::new(width, height, wide, high, Pixel::RGB8, Type::Triangle)?
            .resize(pixels.as_rgb(), large.as_rgb_mut())?,
    }
    let (top, left) = ((high - to.height) / 2, (wide - to.width) / 2);
    let rows = large.chunks(channels * wide).skip(top).take(to.height);
    let cut = rows.flat_map(|row| &row[channels * left..channels * (left + to.width)]);
    Ok(([channels, to.height, to.width], cut.copied().collect()))
}

/// Height, width, and the numbers in a PNG of one channel as they stand there: those of a palette
/// are not looked up.
pub(crate) fn numbers(file: &[u8]) -> Result<([usize; 2], Vec<u16>)> {
    ensure!(file.starts_with(b"\x89PNG"), "a mask must be a PNG");
    let ([height, width], bytes, frame) = unpacked(file, png::Transformations::IDENTITY, |_| ())?;
    let found = (frame.color_type, frame.bit_depth);
    let pixels: Vec<u16> = match found {
        (png::ColorType::Grayscale | png::ColorType::Indexed, png::BitDepth::Eight) => {
            bytes.into_iter().map(u16::from).collect()
        }
        (png::ColorType::Grayscale, png::BitDepth::Sixteen) => {
            let pairs = bytes.as_chunks::<2>().0.iter();
            pairs.map(|pair| u16::from_be_bytes(*pair)).collect()
        }
        _ => bail!("a mask must have one channel of 8 or 16 bits, and this is {found:?}"),
    };
    ensure!(
        pixels.len() == height * width,
        "{} numbers for {height} x {width}",
        pixels.len()
    );
    Ok(([height, width], pixels))
}

pub(crate) fn described([channels, height, width]: [usize; 3]) -> String {
    let colour = if channels == 1 { "grey" } else { "in colour" };
    format!("{height} x {width} {colour}")
}

fn decoded(file: &[u8], lost: &mut Lost) -> Result<Image> {
    match file {
        [0x89, b'P', b'N', b'G', ..] => png(file, lost),
        [0xff, 0xd8, ..] => jpeg(file, lost),
        _ => bail!("neither PNG nor JPEG"),
    }
}

fn side(height: usize, width: usize) -> Result<()> {
    ensure!(
        (1..=MAX_SIDE).contains(&height) && (1..=MAX_SIDE).contains(&width),
        "an image of {height} x {width}; sides must be 1 to {MAX_SIDE}"
    );
    Ok(())
}

/// Height, width, and the content of a PNG; `see` sees what its beginning says.
fn unpacked(
    file: &[u8],
    how: png::Transformations,
    see: impl FnOnce(&png::Info<'_>),
) -> Result<([usize; 2], Vec<u8>, png::OutputInfo)> {
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_transformations(how);
    let mut reader = decoder.read_info()?;
    let (height, width) = (reader.info().height as usize, reader.info().width as usize);
    side(height, width)?;
    let size = reader.output_buffer_size().context("too large")?;
    let mut bytes = vec![0; size];
    let frame = reader.next_frame(&mut bytes)?;
    see(reader.info());
    Ok(([height, width], bytes, frame))
}

/// Palettes become colours, 16 bits become 8, transparency is left out.
fn png(file: &[u8], lost: &mut Lost) -> Result<Image> {
    let see = |info: &png::Info<'_>| {
        lost.deep += usize::from(info.bit_depth == png::BitDepth::Sixteen);
        let exif = info.exif_metadata.as_ref();
        lost.turned += usize::from(exif.is_some_and(|exif| is_turned(exif)));
    };
    let how = png::Transformations::normalize_to_color8();
    let ([height, width], pixels, frame) = unpacked(file, how, see)?;
    let stored = match frame.color_type {
        png::ColorType::Grayscale => 1,
        png::ColorType::GrayscaleAlpha => 2,
        png::ColorType::Rgb => 3,
        png::ColorType::Rgba => 4,
        png::ColorType::Indexed => bail!("a palette that cannot be resolved"),
    };
    let channels = if stored < 3 { 1 } else { 3 };
    let pixels = pixels[..height * width * stored].chunks(stored);
    let transparent = stored > channels && pixels.clone().any(|pixel| pixel[channels] < u8::MAX);
    lost.transparent += usize::from(transparent);
    let pixels = pixels
        .flat_map(|pixel| &pixel[..channels])
        .copied()
        .collect();
    Ok(([channels, height, width], pixels))
}

/// Does a block of EXIF say that the image is not upright as it is stored?
fn is_turned(exif: &[u8]) -> bool {
    const ORIENTATION: usize = 0x0112;
    const UPRIGHT: usize = 1;
    let big = exif.starts_with(b"MM");
    let number = |from: usize, bytes: usize| -> Option<usize> {
        let all = exif.get(from..from.checked_add(bytes)?)?.iter();
        let join = |sum: usize, byte: &u8| sum << 8 | usize::from(*byte);
        Some(if big {
            all.fold(0, join)
        } else {
            all.rev().fold(0, join)
        })
    };
    let find = || {
        let entries = number(4, 4)?;
        let mut tags = (0..number(entries, 2)?).map(|at| entries + 2 + 12 * at);
        let tag = tags.find(|at| number(*at, 2) == Some(ORIENTATION))?;
        number(tag + 8, 2)
    };
    find().is_some_and(|orientation| orientation != UPRIGHT)
}

const DAMAGED: &str = "damaged, cut off, or written against the standard: put the whole file in its place, or take it away";

/// Is there an end behind the start of what is drawn? A preview in a segment before it, and what
/// stands behind the image, have starts and ends of their own.
fn ends(file: &[u8]) -> bool {
    let mut at = 2;
    while let Some([first, marker, more @ ..]) = file.get(at..) {
        at += match (first, marker, more) {
            (0xff, 0xda, scan) => return scan.windows(2).any(|two| two == [0xff, 0xd9]),
            // filled up, or nothing behind the marker
            (0xff, 0xff, _) => 1,
            (0xff, 0x01 | 0xd0..=0xd8, _) => 2,
            (0xff, _, [high, low, ..]) => 2 + usize::from(u16::from_be_bytes([*high, *low])),
            _ => 1,
        };
    }
    false
}

fn jpeg(file: &[u8], lost: &mut Lost) -> Result<Image> {
    let options = |out| {
        // a part that is missing or damaged would become grey
        DecoderOptions::default()
            .set_strict_mode(true)
            .set_max_width(MAX_SIDE)
            .set_max_height(MAX_SIDE)
            .jpeg_set_out_colorspace(out)
    };
    let mut header = JpegDecoder::new_with_options(ZCursor::new(file), options(ColorSpace::RGB));
    header.decode_headers()?;
    let grey = header.input_colorspace() == Some(ColorSpace::Luma);
    let out = if grey {
        ColorSpace::Luma
    } else {
        ColorSpace::RGB
    };
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options(out));
    let pixels = decoder.decode().context(DAMAGED)?;
    ensure!(ends(file), DAMAGED);
    lost.turned += usize::from(decoder.exif().is_some_and(|exif| is_turned(exif)));
    let (width, height) = decoder.dimensions().context("no size")?;
    side(height, width)?;
    let channels = if grey { 1 } else { 3 };
    ensure!(
        pixels.len() == channels * height * width,
        "{} bytes for {height} x {width}",
        pixels.len()
    );
    Ok(([channels, height, width], pixels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_orientation_of_exif_is_found_in_either_order_of_bytes() {
        // one entry before it; each has a tag, a type, a count and a value
        let little = |orientation: u8| {
            let entry = [0x12, 1, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0];
            [&b"II*\0\x08\0\0\0\x02\0"[..], &[0; 12], &entry, &[0; 4]].concat()
        };
        let big = |orientation: u8| {
            let entry = [1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0];
            [&b"MM\0*\0\0\0\x08\0\x02"[..], &[0; 12], &entry, &[0; 4]].concat()
        };
        for (orientation, turned) in [(1, false), (3, true), (6, true)] {
            assert_eq!(is_turned(&little(orientation)), turned, "{orientation}");
            assert_eq!(is_turned(&big(orientation)), turned, "{orientation}");
        }
        let whole = little(6);
        assert!((0..whole.len() - 4).all(|end| end >= 32 || !is_turned(&whole[..end])));
        assert!(!is_turned(b"MM\0*\xff\xff\xff\xff"));
    }
}
