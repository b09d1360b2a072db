//! [`RemoteClients`]: the clients of a run in other processes, as the leading process sees them.

use crate::run_session::Leader;
use crate::spec::SpecText;
use crate::wire::{AnswerKind, Id, Packet, ReplyHead, RequestHead, RequestKind, RunId};
use anyhow::{Context, Error, bail, ensure};
use fl_core::message::Params;
use fl_core::{Answer, Body, ClientId, Evaluation, Payload, Problem, Request, Result};
use fl_files::ChainHash;
use fl_sim::ExternalClients;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of waiting replies above which no further request is sent.
const WAITING: usize = 32 << 20;

/// Carries packets between a leader and nodes: an engine, or a test.
pub trait Transport {
    /// Returns the reachable clients; empty: those of the spec.
    fn clients(&self) -> Vec<ClientId>;

    /// Returns how many requests may be in flight at once.
    fn window(&self) -> usize;

    /// Sends a request to this client. [`Transport::receive`] reports later failures.
    ///
    /// # Errors
    /// If no client can be reached any more.
    fn send(&mut self, to: ClientId, request: Packet) -> Result<()>;

    /// Waits for the next reply of any client. A client that cannot be reached, or does not reply
    /// within the engine's time limit, gives [`Problem::Absent`].
    ///
    /// # Errors
    /// If no client can be reached any more.
    fn receive(&mut self) -> Result<(ClientId, Result<Packet>)>;

    /// Ends the run; unless `keep`, removes its leftovers.
    ///
    /// # Errors
    /// If something cannot be removed.
    fn end(&mut self, keep: bool) -> Result<()>;
}

/// The leader's record of a client.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct ClientRecord {
    /// Number of requests to it.
    asked: u64,
    /// The last request with a received reply.
    had: u64,
    /// Whether the client had a lasting state after that.
    remembers: bool,
    /// The last request before the checkpoint that the run has resumed from.
    #[serde(skip)]
    from: u64,
    /// The last request before the last checkpoint.
    #[serde(skip)]
    kept: u64,
    /// The node that it lives on.
    #[serde(skip)]
    node: Option<Id>,
}

/// Clients behind a [`Transport`].
pub struct RemoteClients<C> {
    courier: C,
    run: RunId,
    spec: SpecText,
    clients: BTreeMap<ClientId, ClientRecord>,
    /// Those without examples.
    idle: Vec<ClientId>,
}

/// A client's answer, and its message.
type Says = (AnswerKind, Arc<[u8]>);

/// Called with a client's answer.
type Each<'a> = &'a mut dyn FnMut(ClientId, Result<Says>) -> Result<()>;

impl<C: Transport> RemoteClients<C> {
    /// Wraps the clients of the run that `leader` leads by this spec.
    pub fn new(courier: C, leader: &Leader, spec: SpecText) -> Self {
        Self {
            courier,
            run: leader.run(spec.digest),
            spec,
            clients: BTreeMap::new(),
            idle: Vec::new(),
        }
    }

    /// Sends a request to each of `to`, and passes the answers to `each` in this order; few of them
    /// are held at a time.
    fn exchange(
        &mut self,
        to: &[ClientId],
        want: &mut dyn FnMut(ClientId) -> Result<(RequestKind, Arc<[u8]>)>,
        each: Each<'_>,
    ) -> Result<()> {
        let window = self.courier.window().max(1);
        let (mut next, mut due, mut bytes) = (0, 0, 0);
        // the requests without a reply so far
        let mut out: BTreeMap<ClientId, [u8; 32]> = BTreeMap::new();
        let mut early: BTreeMap<ClientId, Result<Says>> = BTreeMap::new();
        let size = |says: &Result<Says>| says.as_ref().map_or(0, |(_, body)| body.len());
        while due < to.len() {
            // the next client always gets its request, so there is no deadlock
            while next < to.len() && (next == due || next < due + window && bytes < WAITING) {
                let id = to[next];
                let (want, body) = want(id)?;
                let request = self.request(id, want);
                let packet = Packet::new(&request, body)?;
                out.insert(id, packet.about());
                self.courier.send(id, packet)?;
                next += 1;
            }
            let id = to[due];
            if let Some(says) = early.remove(&id) {
                bytes -= size(&says);
                due += 1;
                each(id, says)?;
                continue;
            }
            let (from, packet) = self.courier.receive()?;
            let Some(about) = out.get(&from) else {
                continue; // the request has been given up
            };
            let Some(says) = self.hear(from, packet, about).transpose() else {
                continue;
            };
            out.remove(&from);
            bytes += size(&says);
            early.insert(from, says);
        }
        Ok(())
    }

