//! Which sample goes to which client.

use crate::replay::{Inputs, Op};
use anyhow::{Result, ensure};
use fl_data::partition::*;
use fl_data::published;
use fl_data::split::open_proportions;
use ndarray::Array2;
use serde_json::{Value, json};

pub const OPS: &[Op] = &[
    ("dirichlet_floor", |i| {
        dealt(i, |sizes, proportions| Ok(floor_counts(sizes, proportions)))
    }),
    ("dirichlet_cumulative", |i| {
        let balance: bool = i.get("balance")?;
        let mut used = Vec::new();
        let mut got = dealt(i, |sizes, proportions| {
            let (all, clients) = (sizes.iter().sum::<usize>(), proportions[0].len());
            cumulative_counts(sizes, clients, |class, owned| {
                let logs: Vec<f64> = proportions[class].iter().map(|p| libm::log(*p)).collect();
                let p = open_proportions(&logs, owned, all, balance);
                used.push(p.clone());
                Ok(p)
            })
        })?;
        got["proportions_used"] = json!(used);
        Ok(got)
    }),
    ("iid_sizes", |i| {
        Ok(json!({ "sizes": iid_sizes(i.get("n")?, i.get("clients")?)? }))
    }),
    ("classes_per_client", |i| {
        let classes = classes_per_client(
            i.get("clients")?,
            i.get("n_classes")?,
            i.get("classes_per_client")?,
        )?;
        Ok(json!({ "classes": classes }))
    }),
    ("rarest_positive", |i| {
        let labels: Array2<i8> = i.table("labels")?;
        let (counts, assigned) = rarest_positive(labels.view());
        Ok(json!({ "positive_counts": counts, "assigned": assigned }))
    }),
    ("fraction_split", |i| {
        let (first, rest) = fraction_split(i.get("n")?, i.get("first_fraction")?)?;
        Ok(json!({ "first": first, "rest": rest }))
    }),
    ("fedkt_tabular_split", |i| {
        let TabularSplit {
            train,
            public,
            test,
            pool,
        } = fedkt_tabular_split(i.get("n")?);
        Ok(json!({ "train": train, "public": public, "test": test, "pool": pool }))
    }),
    ("fedkt_image_split", |i| {
        let (public, test) = fedkt_image_split(i.get("test")?);
        Ok(json!({ "public": public, "test": test }))
    }),
    ("fedkt_queries", |i| {
        Ok(json!({ "queries": fedkt_queries(i.get("pool")?, i.get("fraction")?)? }))
    }),
    ("published_split_counts", |i| {
        let table = published::find(
            &i.get::<String>("dataset")?,
            i.get("alpha")?,
            i.get("split_seed")?,
        )?;
        let (clients, size): (usize, usize) = (i.get("clients")?, i.get("class_size")?);
        ensure!(
            table.counts.len() == clients && table.class_size == size,
            "a table of other clients or classes"
        );
        Ok(json!({ "counts_client_by_class": table.counts, "client_sizes": table.client_sizes() }))
    }),
];

/// Deals out the samples by the counts that a rule gives for the sizes of classes.
fn dealt(
    i: &Inputs<'_>,
    rule: impl FnOnce(&[usize], &[Vec<f64>]) -> Result<Vec<Vec<usize>>>,
) -> Result<Value> {
    let (labels, proportions): (Vec<usize>, Vec<Vec<f64>>) =
        (i.get("labels")?, i.get("proportions")?);
    let groups = by_class(&labels, proportions.len())?;
    let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
    let counts = rule(&sizes, &proportions)?;
    let partition = deal(&groups, &counts, proportions[0].len());
    let counts = partition.class_counts(&labels, proportions.len());
    Ok(json!({ "indices": partition.clients, "counts": counts }))
}
