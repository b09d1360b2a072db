use super::*;
use crate::set::linked_sets;
use crate::{data_dir, list};
use fl_core::settings::{Setting, read_value, read_yaml};

fn named(yaml: &str) -> SetSpec {
    read_yaml(yaml).unwrap()
}

fn write(dir: &Path, name: &str, content: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn idx(sizes: &[u32], content: Vec<u8>) -> Vec<u8> {
    let sizes_be = sizes.iter().flat_map(|s| s.to_be_bytes());
    [0, 0, 8, sizes.len() as u8]
        .into_iter()
        .chain(sizes_be)
        .chain(content)
        .collect()
}

fn error(set: &SetSpec, dir: &Path) -> String {
    format!("{:#}", load(set, dir, None).unwrap_err())
}

#[test]
fn every_set_reads_back_and_knows_its_task() {
    let mut with_defaults = 0;
    for decl in linked_sets() {
        let Ok(set) = SetSpec::named(decl.name) else {
            continue;
        };
        assert_eq!(set.name(), decl.name);
        assert_eq!(read_value::<SetSpec>(&set.write()).unwrap(), set);
        assert!(set.task().is_some(), "{}", decl.name);
        let facts = set.facts();
        assert_eq!(facts.files.is_empty(), facts.folder.is_empty());
        with_defaults += 1;
    }
    assert_eq!(with_defaults, 14);
    let text = format!("{:#}", SetSpec::named("minst").unwrap_err());
    assert!(text.contains("did you mean `mnist`?"), "{text}");
}

#[test]
fn a_set_that_is_not_there_says_where_it_should_be_and_how_to_get_it() {
    let dir = tempfile::tempdir().unwrap();
    let sets = linked_sets()
        .into_iter()
        .filter_map(|decl| SetSpec::named(decl.name).ok());
    for set in sets.filter(|set| !set.facts().files.is_empty()) {
        let text = error(&set, dir.path());
        let known = set.facts();
        let wanted = dir.path().join(known.folder).join(known.files[0][0]);
        for part in [
            &wanted.display().to_string(),
            known.source,
            "--data-dir",
            "FL_DATA_DIR",
            "blobs, cells, glyphs, multi-label",
        ] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}

#[test]
fn images_and_labels_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(
        dir,
        "mnist/train-images-idx3-ubyte",
        &idx(&[3, 28, 28], [0, 255].repeat(3 * 392)),
    );
    write(
        dir,
        "mnist/train-labels-idx1-ubyte",
        &idx(&[3], vec![0, 9, 1]),
    );
    write(
        dir,
        "mnist/t10k-images-idx3-ubyte",
        &idx(&[1, 28, 28], vec![0; 784]),
    );
    write(dir, "mnist/t10k-labels-idx1-ubyte", &idx(&[1], vec![5]));
    let set = load(&named("mnist"), dir, None).unwrap();
    assert_eq!(set.train.classes().unwrap(), [0, 9, 1]);
    let values = set.train.samples.values();
    assert!(
        (values[[0, 0]] + 0.1307 / 0.3081).abs() < 1e-5
            && (values[[0, 1]] - 0.8693 / 0.3081).abs() < 1e-4
    );
    let rows = |name| list(dir).into_iter().find(|e| e.name == name).unwrap();
    assert!(rows("mnist").present() && !rows("fashion-mnist").present() && rows("blobs").present());
    assert_eq!(
        (
            rows("mnist").rows,
            rows("fashion-mnist").rows,
            rows("blobs").rows
        ),
        (Some((3, 1)), None, Some((1000, 500)))
    );
    assert_eq!(rows("sst2").files[0].wanted, dir.join("sst2/train.tsv"));

    write(
        dir,
        "mnist/t10k-images-idx3-ubyte",
        &idx(&[1, 2, 1], vec![0, 1]),
    );
    assert!(
        error(&named("mnist"), dir)
            .contains("inputs of shape [1, 2, 1], those of the published files have [1, 28, 28]")
    );
    write(dir, "mnist/train-labels-idx1-ubyte", &idx(&[2], vec![0, 9]));
    let text = error(&named("mnist"), dir);
    assert!(
        text.contains("train-images-idx3-ubyte holds 3 images") && text.contains("2 labels"),
        "{text}"
    );
    write(
        dir,
        "mnist/train-labels-idx1-ubyte",
        &idx(&[3], vec![0, 10, 1]),
    );
    let text = error(&named("mnist"), dir);
    assert!(
        text.contains("mnist/train-labels-idx1-ubyte: label 1 is 10"),
        "{text}"
    );
}

#[test]
fn tables_of_numbers_are_scaled_by_their_training_rows() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "cod-rna/cod-rna", b"-1 1:1 2:5\n1 1:3 2:5\n");
    write(dir.path(), "cod-rna/cod-rna.t", b"1 1:5\n");
    let raw = load(&named("cod-rna"), dir.path(), None).unwrap();
    assert_eq!(
        (raw.test.samples.values()[[0, 0]], raw.normalise),
        (5.0, None)
    );
    let scaled = load(&named("{cod-rna: {scale: standard}}"), dir.path(), None).unwrap();
    let (train, test) = (scaled.train.samples.values(), scaled.test.samples.values());
    assert_eq!(
        (train[[0, 0]], train[[1, 0]], train[[0, 1]], test[[0, 0]]),
        (-1.0, 1.0, 0.0, 3.0)
    );
}

