//! Reads or makes a set.

use super::files::Folder;
use super::{AdultRaw, CodRna, Known, Scale, SetSpec, adult};
use crate::format::{cifar, csv, idx, libsvm};
use crate::spec::{Normalise, check};
use crate::text::{Words, bags};
use anyhow::{Context, Result, ensure};
use fl_core::{Examples, Inputs, Labels};
use std::path::Path;
use std::sync::Arc;

/// A set: training, test and perhaps validation rows, each with a storage of its own.
#[derive(Clone, Debug)]
pub struct Set {
    /// Rows to learn from, in the order of the files.
    pub train: Examples,
    /// Rows to test with.
    pub test: Examples,
    /// Rows that the set itself sets aside for validation.
    pub validation: Option<Examples>,
    /// What was taken from each value; `None` if the values are as in the files.
    pub normalise: Option<Normalise>,
}

/// Inputs and labels of one part of a set.
pub(super) type Part = (Inputs, Labels);

/// Reads the set from its folder in `dir`, or makes it, with `normalise` instead of its own normalisation.
///
/// # Errors
/// If a file is missing (says where it was looked for and how to get it) or damaged (says where and how), a setting
/// is out of its range, or `normalise` does not fit the set.
pub fn load(set: &SetSpec, dir: &Path, normalise: Option<&Normalise>) -> Result<Set> {
    let known = set.known();
    let folder = Folder::new(known, dir);
    let two = |train: &str, test: &str, part: &dyn Fn(&str) -> Result<Part>| {
        Ok([part(train)?, part(test)?])
    };
    let mut validation = None;
    let mut parts: [Part; 2] = match set {
        SetSpec::Mnist | SetSpec::FashionMnist => {
            two("train", "t10k", &|part| images(&folder, part, known))
        }
        SetSpec::PneumoniaMnist => {
            let parts = two("train", "test", &|part| images(&folder, part, known))?;
            validation = Some(images(&folder, "val", known)?);
            Ok(parts)
        }
        SetSpec::Cifar10 | SetSpec::Cifar100 => {
            let last = known.files.len() - 1; // the test images
            Ok([
                cifar(&folder, &known.files[..last], known)?,
                cifar(&folder, &known.files[last..], known)?,
            ])
        }
        SetSpec::Adult => two("a9a", "a9a.t", &|file| {
            folder.read(file, |bytes| Ok(sparse(libsvm::rows(&bytes, 123)?, 123)))
        }),
        SetSpec::AdultRaw(_) => adult::read(&folder),
        SetSpec::CodRna(_) => two("cod-rna", "cod-rna.t", &|file| {
            folder.read(file, |bytes| Ok(dense(libsvm::rows(&bytes, 8)?, 8)))
        }),
        SetSpec::AgNews(words) => ag_news(&folder, words),
        SetSpec::Sst2(words) => two("train.tsv", "dev.tsv", &|file| sst2(&folder, file, words)),
        SetSpec::Blobs(blobs) => blobs.make(),
        SetSpec::Glyphs(glyphs) => glyphs.make(),
        SetSpec::MultiLabel(findings) => findings.make(),
    }?;
    let shape = set.task().input;
    if let Some(normalise) = normalise {
        check(normalise)
            .and_then(|()| set.check_normalise(normalise.mean.len(), normalise.std.len()))
            .context("normalise")?;
    }
    let normalise = normalise.cloned().or_else(|| own(set, &parts[0].0));
    for (inputs, _) in parts.iter_mut().chain(&mut validation) {
        ensure!(
            inputs.shape() == shape,
            "data set `{}`: its files have inputs of shape {:?}, those of the published files have {shape:?}",
            known.name,
            inputs.shape()
        );
        if let Some(normalise) = &normalise {
            apply(normalise, inputs);
        }
    }
    let examples = |(inputs, labels): Part| Examples::all(Arc::new(inputs), Arc::new(labels));
    let [train, test] = parts.map(examples);
    Ok(Set {
        train: train?,
        test: test?,
        validation: validation.map(examples).transpose()?,
        normalise,
    })
}

/// The normalisation that a set has of itself.
fn own(set: &SetSpec, train: &Inputs) -> Option<Normalise> {
    match set {
        SetSpec::CodRna(CodRna {
            scale: Scale::Standard,
        }) => Some(standard(train, train.width())),
        // the columns of categories stay 0 and 1
        SetSpec::AdultRaw(AdultRaw {
            scale: Scale::Standard,
        }) => Some(standard(train, adult::NUMBERS.len())),
        _ => set.known().statistics.map(|(mean, std)| Normalise {
            mean: mean.to_vec(),
            std: std.to_vec(),
        }),
    }
}

fn classes(of: Vec<u32>, classes: usize) -> Labels {
    Labels::Classes { of, classes }
}

/// Images and labels in two IDX files of equally many rows.
fn images(folder: &Folder<'_>, part: &str, known: &Known) -> Result<Part> {
    let names = [
        format!("{part}-images-idx3-ubyte"),
        format!("{part}-labels-idx1-ubyte"),
    ];
    let images = folder.read(&names[0], idx::images)?;
    let of = folder.read(&names[1], |bytes| idx::labels(bytes, known.classes))?;
    let (shape, rows) = (
        [1, images.height, images.width],
        images.data.len() / (images.height * images.width),
    );
    ensure!(
        rows == of.len(),
        "data set `{}`: {} holds {rows} images, but {} holds {} labels",
        known.name,
        names[0],
        names[1],
        of.len()
    );
    Ok((
        Inputs::Bytes {
            shape,
            data: images.data,
            mean: vec![0.0],
            std: vec![1.0],
        },
        classes(of, known.classes),
    ))
}

