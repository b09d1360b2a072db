//! `specs/schema.json` is what `fl schema` prints, and it accepts what the reader accepts.

use crate::common::{out, root, specs};
use serde_json::Value;
use std::fs;

#[test]
fn exact_the_committed_schema_is_current() {
    let path = root().join("specs/schema.json");
    let now = out(&root(), &["schema"]);
    if std::env::var_os("FL_UPDATE").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == now,
        "specs/schema.json is not what `fl schema` prints; update it with: FL_UPDATE=1 cargo test -p fl-cli --test program schema"
    );
}

#[test]
fn every_spec_fulfils_the_schema_and_a_wrong_one_does_not() {
    let schema: Value = serde_json::from_str(&out(&root(), &["schema"])).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    for folder in fs::read_dir(root().join("specs"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.is_dir())
    {
        for spec in specs(&folder.file_name().unwrap().to_string_lossy()) {
            let value: Value = serde_yaml::from_str(&fs::read_to_string(&spec).unwrap()).unwrap();
            let errors: Vec<String> = schema
                .iter_errors(&value)
                .map(|e| format!("{}: {e}", e.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{}: {errors:#?}", spec.display());
        }
    }
    let wrong: Value = serde_yaml::from_str(
        "{name: x, data: {set: blobs}, protocol: {use: param-rounds, rounds: 0}, parts: {}}",
    )
    .unwrap();
    assert!(!schema.is_valid(&wrong));
}
