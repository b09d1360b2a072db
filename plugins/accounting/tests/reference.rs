//! Replays the reference vectors of the privacy analyses: `pate_moments.json` and `rdp.json`.
//! From `tests/reference`, and from the folder that `FL_REFERENCE_DIR` names if set.
use fl_plugin_accounting::pate::{self, Orders, Pure};
use fl_plugin_accounting::{gnmax, renyi};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

fn folders() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference");
    let other = std::env::var_os("FL_REFERENCE_DIR").map(PathBuf::from);
    std::iter::once(own).chain(other).collect()
}

fn number(v: &Value) -> f64 {
    match v.as_str() {
        Some(text) => text.parse().expect("nan, inf or -inf"),
        None => v.as_f64().expect("a number"),
    }
}

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().expect("a list").iter().map(number).collect()
}

fn whole(v: &Value) -> Vec<Vec<u32>> {
    let lists = v.as_array().expect("a list of lists").iter();
    lists
        .map(|l| numbers(l).into_iter().map(|x| x as u32).collect())
        .collect()
}

fn json_of(x: f64) -> Value {
    if x.is_finite() {
        json!(x)
    } else {
        json!(x.to_string().to_lowercase())
    }
}

fn list(all: impl IntoIterator<Item = f64>) -> Value {
    all.into_iter().map(json_of).collect()
}

/// Says where `got` is not `expected`. Keys that only comment on the expected value are left out.
fn differs(got: &Value, expected: &Value, tolerance: (f64, f64), place: &str) -> Option<String> {
    match (got, expected) {
        (Value::Object(got), Value::Object(expected)) => expected.iter().find_map(|(key, e)| {
            if ["published", "note_number"].contains(&key.as_str()) {
                return None;
            }
            let place = format!("{place}.{key}");
            match got.get(key) {
                Some(g) => differs(g, e, tolerance, &place),
                None => Some(format!("{place} is missing")),
            }
        }),
        (Value::Array(got), Value::Array(expected)) => {
            if got.len() != expected.len() {
                return Some(format!(
                    "{place}: {} items, expected {}",
                    got.len(),
                    expected.len()
                ));
            }
            let mut pairs = got.iter().zip(expected).enumerate();
            pairs.find_map(|(i, (g, e))| differs(g, e, tolerance, &format!("{place}[{i}]")))
        }
        (Value::Number(_) | Value::String(_), Value::Number(_) | Value::String(_)) => {
            let (g, e) = (number(got), number(expected));
            let near = g == e
                || (g.is_nan() && e.is_nan())
                || (g - e).abs() <= tolerance.0 + tolerance.1 * e.abs();
            (!near).then(|| format!("{place}: {g:e}, expected {e:e}"))
        }
        _ => (got != expected).then(|| format!("{place}: {got}, expected {expected}")),
    }
}

fn moments_of(inputs: &Value, histograms: &Value, orders: Orders) -> Vec<f64> {
    let reach = inputs["multiplier"].as_u64().expect("whole") as u32;
    let counts = whole(histograms);
    let queries = counts.iter().map(Vec::as_slice);
    pate::moments(queries, number(&inputs["gamma"]), reach, orders)
}

