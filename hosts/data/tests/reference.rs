//! Replays the reference cases for partitions: those of this repository, and those in the folder that
//! `FL_REFERENCE_DIR` names.

use fl_data::partition::*;
use fl_data::published;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn replay(op: &str, inputs: &Value) -> Value {
    let number = |key: &str| {
        inputs[key]
            .as_u64()
            .unwrap_or_else(|| panic!("`{key}` is a whole number")) as usize
    };
    let float = |key: &str| {
        inputs[key]
            .as_f64()
            .unwrap_or_else(|| panic!("`{key}` is a number"))
    };
    let list = |key: &str| -> Vec<usize> { serde_json::from_value(inputs[key].clone()).unwrap() };
    let table =
        |key: &str| -> Vec<Vec<f64>> { serde_json::from_value(inputs[key].clone()).unwrap() };
    let dealt = |partition: &Partition| {
        let counts = partition.class_counts(&list("labels"), table("proportions").len());
        json!({ "indices": partition.clients, "counts": counts })
    };
    match op {
        "dirichlet_floor" => {
            dealt(&dirichlet_floor(&list("labels"), &table("proportions")).unwrap())
        }
        "dirichlet_cumulative" => {
            let balance = inputs["balance"].as_bool().unwrap();
            let (partition, used) =
                dirichlet_cumulative(&list("labels"), &table("proportions"), balance).unwrap();
            let mut got = dealt(&partition);
            got["proportions_used"] = json!(used);
            got
        }
        "iid_sizes" => json!({ "sizes": iid_sizes(number("n"), number("clients")).unwrap() }),
        "classes_per_client" => {
            let per = number("classes_per_client");
            json!({ "classes": classes_per_client(number("clients"), number("n_classes"), per).unwrap() })
        }
        "rarest_positive" => {
            let rows: Vec<Vec<i8>> = serde_json::from_value(inputs["labels"].clone()).unwrap();
            let shape = (rows.len(), rows.first().map_or(0, Vec::len));
            let labels = ndarray::Array2::from_shape_vec(shape, rows.concat()).unwrap();
            let (counts, assigned) = rarest_positive(labels.view());
            json!({ "positive_counts": counts, "assigned": assigned })
        }
        "selective_fd_sizes" => {
            let sets = list("train").into_iter().zip(list("proxy"));
            let (local, fraction): (Vec<usize>, Vec<f64>) = sets
                .map(|(train, proxy)| selective_fd_sizes(train, proxy, number("clients")).unwrap())
                .unzip();
            json!({ "local": local, "proxy_fraction": fraction })
        }
        "fraction_split" => {
            let (first, rest) = fraction_split(number("n"), float("first_fraction")).unwrap();
            json!({ "first": first, "rest": rest })
        }
        "fedkt_tabular_split" => {
            let TabularSplit {
                train,
                public,
                test,
                pool,
            } = fedkt_tabular_split(number("n"));
            json!({ "train": train, "public": public, "test": test, "pool": pool })
        }
        "fedkt_image_split" => {
            let (public, test) = fedkt_image_split(number("test"));
            json!({ "public": public, "test": test })
        }
        "fedkt_queries" => {
            json!({ "queries": fedkt_queries(number("pool"), float("fraction")).unwrap() })
        }
        "published_split_counts" => {
            let set = inputs["dataset"].as_str().unwrap();
            let table = published::find(set, float("alpha"), number("split_seed") as u64).unwrap();
            assert_eq!(
                (table.counts.len(), table.class_size),
                (number("clients"), number("class_size"))
            );
            json!({ "counts_client_by_class": table.counts, "client_sizes": table.client_sizes() })
        }
        other => panic!("no rule for `{other}`"),
    }
}

/// `|got - expected| <= abs + rel * |expected|` for every number that is expected.
fn same(got: &Value, expected: &Value, abs: f64, rel: f64) -> bool {
    match (got, expected) {
        (Value::Object(got), Value::Object(expected)) => expected
            .iter()
            .all(|(key, e)| got.get(key).is_some_and(|g| same(g, e, abs, rel))),
        (Value::Array(got), Value::Array(expected)) => {
            got.len() == expected.len()
                && got.iter().zip(expected).all(|(g, e)| same(g, e, abs, rel))
        }
        (Value::Number(got), Value::Number(expected)) => {
            let (got, expected) = (got.as_f64().unwrap(), expected.as_f64().unwrap());
            (got - expected).abs() <= abs + rel * expected.abs()
        }
        _ => got == expected,
    }
}

fn replay_file(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file: Value = serde_json::from_str(&text).unwrap();
    let cases = file["cases"].as_array().unwrap();
    for case in cases {
        let got = replay(case["op"].as_str().unwrap(), &case["inputs"]);
        let (abs, rel) = (
            case["tolerance"]["abs"].as_f64().unwrap(),
            case["tolerance"]["rel"].as_f64().unwrap(),
        );
        assert!(
            same(&got, &case["expected"], abs, rel),
            "{}: got {got}",
            case["name"]
        );
    }
    cases.len()
}

#[test]
fn every_case_is_met() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference/partition.json");
    assert!(replay_file(&own) >= 27);
    let folder = std::env::var_os("FL_REFERENCE_DIR").map(PathBuf::from);
    if let Some(other) = folder
        .map(|dir| dir.join("partition.json"))
        .filter(|path| path.is_file())
    {
        replay_file(&other);
    }
}
