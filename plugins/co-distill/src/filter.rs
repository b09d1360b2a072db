//! The client-side selector of public samples that the client can label.
use crate::exchanges::KNOWN;
use crate::filter_metrics::judge;
use crate::settings::{CoDistill, FilterOn};
use crate::slots::{CLIENT_FILTER, MODEL, SAMPLING};
use fl_core::message::Mask;
use fl_core::prelude::*;
use fl_core::{Examples, Problem};
use std::sync::Arc;

/// How `parts.client-filter` is used. Without it, a client labels every sample.
pub(crate) struct ClientFilter {
    /// Its view of a sample.
    on: FilterOn,
    /// Whether the client's model was trained before the filter is used.
    trained: bool,
}

impl CoDistill {
    pub(crate) fn client_filter(&self) -> ClientFilter {
        let on = self.filter_on.clone().unwrap_or(FilterOn::Inputs);
        ClientFilter {
            // the labels of an untrained model are right only by chance
            trained: self.warm_up.is_some() || on == FilterOn::Scores,
            on,
        }
    }
}

impl ClientFilter {
    /// Returns whether it is fitted and used only before round 1.
    pub fn once(&self) -> bool {
        self.on != FilterOn::Scores
    }

    /// Selects, for the whole run, the public samples that the client labels.
    pub fn mask(&self, client: &mut Client) -> Result<Mask> {
        let n = client.public()?.samples().len();
        let mask = Mask::new(&self.select(client, &Ids((0..n as u32).collect()))?, n);
        client.stash("known", &mask);
        Ok(mask)
    }

    /// Returns those of these samples that the client labels.
    pub fn known(&self, client: &mut Client, ids: &Ids) -> Result<Ids> {
        if !client.has(&CLIENT_FILTER) {
            return Ok(ids.clone());
        }
        let known: Vec<u32> = match client.stashed::<Mask>("known")? {
            Some(mask) => {
                let all = ids.0.iter().copied();
                all.filter(|id| mask.has(*id as usize)).collect()
            }
            None if self.once() => {
                bail!("its filter was never fitted; see its `{}`", KNOWN.label())
            }
            None => {
                let positions = self.select(client, ids)?;
                positions.into_iter().map(|at| ids.0[at]).collect()
            }
        };
        Ok(Ids(known))
    }

    /// Fits the selector to the client's own examples. Returns the positions in `ids` of the
    /// samples that it selects.
    fn select(&self, client: &mut Client, ids: &Ids) -> Result<Vec<usize>> {
        if !client.has(&CLIENT_FILTER) {
            return Ok((0..ids.0.len()).collect());
        }
        let (own, x) = (client.private(&SAMPLING)?, client.public()?.pick(ids)?);
        let pool = self.seen(client, &x)?;
        let fitted = self.seen_examples(client, &own)?;
        let truth = client.public()?.truth();
        let used = client.with_selector(&CLIENT_FILTER, |client, selector| {
            let stream = client.stream("filter");
            selector.fit(&fitted, &stream)?;
            let round = client.round(&CLIENT_FILTER);
            let known = selector.select(&round.with_stream(stream.child("select", 0)), &pool)?;
            let ranks = truth.is_some().then(|| selector.rank(&pool)).transpose()?;
            Ok((known, ranks.flatten()))
        })?;
        let (known, ranks) = used.context("the slot is filled")?;
        if let Some(truth) = truth {
            let truth: Vec<u32> = ids.0.iter().map(|id| truth[*id as usize]).collect();
            judge(
                client,
                &own,
                &truth,
                &known,
                ranks,
                self.trained.then_some(&x),
            )?;
        }
        Ok(known)
    }

    /// Returns the filter's view of samples.
    fn seen(&self, client: &mut Client, x: &Samples) -> Result<Samples> {
        let seen = match self.on {
            FilterOn::Inputs => return Ok(x.clone()),
            FilterOn::Scores => client.model(&MODEL)?.predict(x)?,
            FilterOn::Features => client.model(&MODEL)?.features(x)?.with_context(|| {
                Problem::Lacks("parts.model: this trainer has no features; use a neural trainer, or `filter-on: inputs`".into())
            })?,
        };
        let width = seen.ncols();
        Samples::fresh(seen, vec![width])
    }

    /// Returns the filter's view of examples.
    fn seen_examples(&self, client: &mut Client, own: &Examples) -> Result<Examples> {
        if self.on == FilterOn::Inputs {
            return Ok(own.clone());
        }
        let ids: Vec<usize> = own.samples.ids().iter().map(|id| *id as usize).collect();
        let labels = own.labels().select(&ids);
        let seen = self.seen(client, &own.samples)?;
        Examples::all(seen.inputs().clone(), Arc::new(labels))
    }
}