/// Sums of one bound over all queries, slowly, one by one: what the fast sums must agree with.
fn sequence(inputs: &Value) -> Value {
    let (gamma, delta) = (number(&inputs["gamma"]), number(&inputs["delta"]));
    let eps0 = 2.0 * number(&inputs["multiplier"]) * gamma;
    let (eight, all) = (Orders::up_to(8), Orders::up_to(32));
    let counts = whole(&inputs["histograms"]);
    let q: Vec<f64> = counts
        .iter()
        .map(|c| {
            let c: Vec<f64> = c.iter().map(|n| f64::from(*n)).collect();
            pate::cap_q(pate::lnmax_q(&c, gamma), c.len())
        })
        .collect();
    let total = |one: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
        all.iter()
            .map(|l| q.iter().map(|q| one(*q, l)).sum())
            .collect()
    };
    let theorem = |q: f64, l: f64| {
        let bound = pate::data_independent(eps0, l);
        pate::data_dependent(q, eps0, l).map_or(bound, |d| d.min(bound))
    };
    let least = moments_of(inputs, &inputs["histograms"], all);
    let slow = total(&|q, l| pate::alpha(Some(q), eps0, l));
    for (fast, slow) in least.iter().zip(&slow) {
        assert!(
            (fast - slow).abs() <= 1e-12 * slow.abs(),
            "{fast} fast, {slow} slow"
        );
    }
    let theorem = total(&theorem);
    let fixed = total(&|_, l| pate::data_independent(eps0, l));
    let (e8, l8) = pate::epsilon(&least[..8], eight, delta);
    let (e32, l32) = pate::epsilon(&least, all, delta);
    json!({
        "q": list(q.clone()), "alpha_total_min3": list(least), "alpha_total_theorem": list(theorem.clone()),
        "epsilon_l1_8": e8, "best_l_1_8": l8, "epsilon_l1_32": e32, "best_l_1_32": l32,
        "epsilon_theorem_l1_32": pate::epsilon(&theorem, all, delta).0,
        "epsilon_data_independent_l1_8": pate::epsilon(&fixed[..8], eight, delta).0,
        "epsilon_data_independent_l1_32": pate::epsilon(&fixed, all, delta).0,
        "epsilon_pure_composition": Pure::of(q.len(), eps0).sum,
    })
}

fn at(orders: &[f64], cost: impl Fn(f64) -> f64) -> Value {
    list(orders.iter().map(|a| cost(*a)))
}

fn pate_op(op: &str, i: &Value) -> Option<Value> {
    let all = Orders::up_to(32);
    Some(match op {
        "lnmax_q" => {
            let (counts, gamma) = (numbers(&i["counts"]), number(&i["gamma"]));
            let q = pate::lnmax_q(&counts, gamma);
            let winner = counts
                .iter()
                .enumerate()
                .rev()
                .max_by(|a, b| a.1.total_cmp(b.1));
            json!({ "q_lemma7": q, "q_capped": pate::cap_q(q, counts.len()), "winner": winner.map(|w| w.0) })
        }
        "lnmax_alpha" => {
            let (q, eps0, l) = (number(&i["q"]), number(&i["eps0"]), numbers(&i["l"]));
            let dependent = l.iter().map(|l| pate::data_dependent(q, eps0, *l));
            let theorem = |l| {
                let bound = pate::data_independent(eps0, l);
                pate::data_dependent(q, eps0, l).map_or(bound, |d| d.min(bound))
            };
            json!({
                "q_limit": pate::q_limit(eps0),
                "data_dependent": dependent.map(|d| d.map_or(Value::Null, json_of)).collect::<Vec<_>>(),
                "data_independent": at(&l, |l| pate::data_independent(eps0, l)),
                "pure": at(&l, |l| eps0 * l),
                "alpha_theorem": at(&l, theorem),
                "alpha_min3": at(&l, |l| pate::alpha(Some(q), eps0, l)),
            })
        }
        "moments_sequence" => sequence(i),
        "moments_z0" => {
            let alpha = moments_of(i, &i["histograms"], all);
            let k = i["histograms"].as_array().expect("a list").len();
            json!({ "alpha_total": list(alpha), "epsilon_exact": Pure::of(k, 0.0).least(number(&i["delta"])) })
        }
        "moments_partitions" => {
            let mut total = vec![0.0; 32];
            for partition in i["histograms_by_partition"].as_array().expect("a list") {
                let more = moments_of(i, partition, all);
                total.iter_mut().zip(more).for_each(|(t, m)| *t += m);
            }
            let epsilon = pate::epsilon(&total, all, number(&i["delta"])).0;
            json!({ "alpha_total_min3": list(total), "epsilon_l1_32": epsilon })
        }
        "parallel_composition" => {
            let eight = Orders::up_to(8);
            let parties = i["histograms"].as_object().expect("by party").iter();
            let each: Map<String, Value> = parties
                .map(|(party, counts)| {
                    let alpha = moments_of(i, counts, eight);
                    (
                        party.clone(),
                        json!(pate::epsilon(&alpha, eight, number(&i["delta"])).0),
                    )
                })
                .collect();
            let worst = each.values().map(number).fold(0.0, f64::max);
            json!({ "epsilon_per_party": each, "epsilon": worst })
        }
        "data_independent_epsilon" => {
            let last = i["moments"].as_str().expect("1..n").rsplit('.').next();
            let orders = Orders::up_to(last.expect("an end").parse().expect("whole"));
            let eps0 = 2.0 * number(&i["multiplier"]) * number(&i["gamma"]);
            let k = number(&i["queries"]);
            let alpha: Vec<f64> = orders
                .iter()
                .map(|l| k * pate::data_independent(eps0, l))
                .collect();
            let (epsilon, l) = pate::epsilon(&alpha, orders, number(&i["delta"]));
            let printed = number(&i.get("published").cloned().unwrap_or(json!(epsilon)));
            assert!((printed - epsilon).abs() <= 0.05);
            json!({ "epsilon": epsilon, "best_l": l })
        }
        "advanced_composition" => {
            let k = i["queries"].as_u64().expect("whole") as usize;
            let (pure, delta) = (Pure::of(k, number(&i["eps0"])), number(&i["delta"]));
            json!({ "dwork_roth_3_20": pure.advanced(delta), "pate_form_k_eps0_sq": pure.advanced_as_in_pate(delta), "basic": pure.sum })
        }
        _ => return None,
    })
}

