//! Which sample goes to which client.

use crate::replay::{Inputs, Op};
use anyhow::{Result, ensure};
use fl_data::partition::*;
use fl_data::published;
use ndarray::Array2;
use serde_json::{Value, json};

pub const OPS: &[Op] = &[
    ("dirichlet_floor", |i| {
        dealt(
            i,
            &dirichlet_floor(
                &i.get::<Vec<_>>("labels")?,
                &i.get::<Vec<_>>("proportions")?,
            )?,
        )
    }),
    ("dirichlet_cumulative", |i| {
        let (labels, proportions): (Vec<usize>, Vec<Vec<f64>>) =
            (i.get("labels")?, i.get("proportions")?);
        let (partition, used) = dirichlet_cumulative(&labels, &proportions, i.get("balance")?)?;
        let mut got = dealt(i, &partition)?;
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
    ("selective_fd_sizes", |i| {
        let (train, proxy): (Vec<usize>, Vec<usize>) = (i.get("train")?, i.get("proxy")?);
        let clients = i.get("clients")?;
        let each = train
            .into_iter()
            .zip(proxy)
            .map(|(train, proxy)| selective_fd_sizes(train, proxy, clients));
        let (local, fraction): (Vec<_>, Vec<_>) =
            each.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        Ok(json!({ "local": local, "proxy_fraction": fraction }))
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

fn dealt(i: &Inputs<'_>, partition: &Partition) -> Result<Value> {
    let (labels, proportions): (Vec<usize>, Vec<Vec<f64>>) =
        (i.get("labels")?, i.get("proportions")?);
    Ok(
        json!({ "indices": partition.clients, "counts": partition.class_counts(&labels, proportions.len()) }),
    )
}