#[test]
fn sparse_rows_are_not_shifted() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "adult/a9a", b"-1 1:1 123:1\n");
    write(dir.path(), "adult/a9a.t", b"+1 122:1\n");
    let set = load(&named("adult"), dir.path(), None).unwrap();
    assert_eq!(
        (set.train.samples.shape(), set.test.samples.shape()),
        (vec![123], vec![123])
    );
    let normalise = Normalise {
        mean: vec![0.0; 123],
        std: vec![1.0; 123],
    };
    let text = format!(
        "{:#}",
        load(&named("adult"), dir.path(), Some(&normalise)).unwrap_err()
    );
    assert!(text.contains("leave `normalise` away"), "{text}");
    write(dir.path(), "adult/a9a", b"-1 1:1 124:1\n");
    assert!(
        error(&named("adult"), dir.path())
            .contains("adult/a9a: line 1: the index in `124:1` must be in 1..=123")
    );
}

#[test]
fn titles_count_where_the_training_rows_have_them() {
    let dir = tempfile::tempdir().unwrap();
    let news = named("{ag-news: {width: 65536}}");
    let row = |set: &Set| match &**set.test.samples.inputs() {
        Inputs::Sparse { columns, .. } => columns.len(),
        _ => panic!("words are sparse"),
    };
    write(
        dir.path(),
        "agnews/test.csv",
        b"\"4\",\"one two\",\"three\"\n",
    );
    write(dir.path(), "agnews/train-subset.csv", b"\"1\",\"\",\"x\"\n");
    assert_eq!(row(&load(&news, dir.path(), None).unwrap()), 1);
    write(dir.path(), "agnews/train.csv", b"\"1\",\"t\",\"x\"\n");
    assert_eq!(row(&load(&news, dir.path(), None).unwrap()), 3);
    write(
        dir.path(),
        "agnews/test.csv",
        b"\"5\",\"one two\",\"three\"\n",
    );
    assert!(error(&news, dir.path()).contains("line 1: the class is `5`; it must be in 1..=4"));
}