fn rdp_op(op: &str, i: &Value) -> Option<Value> {
    let orders = i.get("orders").map(numbers).unwrap_or_default();
    let get = |name: &str| number(&i[name]);
    Some(match op {
        "rdp_gaussian" => json!({ "rdp": at(&orders, |a| renyi::gaussian(get("sigma"), a)) }),
        "rdp_subsampled_gaussian" => {
            json!({ "rdp": at(&orders, |a| renyi::subsampled_gaussian(get("q"), get("sigma"), a)) })
        }
        "rdp_laplace" => json!({ "rdp": at(&orders, |a| renyi::laplace(get("eps"), a)) }),
        "rdp_compose" => {
            let mut sum = vec![0.0; orders.len()];
            for part in i["parts"].as_array().expect("a list") {
                let more = numbers(&part["rdp"]);
                sum.iter_mut()
                    .zip(more)
                    .for_each(|(s, m)| *s += number(&part["count"]) * m);
            }
            json!({ "rdp": list(sum) })
        }
        "rdp_to_epsilon" => {
            let rdp = numbers(&i["rdp"]);
            let by = |rule| renyi::epsilon(&rdp, &orders, get("delta"), rule);
            let (classic, improved) = (by(renyi::Rule::Classic), by(renyi::Rule::Improved));
            json!({ "epsilon_classic": classic.0, "order_classic": classic.1,
                "epsilon_improved": improved.0, "order_improved": improved.1 })
        }
        "gaussian_exact_delta" => {
            json!({ "delta": renyi::gaussian_delta(get("sigma"), get("epsilon")) })
        }
        "gnmax" => {
            let (counts, sigma) = (numbers(&i["counts"]), get("sigma"));
            let uncapped = gnmax::ln_q(&counts, sigma);
            let ln_q = gnmax::cap_ln_q(uncapped, counts.len());
            json!({ "log_q": ln_q, "log_q_uncapped": uncapped,
                "rdp_data_independent": at(&orders, |a| gnmax::rdp(0.0, sigma, a)),
                "rdp_data_dependent": at(&orders, |a| gnmax::rdp(ln_q, sigma, a)) })
        }
        "confident_threshold" => {
            let (counts, threshold, sigma1) =
                (numbers(&i["counts"]), get("threshold"), get("sigma1"));
            let (answered, refused) = gnmax::ln_answered(&counts, threshold, sigma1);
            json!({ "log_pr_answered": answered, "log_q": answered.min(refused),
                "rdp_data_independent": at(&orders, |a| renyi::gaussian(sigma1, a)),
                "rdp_data_dependent": at(&orders, |a| gnmax::threshold_rdp(&counts, threshold, sigma1, 1.0, a)) })
        }
        "confident_gnmax_cost" => confident_total(i, &orders),
        _ => return None,
    })
}

