//! Libraries that were compiled once load, and give the answers that are written here.

use crate::common::{json, out, quick, root};
use flate2::read::GzDecoder;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Unpacks a library of `tests/golden`.
fn unpacked(name: &str, dir: &Path) -> PathBuf {
    let packed = File::open(root().join(format!("tests/golden/{name}.so.gz"))).unwrap();
    let (mut bytes, path) = (Vec::new(), dir.join(format!("{name}.so")));
    GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

/// Every library that is kept, with an aggregator in it: name, part, answer to `INBOX`.
const KEPT: [(&str, &str, &str); 1] = [(
    "c-1",
    "c-mean",
    r#"{"kind":"params","tensors":{"w":[2.5,0.8]}}"#,
)];

const INBOX: &str = r#"{"messages": [{"from": 0, "weight": 1, "tensors": {"w": [1, 2]}},
                                     {"from": 1, "weight": 3, "tensors": {"w": [3, 0.4]}}]}"#;

#[test]
fn exact_libraries_of_every_interface_still_answer() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("in.json"), INBOX).unwrap();
    let kept = fs::read_dir(root().join("tests/golden")).unwrap();
    let kept = kept.filter(|e| {
        e.as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .ends_with(".gz")
    });
    assert_eq!(kept.count(), KEPT.len(), "a library without a test");
    for (name, part, due) in KEPT {
        let library = unpacked(name, dir).display().to_string();
        for isolate in [&["--isolate=false"][..], &[]] {
            let ask = [
                "try",
                "aggregator",
                part,
                "--plugin",
                &library,
                "--input",
                "in.json",
            ];
            assert_eq!(
                out(dir, &[&ask, isolate].concat()).trim_end(),
                due,
                "{name}"
            );
        }
        let (spec, folder) = (quick("fedavg"), format!("run-{name}"));
        let aggregator = format!("parts.aggregator.use={part}");
        let run = [
            "run", &spec, "--json", "--out", &folder, "--plugin", &library,
        ];
        json(dir, &[&run[..], &["--set", &aggregator]].concat());
    }
}
