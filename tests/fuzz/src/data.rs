//! Readers of data.

use crate::bytes::Bytes;
use fl_core::{Inputs, Labels};
use fl_data_kit::{DataSet, DataSetFacts, Folder, Rows, archive as archives, format};
use fl_plugin_data_files::Files;
use fl_plugin_data_images::cifar;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

thread_local! {
    static HERE: TempDir = TempDir::new().expect("a temporary folder");
}

/// Runs `f` in a folder with these files.
fn with_files(files: &[(&str, &[u8])], f: impl FnOnce(&Path)) {
    HERE.with(|here| {
        let here = here.path();
        for (name, bytes) in files {
            let path = here.join(name);
            if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
                fs::create_dir_all(folder).expect("a folder");
            }
            fs::write(path, bytes).expect("a file");
        }
        f(here);
        for (name, _) in files {
            let _ = fs::remove_file(here.join(name));
        }
    });
}

/// Reads `files:` with these settings; what is read is as the program believes it is.
fn read(here: &Path, settings: &str) {
    let text = format!("{{{settings}, max-bytes: 1000000}}");
    let mut files: Files = fl_core::settings::read_yaml(&text).expect("settings");
    if !files.locate(here).is_empty() {
        return;
    }
    let folder = Folder::new("files", DataSetFacts::made(0, 0), here);
    if let Ok(rows) = files.load(&folder) {
        sound(&rows);
    }
}

fn sound(rows: &Rows) {
    for (inputs, labels) in [&rows.train, &rows.test] {
        assert_eq!(inputs.len(), labels.len(), "rows and labels");
        if let Labels::Classes { of, classes } = &**labels {
            assert!(of.iter().all(|c| (*c as usize) < *classes), "a class");
        }
        if let Inputs::Dense { shape, data } = &**inputs {
            let width: usize = shape.iter().product();
            assert_eq!(data.len(), width * labels.len(), "numbers");
            assert!(data.iter().all(|x| x.is_finite()), "a number");
        }
        let mut row = vec![0.0; inputs.width()];
        for at in 0..inputs.len().min(3) {
            inputs.write_row(at, &mut row);
            assert!(row.iter().all(|x| x.is_finite()), "a number of a row");
        }
    }
}

/// Which of the ways to read a file: its length says, so that files of a corpus are files as they
/// are.
fn way<'a>(data: &[u8], ways: &[&'a str]) -> &'a str {
    ways[data.len() % ways.len()]
}

fn one(name: &str, data: &[u8], ways: &[&str]) {
    with_files(&[(name, data)], |here| {
        read(
            here,
            &format!("train: {name}, holdout: 0.4, {}", way(data, ways)),
        );
    });
}

pub(crate) fn csv(data: &[u8]) {
    one(
        "a.csv",
        data,
        &[
            "format: csv, label: class",
            "format: {csv: {header: false}}, label: 1, columns: {2: text}",
            "format: {csv: {separator: ';'}}, label: class, classes: [a, b]",
            "format: csv, label: class, columns: {a: number, b: category, c: skip}",
            "format: csv, findings: [class]",
        ],
    );
}

pub(crate) fn jsonl(data: &[u8]) {
    one(
        "a.jsonl",
        data,
        &[
            "format: jsonl, label: class",
            "format: jsonl, label: class, columns: {a: text, b: number}",
        ],
    );
}

pub(crate) fn leaf(data: &[u8]) {
    one(
        "a.json",
        data,
        &["format: leaf", "format: {leaf: {shape: [1, 2]}}"],
    );
}

pub(crate) fn libsvm(data: &[u8]) {
    one(
        "a.txt",
        data,
        &["format: libsvm", "format: {libsvm: {width: 8}}"],
    );
}

/// An array with labels in a column, or two that stand one behind the other.
pub(crate) fn npy(data: &[u8]) {
    let magic = b"\x93NUMPY";
    let second = data.windows(6).skip(1).position(|w| w == magic);
    match second {
        Some(at) => {
            let (inputs, labels) = data.split_at(at + 1);
            with_files(&[("x.npy", inputs), ("y.npy", labels)], |here| {
                read(
                    here,
                    "format: npy, train: {inputs: x.npy, labels: y.npy}, holdout: 0.4",
                );
            });
        }
        None => one("a.npy", data, &["format: npy, label: 1"]),
    }
}

pub(crate) fn npz(data: &[u8]) {
    one(
        "a.npz",
        data,
        &[
            "format: npz, label: y",
            "format: {npz: {inputs: a}}, label: y",
        ],
    );
}

/// Images and labels, one behind the other; the first two bytes say where.
pub(crate) fn idx(data: &[u8]) {
    let mut bytes = Bytes(data);
    let n = usize::from(bytes.number());
    let (images, labels) = (bytes.take(n), bytes.0);
    with_files(&[("x", images), ("y", labels)], |here| {
        read(
            here,
            "format: idx, train: {inputs: x, labels: y}, holdout: 0.4",
        );
    });
}

pub(crate) fn images(data: &[u8]) {
    let name = match data {
        [0x89, ..] => "1.png",
        _ => "1.jpg",
    };
    let (a, b) = (format!("i/a/{name}"), format!("i/b/{name}"));
    with_files(&[(&a, data), (&b, data)], |here| {
        read(here, "format: images, train: i, holdout: 0.4");
    });
}

pub(crate) fn parquet(data: &[u8]) {
    one("a.parquet", data, &["format: parquet, label: class"]);
}

/// Compressed files, of which the format says which they are.
pub(crate) fn archive(data: &[u8]) {
    let name = match data {
        [0xfd, ..] => "a.xz",
        _ => "a.gz",
    };
    with_files(&[(name, data)], |here| {
        let path = here.join(name);
        let start = archives::read_start(&path, 100);
        let all = archives::read_at_most(&path, 1 << 20);
        if let (Ok(all), Ok(start)) = (all, start) {
            assert!(all.len() <= 1 << 20, "more than was allowed");
            assert!(all.starts_with(&start), "another beginning");
        }
    });
}

/// The readers of published files, past what `files:` makes of them.
pub(crate) fn published(data: &[u8]) {
    let _ = format::idx::images(data.to_vec());
    let _ = format::idx::claimed_rows(data);
    if let Ok(labels) = format::idx::labels(data.to_vec(), 10) {
        assert!(labels.iter().all(|l| *l < 10), "a label");
    }
    let _ = format::libsvm::rows(data, 100, format::libsvm::sign);
    for (label_bytes, classes) in [(1, 10), (2, 100)] {
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        let read = cifar::append(data, label_bytes, classes, &mut images, &mut labels);
        if read.is_ok() {
            assert_eq!(images.len(), labels.len() * 3072, "pixels");
        }
    }
    if let Ok(text) = format::csv::known(data) {
        for field in text.split([',', '\n']) {
            let _ = format::csv::class(field, 1, 4);
            if let Ok(number) = format::csv::number(field) {
                assert!(number.is_finite(), "a number");
            }
        }
    }
}
