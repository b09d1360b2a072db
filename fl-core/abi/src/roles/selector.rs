//! Selectors.

use crate::caller::{Callee, Caller, Calls, Means};
use crate::context_json::{RoundText, said};
use crate::data_sets::{KnownSets, NoSets};
use crate::host::Answer;
use crate::library::{Host, Input};
use crate::marshal::shorter;
use crate::marshal_data::{SamplesText, own_inputs, samples_of, with_more, with_samples};
use crate::marshal_samples::{labels, receive, send, with_labels};
use crate::raw::*;
use anyhow::{Context, ensure};
use fl_roles::__private::Sealed;
use fl_roles::message::{NamedTensors, TensorMap, View};
use fl_roles::{
    AnyPool, AnySelector, ClientStatQuery, Examples, Pool, Result, Round, Samples, SamplingScheme,
    Serial, Stream,
};
use ndarray::ArrayView1;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The text of [`FL_DESCRIBE`]'s answer.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct SelectorText {
    draw: SamplingScheme,
    needs_scores: bool,
}

impl Default for SelectorText {
    fn default() -> Self {
        Self {
            draw: SamplingScheme::Unknown,
            needs_scores: false,
        }
    }
}

/// The text of [`FL_FIT`].
#[derive(Serialize, Deserialize)]
struct FitText {
    classes: usize,
    /// Which of the set's labels they are; `None`: tensors say what is known of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Option<usize>,
    #[serde(flatten)]
    own: SamplesText,
}

/// The text of [`FL_SELECT`] and [`FL_POLL`].
#[derive(Serialize, Deserialize)]
struct SelectText {
    #[serde(flatten)]
    round: RoundText,
    #[serde(flatten)]
    pool: SamplesText,
}

/// Runs `f` with the text and tensors of a pool.
pub(crate) fn with_pool<R>(
    sets: &dyn KnownSets,
    pool: AnyPool<'_>,
    f: impl FnOnce(SamplesText, NamedTensors<'_>) -> Result<R>,
) -> Result<R> {
    match pool {
        AnyPool::Samples(x) => with_samples(sets, x, f),
        other => send(other, |tensors| {
            f(SamplesText::default(), with_more(tensors, None))
        }),
    }
}

/// Runs `f` with the pool of this name that [`with_pool`] sent.
pub(crate) fn pool_of<R>(
    sets: &dyn KnownSets,
    name: &str,
    text: &SamplesText,
    mut parcel: TensorMap,
    f: impl FnOnce(AnyPool<'_>) -> Result<R>,
) -> Result<R> {
    match name {
        Samples::NAME => f(AnyPool::Samples(&samples_of(sets, text, &mut parcel)?)),
        _ => receive(name, parcel, f),
    }
}

/// Gives the picked positions.
pub(crate) fn give_positions(host: &Host<'_>, all: Vec<usize>) -> Result<()> {
    let all: Vec<u32> = all.into_iter().map(|at| at as u32).collect();
    let all = View::U32(ArrayView1::from(&all).into_dyn());
    host.tensors(&vec![("positions".into(), all)])
}

/// A selector that is elsewhere.
pub(crate) struct RemoteSelector {
    remote: Box<dyn Caller>,
    about: SelectorText,
    pool: &'static str,
}

impl RemoteSelector {
    /// Of the pool of this name.
    pub fn new(remote: Box<dyn Caller>, pool: &str) -> Result<Self> {
        let about: Option<SelectorText> = remote.value(FL_DESCRIBE, "", &[])?;
        let about = about.unwrap_or_default();
        if let SamplingScheme::Poisson { rate } = about.draw {
            ensure!(
                (0.0..=1.0).contains(&rate),
                remote.says(&format!("a rate is in 0..=1, and it says {rate}"))
            );
        }
        let pool = AnyPool::NAMES.into_iter().find(|known| *known == pool);
        let pool = pool.with_context(|| remote.says("it has no pool"))?;
        Ok(Self {
            remote,
            about,
            pool,
        })
    }

    /// Asks about a pool in a round.
    fn of_pool(&self, operation: u32, round: &Round, pool: AnyPool<'_>) -> Result<Option<Answer>> {
        with_pool(self.remote.sets(), pool, |pool, tensors| {
            let text = serde_json::to_string(&SelectText {
                round: RoundText::of(round),
                pool,
            })?;
            let means = Means::stream(&round.stream);
            self.remote.ask(operation, &text, &[tensors], means)
        })
    }
}

impl Sealed for RemoteSelector {}

impl AnySelector for RemoteSelector {
    fn pool(&self) -> &'static str {
        self.pool
    }

    fn needs_scores(&self) -> bool {
        self.about.needs_scores
    }

    fn fit(&mut self, own: &Examples, stream: &Stream) -> Result<()> {
        let sets = self.remote.sets();
        with_samples(sets, &own.samples, |samples, tensors| {
            let labels = samples.set.and_then(|set| sets.label(set, own.labels()));
            let text = serde_json::to_string(&FitText {
                classes: own.labels().classes(),
                labels,
                own: samples,
            })?;
            let ask = |letter: NamedTensors<'_>| {
                let done = self
                    .remote
                    .ask(FL_FIT, &text, &[letter], Means::stream(stream));
                done.map(drop)
            };
            match labels {
                Some(_) => ask(tensors),
                None => with_labels(own, |known| {
                    let known = known.iter().map(|(name, view)| (&**name, shorter(view)));
                    ask(with_more(&tensors, known))
                }),
            }
        })
    }

    fn poll(&mut self, round: &Round, pool: AnyPool<'_>) -> Result<Option<ClientStatQuery>> {
        match self.of_pool(FL_POLL, round, pool)? {
            Some(answer) => self.remote.json(&answer),
            None => Ok(None),
        }
    }

    fn select(&mut self, round: &Round, pool: AnyPool<'_>) -> Result<Vec<usize>> {
        self.remote.check()?;
        let answer = self.of_pool(FL_SELECT, round, pool)?;
        let answer = self.remote.due(FL_SELECT, answer)?;
        self.remote.said(&answer, round)?;
        let positions = TensorMap::new(answer.tensors).list("positions");
        let positions = self.remote.named(positions)?;
        let ascend = positions.is_sorted_by(|a, b| a < b);
        let last = positions.last().copied().map_or(0, |p| p as usize + 1);
        ensure!(
            ascend && last <= pool.size(),
            self.remote.says(&format!(
                "its positions must ascend without repeats and be below {}",
                pool.size()
            ))
        );
        Ok(positions.into_iter().map(|p| p as usize).collect())
    }

    fn draw(&self) -> SamplingScheme {
        self.about.draw
    }

    fn save(&self) -> Vec<u8> {
        self.remote.save_or_mark()
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.remote.load_unless_marked(state)
    }

    fn rank(&mut self, pool: AnyPool<'_>) -> Result<Option<Vec<f64>>> {
        let answer = with_pool(self.remote.sets(), pool, |text, tensors| {
            let text = serde_json::to_string(&text)?;
            self.remote
                .ask(FL_RANK, &text, &[tensors], Means::default())
        })?;
        let Some(answer) = answer.filter(|answer| !answer.tensors.is_empty()) else {
            return Ok(None);
        };
        let ranks = TensorMap::new(answer.tensors).f64("ranks");
        let ranks = self.remote.named(ranks)?;
        ensure!(
            ranks.len() == pool.size(),
            self.remote.says(&format!(
                "{} ranks for a pool of {}",
                ranks.len(),
                pool.size()
            ))
        );
        Ok(Some(ranks.iter().copied().collect()))
    }
}

