//! Attack through the slopes by made inputs, with which the clients of FedIOD answer.

use crate::minimise::{Search, SearchResult, Tell, minimise};
use anyhow::{Context, Result, ensure};
use fl_core::loss::of_batch;
use fl_core::message::Nothing;
use fl_core::{ClientId, Declaration, Loss, Protocol, Round, Server, Stream, Target};
use fl_plugin_fediod::{ANSWER, InputValues, SLOPES, SlopeRequest, TRAIN};
use ndarray::{Array1, Array2, Axis, s};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A server that deviates from FedIOD. After the teachers' training it sends each client its own
/// inputs, and follows the slopes of the cross-entropy to an input of each class (model inversion;
/// Fredrikson, Jha, Ristenpart 2015). The clients cannot notice: they get the requests of the
/// protocol, and answer them as declared.
pub struct MaliciousServer {
    /// The protocol that the clients follow.
    pub honest: Box<dyn Protocol>,
    /// The options of the search.
    pub how: Search,
    /// The source of the initial inputs.
    pub stream: Stream,
    /// The smallest and the largest possible value of each number of an input.
    pub range: Vec<(f32, f32)>,
    /// Called at each step; stops the search if it returns false.
    pub tell: Tell,
    /// The reconstructions, client by client and then class by class, and the remaining mean
    /// cross-entropy.
    pub found: Arc<Mutex<Option<SearchResult>>>,
}

impl Protocol for MaliciousServer {
    fn lead(&self, server: &mut Server<'_>) -> Result<()> {
        server.once("inversion", &mut (), |server, (), round| {
            let everyone = server.everyone();
            server.collect(round, &TRAIN, |_| &Nothing)?;
            let task = server.task().clone();
            let rows = everyone.len() * task.kind.outputs();
            let found = minimise(
                (rows, &task.input, &self.range),
                &self.how,
                &self.stream,
                &self.tell,
                &mut |x| slope(server, round, &everyone, x),
            )?;
            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            Ok(())
        })
    }

    fn declare(&self) -> Declaration<'_> {
        self.honest.declare()
    }
}

/// Returns the mean cross-entropy of `x` and its slope, from the clients' answers. `x` has an equal
/// part for each client, with a row for each class.
fn slope(
    server: &mut Server<'_>,
    round: &Round,
    everyone: &[ClientId],
    x: &Array2<f32>,
) -> Result<(f64, Array2<f64>)> {
    let classes = server.task().kind.outputs();
    let part = |at: usize| s![at * classes..(at + 1) * classes, ..];
    let each = everyone.iter().enumerate();
    let shown = each.map(|(at, id)| {
        let values = x.slice(part(at)).to_owned();
        (*id, InputValues { values })
    });
    let shown: BTreeMap<ClientId, InputValues> = shown.collect();
    let wanted: Vec<u32> = (0..classes as u32).collect();
    let (mut asked, mut sum) = (BTreeMap::new(), 0.0);
    for mail in server
        .collect_from(round, &ANSWER, everyone, |id| &shown[&id])?
        .iter()
    {
        let scores = mail.body.scores.view();
        let (loss, slope) = of_batch(Loss::CrossEntropy, Target::Classes(&wanted), scores)?;
        sum += loss;
        let nothing = SlopeRequest {
            scores: slope,
            // no slope by the discriminator's odds
            odds: Array1::zeros(mail.body.odds.len()),
            share: Array1::zeros(0),
        };
        asked.insert(mail.from, nothing);
    }
    let all = || "a client did not answer, so there is no slope to follow";
    ensure!(asked.len() == everyone.len(), all());
    let mut slope = Array2::zeros(x.dim());
    for mail in server
        .collect_from(round, &SLOPES, everyone, |id| &asked[&id])?
        .iter()
    {
        let at = everyone.iter().position(|id| *id == mail.from);
        let mut part = slope.slice_mut(part(at.with_context(all)?));
        part.assign(&mail.body.values.mapv(f64::from));
    }
    Ok((sum / everyone.len() as f64, slope))
}

/// Moves inputs against their slopes, each by this share (root mean square) of the range of its
/// numbers.
pub fn moved(
    inputs: &Array2<f32>,
    slopes: &Array2<f32>,
    range: &[(f32, f32)],
    by: f64,
) -> Array2<f32> {
    let mut all = inputs.clone();
    for (mut row, slope) in all.rows_mut().into_iter().zip(slopes.axis_iter(Axis(0))) {
        let squares: f64 = slope.iter().map(|g| f64::from(*g).powi(2)).sum();
        let far = by / (squares / slope.len() as f64).sqrt().max(f64::MIN_POSITIVE);
        for ((x, g), (low, high)) in row.iter_mut().zip(slope).zip(range) {
            let step = far * f64::from(*g) * f64::from(high - low);
            *x = (*x - step as f32).clamp(*low, *high);
        }
    }
    all
}
