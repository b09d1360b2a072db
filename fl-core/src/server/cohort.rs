//! Selection of the clients that take part in a round.

use crate::message::{Message, Nothing, Scalar};
use crate::server::Server;
use crate::{
    BoxedSelector, Candidate, ClientId, ClientMessage, ClientStat, Cohort, Exchange, Inbox,
    Problem, RequiredInputs, Result, Roster, Round, SamplingScheme, SelectorSlot,
};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeSet;

/// Number of a client's examples. Clients of every protocol answer it ([`crate::answer`]).
pub(crate) const SAMPLES: Exchange<Nothing, Nothing> = Exchange::new("number of examples");

/// Requests the loss from these clients.
type Losses<'a, F> = &'a mut dyn FnMut(&mut F, &[ClientId]) -> Result<Inbox<Scalar>>;

impl Server<'_> {
    /// Returns the clients that the selector in `slot` picks for this round; all clients if the
    /// slot is empty. A selector may request the number of examples from clients.
    ///
    /// # Errors
    /// If it picks no client, or cannot pick.
    pub fn cohort(&mut self, slot: &SelectorSlot<Roster>, round: &Round) -> Result<Cohort> {
        self.choose(slot, round, &mut |_, _| {
            bail!(Problem::Lacks(
                "the selector needs losses of clients, and this protocol has no global model to measure them with"
                    .into()
            ))
        })
    }

    /// As [`Server::cohort`], for selectors that may also request the loss of a model on the
    /// clients' own examples. The server requests it by the exchange `loss` with `model`.
    ///
    /// # Errors
    /// As [`Server::cohort`].
    pub fn cohort_by_loss<D: Message>(
        &mut self,
        slot: &SelectorSlot<Roster>,
        round: &Round,
        loss: &Exchange<D, Scalar>,
        model: &D,
    ) -> Result<Cohort> {
        self.choose(slot, round, &mut |fed, of| {
            fed.collect(round, loss, of, |_| model)
        })
    }

    fn choose(&mut self, slot: &str, round: &Round, losses: Losses<'_, Self>) -> Result<Cohort> {
        let everyone = self.everyone();
        if !self.has(slot) {
            return Ok(everyone);
        }
        let mut of_slot = self.round_of(slot, round);
        // a price assumes that no observer can predict the draw: with system noise the draw follows
        // its key
        if self.ledger.accounts() {
            of_slot = of_slot.with_stream(self.noise.at(&of_slot.stream).stream().clone());
        }
        let mut selector = self.store.take::<BoxedSelector<Roster>>(slot)?;
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
        selector: &mut BoxedSelector<Roster>,
        everyone: &Cohort,
        losses: Losses<'_, Self>,
    ) -> Result<Vec<usize>> {
        let mut pool: Vec<Candidate> = everyone.iter().map(|id| Candidate::new(*id)).collect();
        let mut asked = BTreeSet::new();
        while let Some(mut poll) = selector.poll(of_slot, &pool)? {
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
                    let sizes = self.collect_with(
                        round,
                        &spec,
                        &ids,
                        &|_| &Nothing,
                        needs,
                        |mail: ClientMessage<Nothing>| Ok(mail),
                    )?;
                    sizes.iter().map(|m| (m.from, m.weight)).collect()
                }
                ClientStat::Loss => {
                    let losses = losses(self, &ids)?;
                    let told = |m: &ClientMessage<Scalar>| (m.from, f64::from(m.body.value()));
                    losses.iter().map(told).collect()
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
        selector.select(of_slot, &pool)
    }
}
