//! Attack that reconstructs inputs from their gradient.

use crate::minimise::{Search, SearchResult, Tell, loss_by_input, minimise};
use anyhow::{Context, Result, ensure};
use fl_core::message::Params;
use fl_core::{Loss, Samples, Stream, Target, Trainer};
use ndarray::{Array2, ArrayView1, Axis, Zip};

/// A step in parameter space for a difference of slopes, as a share of the parameters' norm. With
/// ReLU the slopes jump, and a longer step crosses more of the kinks. Of 0.00001 to 0.1, this value
/// gave the best results on a LeNet; on smooth networks all values give the same.
const SHARE: f64 = 0.02;

/// The attacker's observation: a server that sent the parameters sees the answer.
pub struct ObservedUpdate {
    /// The parameters that the client started from.
    pub sent: Params,
    /// The direction that the client has moved against, at any scale: the message sent minus the
    /// answer.
    pub gradient: Params,
    /// The class of each image to reconstruct, known or inferred ([`labels`](crate::labels)).
    pub classes: Vec<u32>,
    /// Shape of an input.
    pub shape: Vec<usize>,
    /// The smallest and the largest possible value of each number of an input.
    pub range: Vec<(f32, f32)>,
}

/// Searches for inputs whose gradient has the observed direction. The objective is the cosine
/// distance and the total variation of images of Geiping, Bauermeister, Droege, Moeller 2020,
/// without their signs and restarts. The search is that of Zhu, Liu, Han 2019. Calls `tell` at each
/// step, and stops if it returns false.
///
/// # Errors
/// If the model has no parameters or no slopes by its input, or the observation is 0.
pub fn search(
    model: &mut dyn Trainer,
    seen: &ObservedUpdate,
    how: &Search,
    stream: &Stream,
    tell: &Tell,
) -> Result<SearchResult> {
    ensure!(
        seen.gradient.norm() > 0.0 && seen.gradient.norm().is_finite(),
        "the client has returned the message unchanged (or no numbers), so there is nothing to find"
    );
    let begin = (seen.classes.len(), &seen.shape[..], &seen.range[..]);
    minimise(begin, how, stream, tell, &mut |x| slope(model, seen, x))
}

/// Returns the cosine distance at `x`, and its slope by `x`.
fn slope(
    model: &mut dyn Trainer,
    seen: &ObservedUpdate,
    x: &Array2<f32>,
) -> Result<(f64, Array2<f64>)> {
    let samples = Samples::fresh(x.clone(), seen.shape.clone())?;
    let own = parameters(model)?;
    own.set_params(&seen.sent)?;
    let g = own.gradient(&samples, Target::Classes(&seen.classes), Loss::CrossEntropy)?;
    let (here, there) = (g.norm(), seen.gradient.norm());
    if here == 0.0 {
        return Ok((1.0, Array2::zeros(x.dim())));
    }
    let cosine = g.dot(&seen.gradient)? / (here * there);
    // the slope of the distance by the gradient; the slope by the input is its product with the
    // mixed second derivative, which is the change of the loss's slope by the input along it
    let by = (-1.0 / (here * there), cosine / (here * here));
    let along = seen.gradient.zip(&g, |o, g| {
        (by.0 * f64::from(o) + by.1 * f64::from(g)) as f32
    })?;
    let length = along.norm();
    if length == 0.0 {
        return Ok((1.0 - cosine, Array2::zeros(x.dim())));
    }
    let reach = SHARE * seen.sent.norm().max(1e-6) / length;
    let mut change = Array2::<f64>::zeros(x.dim());
    for side in [reach, -reach] {
        let mut moved = seen.sent.clone();
        moved.add_scaled(side, &along)?;
        parameters(model)?.set_params(&moved)?;
        let (_, by_input) = loss_by_input(model, &samples, &seen.classes)?;
        Zip::from(&mut change)
            .and(&by_input)
            .for_each(|sum, s| *sum += f64::from(*s) / (2.0 * side));
    }
    Ok((1.0 - cosine, change))
}

pub(crate) fn parameters(model: &mut dyn Trainer) -> Result<&mut dyn fl_core::Parametric> {
    let text = "this model has no parameters, so no update of it is sent";
    model.parametric().context(text)
}