    /// Asks each of `to` for the score of a model in this slot, the server's or its own, with the
    /// parameters in `body`.
    fn scores(
        &mut self,
        to: &[ClientId],
        (slot, of_server): (&str, bool),
        body: &mut dyn FnMut(ClientId) -> Arc<[u8]>,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()> {
        let slot = slot.to_string();
        let score = RequestKind::Score { slot, of_server };
        let mut want = |id| Ok((score.clone(), body(id)));
        self.exchange(to, &mut want, &mut |id, says| {
            let scored = says.and_then(|(said, _)| match said {
                AnswerKind::Evaluation(scored) => Ok(scored),
                said => Err(other(&said)),
            });
            each(id, scored)
        })
    }

    fn request(&mut self, client: ClientId, want: RequestKind) -> RequestHead {
        let known = self.clients.entry(client).or_default();
        if let RequestKind::Answer { .. } = want {
            known.asked += 1;
        }
        RequestHead {
            run: self.run,
            client,
            number: known.asked,
            had: known.had,
            from: known.from,
            kept: known.kept,
            remembers: known.remembers,
            want,
        }
    }

    /// Reads the reply to the request with this head; `None` if it belongs to another request,
    /// which is no longer waited for.
    fn hear(
        &mut self,
        from: ClientId,
        packet: Result<Packet>,
        about: &[u8; 32],
    ) -> Result<Option<Says>> {
        let packet = packet?;
        let reply: ReplyHead = packet
            .read()
            .map_err(|error| absent(format!("its reply cannot be read: {error:#}")))?;
        ensure!(
            reply.run.id == self.run.id && reply.run.spec == self.run.spec,
            absent("its reply is to another run".into())
        );
        ensure!(
            reply.client == from,
            absent(format!("client {} replied in its place", reply.client))
        );
        let known = self.clients.entry(from).or_default();
        if reply.run.life < self.run.life || reply.number < known.asked {
            return Ok(None);
        }
        ensure!(
            reply.run.life == self.run.life && reply.number == known.asked,
            absent("its reply is to a request that was not sent yet".into())
        );
        if reply.about != *about {
            // for example, a late score, or one of another model
            return Ok(None);
        }
        let node = *known.node.get_or_insert(reply.node);
        ensure!(
            node == reply.node,
            absent("two nodes answer for it; end one of them, or resume the run (--resume) if its node was set up again".into())
        );
        match &reply.said {
            AnswerKind::Answer { remembers, .. } | AnswerKind::Failed { remembers, .. } => {
                (known.had, known.remembers) = (reply.number, *remembers);
            }
            _ => {}
        }
        match reply.said {
            AnswerKind::Failed { why, .. } | AnswerKind::Refused(why) => {
                Err(interrupted(why.into()))
            }
            said => Ok(Some((said, packet.body))),
        }
    }
}

/// A client that stops alone is absent; only a leader that is to stop does the step again.
fn interrupted(error: Error) -> Error {
    match error.downcast_ref() {
        Some(Problem::Interrupted(why)) if !fl_core::abi::hurries() => absent(why.clone()),
        _ => error,
    }
}

fn absent(text: String) -> Error {
    Error::new(Problem::Absent(text))
}

fn other(said: &AnswerKind) -> Error {
    let said = match said {
        AnswerKind::Here { .. } => "a greeting",
        AnswerKind::Answer { .. } => "an answer",
        AnswerKind::Evaluation(_) => "a score",
        AnswerKind::Model => "a model",
        AnswerKind::Forgotten => "a farewell",
        AnswerKind::Countersigned { .. } => "a signature",
        AnswerKind::Failed { .. } | AnswerKind::Refused(_) => "an error",
    };
    absent(format!(
        "it replied with {said}, which does not answer the request"
    ))
}

impl<C: Transport> ExternalClients for RemoteClients<C> {
    fn begin(
        &mut self,
        known: &[(ClientId, usize)],
        state: Option<&[u8]>,
    ) -> Result<Vec<(ClientId, usize)>> {
        if let Some(state) = state {
            let saved: Vec<(ClientId, ClientRecord)> =
                postcard::from_bytes(state).context("the clients in the checkpoint")?;
            let kept = |(id, known): (ClientId, ClientRecord)| {
                (
                    id,
                    ClientRecord {
                        from: known.asked,
                        kept: known.asked,
                        ..known
                    },
                )
            };
            self.clients = saved.into_iter().map(kept).collect();
        }
        let due: BTreeMap<ClientId, usize> = known.iter().copied().collect();
        let mut to = self.courier.clients();
        if to.is_empty() {
            to = due.keys().copied().collect()
        } else {
            to.sort_unstable()
        }
        let told: Arc<[u8]> = self.spec.packed()?.into();
        let (mut roster, mut idle) = (Vec::new(), Vec::new());
        self.exchange(
            &to,
            &mut |_| Ok((RequestKind::Hello, told.clone())),
            &mut |id, says| {
                let (said, _) = says.with_context(|| format!("client {id}"))?;
                let AnswerKind::Here { examples } = said else {
                    bail!(other(&said).context(format!("client {id}")));
                };
                let Some(examples) = examples else {
                    roster.push((id, 0));
                    return Ok(());
                };
                if let Some(n) = due.get(&id) {
                    ensure!(
                        *n as u64 == examples,
                        "client {id} has {examples} examples at its node, and {n} by the spec"
                    );
                }
                match usize::try_from(examples)? {
                    0 => idle.push(id),
                    examples => roster.push((id, examples)),
                }
                Ok(())
            },
        )?;
        ensure!(!roster.is_empty(), "no client has any examples");
        self.idle = idle;
        Ok(roster)
    }

