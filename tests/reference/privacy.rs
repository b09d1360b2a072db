//! The privacy analyses: moments of votes with Laplace noise, Rényi divergences, conversions.

use crate::replay::{Inputs, Op, number};
use anyhow::{Context, Result, ensure};
use fl_plugin_accounting::pate::{self, Orders, Pure};
use fl_plugin_accounting::{gnmax, renyi};
use serde_json::{Map, Value, json};

pub const OPS: &[Op] = &[
    // pate_moments.json
    ("lnmax_q", |i| {
        let counts: Vec<f64> = i.get("counts")?;
        let q = pate::lnmax_q(&counts, i.get("gamma")?);
        // the lowest class with the highest count
        let winner = (0..counts.len())
            .rev()
            .max_by(|a, b| counts[*a].total_cmp(&counts[*b]));
        Ok(
            json!({ "q_lemma7": number(q), "q_capped": number(pate::cap_q(q, counts.len())), "winner": winner }),
        )
    }),
    ("lnmax_alpha", lnmax_alpha),
    ("moments_sequence", sequence),
    ("moments_z0", |i| {
        let counts = histograms(i)?;
        let alpha = moments(i, &counts, Orders::up_to(32))?;
        let epsilon = Pure::of(counts.len(), 0.0).least(i.get("delta")?);
        Ok(json!({ "alpha_total": list(alpha), "epsilon_exact": number(epsilon) }))
    }),
    ("moments_partitions", |i| {
        let (all, mut total) = (Orders::up_to(32), vec![0.0; 32]);
        for partition in i.get::<Vec<Counts>>("histograms_by_partition")? {
            let more = moments(i, &partition, all)?;
            total.iter_mut().zip(more).for_each(|(t, m)| *t += m);
        }
        let epsilon = pate::epsilon(&total, all, i.get("delta")?).0;
        Ok(json!({ "alpha_total_min3": list(total), "epsilon_l1_32": number(epsilon) }))
    }),
    ("parallel_composition", |i| {
        let (orders, delta) = (orders_up_to(i)?, i.get("delta")?);
        let (mut each, mut worst) = (Map::new(), 0.0f64);
        for (party, counts) in i.get::<Map<String, Value>>("histograms")? {
            let alpha = moments(i, &serde_json::from_value(counts)?, orders)?;
            let epsilon = pate::epsilon(&alpha, orders, delta).0;
            worst = worst.max(epsilon);
            each.insert(party, number(epsilon));
        }
        Ok(json!({ "epsilon_per_party": each, "epsilon": number(worst) }))
    }),
    ("data_independent_epsilon", |i| {
        let (orders, k) = (orders_up_to(i)?, i.get::<f64>("queries")?);
        let eps0 = eps0(i)?;
        let alpha: Vec<f64> = orders
            .iter()
            .map(|l| k * pate::data_independent(eps0, l))
            .collect();
        let (epsilon, l) = pate::epsilon(&alpha, orders, i.get("delta")?);
        Ok(json!({ "epsilon": number(epsilon), "best_l": l }))
    }),
    ("advanced_composition", |i| {
        let (pure, delta) = (Pure::of(i.get("queries")?, i.get("eps0")?), i.get("delta")?);
        // the form in PATE's paper has `sum eps^2` for `sum eps (e^eps - 1)`, which is larger
        let in_pate = (-2.0 * libm::log(delta) * pure.squares).sqrt() + pure.squares;
        Ok(json!({
            "dwork_roth_3_20": number(pure.advanced(delta)),
            "pate_form_k_eps0_sq": number(in_pate), "basic": number(pure.sum),
        }))
    }),
    // rdp.json
    ("rdp_gaussian", |i| by_order(i, renyi::gaussian, "sigma")),
    ("rdp_subsampled_gaussian", |i| {
        let q = i.get("q")?;
        by_order(
            i,
            |sigma, a| renyi::subsampled_gaussian(q, sigma, a),
            "sigma",
        )
    }),
    ("rdp_laplace", |i| by_order(i, renyi::laplace, "eps")),
    ("rdp_compose", |i| {
        let mut sum = vec![0.0; orders(i)?.len()];
        for part in i.get::<Vec<Value>>("parts")? {
            let part = Inputs(&part);
            let (count, more): (f64, Vec<f64>) = (part.get("count")?, part.get("rdp")?);
            sum.iter_mut().zip(more).for_each(|(s, m)| *s += count * m);
        }
        Ok(json!({ "rdp": list(sum) }))
    }),
    ("rdp_to_epsilon", |i| {
        let (rdp, orders, delta): (Vec<f64>, _, _) = (i.get("rdp")?, orders(i)?, i.get("delta")?);
        let by = |rule| renyi::epsilon(&rdp, &orders, delta, rule);
        let (classic, improved) = (
            by(&renyi::Conversion::Classic),
            by(&renyi::Conversion::Improved),
        );
        Ok(json!({
            "epsilon_classic": number(classic.0), "order_classic": classic.1,
            "epsilon_improved": number(improved.0), "order_improved": improved.1,
        }))
    }),
    ("gaussian_exact_delta", |i| {
        Ok(json!({ "delta": number(renyi::gaussian_delta(i.get("sigma")?, i.get("epsilon")?)) }))
    }),
    ("gnmax", |i| {
        let (counts, sigma): (Vec<f64>, f64) = (i.get("counts")?, i.get("sigma")?);
        let uncapped = gnmax::ln_q(&counts, sigma);
        let ln_q = gnmax::cap_ln_q(uncapped, counts.len());
        let at = |ln_q| at(&orders(i)?, |a| gnmax::rdp(ln_q, sigma, a));
        Ok(json!({
            "log_q": number(ln_q), "log_q_uncapped": number(uncapped),
            "rdp_data_independent": at(0.0)?, "rdp_data_dependent": at(ln_q)?,
        }))
    }),
    ("confident_threshold", |i| {
        let (counts, threshold, sigma1): (Vec<f64>, f64, f64) =
            (i.get("counts")?, i.get("threshold")?, i.get("sigma1")?);
        let (answered, refused) = gnmax::ln_answered(&counts, threshold, sigma1);
        let orders = orders(i)?;
        Ok(json!({
            "log_pr_answered": number(answered), "log_q": number(answered.min(refused)),
            "rdp_data_independent": at(&orders, |a| renyi::gaussian(sigma1, a))?,
            "rdp_data_dependent": at(&orders, |a| gnmax::threshold_rdp(&counts, threshold, sigma1, 1.0, a))?,
        }))
    }),
    ("confident_gnmax_cost", confident),
];