/// Reads inputs off a dense first layer. The change of a unit's weights over that of its bias is a
/// mean of the inputs, weighted by how much each moved the unit. For one input it is the input
/// itself (Phong, Aono, Hayashi, Wang, Moriai 2018). Returns one row for each unit that moved.
/// `None` if no layer has a bias and a weight for every number of an input.
pub fn read_off(gradient: &Params, range: &[(f32, f32)]) -> Option<Array2<f32>> {
    let width = range.len();
    let layers = gradient.0.iter().filter_map(|(name, weight)| {
        let bias = gradient.0.get(&name.replace("weight", "bias"))?;
        let weight = weight.view().into_dimensionality().ok()?;
        let bias = bias.view().into_dimensionality().ok()?;
        (name.contains("weight") && (weight.len() == bias.len() * width)).then_some((weight, bias))
    });
    let rows = |(weight, bias): (ndarray::ArrayView2<'_, f32>, ArrayView1<'_, f32>)| {
        // one row per unit
        let units = match weight.dim() {
            (out, inputs) if (out, inputs) == (bias.len(), width) => weight,
            (inputs, out) if (out, inputs) == (bias.len(), width) => weight.reversed_axes(),
            _ => return None,
        };
        let moved = units.axis_iter(Axis(0)).zip(bias);
        let moved = moved.filter(|(_, by)| by.abs() > f32::MIN_POSITIVE);
        // unchanged, and clipped to the public range: of several inputs that moved a unit the
        // second is nearer to one of them
        let each = moved.flat_map(|(unit, by)| {
            let read: Vec<f32> = unit.into_iter().map(|w| w / by).collect();
            let at = read.iter().zip(range);
            let cut: Vec<f32> = at.map(|(x, (low, high))| x.clamp(*low, *high)).collect();
            [read, cut].concat()
        });
        let all: Vec<f32> = each.collect();
        (!all.is_empty()).then(|| Array2::from_shape_vec((all.len() / width, width), all).ok())?
    };
    layers.filter_map(rows).next()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use fl_core::{BuildContext, Parts, Role, SlotAssignment, Task, TaskKind, linked_parts};
    use fl_plugin_trainer_linear as _;
    use ndarray::array;

    pub(crate) const WIDTH: usize = 4;

    pub(crate) fn linear() -> Box<dyn Trainer> {
        let make = BuildContext {
            task: Task {
                input: vec![WIDTH],
                kind: TaskKind::Classes(3),
            },
            stream: Stream::root(1),
        };
        let decl = linked_parts()
            .into_iter()
            .find(|p| p.name == "linear")
            .unwrap();
        let model = SlotAssignment {
            slot: "model".into(),
            clients: None,
            decl,
            settings: decl.read(&serde_yaml::Value::Null).unwrap(),
        };
        Parts::new(vec![model])
            .build(Role::Trainer, "model", None, &make)
            .unwrap()
    }

    pub(crate) fn seen(
        model: &mut dyn Trainer,
        x: &Array2<f32>,
        classes: &[u32],
    ) -> ObservedUpdate {
        let own = parameters(model).unwrap();
        let mut sent = own.params();
        let mut draws = Stream::root(7).draws();
        sent.0
            .values_mut()
            .for_each(|t| t.mapv_inplace(|_| draws.normal() as f32));
        own.set_params(&sent).unwrap();
        let samples = Samples::fresh(x.clone(), vec![WIDTH]).unwrap();
        let target = Target::Classes(classes);
        let gradient = own.gradient(&samples, target, Loss::CrossEntropy).unwrap();
        ObservedUpdate {
            sent,
            gradient,
            classes: classes.to_vec(),
            shape: vec![WIDTH],
            range: vec![(-1.0, 1.0); WIDTH],
        }
    }

    #[test]
    fn close_the_slope_is_that_of_the_distance() {
        let mut model = linear();
        let private = array![[0.3f32, -0.2, 0.9, 0.1], [-0.5, 0.4, 0.0, 0.7]];
        let seen = seen(model.as_mut(), &private, &[2, 0]);
        let guess = array![[0.1f32, 0.5, -0.3, 0.2], [0.6, -0.1, 0.2, -0.8]];
        let (_, found) = slope(model.as_mut(), &seen, &guess).unwrap();
        for at in [(0, 0), (0, 3), (1, 1), (1, 2)] {
            let by = 0.02;
            let [up, down] = [by, -by].map(|by| {
                let mut moved = guess.clone();
                moved[at] += by;
                slope(model.as_mut(), &seen, &moved).unwrap().0
            });
            let wanted = (up - down) / (2.0 * f64::from(by));
            assert!(
                (found[at] - wanted).abs() < 0.02 * wanted.abs().max(0.05),
                "{at:?}: {} {wanted}",
                found[at]
            );
        }
    }

    #[test]
    fn close_one_input_is_read_off_a_dense_layer_and_found_by_search() {
        let mut model = linear();
        let private = array![[0.3f32, -0.2, 0.9, 0.1]];
        let seen = seen(model.as_mut(), &private, &[1]);
        let rows = read_off(&seen.gradient, &seen.range).unwrap();
        assert_eq!(rows.nrows(), 6);
        for row in rows.rows() {
            assert!(
                row.iter().zip(&private).all(|(a, b)| (a - b).abs() < 1e-4),
                "{row}"
            );
        }
        let how = Search {
            steps: 800,
            rate: 0.05,
            smooth: 0.0,
        };
        let tell: Tell = Box::new(|| true);
        let found = search(model.as_mut(), &seen, &how, &Stream::root(2), &tell).unwrap();
        assert!(found.distance < 1e-4, "{}", found.distance);
        assert!(
            found
                .inputs
                .iter()
                .zip(&private)
                .all(|(a, b)| (a - b).abs() < 0.05),
            "{}",
            found.inputs
        );
        let nothing = ObservedUpdate {
            gradient: seen.sent.zeros_like(),
            ..seen
        };
        assert!(search(model.as_mut(), &nothing, &how, &Stream::root(2), &tell).is_err());
    }
}
