//! Files of numbers: `libsvm`, `npy`, `npz` and `idx`.

use crate::classes::Classes;
use crate::content::{Budget, content};
use crate::format::{Channels, Format, MAX_WIDTH, Npy, Npz};
use crate::npy;
use crate::rows::{Part, loses_digits, rounded};
use crate::settings::Files;
use anyhow::{Context, Result, bail, ensure};
use fl_core::Inputs;
use fl_data_kit::format::{self, idx, libsvm as lines};
use std::collections::BTreeSet;
use std::io::{Cursor, Read};
use std::path::Path;

pub(crate) fn libsvm(path: &Path, classes: &mut Classes, budget: &mut Budget) -> Result<Part> {
    let bytes = content(path, budget)?;
    let class = |label: &str| {
        let number: f64 = label
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
            .with_context(|| format!("the label is `{label}`; it must be a number"))?;
        classes.of_number(number)
    };
    let mut rows = lines::rows(&bytes, MAX_WIDTH, class)
        .map_err(|error| anyhow::anyhow!("{}: {error:#}", path.display()))?;
    budget.give(bytes.len() as u64);
    let of = std::mem::take(&mut rows.labels);
    // the true width is known once all files have been read
    let width = rows
        .columns
        .iter()
        .max()
        .map_or(1, |last| *last as usize + 1);
    let part = Part {
        inputs: rows.sparse(width),
        of,
    };
    budget.take(part.bytes(), path)?;
    Ok(part)
}

/// Sparse rows with this width, as plain numbers if `plain`.
pub(crate) fn widened(inputs: Inputs, width: usize, plain: bool) -> Inputs {
    match inputs {
        Inputs::Sparse {
            starts,
            columns,
            values,
            ..
        } => {
            let rows = lines::Rows {
                labels: Vec::new(),
                starts,
                columns,
                values,
            };
            if plain {
                rows.dense(width)
            } else {
                rows.sparse(width)
            }
        }
        other => other,
    }
}

pub(crate) fn idx(
    inputs: &Path,
    labels: &Path,
    classes: &mut Classes,
    budget: &mut Budget,
) -> Result<Part> {
    let named = |path: &Path| path.display().to_string();
    let images = idx_inputs(inputs, budget)?;
    let found = idx::labels(content(labels, budget)?, 256).with_context(|| named(labels))?;
    same(images.of.len(), found.len(), inputs, labels)?;
    let of = found.iter().enumerate().map(|(at, label)| {
        classes
            .of(&label.to_string())
            .with_context(|| format!("{}: label {at}", labels.display()))
    });
    Ok(Part {
        of: of.collect::<Result<_>>()?,
        inputs: images.inputs,
    })
}

/// Images without their labels.
pub(crate) fn idx_inputs(path: &Path, budget: &mut Budget) -> Result<Part> {
    let images = idx::images(content(path, budget)?).with_context(|| path.display().to_string())?;
    Ok(Part::unlabelled(format::images(
        [1, images.height, images.width],
        images.data,
    )))
}

fn same(rows: usize, labels: usize, inputs: &Path, of: &Path) -> Result<()> {
    ensure!(
        rows == labels,
        "{} holds {rows} rows, but {} holds {labels} labels",
        inputs.display(),
        of.display()
    );
    Ok(())
}

fn array(path: &Path, budget: &mut Budget) -> Result<npy::Array> {
    let bytes = content(path, budget)?;
    npy_array(&bytes, path, budget).with_context(|| path.display().to_string())
}

/// The array in these bytes, which are free afterwards.
fn npy_array(bytes: &[u8], path: &Path, budget: &mut Budget) -> Result<npy::Array> {
    let header = npy::Header::read(bytes)?;
    budget.take(header.memory(), path)?;
    let array = header.array()?;
    budget.give(bytes.len() as u64);
    Ok(array)
}

pub(crate) fn npy_pair(
    inputs: &Path,
    labels: &Path,
    (classes, sides): (&mut Classes, &mut ImageSides),
    budget: &mut Budget,
) -> Result<Part> {
    let (rows, of) = (array(inputs, budget)?, array(labels, budget)?);
    same(rows.shape[0], of.shape[0], inputs, labels)?;
    let of = labelled(&of, classes).with_context(|| labels.display().to_string())?;
    let inputs = sides
        .numbers(rows)
        .with_context(|| inputs.display().to_string())?;
    Ok(Part { inputs, of })
}