    fn idle(&self) -> &[ClientId] {
        &self.idle
    }

    fn ask<'q>(
        &mut self,
        to: &[ClientId],
        question: &(dyn Fn(ClientId) -> Request<'q> + Sync),
        each: &mut dyn FnMut(ClientId, Result<Answer>) -> Result<()>,
    ) -> Result<()> {
        // a message to all clients is serialised once
        let mut last = None::<(*const (), Arc<[u8]>)>;
        let mut written = |payload: Payload<'_>| -> Arc<[u8]> {
            let Payload::Here(message) = payload else {
                return payload.encode().into();
            };
            let at: *const () = std::ptr::from_ref(message).cast();
            match &last {
                Some((same, bytes)) if *same == at && size_of_val(message) > 0 => bytes.clone(),
                _ => last.insert((at, payload.encode().into())).1.clone(),
            }
        };
        let mut want = |id| {
            let question = question(id);
            Ok((RequestKind::question(&question), written(question.payload)))
        };
        self.exchange(to, &mut want, &mut |id, says| {
            let answer = says.and_then(|(said, body)| match said {
                AnswerKind::Answer { envelope, .. } => Ok(Answer {
                    body: Body::Wire(body.to_vec()),
                    envelope,
                }),
                said => Err(other(&said)),
            });
            each(id, answer)
        })
    }

