//! Metrics of a client's filter, by labels of the public samples that no part of the method sees.
use crate::slots::{CLIENT_FILTER, MODEL};
use fl_core::prelude::*;
use fl_core::{Examples, metrics};

/// Returns what [`judge`] measures, of a filter that is filled.
pub(crate) fn measures() -> impl Iterator<Item = Measurement> {
    let names = ["share", "precision", "recall", "auroc", "auroc-right"];
    let each = |name| Measurement::each(format!("filter.{name}")).if_filled(&CLIENT_FILTER);
    names.into_iter().map(each)
}

/// Measures a filter that selected the positions `known` of samples with classes `truth`. The first
/// metrics compare the selection with the samples of the client's own classes (`filter.share`,
/// `.precision`, `.recall`). `filter.auroc` is how well the filter's ranks separate those samples
/// from the others. With the samples `x` for a trained model, `filter.auroc-right` is how well the
/// ranks separate the samples that the model labels correctly (Selective-FD, figure 5).
pub(crate) fn judge(
    client: &mut Client,
    own: &Examples,
    truth: &[u32],
    known: &[usize],
    ranks: Option<Vec<f64>>,
    x: Option<&Samples>,
) -> Result<()> {
    let has = own.class_counts();
    let familiar: Vec<bool> = truth.iter().map(|class| has[*class as usize] > 0).collect();
    let both = known.iter().filter(|at| familiar[**at]).count() as f64;
    let all = familiar.iter().filter(|f| **f).count() as f64;
    client.measure(
        "filter.share",
        known.len() as f64 / familiar.len().max(1) as f64,
    );
    if !known.is_empty() {
        client.measure("filter.precision", both / known.len() as f64);
    }
    if all > 0.0 {
        client.measure("filter.recall", both / all);
    }
    auroc(client, "filter.auroc", &ranks, &familiar);
    if let Some(x) = x {
        let scores = client.model(&MODEL)?.predict(x)?;
        let predicted = metrics::classes(scores.view());
        let right: Vec<bool> = predicted.iter().zip(truth).map(|(a, b)| a == b).collect();
        auroc(client, "filter.auroc-right", &ranks, &right);
    }
    Ok(())
}

/// Measures how well ranks separate samples for which `is` holds from the others.
fn auroc(client: &mut Client, name: &str, ranks: &Option<Vec<f64>>, is: &[bool]) {
    let ranks = ranks.iter().flatten().copied();
    if let Some(auc) = metrics::auc(ranks, is.iter().map(|is| i8::from(*is))) {
        client.measure(name, auc);
    }
}