fn confident_total(i: &Value, orders: &[f64]) -> Value {
    let get = |name: &str| number(&i[name]);
    let (threshold, sigma1, sigma2) = (get("threshold"), get("sigma1"), get("sigma2"));
    let all: Vec<Vec<f64>> = i["histograms"]
        .as_array()
        .expect("a list")
        .iter()
        .map(numbers)
        .collect();
    let said: Vec<bool> = i["answered"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|b| b == true)
        .collect();
    let sum = |one: &dyn Fn(&[f64], bool, f64) -> f64| -> Vec<f64> {
        let queries = || all.iter().zip(&said);
        orders
            .iter()
            .map(|a| queries().map(|(c, s)| one(c, *s, *a)).sum())
            .collect()
    };
    let dependent = sum(&|c, said, a| {
        let ln_q = gnmax::cap_ln_q(gnmax::ln_q(c, sigma2), c.len());
        let answer = if said {
            gnmax::rdp(ln_q, sigma2, a)
        } else {
            0.0
        };
        answer + gnmax::threshold_rdp(c, threshold, sigma1, 1.0, a)
    });
    let fixed = sum(&|_, said, a| {
        renyi::gaussian(sigma1, a)
            + if said {
                gnmax::rdp(0.0, sigma2, a)
            } else {
                0.0
            }
    });
    let by = |rdp: &[f64], rule| renyi::epsilon(rdp, orders, get("delta"), rule);
    let classic = by(&dependent, renyi::Rule::Classic);
    json!({ "rdp_total_data_dependent": list(dependent.clone()), "rdp_total_data_independent": list(fixed.clone()),
        "epsilon_classic": classic.0, "order_classic": classic.1,
        "epsilon_improved": by(&dependent, renyi::Rule::Improved).0,
        "epsilon_data_independent_classic": by(&fixed, renyi::Rule::Classic).0 })
}

fn replay(file: &str, answer: fn(&str, &Value) -> Option<Value>) {
    for folder in folders() {
        let path = folder.join(file);
        let Ok(text) = std::fs::read_to_string(&path) else {
            assert!(
                std::env::var_os("FL_REFERENCE_DIR").is_some(),
                "{} is not there",
                path.display()
            );
            continue;
        };
        let all: Value = serde_json::from_str(&text).expect("JSON");
        let (mut wrong, mut passed) = (Vec::new(), 0);
        for case in all["cases"].as_array().expect("cases") {
            let (op, t) = (case["op"].as_str().expect("op"), &case["tolerance"]);
            let tolerance = (number(&t["abs"]), number(&t["rel"]));
            let found = match answer(op, &case["inputs"]) {
                Some(got) => differs(&got, &case["expected"], tolerance, ""),
                None => Some("nobody implements it".into()),
            };
            match found {
                Some(found) => wrong.push(format!("{} ({op}): {found}", case["name"])),
                None => passed += 1,
            }
        }
        assert!(
            wrong.is_empty(),
            "{file}: {passed} passed, these did not:\n{}",
            wrong.join("\n")
        );
    }
}

#[test]
fn close_pate_moments() {
    replay("pate_moments.json", pate_op);
}

#[test]
fn close_rdp() {
    replay("rdp.json", rdp_op);
}