pub(crate) fn npy_column(
    path: &Path,
    files: &Files,
    (classes, sides): (&mut Classes, &mut ImageSides),
    budget: &mut Budget,
) -> Result<Part> {
    let name = || path.display().to_string();
    let mut rows = array(path, budget)?;
    if files.unlabelled() {
        return Ok(Part::unlabelled(sides.numbers(rows).with_context(name)?));
    }
    let [count, width] = rows.shape[..] else {
        bail!(
            "{}: an array of shape {:?}; with `label` (a column) it must have two dimensions",
            name(),
            rows.shape
        );
    };
    let label = files.label_column().and_then(|label| label.0.parse().ok());
    let label: usize = label
        .filter(|column| (1..=width).contains(column) && width > 1)
        .with_context(|| {
            format!(
                "{}: `label` must be the number of one of its {width} columns, from 1",
                name()
            )
        })?;
    let class = |row: usize| {
        let number = rows.number(row * width + label - 1);
        classes
            .of_number(number)
            .with_context(|| format!("{}: row {row}", name()))
    };
    let of = (0..count).map(class).collect::<Result<_>>()?;
    let mut at = 0;
    let mut keep = || {
        at += 1;
        (at - 1) % width != label - 1
    };
    match &mut rows.data {
        npy::Data::Bytes(data) => data.retain(|_| keep()),
        npy::Data::Numbers(data) => data.retain(|_| keep()),
        npy::Data::Texts(_) => bail!("{}: inputs are texts; they must be numbers", name()),
    }
    rows.shape = vec![count, width - 1];
    let inputs = sides.numbers(rows).with_context(name)?;
    Ok(Part { inputs, of })
}

pub(crate) fn npz(
    path: &Path,
    how: &Npz,
    files: &Files,
    (classes, sides): (&mut Classes, &mut ImageSides),
    budget: &mut Budget,
) -> Result<Part> {
    let name = || path.display().to_string();
    let bytes = content(path, budget)?;
    let packed = bytes.len() as u64;
    let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).with_context(name)?;
    let mut read = |array: &str| -> Result<npy::Array> {
        let known: Vec<String> = zip
            .file_names()
            .take(50)
            .flatten()
            .map(|name| name.into_owned())
            .collect();
        let file = zip.by_name(&format!("{array}.npy")).with_context(|| {
            let known: Vec<&str> = known.iter().map(|n| n.trim_end_matches(".npy")).collect();
            format!("there is no array `{array}`; it has: {}", known.join(", "))
        })?;
        let mut bytes = Vec::new();
        file.take(budget.left() + 1).read_to_end(&mut bytes)?;
        budget.take(bytes.len() as u64, path)?;
        npy_array(&bytes, path, budget).with_context(|| format!("array `{array}`"))
    };
    let rows = read(&how.inputs).with_context(name)?;
    let of = files.label_column().map(|label| read(&label.0));
    let of = of.transpose().with_context(name)?;
    drop(zip);
    budget.give(packed);
    let Some(of) = of else {
        return Ok(Part::unlabelled(sides.numbers(rows).with_context(name)?));
    };
    same(rows.shape[0], of.shape[0], path, path)?;
    Ok(Part {
        of: labelled(&of, classes).with_context(name)?,
        inputs: sides.numbers(rows).with_context(name)?,
    })
}

/// One class a row, or a combination of labels.
fn labelled(array: &npy::Array, classes: &mut Classes) -> Result<Vec<u32>> {
    let rows = array.shape[0];
    if let Some(findings) = classes.findings() {
        return combinations(array, findings.len(), classes);
    }
    ensure!(
        array.shape.iter().product::<usize>() == rows,
        "labels of shape {:?}; there must be one for each row, or `findings` must name the labels of which a row can have several",
        array.shape
    );
    let class = |row: usize| {
        let class = match &array.data {
            npy::Data::Texts(texts) => classes.of(&texts[row]),
            _ => classes.of_number(array.number(row)),
        };
        class.with_context(|| format!("label {row}"))
    };
    (0..rows).map(class).collect()
}

fn combinations(array: &npy::Array, labels: usize, classes: &mut Classes) -> Result<Vec<u32>> {
    let rows = array.shape[0];
    ensure!(
        array.shape == [rows, labels],
        "labels of shape {:?}; with the {labels} `findings` of the spec it must be {:?}",
        array.shape,
        [rows, labels]
    );
    let known = |(row, label): (usize, usize)| {
        let number = array.number(row * labels + label);
        match number {
            1.0 => Ok(Some(true)),
            0.0 => Ok(Some(false)),
            -1.0 => Ok(None),
            // of texts no number is known, of numbers it is unknown
            _ if number.is_nan() && !matches!(array.data, npy::Data::Texts(_)) => Ok(None),
            _ => bail!(
                "row {row}, label {label} is {number}; it must be 1, 0, or -1 or NaN where it is unknown"
            ),
        }
    };
    let combination = |row| classes.combination((0..labels).map(|label| known((row, label))));
    (0..rows).map(combination).collect()
}