#[test]
fn texts_of_two_sets_have_the_same_word_numbers() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "agnews/train.csv",
        b"\"1\",\"A film\",\"of note\"\n",
    );
    write(dir.path(), "agnews/test.csv", b"\"2\",\"\",\"x\"\n");
    write(
        dir.path(),
        "sst2/train.tsv",
        b"sentence\tlabel\na film of many words\t1\n",
    );
    write(dir.path(), "sst2/dev.tsv", b"sentence\tlabel\n\t0\n");
    let [news, films] = ["ag-news", "sst2"].map(|name| {
        let set = named(&format!("{{{name}: {{width: 8192, words: 3}}}}"));
        assert_eq!(set.task().unwrap().input, [3]);
        let scaled = Normalise {
            mean: vec![0.0; 3],
            std: vec![1.0; 3],
        };
        let error = load(&set, dir.path(), Some(&scaled)).unwrap_err();
        assert!(format!("{error:#}").contains("numbers of words"));
        load(&set, dir.path(), None).unwrap()
    });
    let row = news.train.samples.values();
    assert_eq!(row, films.train.samples.values());
    assert!(
        row.iter()
            .all(|n| n.fract() == 0.0 && (1.0..=8192.0).contains(n))
    );
    assert_eq!(films.test.samples.values().sum(), 0.0);
}

#[test]
fn the_data_directory_is_what_was_given_first() {
    assert_eq!(data_dir(Some(Path::new("here"))), Path::new("here"));
    assert!(!data_dir(None).as_os_str().is_empty());
}

/// Rows, test rows and training rows per class of every stored set; these need the files.
#[test]
fn real_files_hold_what_is_published() {
    let Some(dir) = std::env::var_os("FL_DATA_DIR") else {
        eprintln!("skipped: FL_DATA_DIR is not set, so there are no real files to read");
        return;
    };
    let check = |name: &str, train: &[u32], test: usize, width: usize| -> Set {
        let set = load(&SetSpec::named(name).unwrap(), Path::new(&dir), None).unwrap();
        assert_eq!(set.train.class_counts(), train, "{name}");
        assert_eq!(
            (
                set.test.len(),
                set.train.samples.width(),
                set.test.samples.width()
            ),
            (test, width, width),
            "{name}"
        );
        set
    };
    check(
        "mnist",
        &[5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
        10_000,
        784,
    );
    check("fashion-mnist", &[6000; 10], 10_000, 784);
    check("pneumoniamnist", &[1214, 3494], 624, 784);
    check("adult", &[24_720, 7841], 16_281, 123);
    check("cod-rna", &[39_690, 19_845], 271_617, 8);
    check("sst2", &[29_780, 37_569], 872, 2048);
    let raw = check("adult-raw", &[24_720, 7841], 16_281, 105);
    let adult = load(&named("adult"), Path::new(&dir), None).unwrap();
    assert_eq!(
        raw.train.classes(),
        adult.train.classes(),
        "both forms of Adult are in the same order"
    );
    assert_eq!(raw.test.class_counts(), [12_435, 3846]);

    let per_class = |set: &Examples, low: u32, high: u32| {
        set.class_counts().iter().all(|n| (low..=high).contains(n))
    };
    let news = load(&SetSpec::named("ag-news").unwrap(), Path::new(&dir), None).unwrap();
    assert_eq!(news.test.class_counts(), [1900; 4]);
    assert!(per_class(&news.train, 2456, 30_000));
    // the canonical batches hold 1,000 of each class, a stored subset 400
    let cifar = load(&named("cifar10"), Path::new(&dir), None).unwrap();
    assert!(per_class(&cifar.train, 2000, 5000) && per_class(&cifar.test, 1000, 1000));
    let pneumonia = load(&named("pneumoniamnist"), Path::new(&dir), None).unwrap();
    assert_eq!(pneumonia.validation.unwrap().class_counts(), [135, 389]);
    for entry in list(Path::new(&dir))
        .iter()
        .filter(|e| e.name.ends_with("mnist"))
    {
        let set = load(&SetSpec::named(entry.name).unwrap(), Path::new(&dir), None).unwrap();
        assert_eq!(entry.rows, Some((set.train.len(), set.test.len())));
    }
}
