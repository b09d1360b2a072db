use fl_core::settings::read_yaml;
use fl_data_kit::{SetSpec, list, load};
use std::path::Path;

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
    assert!(rows("mnist").present() && !rows("fashion-mnist").present());
    assert_eq!(
        (rows("mnist").rows, rows("fashion-mnist").rows),
        (Some((3, 1)), None)
    );

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
