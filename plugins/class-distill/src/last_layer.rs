//! Last layers by themselves: as a message, in a model, and trained on class means.
use crate::prototypes::FeatureMeans;
use fl_core::prelude::*;
use fl_core::{Head, Parametric, Problem, loss, parameters_in};
use ndarray::Array2;

/// Returns a last layer as a message, `outputs x features` and one number for each output.
pub(crate) fn params(head: &Head) -> Params {
    let weight = head.weight.mapv(|w| w as f32).into_dyn();
    let bias = head.bias.mapv(|b| b as f32).into_dyn();
    Params([("weight".into(), weight), ("bias".into(), bias)].into())
}

/// Replaces the last layer of a model, whose tensors have names of its own.
///
/// # Errors
/// If it has another shape.
pub(crate) fn put(model: &mut dyn Parametric, head: &Params) -> Result<()> {
    let own = model.params();
    let mut new = own.only(&parameters_in(&["head".into()], model)?);
    for (name, tensor) in &mut new.0 {
        let sent = head.0.values().find(|sent| sent.shape() == tensor.shape());
        let text = || {
            format!(
                "parts.model: `{name}` of its last layer is {:?}, and the server's layer has none of that shape: give all clients networks with as many features",
                tensor.shape()
            )
        };
        *tensor = sent.with_context(|| Problem::Shape(text()))?.clone();
    }
    model.set_params(&own.with(&new)?)
}

/// Trains the last layer on class means by plain gradient descent of this learning rate. Returns the
/// mean loss of the mini-batches.
///
/// # Errors
/// If the layer and the means have features of different widths.
pub(crate) fn train(
    head: &mut Params,
    means: &Inbox<FeatureMeans>,
    (pass, lr): (&FitOptions<'_>, f64),
    stream: &Stream,
) -> Result<f64> {
    let tensor = |name: &str| head.0[name].mapv(f64::from);
    let mut layer = Head {
        weight: tensor("weight").into_dimensionality()?,
        bias: tensor("bias").into_dimensionality()?,
    };
    let width = means.iter().map(|mail| mail.body.0.values.ncols()).max();
    let (found, due) = (width.unwrap_or_default(), layer.features());
    let text = || {
        format!(
            "class means of {found} features, and the server's last layer takes {due}: give all clients networks with as many features"
        )
    };
    Problem::shape_unless(found == due, text)?;
    let all = || means.iter().map(|mail| &mail.body.0);
    let classes: Vec<u32> = all().flat_map(|m| m.rows.iter().copied()).collect();
    let rows: Vec<_> = all().flat_map(|m| m.values.rows()).collect();
    let (mut sum, mut steps) = (0.0, 0.0);
    for batch in pass.batches(rows.len(), stream) {
        let labels: Vec<u32> = batch.iter().map(|at| classes[*at]).collect();
        let x = Array2::from_shape_fn((batch.len(), layer.features()), |(i, j)| {
            f64::from(rows[batch[i]][j])
        });
        let scores = layer.scores(x.view()).mapv(|s| s as f32);
        let target = Target::Classes(&labels);
        let (loss, slope) = loss::of_batch(Loss::CrossEntropy, target, scores.view())?;
        let by = Head::by_weights(x.view(), slope.mapv(f64::from).view());
        layer.weight.scaled_add(-lr, &by.weight);
        layer.bias.scaled_add(-lr, &by.bias);
        (sum, steps) = (sum + loss, steps + 1.0);
    }
    *head = params(&layer);
    Ok(sum / f64::max(steps, 1.0))
}