/// How arrays with three sides a row become images.
#[derive(Default)]
pub(crate) struct ImageSides {
    /// As the spec says.
    given: Option<Channels>,
    /// Readings that a user should know of.
    pub notes: BTreeSet<String>,
    /// How many values lose digits, and the first of them.
    lossy: Option<(usize, f64)>,
}

impl ImageSides {
    pub(crate) fn of(format: &Format) -> Self {
        let given = match format {
            Format::Npy(Npy { channels }) | Format::Npz(Npz { channels, .. }) => channels.clone(),
            _ => None,
        };
        Self {
            given,
            ..Self::default()
        }
    }

    /// What rounding takes away.
    pub fn rounded(&self) -> Option<String> {
        let (count, first) = self.lossy?;
        Some(format!("arrays: {}", rounded(count, first)))
    }

    /// Are the channels the last of the sides? Makes a note unless it is plain that they are the
    /// first.
    fn channels_are_last(&mut self, sides @ [a, b, c]: [usize; 3]) -> bool {
        if let Some(given) = &self.given {
            return *given == Channels::Last;
        }
        let channels = |side| matches!(side, 1 | 3 | 4);
        let last = channels(c) && !channels(a);
        if last || channels(c) || !channels(a) {
            let ([channels, height, width], read, other) = if last {
                ([c, a, b], "last", "first")
            } else {
                (sides, "first", "last")
            };
            self.notes.insert(format!(
                "rows of {a} x {b} x {c} values are read as images of {channels} channels and {height} x {width} pixels; \
                 `channels: {read}` in `format` says the same, and `channels: {other}` reads them the other way"
            ));
        }
        last
    }

    /// Makes a note of whether rows of two or more sides are scaled. It depends on the type of the
    /// numbers alone, and not on their values.
    fn scaled(&mut self, sides: &[usize], by_255: bool) {
        let text = match by_255 {
            true => "images of bytes are divided by 255, to numbers from 0 to 1",
            false if sides.len() > 1 => {
                "rows of several sides that are no images of bytes (`uint8`) are taken as they are, and not scaled"
            }
            false => return,
        };
        self.notes.insert(text.into());
    }

    /// Rows as inputs: `rows x height x width`, with the channels before or after, are images.
    fn numbers(&mut self, array: npy::Array) -> Result<Inputs> {
        let npy::Array { mut shape, data } = array;
        let width: usize = shape[1..].iter().product();
        ensure!(
            shape.len() > 1 && width > 0 && width <= MAX_WIDTH as usize,
            "an array of shape {shape:?}; it must have a row per sample, of 1 to {MAX_WIDTH} values"
        );
        let turned = match shape[1..] {
            [a, b, c] if self.channels_are_last([a, b, c]) => Some((a * b, c)),
            _ => None,
        };
        if turned.is_some() {
            shape[1..].rotate_right(1);
        }
        Ok(match data {
            npy::Data::Bytes(data) => {
                let data = in_front(data, turned);
                let image = match shape[1..] {
                    [height, width] => Some([1, height, width]),
                    [channels @ (1 | 3 | 4), height, width] => Some([channels, height, width]),
                    _ => None,
                };
                self.scaled(&shape[1..], image.is_some());
                match image {
                    Some(image) => format::images(image, data),
                    None => Inputs::Dense {
                        shape: shape[1..].to_vec(),
                        data: data.into_iter().map(f32::from).collect(),
                    },
                }
            }
            npy::Data::Numbers(data) => {
                let wrong = data.iter().position(|n| !(*n as f32).is_finite());
                if let Some(at) = wrong {
                    bail!(
                        "row {}, value {}: {} is not a usable number",
                        at / width,
                        at % width,
                        data[at]
                    );
                }
                self.scaled(&shape[1..], false);
                for value in data.iter().filter(|value| loses_digits(**value)) {
                    self.lossy.get_or_insert((0, *value)).0 += 1;
                }
                let data = data.into_iter().map(|n| n as f32).collect();
                Inputs::Dense {
                    shape: shape[1..].to_vec(),
                    data: in_front(data, turned),
                }
            }
            npy::Data::Texts(_) => bail!("inputs are texts; they must be numbers"),
        })
    }
}

/// The values of images with their channels in front. `turned` has the pixels and the channels of
/// an image if they are behind.
fn in_front<T: Copy>(data: Vec<T>, turned: Option<(usize, usize)>) -> Vec<T> {
    match turned {
        Some((pixels, channels)) => format::channels_first(&data, pixels, channels),
        None => data,
    }
}