fn cifar(folder: &Folder<'_>, files: &[&[&str]], known: &Known) -> Result<Part> {
    // CIFAR-100 has a coarse class before the class
    let label_bytes = if known.classes == 100 { 2 } else { 1 };
    let (mut data, mut of) = (vec![], vec![]);
    for names in files {
        folder.read(names[0], |bytes| {
            cifar::append(&bytes, label_bytes, known.classes, &mut data, &mut of)
        })?;
    }
    Ok((
        Inputs::Bytes {
            shape: cifar::SHAPE,
            data,
            mean: vec![0.0; 3],
            std: vec![1.0; 3],
        },
        classes(of, known.classes),
    ))
}

fn sparse(rows: libsvm::Rows, width: usize) -> Part {
    let libsvm::Rows {
        labels,
        starts,
        columns,
        values,
    } = rows;
    (
        Inputs::Sparse {
            width,
            starts,
            columns,
            values,
        },
        classes(labels, 2),
    )
}

fn dense(rows: libsvm::Rows, width: usize) -> Part {
    let mut data = vec![0.0; rows.labels.len() * width];
    for (out, ends) in data.chunks_mut(width).zip(rows.starts.windows(2)) {
        for at in ends[0]..ends[1] {
            out[rows.columns[at] as usize] = rows.values[at];
        }
    }
    (
        Inputs::Dense {
            shape: vec![width],
            data,
        },
        classes(rows.labels, 2),
    )
}

/// The title counts only where the training file has titles: one of its public subsets has descriptions alone, and
/// a word that only test rows can have teaches nothing.
fn ag_news(folder: &Folder<'_>, words: &Words) -> Result<[Part; 2]> {
    let table = csv::Table {
        separator: b',',
        quotes: true,
        comment: None,
        header: false,
        columns: 3,
    };
    let read = |file: &str| {
        folder.read(file, |bytes| {
            let (mut of, mut texts) = (vec![], vec![]);
            table.rows(&bytes, |fields| {
                of.push(csv::class(fields[0], 1, 4)?);
                texts.push([fields[1].to_string(), fields[2].to_string()]);
                Ok(())
            })?;
            Ok((of, texts))
        })
    };
    let (train, test) = (read("train.csv")?, read("test.csv")?);
    let from = usize::from(train.1.iter().all(|[title, _]| title.is_empty()));
    let part = |(of, texts): (Vec<u32>, Vec<[String; 2]>)| -> Result<Part> {
        let texts: Vec<String> = texts
            .iter()
            .map(|fields| fields[from..].join(" "))
            .collect();
        Ok((
            bags(texts.iter().map(String::as_str), words)?,
            classes(of, 4),
        ))
    };
    Ok([part(train)?, part(test)?])
}

fn sst2(folder: &Folder<'_>, file: &str, words: &Words) -> Result<Part> {
    let table = csv::Table {
        separator: b'\t',
        quotes: false,
        comment: None,
        header: true,
        columns: 2,
    };
    folder.read(file, |bytes| {
        let (mut of, mut texts) = (vec![], vec![]);
        table.rows(&bytes, |fields| {
            of.push(csv::class(fields[1], 0, 2)?);
            texts.push(fields[0].to_string());
            Ok(())
        })?;
        Ok((
            bags(texts.iter().map(String::as_str), words)?,
            classes(of, 2),
        ))
    })
}

/// Mean and standard deviation of the first `scaled` columns; the others, and what is constant, stay as they are.
fn standard(train: &Inputs, scaled: usize) -> Normalise {
    let width = train.width();
    let n = train.len().max(1) as f64;
    let (mut sums, mut squares) = (vec![0.0; scaled], vec![0.0; scaled]);
    let mut row = vec![0.0; width];
    let mut each = |add: &mut dyn FnMut(usize, f64)| {
        for at in 0..train.len() {
            train.write_row(at, &mut row);
            row[..scaled]
                .iter()
                .enumerate()
                .for_each(|(c, v)| add(c, f64::from(*v)));
        }
    };
    each(&mut |c, v| sums[c] += v / n);
    each(&mut |c, v| squares[c] += (v - sums[c]) * (v - sums[c]) / n);
    let std = |square: &f64| {
        if *square > 0.0 {
            square.sqrt() as f32
        } else {
            1.0
        }
    };
    let mut normalise = Normalise {
        mean: sums.iter().map(|m| *m as f32).collect(),
        std: squares.iter().map(std).collect(),
    };
    normalise.mean.resize(width, 0.0);
    normalise.std.resize(width, 1.0);
    normalise
}

/// `normalise` has one number for each channel or column of `inputs`.
fn apply(normalise: &Normalise, inputs: &mut Inputs) {
    let Normalise {
        mean: means,
        std: stds,
    } = normalise;
    match inputs {
        Inputs::Bytes { mean, std, .. } => (*mean, *std) = (means.clone(), stds.clone()),
        Inputs::Dense { data, .. } => {
            for row in data.chunks_mut(means.len().max(1)) {
                row.iter_mut()
                    .zip(means.iter().zip(stds))
                    .for_each(|(v, (mean, std))| *v = (*v - mean) / std);
            }
        }
        Inputs::Sparse { .. } => {} // a shift would fill its zeros
    }
}