type Counts = Vec<Vec<u32>>;

fn list(all: impl IntoIterator<Item = f64>) -> Value {
    all.into_iter().map(number).collect()
}

fn histograms(i: &Inputs<'_>) -> Result<Counts> {
    i.get("histograms")
}

fn eps0(i: &Inputs<'_>) -> Result<f64> {
    Ok(2.0 * i.get::<f64>("multiplier")? * i.get::<f64>("gamma")?)
}

/// `1..n`
fn orders_up_to(i: &Inputs<'_>) -> Result<Orders> {
    let said: String = i.get("moments")?;
    let last = said.rsplit('.').next().and_then(|n| n.parse().ok());
    Ok(Orders::up_to(
        last.with_context(|| format!("moments `{said}`"))?,
    ))
}

/// Of all queries, as accountants add them up.
fn moments(i: &Inputs<'_>, counts: &Counts, orders: Orders) -> Result<Vec<f64>> {
    let queries = counts.iter().map(Vec::as_slice);
    Ok(pate::moments(
        queries,
        i.get("gamma")?,
        i.get("multiplier")?,
        orders,
    ))
}

/// The bound as the theorem has it, without the pure one.
fn theorem(q: f64, eps0: f64, l: f64) -> f64 {
    let bound = pate::data_independent(eps0, l);
    pate::data_dependent(q, eps0, l).map_or(bound, |d| d.min(bound))
}

fn lnmax_alpha(i: &Inputs<'_>) -> Result<Value> {
    let (q, eps0, l): (f64, f64, Vec<f64>) = (i.get("q")?, i.get("eps0")?, i.get("l")?);
    let each = |f: &dyn Fn(f64) -> f64| list(l.iter().map(|l| f(*l)));
    let dependent = l.iter().map(|l| pate::data_dependent(q, eps0, *l));
    Ok(json!({
        "q_limit": number(pate::q_limit(eps0)),
        "data_dependent": dependent.map(crate::replay::maybe).collect::<Value>(),
        "data_independent": each(&|l| pate::data_independent(eps0, l)),
        "pure": each(&|l| eps0 * l),
        "alpha_theorem": each(&|l| theorem(q, eps0, l)),
        "alpha_min3": each(&|l| pate::alpha(Some(q), eps0, l)),
    }))
}

