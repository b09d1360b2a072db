//! Attack that trains a substitute of a client's model on the client's answers.

use crate::minimise::Tell;
use crate::prior::{adam, by_unit, in_range, maker, noise};
use anyhow::{Context, Result};
use fl_core::loss::{of_batch, softmax};
use fl_core::message::{Logits, Message, SoftLabels, Votes, decode};
use fl_core::{
    Body, ClientId, Declaration, ExchangeSpec, FitOptions, Length, Loss, Protocol, Samples, Server,
    Stream, Target, Trainer, metrics,
};
use fl_nets::{Network, Schedule};
use ndarray::{Array1, Array2, ArrayView2, Axis, Zip, concatenate};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Examples of a mini-batch.
const BATCH: usize = 64;
/// Inputs per request of [`ideal`], from its published code for MNIST.
const QUERIES: usize = 250;
/// Steps of the generator before each request, from the same code.
const STEPS: usize = 30;
/// The weight of the entropy of the substitute's output, from the same code.
const ENTROPY: f64 = 5.0;

/// A client's answers about public samples.
#[derive(Default)]
pub struct ObservedAnswers {
    /// The kind of its messages: `logits`, `soft-labels` or `votes`.
    pub kind: &'static str,
    /// Its last answer for each sample, by the sample's number: a probability for each class.
    pub said: BTreeMap<u32, Array1<f32>>,
    /// The client's model at that time. Only for comparison; the attacker does not have it.
    pub model: Vec<u8>,
}

/// Returns whether an exchange is about public samples with answers that a substitute can learn
/// from.
pub fn teaches(asked: &ExchangeSpec) -> bool {
    [Logits::KIND, SoftLabels::KIND, Votes::KIND].contains(&asked.up) && !asked.made
}

/// A protocol whose server follows it, and records a client's answers about public samples.
pub struct EavesdroppingServer {
    /// The protocol.
    pub honest: Box<dyn Protocol>,
    /// The observed client.
    pub client: ClientId,
    /// The slot of the client's model.
    pub slot: String,
    /// The recorded answers.
    pub heard: Arc<Mutex<ObservedAnswers>>,
}

impl Protocol for EavesdroppingServer {
    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        self.honest.lead(server)
    }

    fn declare(&self) -> Declaration<'_> {
        self.honest.declare().watched(|client, answer| {
            if client.id() == self.client
                && let Some((kind, labels)) = said(&answer.body)
            {
                let model = client.model(&self.slot)?.save()?;
                let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
                let rows = labels.values.rows().into_iter().map(|row| row.to_owned());
                heard.said.extend(labels.rows.into_iter().zip(rows));
                (heard.kind, heard.model) = (kind, model);
            }
            Ok(())
        })
    }
}

/// Converts an answer on the wire to probabilities: the softmax of scores, or the share of each
/// class in votes. After noise, numbers may be no probabilities; they are then projected to the
/// nearest ones.
fn said(body: &Body) -> Option<(&'static str, SoftLabels)> {
    let bytes = body.encode();
    if let Ok(Logits { rows, values, .. }) = decode(&bytes) {
        return Some((Logits::KIND, SoftLabels::of_scores(rows, values.view())));
    }
    if let Ok(mut labels) = decode::<SoftLabels>(&bytes) {
        labels.project();
        return Some((SoftLabels::KIND, labels));
    }
    let votes: Votes = decode(&bytes).ok()?;
    let mut values = Array2::zeros((votes.rows.len(), votes.classes()));
    for ((row, _), class) in votes.labels.indexed_iter() {
        *values.get_mut((row, *class as usize))? += 1.0 / votes.voters() as f32;
    }
    Some((Votes::KIND, SoftLabels::new(votes.rows, values)))
}

