//! Selection of the clients that take part in a round.

use crate::message::{AnyMessage, Nothing, Scalar};
use crate::server::RunState;
use crate::server::calls::ServerCalls;
use crate::{
    AnyPool, AnySelector, Candidate, ClientId, ClientStat, Cohort, Exchange, Problem,
    RequiredInputs, Result, Round, SamplingScheme,
};
use anyhow::{Context, ensure};
use std::collections::BTreeSet;

/// Number of a client's examples. Clients of every protocol answer it ([`crate::answer`]).
pub(crate) const SAMPLES: Exchange<Nothing, Nothing> = Exchange::new("number of examples");

/// The exchange in which clients send their loss, and the message sent with it.
type Losses<'a> = Option<(&'a str, &'a (dyn AnyMessage + 'static))>;

impl RunState<'_> {
    /// Lets the selector in `slot` pick the clients of a round.
    pub(crate) fn choose(
        &mut self,
        slot: &str,
        round: &Round,
        losses: Losses<'_>,
    ) -> Result<Cohort> {
        let everyone = self.everyone();
        let mut of_slot = self.round_of(slot, round);
        // a price assumes that no observer can predict the draw: with system noise the draw follows
        // its key
        if self.ledger.accounts() {
            of_slot = of_slot.with_stream(self.noise.at(&of_slot.stream).stream().clone());
        }
        let mut selector = self.store.take::<Box<dyn AnySelector>>(slot)?;
        let picked = self.poll(&of_slot, round, &mut selector, &everyone, losses);
        let draw = selector.draw();
        self.store.put(slot, selector);
        let picked = picked.with_context(|| format!("parts.{slot}"))?;
        self.forward_log(slot, &of_slot)?;
        let ids: Option<Vec<ClientId>> =
            picked.iter().map(|at| everyone.get(*at).copied()).collect();
        let sound = |ids: &Vec<ClientId>| {
            // a Poisson draw may be empty
            let some = !ids.is_empty() || matches!(draw, SamplingScheme::Poisson { .. });
            some && ids.is_sorted_by(|a, b| a < b)
        };
        let ids = ids.filter(sound).with_context(|| format!("parts.{slot} picked positions {picked:?} of {} clients; they must be ascending, different and at least one", everyone.len()))?;
        // with an accountant the number of clients is not for all to see
        if ids.is_empty() && !self.ledger.accounts() {
            self.warn_once(
                slot,
                round,
                "it picks no client for this round, so no client trains in it; with a larger rate that is rarer",
            );
        }
        Ok(Cohort {
            ids,
            of: everyone.len(),
            draw,
        })
    }

    fn poll(
        &mut self,
        of_slot: &Round,
        round: &Round,
        selector: &mut Box<dyn AnySelector>,
        everyone: &Cohort,
        losses: Losses<'_>,
    ) -> Result<Vec<usize>> {
        let mut pool: Vec<Candidate> = everyone.iter().map(|id| Candidate::new(*id)).collect();
        let mut asked = BTreeSet::new();
        while let Some(mut poll) = selector.poll(of_slot, AnyPool::Clients(&pool))? {
            ensure!(
                poll.of.iter().all(|at| *at < pool.len()) && poll.of.is_sorted_by(|a, b| a < b),
                "it asks about positions {:?} of {} clients; they must be ascending and different",
                poll.of,
                pool.len()
            );
            // each client gets one request; if its answer was dropped, the number stays unknown
            poll.of.retain(|at| asked.insert((poll.wanted, *at)));
            if poll.of.is_empty() {
                break;
            }
            let ids: Vec<ClientId> = poll.of.iter().map(|at| everyone[*at]).collect();
            let told: Vec<(ClientId, f64)> = match poll.wanted {
                ClientStat::Samples => {
                    let needs = RequiredInputs {
                        samples: true,
                        ..RequiredInputs::default()
                    };
                    let spec = SAMPLES.spec();
                    let sizes = self.inbox(round, &spec, &ids, &|_| &Nothing, needs)?;
                    sizes.iter().map(|m| (m.from, m.weight)).collect()
                }
                ClientStat::Loss => {
                    let (label, model) = losses.ok_or_else(|| {
                        Problem::Lacks("it needs losses, and this protocol has no global model to measure them with".into())
                    })?;
                    let spec = self.ledger.exposure.exchange(label)?.clone();
                    let needs = self.needs(&spec)?;
                    let losses = self.inbox(round, &spec, &ids, &|_| model, needs)?;
                    let told = losses.iter().map(|m| {
                        let loss = m.body.get::<Scalar>()?.value();
                        Ok((m.from, f64::from(loss)))
                    });
                    told.collect::<Result<_>>()?
                }
            };
            for (at, id) in poll.of.iter().zip(&ids) {
                let value = told.iter().find(|(from, _)| from == id).map(|(_, v)| *v);
                match poll.wanted {
                    ClientStat::Samples => pool[*at].samples = value.map(|n| n as u64),
                    ClientStat::Loss => pool[*at].loss = value,
                }
            }
        }
        selector.select(of_slot, AnyPool::Clients(&pool))
    }
}
