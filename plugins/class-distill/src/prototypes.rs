//! Class means of features (prototypes): the message, its mean, and the loss that draws features to
//! them.
use crate::means::{Which, mean_of_classes};
use fl_core::message::{
    ClassMeans, Column, Dtype, ExchangeShape, NamedTensors, SampleShape, TensorMap,
};
use fl_core::prelude::*;
use fl_core::{Examples, FeatureLoss, FeatureTerm, Problem, TaskKind};
use ndarray::{Array1, Array2, ArrayView2};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The mean features of a model over the examples of each class that the sender has (FedProto, Tan
/// et al. 2022): one row per class, `rows x features`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureMeans(pub ClassMeans);

impl FeatureMeans {
    /// Returns means of no class.
    pub fn none() -> Self {
        Self(ClassMeans::new(Vec::new(), Array2::zeros((0, 0))))
    }

    /// Computes those of a client's model in `slot`.
    ///
    /// # Errors
    /// If the model has no features, or an example has no class.
    pub fn of(client: &mut Client, slot: &str) -> Result<Self> {
        let own = client.own().clone();
        let features = client.model(slot)?.features(&own.samples)?;
        let features = features.context("parts.model: it has no features, the inputs of its last layer; use `dfdx` with a layer before `outputs`")?;
        ClassMeans::of(features.view(), &classes(&own)?).map(Self)
    }

    /// Returns the last layer, `classes x features`, whose highest score is that of the class with
    /// the nearest mean to the features `z`: `2 z . m - |m|^2`, which is `|z|^2` less the squared
    /// distance. A class without a mean is never the highest, and a mean of no class is left out.
    pub fn nearest(&self, classes: usize) -> Params {
        const NEVER: f32 = -1e30;
        let means = &self.0.values;
        let mut weight = Array2::<f32>::zeros((classes, means.ncols()));
        let mut bias = Array1::from_elem(classes, NEVER);
        let rows = self.0.rows.iter().map(|class| *class as usize);
        for (at, mean) in rows.zip(means.rows()).filter(|(at, _)| *at < classes) {
            let square: f64 = mean.iter().map(|m| f64::from(*m) * f64::from(*m)).sum();
            weight.row_mut(at).assign(&mean.mapv(|m| 2.0 * m));
            bias[at] = -square as f32;
        }
        let layer = [
            ("head.bias".into(), bias.into_dyn()),
            ("head.weight".into(), weight.into_dyn()),
        ];
        layer.into_iter().collect()
    }

    /// Replaces the means of those classes that `new` has.
    ///
    /// # Errors
    /// If both have features of different widths.
    pub fn update(&mut self, new: &Self) -> Result<()> {
        let all = [&self.0, &new.0].into_iter();
        let rows = all.flat_map(|m| m.rows.iter().copied().zip(m.values.rows()));
        let rows: BTreeMap<u32, _> = rows.collect();
        let width = new.0.values.ncols();
        let values = rows.values().flatten().copied().collect();
        let values = Array2::from_shape_vec((rows.len(), width), values)?;
        *self = Self(ClassMeans::new(rows.into_keys().collect(), values));
        Ok(())
    }
}

/// Means of classes need inputs with one class each.
///
/// # Errors
/// If the task is another; the text says what to do.
pub(crate) fn one_class_each(kind: TaskKind) -> std::result::Result<(), String> {
    match kind {
        TaskKind::Classes(_) => Ok(()),
        _ => Err("class means are of inputs with one class each; use `fedavg`".into()),
    }
}

/// Returns the class of each example.
pub(crate) fn classes(own: &Examples) -> Result<Vec<u32>> {
    own.classes()
        .context("class means need one class per example")
}

impl Message for FeatureMeans {
    const KIND: &'static str = "feature-means";
    const DOC: &'static str =
        "The mean features of a model over the examples of each class that the sender has.";
    const COLUMNS: &'static [Column] = &[
        Column::new("rows", Dtype::U32, "rows", "the classes, ascending"),
        Column::new("values", Dtype::F32, "rows x features", "the mean of each"),
    ];
    fn tensors(&self) -> NamedTensors<'_> {
        self.0.tensors()
    }
    fn from_tensors(parcel: TensorMap) -> Result<Self> {
        ClassMeans::from_tensors(parcel).map(Self)
    }
    fn check(&self) -> Result<()> {
        self.0.check()
    }
    fn sample(outline: &mut SampleShape<'_>) -> Option<Self> {
        ClassMeans::sample(outline).map(Self)
    }
    fn expected(_: &ExchangeShape) -> Option<u64> {
        None
    }
}

message! {
    /// The server's prototype of each class that it knows; none before it has heard of any.
    pub struct Prototypes: "feature-prototypes" { means: FeatureMeans }
}
messages! { FeatureMeans }

settings! {
    /// For each class the mean of the clients' mean features, over the clients that have the class
    /// (FedProto, Tan et al. 2022).
    pub struct MeanOfFeatures {}
}

impl Aggregator for MeanOfFeatures {
    type In = FeatureMeans;
    type Out = FeatureMeans;

