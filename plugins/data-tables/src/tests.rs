use fl_core::settings::read_yaml;
use fl_data_kit::{Normalise, SetSpec, load};
use std::path::Path;

fn named(yaml: &str) -> SetSpec {
    read_yaml(yaml).unwrap()
}

fn write(dir: &Path, name: &str, content: &[u8]) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn error(set: &SetSpec, dir: &Path) -> String {
    format!("{:#}", load(set, dir, None).unwrap_err())
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
    assert!(text.contains("leave `normalise` out"), "{text}");
    write(dir.path(), "adult/a9a", b"-1 1:1 124:1\n");
    assert!(
        error(&named("adult"), dir.path())
            .contains("adult/a9a: line 1: the index in `124:1` must be in 1..=123")
    );
}
