//! Real data, if `FL_DATA_DIR` is set. `tests/bench` runs scikit-learn and XGBoost on the same
//! data; the expected numbers here are theirs.

use super::*;
use std::io::Read;
use std::path::Path;

fn read(dir: &Path, name: &str, width: usize) -> (Samples, Vec<u32>) {
    let bytes = std::fs::read(dir.join(name)).unwrap();
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(&bytes[..])
        .read_to_string(&mut text)
        .unwrap();
    let (mut starts, mut columns, mut values, mut classes) = (vec![0], vec![], vec![], vec![]);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        classes.push(u32::from(
            words.next().unwrap().parse::<f32>().unwrap() > 0.0,
        ));
        for word in words {
            let (column, value) = word.split_once(':').unwrap();
            columns.push(column.parse::<u32>().unwrap() - 1);
            values.push(value.parse().unwrap());
        }
        starts.push(columns.len());
    }
    let inputs = Inputs::Sparse {
        width,
        starts,
        columns,
        values,
    };
    (Samples::all(Arc::new(inputs)), classes)
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that skips says so")]
fn accuracy_is_that_of_the_well_known_libraries() {
    let Some(dir) = std::env::var_os("FL_DATA_DIR").map(std::path::PathBuf::from) else {
        eprintln!("skipped: trees on a9a and cod-rna (FL_DATA_DIR is not set)");
        return;
    };
    let ((x, y), (xt, yt)) = (
        read(&dir, "adult/a9a.gz", 123),
        read(&dir, "adult/a9a.t.gz", 123),
    );
    let near = |what: &str, ours: f64, theirs: f64| {
        assert!(
            (ours - theirs).abs() < 0.005,
            "{what}: {ours}, theirs {theirs}"
        );
    };
    let tree = fitted(&defaults::<Tree>(), &x, &y, 2).predict(&xt).unwrap();
    near("tree", accuracy(&tree, &yt), SKLEARN_TREE);
    let forest = fitted(&defaults::<Forest>(), &x, &y, 2)
        .predict(&xt)
        .unwrap();
    near("forest", accuracy(&forest, &yt), SKLEARN_FOREST);
    let ((x, y), (xt, yt)) = (
        read(&dir, "cod-rna/cod-rna.gz", 8),
        read(&dir, "cod-rna/cod-rna.t.gz", 8),
    );
    let boosted = fitted(&defaults::<Boosting>(), &x, &y, 2)
        .predict(&xt)
        .unwrap();
    near("boosting", accuracy(&boosted, &yt), XGBOOST);
}

/// scikit-learn 1.9.1, depth 6, trained on a9a, on a9a.t.
const SKLEARN_TREE: f64 = 0.8399;
/// The same, 100 trees; mean of three seeds.
const SKLEARN_FOREST: f64 = 0.8332;
/// XGBoost 3.2.0 `hist`, 100 rounds of depth 6 at rate 0.05, trained on cod-rna, on cod-rna.t.
const XGBOOST: f64 = 0.9629;