    fn score(
        &mut self,
        to: &[ClientId],
        slot: &str,
        shared: Option<&Params>,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()> {
        let shared = shared.map_or_else(Vec::new, |shared| fl_core::message::encode(shared));
        let shared: Arc<[u8]> = shared.into();
        self.scores(to, (slot, false), &mut |_| shared.clone(), each)
    }

    fn score_for_server(
        &mut self,
        to: &[ClientId],
        slot: &str,
        params: &dyn Fn(ClientId) -> Arc<Params>,
        each: &mut dyn FnMut(ClientId, Result<Evaluation>) -> Result<()>,
    ) -> Result<()> {
        // the parameters of one model are serialised once
        let mut written = Vec::<(Arc<Params>, Arc<[u8]>)>::new();
        let mut body = |id| {
            let params = params(id);
            let same = |known: &&(Arc<Params>, Arc<[u8]>)| Arc::ptr_eq(&known.0, &params);
            if let Some((_, body)) = written.iter().find(same) {
                return body.clone();
            }
            let body: Arc<[u8]> = fl_core::message::encode(&*params).into();
            written.push((params, body.clone()));
            body
        };
        self.scores(to, (slot, true), &mut body, each)
    }

    fn models(
        &mut self,
        to: &[ClientId],
        slot: &str,
        each: &mut dyn FnMut(ClientId, Result<Vec<u8>>) -> Result<()>,
    ) -> Result<()> {
        let mut want = |_| {
            Ok((
                RequestKind::Model { slot: slot.into() },
                Arc::new([]) as Arc<[u8]>,
            ))
        };
        self.exchange(to, &mut want, &mut |id, says| {
            let model = says.and_then(|(said, body)| match said {
                AnswerKind::Model => Ok(body.to_vec()),
                said => Err(other(&said)),
            });
            each(id, model)
        })
    }

    fn countersign(
        &mut self,
        hash: &ChainHash,
        answers: &BTreeMap<ClientId, Vec<String>>,
        each: &mut dyn FnMut(ClientId, Result<(String, String)>) -> Result<()>,
    ) -> Result<()> {
        if !self.spec.own {
            return Ok(());
        }
        // one that is still at work, or unreachable, would have the run wait for it
        let idle = |id: &&ClientId| self.clients.get(id).is_some_and(|c| c.had == c.asked);
        let to: Vec<ClientId> = answers.keys().filter(idle).copied().collect();
        let mut want = |id| {
            let answers = answers.get(&id).cloned().unwrap_or_default();
            let want = RequestKind::Countersign {
                hash: *hash,
                answers,
            };
            Ok((want, Arc::new([]) as Arc<[u8]>))
        };
        self.exchange(&to, &mut want, &mut |id, says| {
            let signed = says.and_then(|(said, _)| match said {
                AnswerKind::Countersigned { key, signature } => Ok((key, signature)),
                said => Err(other(&said)),
            });
            each(id, signed)
        })
    }

    fn save(&self) -> Result<Vec<u8>> {
        let all: Vec<(&ClientId, &ClientRecord)> = self.clients.iter().collect();
        Ok(postcard::to_stdvec(&all)?)
    }

    fn saved(&mut self) {
        self.clients
            .values_mut()
            .for_each(|known| known.kept = known.asked);
    }

    fn end(&mut self, keep: bool) -> Result<()> {
        if !keep {
            // each client with its own folder forgets the run; one that is still at work, or
            // unreachable, only keeps a few files
            let mut over = self.courier.clients();
            let idle = |known: &ClientRecord| known.asked > 0 && known.had == known.asked;
            over.retain(|id| self.clients.get(id).is_some_and(idle));
            let mut want = |_| Ok((RequestKind::Over, Arc::new([]) as Arc<[u8]>));
            let _ = self.exchange(&over, &mut want, &mut |_, _| Ok(()));
        }
        self.courier.end(keep)
    }
}
