use fl_core::Stream;
use fl_core::settings::read_yaml;
use fl_data::{DataSpec, Overview, build};
use std::path::Path;

fn overview(yaml: &str) -> Overview {
    let spec: DataSpec = read_yaml(yaml).unwrap();
    Overview::of(&build(&spec, Path::new("nowhere"), &Stream::root(1)).unwrap())
}

#[test]
fn every_client_has_its_line() {
    let got = overview("{set: {blobs: {train: 100, test: 8}}, clients: 4, split: {classes: 1}}");
    insta::assert_snapshot!(got, @"
    [8] -> 4 classes; 100 rows over 4 clients
    8 rows to test with

    client     rows                        0123       0       1       2       3
         0       25  ████████████████████  █         25       0       0       0
         1       25  ████████████████████   █         0      25       0       0
         2       25  ████████████████████    █        0       0      25       0
         3       25  ████████████████████     █       0       0       0      25
    rows of a client: 25 to 25, median 25; in the picture a blank is 0 and █ more than 18 rows
    ");
    assert_eq!(got.json()["clients"][1]["classes"][1], 25);
}

#[test]
fn images_to_be_made_have_no_classes_to_count() {
    let got = overview(
        "{set: {glyphs: {train: 40, test: 9}}, clients: 2, undersampled: {factor: 8, centre: 0.04}}",
    );
    let shown: Vec<String> = got
        .to_string()
        .lines()
        .map(|l| l.trim_end().into())
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @"
    [1, 28, 28] -> images of 1x28x28 values; 40 rows over 2 clients
    9 rows to test with

    client     rows
         0       20  ████████████████████
         1       20  ████████████████████
    rows of a client: 20 to 20, median 20
    note: the undersampled test images themselves have a PSNR of 14.26 dB
    ");
    assert_eq!(got.json()["clients"][1]["classes"], serde_json::json!([]));
}

#[test]
fn every_split_is_shown_and_extremes_are_noted() {
    for split in [
        "iid",
        "{dirichlet: {alpha: 0.5}}",
        "{size: {power: 2}}",
        "{classes: 2}",
    ] {
        let got = overview(&format!("{{set: blobs, clients: 8, split: {split}}}"));
        let rows: usize = got.clients.iter().map(|client| client.rows).sum();
        assert_eq!(rows, 1000, "{split}");
    }
    let got = overview(
        "{set: blobs, clients: 70, split: {dirichlet: {alpha: 0.01}}, public: {from: {share: 0.1}}}",
    );
    assert!(got.to_string().contains(".. and 20 more"));
    assert!(
        got.notes.iter().any(|note| note.contains("own no sample")),
        "{:?}",
        got.notes
    );
    assert_eq!(got.public, Some((100, false)));
}
