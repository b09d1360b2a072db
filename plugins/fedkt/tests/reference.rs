//! Replays the reference vectors of votes, `fedkt_votes.json`. From `tests/reference`, and from the folder that
//! `FL_REFERENCE_DIR` names if set.
use fl_core::message::Counts;
use fl_plugin_fedkt::{close_votes, confident, consistent_counts, plain_counts, subset_sizes};
use ndarray::Array2;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn folders() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference");
    let other = std::env::var_os("FL_REFERENCE_DIR").map(PathBuf::from);
    std::iter::once(own).chain(other).collect()
}

fn list(v: &Value) -> Vec<f64> {
    let items = v.as_array().expect("a list").iter();
    items.map(|x| x.as_f64().expect("a number")).collect()
}

fn table(v: &Value) -> Array2<f64> {
    let rows: Vec<Vec<f64>> = v.as_array().expect("a table").iter().map(list).collect();
    let shape = (rows.len(), rows.first().map_or(0, Vec::len));
    Array2::from_shape_vec(shape, rows.concat()).expect("rows of one length")
}

fn counts(values: Array2<f64>) -> Counts {
    Counts::new((0..values.nrows() as u32).collect(), values)
}

fn rows(values: &Array2<f64>) -> Value {
    values
        .rows()
        .into_iter()
        .map(|r| json!(r.to_vec()))
        .collect()
}

/// `voters x rows` as `rows x voters`.
fn votes(v: &Value) -> Array2<u32> {
    table(v).t().mapv(|x| x as u32)
}

fn answer(op: &str, i: &Value) -> Option<Value> {
    let classes = i["n_classes"].as_u64().unwrap_or(0) as usize;
    Some(match op {
        "vote_counts" => {
            let votes = votes(&i["predictions"]);
            let c = counts(plain_counts(&[votes.view()], classes));
            json!({ "counts": rows(&c.values), "label": c.winners(), "top2_gap": c.gaps() })
        }
        "consistent_voting" => {
            let parties: Vec<_> = i["predictions"]
                .as_array()
                .expect("parties")
                .iter()
                .map(votes)
                .collect();
            let views: Vec<_> = parties.iter().map(|p| p.view()).collect();
            let consistent = counts(consistent_counts(&views, classes));
            let plain = counts(plain_counts(&views, classes));
            let s = parties[0].ncols() as f64;
            let agree: Vec<f64> = consistent
                .values
                .rows()
                .into_iter()
                .map(|r| r.sum() / s)
                .collect();
            json!({ "consistent_counts": rows(&consistent.values), "consistent_label": consistent.winners(),
                "plain_counts": rows(&plain.values), "plain_label": plain.winners(), "n_consistent_parties": agree })
        }
        "argmax" => json!({ "label": counts(table(&i["counts"])).winners() }),
        "noisy_argmax" => {
            let noisy = counts(table(&i["counts"]) + table(&i["noise"]));
            json!({ "noisy": rows(&noisy.values), "label": noisy.winners() })
        }
        "subset_sizes" => {
            let n = |key: &str| i[key].as_u64().expect("whole") as usize;
            json!({ "sizes": subset_sizes(n("n"), n("t")) })
        }
        "confident_gnmax" => {
            let (clean, noise) = (table(&i["counts"]), table(&i["argmax_noise"]));
            let threshold = i["threshold"].as_f64().expect("a number");
            let said = confident(
                &counts(clean.clone()),
                threshold,
                list(&i["threshold_noise"]).into_iter(),
            );
            let winners = counts(clean + noise).winners();
            let labels = said.iter().zip(winners).map(|(said, w)| said.then_some(w));
            json!({ "label": labels.collect::<Vec<_>>(), "answered": said })
        }
        "theorem9_z" => {
            let most = i["max_gap"].as_f64().expect("a number");
            let parties = i["top2_gaps"].as_array().expect("parties").iter();
            let of = |party: &Value| {
                let partitions: Vec<_> = party
                    .as_array()
                    .expect("partitions")
                    .iter()
                    .map(list)
                    .collect();
                close_votes(&partitions, most)
            };
            let each: Vec<usize> = parties.map(of).collect();
            json!({ "z": each.iter().max(), "z_per_party": each })
        }
        "fedkt_comm" => {
            let n = |key: &str| i[key].as_f64().expect("a number");
            // n parties send s students and get the final model; a round of FedAvg is one model both ways
            let bytes = n("n") * (n("s") + 1.0) * n("model_bytes");
            json!({ "bytes": bytes, "fedavg_rounds_breakeven": bytes / (2.0 * n("n") * n("model_bytes")) })
        }
        _ => return None,
    })
}

fn differs(got: &Value, expected: &Value, tolerance: (f64, f64), place: &str) -> Option<String> {
    match (got, expected) {
        (Value::Object(got), Value::Object(expected)) => expected.iter().find_map(|(key, e)| {
            let got = got.get(key).unwrap_or(&Value::Null);
            differs(got, e, tolerance, &format!("{place}.{key}"))
        }),
        (Value::Array(g), Value::Array(e)) if g.len() == e.len() => {
            let mut pairs = g.iter().zip(e).enumerate();
            pairs.find_map(|(i, (g, e))| differs(g, e, tolerance, &format!("{place}[{i}]")))
        }
        (Value::Number(g), Value::Number(e)) => {
            let (g, e) = (g.as_f64()?, e.as_f64()?);
            let near = (g - e).abs() <= tolerance.0 + tolerance.1 * e.abs();
            (!near).then(|| format!("{place}: {g}, expected {e}"))
        }
        _ => (got != expected).then(|| format!("{place}: {got}, expected {expected}")),
    }
}

#[test]
fn close_fedkt_votes() {
    for folder in folders() {
        let path = folder.join("fedkt_votes.json");
        let Ok(text) = std::fs::read_to_string(&path) else {
            assert!(
                std::env::var_os("FL_REFERENCE_DIR").is_some(),
                "{} is not there",
                path.display()
            );
            continue;
        };
        let all: Value = serde_json::from_str(&text).expect("JSON");
        let mut wrong = Vec::new();
        for case in all["cases"].as_array().expect("cases") {
            let (op, t) = (
                case["op"].as_str().expect("op"),
                list(&json!([case["tolerance"]["abs"], case["tolerance"]["rel"]])),
            );
            let found = match answer(op, &case["inputs"]) {
                Some(got) => differs(&got, &case["expected"], (t[0], t[1]), ""),
                None => Some("nobody implements it".into()),
            };
            wrong.extend(found.map(|found| format!("{} ({op}): {found}", case["name"])));
        }
        assert!(
            wrong.is_empty(),
            "these did not pass:\n{}",
            wrong.join("\n")
        );
    }
}
