//! Means of clients' labels of samples, with and without sharpening.
use crate::rows::{MeanOfRows, RowSums};
use fl_core::Weigh;
use fl_core::message::SoftLabels;
use fl_core::prelude::*;

macro_rules! mean_of_rows {
    ($part:ty, $claims:expr, $shape:expr) => {
        impl Aggregator for $part {
            type In = SoftLabels;
            type Out = SoftLabels;

            fn aggregate(
                &mut self,
                round: &Round,
                inbox: &Inbox<SoftLabels>,
            ) -> Result<SoftLabels> {
                let mut fold = self.fold(round).context("it folds")?;
                inbox.iter().try_for_each(|mail| fold.add(mail.clone()))?;
                fold.finish()
            }

            fn fold(&self, _: &Round) -> Option<Box<dyn Fold<SoftLabels, SoftLabels>>> {
                Some(Box::new(MeanOfRows {
                    sums: RowSums::default(),
                    shape: $shape(self),
                }))
            }

            fn needs(&self) -> RequiredInputs {
                self.weigh.needs()
            }

            fn claims(&self) -> Properties {
                $claims
            }
        }
    };
}

settings! {
    /// For each sample the mean over the clients that label it (Selective-FD, Shao et al. 2024;
    /// DS-FL without entropy reduction, Itahara et al. 2020). Hard labels come as one-hot rows, so
    /// their mean is the share of votes.
    pub struct MeanLabels {
        /// The weight of a client.
        weigh: Weigh = Weigh::Uniform;
    }
}
mean_of_rows!(MeanLabels, Properties::HULL, |_: &MeanLabels| Box::new(
    |_: &mut [f64]| {}
));
plugin!(aggregator "mean-labels" => MeanLabels,
    papers: ["Shao et al. 2024", "Itahara et al. 2020"]);

settings! {
    /// The mean of labels, sharpened: `softmax(mean / temperature)`, applied directly to the
    /// probabilities (DS-FL's entropy reduction aggregation, Itahara et al. 2020).
    pub struct EntropyReduction {
        /// Below 1 sharpens, towards the most probable class alone; far above 1 evens out. DS-FL:
        /// 0.1.
        temperature: f64 = 0.1, in above(0.0);
        /// The weight of a client.
        weigh: Weigh = Weigh::Uniform;
    }
}
mean_of_rows!(
    EntropyReduction,
    Properties::SCALE_FREE,
    |this: &EntropyReduction| {
        let tau = this.temperature;
        Box::new(move |row: &mut [f64]| fl_core::loss::softmax(row, tau))
    }
);
plugin!(aggregator "entropy-reduction" => EntropyReduction,
    papers: ["Itahara et al. 2020"]);

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn they_keep_their_claims() {
        for weigh in [Weigh::Uniform, Weigh::Samples] {
            fl_conformance::aggregator(|| MeanLabels {
                weigh: weigh.clone(),
            });
            fl_conformance::aggregator(|| EntropyReduction {
                temperature: 0.1,
                weigh: weigh.clone(),
            });
        }
    }

    #[test]
    fn close_each_sample_is_the_mean_of_those_who_speak_about_it() {
        let said = |from, rows: &[u32], values| {
            ClientMessage::new(from, 1.0, SoftLabels::new(rows.to_vec(), values))
        };
        let inbox = Inbox::new(vec![
            said(0, &[7, 2], array![[0.75, 0.25], [1.0, 0.0]]),
            said(3, &[2, 9], array![[0.5, 0.5], [0.25, 0.75]]),
            said(5, &[], ndarray::Array2::zeros((0, 2))),
        ])
        .unwrap();
        fl_conformance::close().bind(|| {
            let mut mean = MeanLabels {
                weigh: Weigh::Uniform,
            };
            fl_conformance::snapshot!(mean, Round::first(), inbox, @"
            rows [3] 2 7 9
            values [3, 2] 0.75 0.25 0.75 0.25 0.25 0.75
            ");
            let mut sharper = EntropyReduction {
                temperature: 0.5,
                weigh: Weigh::Uniform,
            };
            fl_conformance::snapshot!(sharper, Round::first(), inbox, @"
            rows [3] 2 7 9
            values [3, 2] 0.731059 0.268941 0.731059 0.268941 0.268941 0.731059
            ");
        });
    }
}