    fn aggregate(&mut self, _: &Round, inbox: &Inbox<FeatureMeans>) -> Result<FeatureMeans> {
        let all = inbox.iter().map(|mail| &mail.body.0);
        let all = all.map(|m| (&m.rows[..], m.values.view()));
        let (classes, means) = mean_of_classes(all, &Which::All);
        let means = means.mapv(|v| v as f32);
        Ok(FeatureMeans(ClassMeans::new(classes, means)))
    }

    fn claims(&self) -> Properties {
        Properties::UNWEIGHTED
    }
}
plugin!(aggregator "mean-of-features" => MeanOfFeatures, papers: ["Tan et al. 2022"]);

/// `weight` times the mean squared difference of features to the prototype of their class. A class
/// without a prototype adds nothing.
#[derive(Debug)]
pub struct Near<'a> {
    /// The prototypes.
    pub means: &'a ClassMeans,
    /// The weight beside the loss of the mini-batch.
    pub weight: f64,
}

impl FeatureLoss for Near<'_> {
    fn of_features(
        &self,
        features: ArrayView2<'_, f32>,
        target: Target<'_>,
        _: &[usize],
        _: &Stream,
    ) -> Result<FeatureTerm> {
        let Target::Classes(classes) = target else {
            let text = "prototypes are of one class each, so the examples must have classes";
            bail!(Problem::Lacks(text.into()));
        };
        let (found, due) = (features.ncols(), self.means.values.ncols());
        let text = || {
            format!(
                "parts.model: its last layer takes {found} numbers of an input, and the server's prototypes have {due}: give all clients networks with as many features"
            )
        };
        Problem::shape_unless(found == due, text)?;
        let mut apart = Array2::<f64>::zeros(features.dim());
        for (at, class) in classes.iter().enumerate() {
            if let Some(mean) = self.means.class(*class) {
                let difference = features.row(at).mapv(f64::from) - mean.mapv(f64::from);
                apart.row_mut(at).assign(&difference);
            }
        }
        let share = self.weight / apart.len().max(1) as f64;
        Ok(FeatureTerm {
            loss: share * apart.iter().map(|d| d * d).sum::<f64>(),
            by_features: apart.mapv(|d| (2.0 * share * d) as f32),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn the_mean_keeps_its_claims() {
        fl_conformance::aggregator(|| MeanOfFeatures {});
    }

    #[test]
    fn exact_a_class_that_nobody_sends_keeps_its_prototype() {
        let means = |rows: &[u32], values| FeatureMeans(ClassMeans::new(rows.to_vec(), values));
        let mut known = FeatureMeans::none();
        known
            .update(&means(&[1, 3], array![[1.0, 2.0], [3.0, 4.0]]))
            .unwrap();
        known
            .update(&means(&[0, 3], array![[5.0, 6.0], [7.0, 8.0]]))
            .unwrap();
        let due = array![[5.0, 6.0], [1.0, 2.0], [7.0, 8.0]];
        assert_eq!(known, means(&[0, 1, 3], due));
        let wide = means(&[0], array![[1.0, 2.0, 3.0]]);
        assert!(known.update(&wide).is_err());
    }

    #[test]
    fn close_the_highest_score_is_that_of_the_nearest_mean() {
        let means = array![[1.0, 2.0], [-3.0, 0.5], [0.0, -1.0]];
        let known = FeatureMeans(ClassMeans::new(vec![0, 2, 3], means.clone()));
        let layer = known.nearest(4).0;
        let (weight, bias) = (&layer["head.weight"], &layer["head.bias"]);
        let weight = weight.view().into_dimensionality::<ndarray::Ix2>().unwrap();
        for z in [
            array![0.9, 1.0],
            array![-2.0, 0.0],
            array![0.3, -4.0],
            array![5.0, 5.0],
        ] {
            let scores = weight.dot(&z);
            let scores: Vec<f32> = scores.iter().zip(bias).map(|(s, b)| s + b).collect();
            let highest = (0..4)
                .max_by(|a, b| scores[*a].total_cmp(&scores[*b]))
                .unwrap();
            let apart = |k: usize| (&means.row(k) - &z).mapv(|d: f32| d * d).sum();
            let nearest = (0..3)
                .min_by(|a, b| apart(*a).total_cmp(&apart(*b)))
                .unwrap();
            assert_eq!(highest, [0, 2, 3][nearest], "{z}");
        }
    }

    #[test]
    fn prototypes_of_another_width_are_refused() {
        let means = ClassMeans::new(vec![0], array![[1.0, 2.0]]);
        let near = Near {
            means: &means,
            weight: 1.0,
        };
        let of = |features: Array2<f32>, target: Target<'_>| {
            near.of_features(features.view(), target, &[0], &Stream::root(1))
        };
        let text = of(Array2::zeros((1, 3)), Target::Classes(&[0])).unwrap_err();
        assert!(text.to_string().contains("takes 3 numbers of an input"));
        let scores = Array2::zeros((1, 2));
        let text = of(Array2::zeros((1, 2)), Target::Soft(scores.view())).unwrap_err();
        assert!(text.to_string().contains("must have classes"));
    }
}
