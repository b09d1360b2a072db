//! Selectors of a library as parts of this program.

use super::deferred_error::{DeferredError, load};
use super::part_handle::PartHandle;
use crate::abi::context_json::RoundText;
use crate::abi::marshal::OutgoingMessage;
use crate::abi::marshal_samples::{send, with_examples};
use crate::abi::raw::*;
use crate::message::TensorMap;
use crate::sealed::Sealed;
use crate::{
    AnyPool, AnySelector, ClientStatQuery, Examples, Result, Round, SamplingScheme, Stream,
};
use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::json;
use std::any::Any;

pub(super) struct LoadedSelector {
    remote: PartHandle,
    draw: SamplingScheme,
    needs_scores: bool,
    late: DeferredError,
    pool: &'static str,
}

/// What `FL_DESCRIBE` gives for a selector.
#[derive(Deserialize)]
#[serde(default)]
struct AboutSelector {
    draw: SamplingScheme,
    needs_scores: bool,
}

impl Default for AboutSelector {
    fn default() -> Self {
        Self {
            draw: SamplingScheme::Unknown,
            needs_scores: false,
        }
    }
}

impl LoadedSelector {
    /// Of the pool of this name.
    pub fn new(remote: PartHandle, pool: &str) -> Result<Self> {
        let about: Option<AboutSelector> = remote.value(FL_DESCRIBE, "", &[])?;
        let AboutSelector { draw, needs_scores } = about.unwrap_or_default();
        if let SamplingScheme::Poisson { rate } = draw {
            ensure!(
                (0.0..=1.0).contains(&rate),
                "{}: a rate is in 0..=1, and it says {rate}",
                remote.who()
            );
        }
        let pool = AnyPool::NAMES.into_iter().find(|known| *known == pool);
        let pool = pool.with_context(|| format!("{}: it has no pool", remote.who()))?;
        Ok(Self {
            remote,
            draw,
            needs_scores,
            late: DeferredError::default(),
            pool,
        })
    }
}

impl Sealed for LoadedSelector {}

impl AnySelector for LoadedSelector {
    fn pool(&self) -> &'static str {
        self.pool
    }

    fn needs_scores(&self) -> bool {
        self.needs_scores
    }

    fn fit(&mut self, own: &Examples, stream: &Stream) -> Result<()> {
        let text = json!({ "classes": own.labels().classes() }).to_string();
        with_examples(own, |tensors| {
            let letter = [OutgoingMessage::new(tensors)];
            self.remote.call(FL_FIT, &text, &letter, Some(stream), None)
        })?;
        Ok(())
    }

    fn poll(&mut self, round: &Round, pool: AnyPool<'_>) -> Result<Option<ClientStatQuery>> {
        let text = RoundText::of(round)?;
        let answer = send(pool, |tensors| {
            let letter = [OutgoingMessage::new(tensors)];
            let stream = Some(&round.stream);
            self.remote.call(FL_POLL, &text, &letter, stream, None)
        })?;
        match answer {
            Some(answer) => self.remote.json(&answer),
            None => Ok(None),
        }
    }

    fn select(&mut self, round: &Round, pool: AnyPool<'_>) -> Result<Vec<usize>> {
        self.late.check().context(self.remote.who())?;
        let text = RoundText::of(round)?;
        let answer = send(pool, |tensors| {
            let letter = [OutgoingMessage::new(tensors)];
            let stream = Some(&round.stream);
            self.remote.must(FL_SELECT, &text, &letter, stream, None)
        })?;
        self.remote.said(&answer, round)?;
        let positions = TensorMap::new(answer.tensors).list("positions");
        let positions = positions.context(self.remote.who())?;
        let ascend = positions.is_sorted_by(|a, b| a < b);
        let last = positions.last().copied().map_or(0, |p| p as usize + 1);
        ensure!(
            ascend && last <= pool.size(),
            "{}: its positions must ascend without repeats and be below {}",
            self.remote.who(),
            pool.size()
        );
        Ok(positions.into_iter().map(|p| p as usize).collect())
    }

    fn draw(&self) -> SamplingScheme {
        self.draw
    }

    fn save(&self) -> Vec<u8> {
        self.late.save(&self.remote)
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        load(&self.remote, state)
    }

    fn rank(&mut self, pool: AnyPool<'_>) -> Result<Option<Vec<f64>>> {
        let answer = send(pool, |tensors| {
            let letter = [OutgoingMessage::new(tensors)];
            self.remote.call(FL_RANK, "", &letter, None, None)
        })?;
        let Some(answer) = answer.filter(|answer| !answer.tensors.is_empty()) else {
            return Ok(None);
        };
        let ranks = TensorMap::new(answer.tensors).f64("ranks");
        let ranks = ranks.context(self.remote.who())?;
        ensure!(
            ranks.len() == pool.size(),
            "{}: {} ranks for a pool of {}",
            self.remote.who(),
            ranks.len(),
            pool.size()
        );
        Ok(Some(ranks.iter().copied().collect()))
    }

    fn typed(self: Box<Self>) -> std::result::Result<Box<dyn Any>, Box<dyn AnySelector>> {
        Err(self)
    }
}
