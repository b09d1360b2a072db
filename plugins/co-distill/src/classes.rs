//! Means per class, for exchange without public data.
use crate::rows::RowSums;
use fl_core::message::ClassMeans;
use fl_core::metrics;
use fl_core::prelude::*;
use ndarray::{ArrayView1, Axis};

choices! {
    /// Whose class means count.
    pub enum Which {
        /// Everybody's (federated knowledge distillation, FKD: Jeong et al. 2018).
        All = "all",
        /// Those whose highest output is that of their class (our reading of PLS, personalised federated learning with
        /// selected knowledge; the paper at hand does not say which are selected).
        Agreeing = "agreeing",
    }
}

settings! {
    /// For each class the mean over the clients that have it (FKD, Jeong et al. 2018; PLS with `which: agreeing`).
    pub struct MeanOfClasses {
        /// Whose class means count.
        which: Which = Which::All;
    }
}

/// Is the highest output of a class mean that of its class (the lowest class on ties)?
pub fn agrees<T: PartialOrd + Copy>(class: u32, outputs: ArrayView1<'_, T>) -> bool {
    metrics::argmax(outputs) == class as usize
}

impl Aggregator for MeanOfClasses {
    type In = ClassMeans;
    type Out = ClassMeans;

    fn aggregate(&mut self, _: &Round, inbox: &Inbox<ClassMeans>) -> Result<ClassMeans> {
        let mut sums = RowSums::default();
        for mail in inbox.iter() {
            let ClassMeans { rows, values, .. } = &mail.body;
            let counts = |at: &usize| match self.which {
                Which::All => true,
                Which::Agreeing => agrees(rows[*at], values.row(*at)),
            };
            let kept: Vec<usize> = (0..rows.len()).filter(counts).collect();
            let ids: Vec<u32> = kept.iter().map(|at| rows[*at]).collect();
            sums.add(1.0, &ids, values.select(Axis(0), &kept).view());
        }
        let (rows, values) = sums.mean(|_| {}, |v| v as f32);
        Ok(ClassMeans::new(rows, values))
    }

    fn claims(&self) -> Claims {
        Claims {
            order_free: true,
            weight_free: true,
            weight_scale_free: true,
            within_hull: true,
        }
    }
}
plugin!(aggregator "mean-of-classes" => MeanOfClasses);

#[cfg(test)]
mod tests {
    use super::*;
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
            Mail::new(0, 1.0, means(&[0, 1], array![[0.75, 0.25], [0.5, 0.5]])),
            Mail::new(1, 1.0, means(&[1], array![[0.25, 0.75]])),
        ])
        .unwrap();
        let shown = |which| {
            let out = MeanOfClasses { which }.aggregate(&Round::first(), &inbox);
            fl_conformance::show(&out.unwrap())
        };
        insta::assert_snapshot!(shown(Which::All), @"
        rows [2] 0 1
        values [2, 2] 0.75 0.25 0.375 0.625
        ");
        insta::assert_snapshot!(shown(Which::Agreeing), @"
        rows [2] 0 1
        values [2, 2] 0.75 0.25 0.25 0.75
        ");
    }
}
