//! The selector at a client: which public samples it knows enough of to label.
use crate::conversation::KNOWN;
use crate::judge::judge;
use crate::own::own;
use crate::settings::{CoDistill, FilterOn};
use fl_core::message::Mask;
use fl_core::prelude::*;
use fl_core::{Examples, Labels, Problem};
use std::sync::Arc;

/// How `parts.client-filter` is used; without that a client knows every sample.
pub(crate) struct ClientFilter {
    /// What it sees of a sample.
    on: FilterOn,
    /// Has the client's model learnt anything before the filter is asked?
    trained: bool,
}

impl CoDistill {
    pub(crate) fn client_filter(&self) -> ClientFilter {
        let on = self.filter_on.clone().unwrap_or(FilterOn::Inputs);
        ClientFilter {
            // an untrained model is right by chance only
            trained: self.warm_up.is_some() || on == FilterOn::Scores,
            on,
        }
    }
}

impl ClientFilter {
    /// Is it fitted and asked before round 1 and never again?
    pub fn once(&self) -> bool {
        self.on != FilterOn::Scores
    }

    /// Which of all public samples the client knows, for good. Asked only where `parts.client-filter` is filled.
    pub fn mask(&self, me: &mut Client) -> Result<Mask> {
        let n = me.public()?.samples().len();
        let mask = Mask::new(&self.select(me, &Ids((0..n as u32).collect()))?, n);
        me.stash("known", &mask);
        Ok(mask)
    }

    /// Those of these samples that the client knows.
    pub fn known(&self, me: &mut Client, ids: &Ids) -> Result<Ids> {
        if !me.has("client-filter") {
            return Ok(ids.clone());
        }
        let known: Vec<u32> = match me.stashed::<Mask>("known")? {
            Some(mask) => {
                let all = ids.0.iter().copied();
                all.filter(|id| mask.has(*id as usize)).collect()
            }
            None if self.once() => {
                bail!("its filter was never fitted; see its `{}`", KNOWN.label())
            }
            None => {
                let positions = self.select(me, ids)?;
                positions.into_iter().map(|at| ids.0[at]).collect()
            }
        };
        Ok(Ids(known))
    }

    /// Positions in `ids` of the samples that the client knows: the selector is fitted to its own examples first.
    fn select(&self, me: &mut Client, ids: &Ids) -> Result<Vec<usize>> {
        if me.has("privacy") {
            me.disclose("a client's filter says which public samples it knows, without noise; leave out `client-filter`");
        }
        let (own, public) = (own(me)?, me.public()?);
        let x = public.pick(ids)?;
        let (fitted, pool) = (self.seen_examples(me, &own)?, self.seen(me, &x)?);
        let stream = me.stream("filter");
        let Some(mut selector) = me.selector::<Samples>("client-filter")? else {
            return Ok((0..ids.0.len()).collect());
        };
        selector.fit(&fitted, &stream)?;
        let known = selector.select(&pool, &stream.child("select", 0))?;
        if let Some(truth) = public.truth() {
            let truth: Vec<u32> = ids.0.iter().map(|id| truth[*id as usize]).collect();
            let ranks = selector.rank(&pool)?;
            judge(me, &own, &truth, &known, ranks, self.trained.then_some(&x))?;
        }
        Ok(known)
    }

    /// Samples as the filter is to see them.
    fn seen(&self, me: &mut Client, x: &Samples) -> Result<Samples> {
        let seen = match self.on {
            FilterOn::Inputs => return Ok(x.clone()),
            FilterOn::Scores => me.model("model")?.predict(x)?,
            FilterOn::Features => me.model("model")?.features(x)?.with_context(|| {
                Problem::Lacks("parts.model: this trainer has no features; use a neural trainer, or `filter-on: inputs`".into())
            })?,
        };
        let width = seen.ncols();
        Samples::fresh(seen, vec![width])
    }

    /// Examples as the filter is to see them.
    fn seen_examples(&self, me: &mut Client, own: &Examples) -> Result<Examples> {
        if self.on == FilterOn::Inputs {
            return Ok(own.clone());
        }
        let labels = match (own.classes(), own.multi_label()) {
            (Some(of), _) => Labels::Classes {
                of,
                classes: own.labels().classes(),
            },
            (None, findings) => Labels::Multi(findings.unwrap_or_default()),
        };
        let seen = self.seen(me, &own.samples)?;
        Examples::all(seen.inputs().clone(), Arc::new(labels))
    }
}
