//! Means per class over clients.
use fl_core::message::ClassMeans;
use fl_core::metrics;
use fl_core::prelude::*;
use ndarray::{Array2, ArrayView1, ArrayView2};
use std::collections::BTreeMap;

choices! {
    /// The class means that count.
    pub enum Which {
        /// All (federated knowledge distillation, FKD: Jeong et al. 2018).
        All = "all",
        /// Those whose highest output is that of their class (our reading of PLS, personalised
        /// federated learning with selected knowledge; our source does not define the selection).
        Agreeing = "agreeing",
    }
}

settings! {
    /// For each class the mean over the clients that have it (FKD, Jeong et al. 2018; PLS with
    /// `which: agreeing`).
    pub struct MeanOfClasses {
        /// The class means that count.
        which: Which = Which::All;
    }
}

/// Returns whether the highest output of a class mean is that of its class (the lowest class on
/// ties).
pub fn agrees<T: PartialOrd + Copy>(class: u32, outputs: ArrayView1<'_, T>) -> bool {
    metrics::argmax(outputs) == class as usize
}

/// Returns for each class the mean of the rows that count, in 64 bits and in their order. `answers`
/// holds each client's classes and `classes x outputs`. The result has the same form, with the
/// classes for which a row counts, ascending.
pub fn mean_of_classes<'m, T: Into<f64> + PartialOrd + Copy + 'm>(
    answers: impl IntoIterator<Item = (&'m [u32], ArrayView2<'m, T>)>,
    which: &Which,
) -> (Vec<u32>, Array2<f64>) {
    let (mut sums, mut width) = (BTreeMap::<u32, (f64, Vec<f64>)>::new(), 0);
    for (classes, rows) in answers {
        width = rows.ncols();
        for (class, row) in classes.iter().zip(rows.rows()) {
            if *which == Which::Agreeing && !agrees(*class, row) {
                continue;
            }
            let (n, sum) = sums.entry(*class).or_insert((0.0, vec![0.0; width]));
            *n += 1.0;
            sum.iter_mut().zip(row).for_each(|(s, v)| *s += (*v).into());
        }
    }
    let means = sums
        .values()
        .flat_map(|(n, sum)| sum.iter().map(move |s| s / n));
    let table = Array2::from_shape_vec((sums.len(), width), means.collect());
    let table = table.expect("a row of this width for each class");
    (sums.into_keys().collect(), table)
}

impl Aggregator for MeanOfClasses {
    type In = ClassMeans;
    type Out = ClassMeans;

    fn aggregate(&mut self, _: &Round, inbox: &Inbox<ClassMeans>) -> Result<ClassMeans> {
        let answers = inbox
            .iter()
            .map(|m| (&m.body.rows[..], m.body.values.view()));
        let (classes, means) = mean_of_classes(answers, &self.which);
        Ok(ClassMeans::new(classes, means.mapv(|v| v as f32)))
    }

    fn claims(&self) -> Properties {
        Properties::UNWEIGHTED
    }
}
plugin!(aggregator "mean-of-classes" => MeanOfClasses,
    papers: ["Jeong et al. 2018"]);

#[cfg(test)]
mod tests {
    use super::*;
    use fl_conformance::snapshot;
    use ndarray::array;

    #[test]
    fn it_keeps_its_claims() {
        for which in [Which::All, Which::Agreeing] {
            fl_conformance::aggregator(|| MeanOfClasses {
                which: which.clone(),
            });
        }
    }

    #[test]
    fn exact_a_class_that_is_mistaken_for_another_is_not_selected() {
        let means = |rows: &[u32], values| ClassMeans::new(rows.to_vec(), values);
        let inbox = Inbox::new(vec![
            ClientMessage::new(0, 1.0, means(&[0, 1], array![[0.75, 0.25], [0.5, 0.5]])),
            ClientMessage::new(1, 1.0, means(&[1], array![[0.25, 0.75]])),
        ])
        .unwrap();
        let of = |which| MeanOfClasses { which };
        snapshot!(of(Which::All), Round::first(), inbox, @"
        rows [2] 0 1
        values [2, 2] 0.75 0.25 0.375 0.625
        ");
        snapshot!(of(Which::Agreeing), Round::first(), inbox, @"
        rows [2] 0 1
        values [2, 2] 0.75 0.25 0.25 0.75
        ");
    }
}
