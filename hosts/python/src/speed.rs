//! How long one call of an aggregator takes.

use crate::parts::find;
use fl_core::message::Params;
use fl_core::{
    BoxedAggregator, BuildContext, ClientMessage, Executor, Inbox, Round, Stream, Task, TaskKind,
};
use ndarray::ArrayD;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A few threads, each with its share of the chunks.
pub(crate) struct Threads(pub usize);

impl Executor for Threads {
    fn chunks(&self, data: &mut [f32], size: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        if self.0 < 2 {
            return fl_core::Serial.chunks(data, size, work);
        }
        let chunks: Vec<(usize, &mut [f32])> = data.chunks_mut(size.max(1)).enumerate().collect();
        let mut shares: Vec<Vec<_>> = (0..self.0.max(1)).map(|_| Vec::new()).collect();
        let n = shares.len();
        for (at, chunk) in chunks {
            shares[at % n].push((at, chunk));
        }
        std::thread::scope(|scope| {
            for share in shares {
                scope.spawn(|| share.into_iter().for_each(|(at, chunk)| work(at, chunk)));
            }
        });
    }
}

fn measured(
    part: &str,
    settings: &str,
    (clients, numbers): (u32, usize),
    times: usize,
    threads: usize,
) -> anyhow::Result<Vec<f64>> {
    let (decl, settings) = find(&crate::catalogue()?, part, settings)?;
    let make = BuildContext::new(Task::new(vec![1], TaskKind::Classes(2)), Stream::root(1));
    let mut part: BoxedAggregator<Params, Params> = decl.make(&settings.value, &make)?;
    let mail = |from: u32| {
        let mut draws = make.stream.child("numbers", u64::from(from)).draws();
        let values = ArrayD::from_shape_simple_fn(vec![numbers], || draws.uniform() as f32 - 0.5);
        let body = Params(BTreeMap::from([("w".to_string(), values)]));
        ClientMessage::new(from, f64::from(from + 1), body)
    };
    let inbox = Inbox::new((0..clients).map(mail).collect())?;
    let exec = Arc::new(Threads(threads));
    (0..times)
        .map(|number| {
            let round = Round::new(
                "round",
                number + 1,
                false,
                make.stream.clone(),
                exec.clone(),
            );
            let began = Instant::now();
            part.aggregate(&round, &inbox)?;
            Ok(began.elapsed().as_secs_f64())
        })
        .collect()
}

/// How many seconds calls of an aggregator took, with so many messages of so many numbers.
#[pyfunction]
pub fn seconds(
    py: Python<'_>,
    part: String,
    settings: String,
    clients: u32,
    numbers: usize,
    times: usize,
    threads: usize,
) -> PyResult<Vec<f64>> {
    py.detach(|| measured(&part, &settings, (clients, numbers), times, threads))
        .map_err(|e| PyValueError::new_err(format!("{e:#}")))
}
