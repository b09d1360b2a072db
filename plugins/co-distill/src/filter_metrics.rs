//! How good a client's filter is, by labels of the public samples that no part of the method sees.
use crate::exchanges::MODEL;
use fl_core::prelude::*;
use fl_core::{Examples, metrics};

/// Of samples whose classes are `truth` a filter has let the `known` positions through. Measures how well those are the
/// samples of the client's own classes (`filter.share`, `.precision`, `.recall`), how well the filter's ranks tell them from
/// the others (`filter.auroc`), and, given the samples `x` for a model that has learnt, how well the ranks tell samples that
/// the model labels rightly (`filter.auroc-right`; Selective-FD, figure 5).
pub(crate) fn judge(
    me: &mut Client,
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
    me.measure(
        "filter.share",
        known.len() as f64 / familiar.len().max(1) as f64,
    );
    if !known.is_empty() {
        me.measure("filter.precision", both / known.len() as f64);
    }
    if all > 0.0 {
        me.measure("filter.recall", both / all);
    }
    auroc(me, "filter.auroc", &ranks, &familiar);
    if let Some(x) = x {
        let scores = me.model(&MODEL)?.predict(x)?;
        let said = metrics::classes(scores.view());
        let right: Vec<bool> = said.iter().zip(truth).map(|(a, b)| a == b).collect();
        auroc(me, "filter.auroc-right", &ranks, &right);
    }
    Ok(())
}

/// How well ranks tell samples for which `is` holds from the others.
fn auroc(me: &mut Client, name: &str, ranks: &Option<Vec<f64>>, is: &[bool]) {
    let ranks = ranks.iter().flatten().map(|r| *r as f32);
    if let Some(auc) = metrics::auc(ranks, is.iter().map(|is| i8::from(*is))) {
        me.measure(name, auc);
    }
}