/// Trains `model` on answers about samples, `samples x classes` probabilities, by cross-entropy.
/// Calls `tell` at each epoch, and stops if it returns false.
///
/// # Errors
/// If the model cannot learn probabilities of such samples.
pub fn imitate(
    model: &mut dyn Trainer,
    (samples, said): (&Samples, ArrayView2<'_, f32>),
    epochs: usize,
    stream: &Stream,
    tell: &Tell,
) -> Result<()> {
    let pass = FitOptions::new(Length::Epochs(1), BATCH, Loss::CrossEntropy);
    for epoch in 0..epochs {
        let stream = stream.child("epoch", epoch as u64);
        model.fit(samples, Target::Soft(said), &pass, &stream)?;
        if !tell() {
            break;
        }
    }
    Ok(())
}

/// Trains a substitute of a client that answers requests, without any data (IDEAL; Zhang, Chen, Lyu
/// 2023, by their published code). In each turn a new generator learns to make inputs that the
/// substitute assigns to the classes (cross-entropy, with a large entropy). The client gets each
/// input once, and the substitute learns for an epoch from all answers so far. Unlike there nothing
/// is cropped or flipped. `ask` returns probabilities. Calls `tell` at each turn, [`turns`] in
/// total, and stops if it returns false.
///
/// # Errors
/// If no network makes inputs of this shape, the model gives no slopes by its input, and those of
/// `ask`.
pub fn ideal(
    model: &mut dyn Trainer,
    (shape, range, queries): (&[usize], &[(f32, f32)], usize),
    ask: &mut dyn FnMut(&Samples) -> Result<Array2<f32>>,
    stream: &Stream,
    tell: &Tell,
) -> Result<()> {
    let (mut inputs, mut said) = (Array2::zeros((0, range.len())), None::<Array2<f32>>);
    for turn in 0..turns(queries) {
        let stream = stream.child("turn", turn as u64);
        let rows = QUERIES.min(queries - turn * QUERIES);
        let made = wanted(model, (rows, shape, range), &stream)?;
        let answers = ask(&Samples::fresh(made.clone(), shape.to_vec())?)?;
        inputs.append(Axis(0), made.view())?;
        said = Some(match said {
            None => answers,
            Some(before) => concatenate(Axis(0), &[before.view(), answers.view()])?,
        });
        let (samples, said) = (Samples::fresh(inputs.clone(), shape.to_vec())?, &said);
        let said = said.as_ref().context("it has been asked")?;
        let once: Tell = Box::new(|| true);
        imitate(model, (&samples, said.view()), 1, &stream, &once)?;
        if !tell() {
            break;
        }
    }
    Ok(())
}

/// Returns the number of turns of [`ideal`] for `queries` inputs.
pub fn turns(queries: usize) -> usize {
    queries.div_ceil(QUERIES)
}

/// Returns inputs that the model assigns to each class in turn, with moderate confidence.
fn wanted(
    model: &mut dyn Trainer,
    (rows, shape, range): (usize, &[usize], &[(f32, f32)]),
    stream: &Stream,
) -> Result<Array2<f32>> {
    let noise = noise(rows, &stream.child("noise", 0));
    let mut maker = Network::new(
        &maker(shape)?,
        (noise.ncols(), shape),
        (adam(1e-3), Schedule::Constant),
        &stream.child("maker", 0),
    )?;
    let mut best = (f64::INFINITY, Array2::zeros((rows, range.len())));
    for step in 0..STEPS {
        maker.learn(noise.view(), &stream.child("step", step as u64), |made| {
            let made = in_range(made, range);
            let samples = Samples::fresh(made.clone(), shape.to_vec())?;
            let (loss, by_scores) = unsure(model.predict(&samples)?.view())?;
            let text = "this model does not give the slope of its scores by the input";
            let slopes = model.differentiable().context(text)?;
            let slope = slopes.vjp(&samples, by_scores.view())?;
            if loss < best.0 {
                best = (loss, made);
            }
            Ok(by_unit(slope, range))
        })?;
    }
    Ok(best.1)
}

/// Returns the mean cross-entropy of scores, row by row for another class, minus the weighted
/// entropy per number, and the slope by each score.
fn unsure(scores: ArrayView2<'_, f32>) -> Result<(f64, Array2<f32>)> {
    let classes = scores.ncols();
    let aims: Vec<u32> = (0..scores.nrows())
        .map(|at| (at % classes) as u32)
        .collect();
    let (mut loss, mut slope) = of_batch(Loss::CrossEntropy, Target::Classes(&aims), scores)?;
    let each = ENTROPY / scores.len() as f64;
    for (row, mut slope) in scores.rows().into_iter().zip(slope.rows_mut()) {
        let mut p: Vec<f64> = row.iter().map(|s| f64::from(*s)).collect();
        softmax(&mut p, 1.0);
        let logs: Vec<f64> = p
            .iter()
            .map(|p| libm::log(p.max(f64::MIN_POSITIVE)))
            .collect();
        let minus_entropy: f64 = p.iter().zip(&logs).map(|(p, ln)| p * ln).sum();
        loss += each * minus_entropy;
        Zip::from(&mut slope)
            .and(&p)
            .and(&logs)
            .for_each(|s, p, ln| *s += (each * p * (ln - minus_entropy)) as f32);
    }
    Ok((loss, slope))
}

/// Returns the share of rows with the same most probable class; 0 without rows.
pub fn agreement(ours: ArrayView2<'_, f32>, theirs: ArrayView2<'_, f32>) -> f64 {
    let (ours, theirs) = (metrics::classes(ours), metrics::classes(theirs));
    let same = ours.iter().zip(&theirs).filter(|(a, b)| a == b).count();
    same as f64 / ours.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradient::tests::{WIDTH, linear};
    use ndarray::array;

    #[test]
    fn close_answers_are_probabilities_whatever_crosses() {
        let heard = |message: Body| said(&message).map(|(kind, labels)| (kind, labels.values));
        let rows = vec![4, 7];
        let scores = Logits::new(
            rows.clone(),
            array![[0.0f32, libm::logf(3.0f32)], [0.0, 0.0]],
        );
        let (kind, found) = heard(Body::Here(Box::new(scores))).unwrap();
        assert_eq!(kind, "logits");
        let off = &found - &array![[0.25f32, 0.75], [0.5, 0.5]];
        assert!(off.iter().all(|off| off.abs() < 1e-6), "{found}");
        // noise may leave negative numbers
        let noisy = SoftLabels::new(rows.clone(), array![[-1.0f32, 0.5], [0.5, 1.5]]);
        let (_, found) = heard(Body::Here(Box::new(noisy))).unwrap();
        assert_eq!(found, array![[0.0, 1.0], [0.25, 0.75]]);
        let votes = Votes::new(rows, array![[0u32, 1], [2, 2]], 3);
        let (kind, found) = heard(Body::Here(Box::new(votes))).unwrap();
        assert_eq!(kind, "votes");
        assert_eq!(found, array![[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]);
        assert!(heard(Body::Here(Box::new(fl_core::message::Nothing))).is_none());
    }

    #[test]
    fn close_the_slope_is_that_of_cross_entropy_and_entropy() {
        let scores = array![[0.3f32, -1.0, 0.8], [2.0, 0.1, -0.4]];
        let (_, slope) = unsure(scores.view()).unwrap();
        for at in [(0, 0), (0, 2), (1, 1)] {
            let [up, down] = [0.01f32, -0.01].map(|by| {
                let mut moved = scores.clone();
                moved[at] += by;
                unsure(moved.view()).unwrap().0
            });
            let wanted = (up - down) / 0.02;
            assert!((f64::from(slope[at]) - wanted).abs() < 1e-3, "{at:?}");
        }
    }

    /// The client is used through requests only.
    #[test]
    fn bounded_a_substitute_is_made_of_nothing_but_answers() {
        let mut draws = Stream::root(4).draws();
        let weights = Array2::from_shape_simple_fn((WIDTH, 3), || draws.normal() as f32);
        let inputs = Array2::from_shape_simple_fn((500, WIDTH), || draws.normal() as f32);
        let test = Samples::fresh(inputs.clone(), vec![WIDTH]).unwrap();
        let truth = inputs.dot(&weights);
        let made = |queries: usize| {
            let (mut model, mut asked) = (linear(), 0);
            let mut ask = |x: &Samples| {
                asked += x.len();
                let scores = x.values().dot(&weights);
                Ok(SoftLabels::of_scores(x.ids().to_vec(), scores.view()).values)
            };
            let range = [(-2.0, 2.0); WIDTH];
            let how = (&[WIDTH][..], &range[..], queries);
            let tell: Tell = Box::new(|| true);
            ideal(model.as_mut(), how, &mut ask, &Stream::root(5), &tell).unwrap();
            assert_eq!(asked, queries);
            agreement(model.predict(&test).unwrap().view(), truth.view())
        };
        let found = made(2600);
        assert!(found > 0.8, "{found}");
        assert_eq!(found, made(2600));
    }
}