/// Sums of each bound over all queries; the fast sums of accountants must agree with those of one
/// query after another.
fn sequence(i: &Inputs<'_>) -> Result<Value> {
    let (gamma, delta): (f64, f64) = (i.get("gamma")?, i.get("delta")?);
    let (eps0, eight, all) = (eps0(i)?, Orders::up_to(8), Orders::up_to(32));
    let counts = histograms(i)?;
    let q_of = |c: &Vec<u32>| {
        let wide: Vec<f64> = c.iter().map(|n| f64::from(*n)).collect();
        pate::cap_q(pate::lnmax_q(&wide, gamma), c.len())
    };
    let q: Vec<f64> = counts.iter().map(q_of).collect();
    let total = |one: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
        all.iter()
            .map(|l| q.iter().map(|q| one(*q, l)).sum())
            .collect()
    };
    let least = moments(i, &counts, all)?;
    for (fast, slow) in least
        .iter()
        .zip(total(&|q, l| pate::alpha(Some(q), eps0, l)))
    {
        ensure!(
            (fast - slow).abs() <= 1e-12 * slow.abs(),
            "{fast} fast, {slow} one by one"
        );
    }
    let theorem = total(&|q, l| theorem(q, eps0, l));
    let fixed = total(&|_, l| pate::data_independent(eps0, l));
    let ((e8, l8), (e32, l32)) = (
        pate::epsilon(&least[..8], eight, delta),
        pate::epsilon(&least, all, delta),
    );
    Ok(json!({
        "q": list(q.iter().copied()), "alpha_total_min3": list(least), "alpha_total_theorem": list(theorem.clone()),
        "epsilon_l1_8": number(e8), "best_l_1_8": l8, "epsilon_l1_32": number(e32), "best_l_1_32": l32,
        "epsilon_theorem_l1_32": number(pate::epsilon(&theorem, all, delta).0),
        "epsilon_data_independent_l1_8": number(pate::epsilon(&fixed[..8], eight, delta).0),
        "epsilon_data_independent_l1_32": number(pate::epsilon(&fixed, all, delta).0),
        "epsilon_pure_composition": number(Pure::of(q.len(), eps0).sum),
    }))
}

fn orders(i: &Inputs<'_>) -> Result<Vec<f64>> {
    i.get("orders")
}

fn at(orders: &[f64], cost: impl Fn(f64) -> f64) -> Result<Value> {
    Ok(list(orders.iter().map(|a| cost(*a))))
}

/// The divergence of a mechanism at every order; `level` is its noise or its pure epsilon.
fn by_order(i: &Inputs<'_>, of: impl Fn(f64, f64) -> f64, level: &str) -> Result<Value> {
    let level = i.get(level)?;
    Ok(json!({ "rdp": at(&orders(i)?, |a| of(level, a))? }))
}

/// Confident-GNMax: the check of every query and the answers that were given.
fn confident(i: &Inputs<'_>) -> Result<Value> {
    let (threshold, sigma1, sigma2): (f64, f64, f64) =
        (i.get("threshold")?, i.get("sigma1")?, i.get("sigma2")?);
    let (all, said): (Vec<Vec<f64>>, Vec<bool>) = (i.get("histograms")?, i.get("answered")?);
    let (orders, delta) = (orders(i)?, i.get("delta")?);
    let sum = |one: &dyn Fn(&[f64], bool, f64) -> f64| -> Vec<f64> {
        let at = |a: &f64| all.iter().zip(&said).map(|(c, s)| one(c, *s, *a)).sum();
        orders.iter().map(at).collect()
    };
    let answer = |said: bool, ln_q: f64, a: f64| {
        if said {
            gnmax::rdp(ln_q, sigma2, a)
        } else {
            0.0
        }
    };
    let dependent = sum(&|c, said, a| {
        let ln_q = gnmax::cap_ln_q(gnmax::ln_q(c, sigma2), c.len());
        answer(said, ln_q, a) + gnmax::threshold_rdp(c, threshold, sigma1, 1.0, a)
    });
    let fixed = sum(&|_, said, a| renyi::gaussian(sigma1, a) + answer(said, 0.0, a));
    let by = |rdp: &[f64], rule| renyi::epsilon(rdp, &orders, delta, rule);
    let classic = by(&dependent, &renyi::Conversion::Classic);
    Ok(json!({
        "rdp_total_data_dependent": list(dependent.iter().copied()), "rdp_total_data_independent": list(fixed.iter().copied()),
        "epsilon_classic": number(classic.0), "order_classic": classic.1,
        "epsilon_improved": number(by(&dependent, &renyi::Conversion::Improved).0),
        "epsilon_data_independent_classic": number(by(&fixed, &renyi::Conversion::Classic).0),
    }))
}
