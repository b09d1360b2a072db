//! [`ClientSide`]: the clients of a run, in this process or in others, and how they get requests.

use crate::clients::Clients;
use crate::external_clients::ExternalClients;
use crate::partial_step::PartialStep;
use crate::pool::for_clients;
use anyhow::Context;
use fl_core::message::Params;
use fl_core::{
    Answer, ClientId, ClientState, Evaluation, Examples, Payload, Protocol, Request, Result,
};
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct ClientSide<'a> {
    pub here: Clients,
    /// Clients in other processes, if any; `here` then get no requests.
    pub elsewhere: Option<Box<dyn ExternalClients + 'a>>,
    /// The clients that take part, with their number of examples.
    pub roster: Vec<(ClientId, usize)>,
    pub protocol: Arc<dyn Protocol>,
    pub threads: usize,
    /// Whether all messages take their wire form.
    pub wire: bool,
    /// The answers since the last checkpoint, in a run with a folder.
    pub answers: Option<PartialStep>,
    /// Number of complete steps.
    pub done: usize,
    /// Number of requests in the current step.
    pub asked: u64,
    /// Whether any client has been asked anything.
    pub reached: bool,
}

impl ClientSide<'_> {
    pub fn ids(&self) -> Vec<ClientId> {
        self.roster.iter().map(|(id, _)| *id).collect()
    }

    /// Lets these clients answer, in any process. Answers that come more than `long.1` seconds after
    /// `long.0` are kept, so that a step that is interrupted does not ask for them again.
    pub fn ask<'q>(
        &mut self,
        to: &[ClientId],
        question: &(dyn Fn(ClientId) -> Request<'q> + Sync),
        long: Option<(Instant, f64)>,
        each: &mut dyn FnMut(ClientId, Result<Answer>) -> Result<()>,
    ) -> Result<()> {
        let asked = self.asked;
        self.asked += 1;
        self.reached = true;
        if let Some(elsewhere) = &mut self.elsewhere {
            return elsewhere.ask(to, question, each);
        }
        let (protocol, wire) = (&self.protocol, self.wire);
        let (answers, done) = (self.answers.as_ref(), self.done);
        let work = |client: &mut ClientState| {
            let key = (done, asked, client.id());
            if let Some(answers) = answers
                && let Some(answer) = answers.get(key, client)?
            {
                return Ok(answer);
            }
            let question = question(client.id());
            let answer = if wire {
                over_the_wire(protocol.as_ref(), client, question)
            } else {
                fl_core::answer(protocol.as_ref(), client, question)
            }?;
            let long = long.is_some_and(|(since, s)| since.elapsed().as_secs_f64() >= s);
            if let Some(answers) = answers.filter(|_| long) {
                answers.put(key, &answer, client);
            }
            Ok(answer)
        };
        let size = |answer: &Answer| answer.body.size();
        let each = &mut |id: ClientId, answer: Result<Answer>| {
            answers.map_or(Ok(()), PartialStep::sound)?;
            each(id, answer)
        };
        for_clients(&self.here, to, self.threads, &work, &size, each)
    }

    /// Evaluates these clients' own models in this slot, each on `test_of` it; see
    /// [`fl_core::Host::score_clients`].
    pub fn score<'t>(
        &mut self,
        (to, slot): (&[ClientId], &str),
        shared: Option<&Params>,
        test_of: impl Fn(ClientId) -> &'t Examples + Sync,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()> {
        self.reached = true;
        if let Some(elsewhere) = &mut self.elsewhere {
            return elsewhere.score(to, slot, shared, each);
        }
        let work = |client: &mut ClientState| client.score(slot, test_of(client.id()), shared);
        for_clients(&self.here, to, self.threads, &work, &|_| 0, each)
    }

    /// Evaluates the server's models at the clients; see [`fl_core::Host::score_at_clients`].
    pub fn score_for_server(
        &mut self,
        slot: &str,
        params: &dyn Fn(ClientId) -> Arc<Params>,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()> {
        let ids = self.ids();
        self.reached = true;
        let elsewhere = self.elsewhere.as_mut();
        let elsewhere = elsewhere.context("the clients are in this process")?;
        elsewhere.score_for_server(&ids, slot, params, each)
    }

    /// Passes these clients' own models, serialised, to `each`, in client order.
    pub fn models(
        &mut self,
        to: &[ClientId],
        slot: &str,
        each: &mut dyn FnMut(ClientId, Result<Vec<u8>>) -> Result<()>,
    ) -> Result<()> {
        self.reached = true;
        if let Some(elsewhere) = &mut self.elsewhere {
            return elsewhere.models(to, slot, each);
        }
        for id in to.iter().copied() {
            let model = self.here.with(id, |client| client.model(slot)?.save())?;
            each(id, model)?;
        }
        Ok(())
    }
}

/// Answers as a client in another process would: every message takes its wire form, and the client
/// is rebuilt from its saved state.
fn over_the_wire(
    protocol: &dyn Protocol,
    client: &mut ClientState,
    question: Request<'_>,
) -> Result<Answer> {
    let sent = question.payload.encode();
    *client = client.rebuild()?;
    let question = Request::new(
        question.label,
        question.round,
        Payload::Wire(&sent),
        question.stream,
        question.needs,
    );
    fl_core::answer(protocol, client, question)?.over_the_wire()
}