impl Callee for Box<dyn AnySelector> {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        serve(&mut **self, &NoSets, operation, input, host)
    }
}

fn examples(sets: &dyn KnownSets, input: &Input<'_>) -> Result<Examples> {
    let FitText {
        classes,
        labels: known,
        own,
    } = input.json()?;
    let mut parcel = input.parcel(0)?;
    let samples = samples_of(sets, &own, &mut parcel)?;
    if let (Some(set), Some(at)) = (own.set, known) {
        return Examples::of(samples, sets.labels(set, at)?);
    }
    let labels = labels(classes, &samples.shape(), &mut parcel)?;
    Examples::all(own_inputs(&samples), Arc::new(labels))
}

/// Does an operation with a selector that is here; samples may be rows of `sets`.
pub(crate) fn serve(
    selector: &mut dyn AnySelector,
    sets: &dyn KnownSets,
    operation: u32,
    input: &Input<'_>,
    host: &Host<'_>,
) -> Result<bool> {
    let name = selector.pool();
    match operation {
        FL_FIT => selector.fit(&examples(sets, input)?, &host.stream())?,
        FL_DESCRIBE => host.json(&SelectorText {
            draw: selector.draw(),
            needs_scores: selector.needs_scores(),
        })?,
        FL_POLL | FL_SELECT => {
            let SelectText { round, pool } = input.json()?;
            let round = round.round(host.stream(), Arc::new(Serial));
            pool_of(sets, name, &pool, input.parcel(0)?, |pool| {
                if operation == FL_POLL {
                    return host.json(&selector.poll(&round, pool)?);
                }
                let chosen = selector.select(&round, pool)?;
                said(host, &round)?;
                give_positions(host, chosen)
            })?;
        }
        FL_RANK => {
            let text = input.json()?;
            let ranks = pool_of(sets, name, &text, input.parcel(0)?, |pool| {
                selector.rank(pool)
            })?;
            if let Some(ranks) = ranks {
                let ranks = View::F64(ArrayView1::from(&ranks).into_dyn());
                host.tensors(&vec![("ranks".into(), ranks)])?;
            }
        }
        FL_SAVE => host.state(&selector.save())?,
        FL_LOAD => selector.load(&input.parcel(0)?.bytes("state")?)?,
        _ => return Ok(false),
    }
    Ok(true)
}
