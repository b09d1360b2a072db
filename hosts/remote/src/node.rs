//! [`Node`]: answers requests to its clients, keeps their lasting states, and never executes a
//! request twice.

use crate::client_session::ClientSession;
use crate::node_data::{self, NodeData};
use crate::node_state::{NodeState, SavedState, StoredClient, Sum};
use crate::spec::SpecText;
use crate::wire::{AnswerKind, Packet, ReplyHead, RequestHead, RequestKind, WireError};
use anyhow::{Context, Error, bail, ensure};
use fl_core::message::Params;
use fl_core::privacy::{NoiseSource, Observer};
use fl_core::{
    Body, Budget, BuildContext, ClientId, ClientState, Examples, Payload, Problem, Protocol,
    Request, Result, Stream, Task, caught, hex,
};
use fl_privacy::{AnswerKey, NodeLedger};
use fl_receipts::SigningKey;
use fl_sim::{ClientFactory, Unpriced};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The inputs of a node.
pub struct NodeOptions {
    /// The spec that it was started with.
    pub spec: SpecText,
    /// The method.
    pub protocol: Arc<dyn Protocol>,
    /// The task that models learn.
    pub task: Task,
    /// Makes its clients.
    pub maker: ClientFactory,
    /// The policy, if the data are the node's own.
    pub own: Option<NodeData>,
    /// Its clients, with the examples of each.
    pub owners: Vec<(ClientId, Examples)>,
    /// The test examples.
    pub test: Examples,
    /// The test examples of each client's own model, if not `test`: one entry per client, or empty.
    pub client_tests: Vec<Examples>,
}

/// The clients at one place. One of them is in memory at a time, the others are in the folder.
pub struct Node {
    served: NodeOptions,
    owners: BTreeMap<ClientId, Examples>,
    home: NodeState,
    live: Option<ClientSession>,
    /// The last message, and its SHA-256: a message to many clients is hashed once.
    heard: (Arc<[u8]>, Sum),
    ledger: NodeLedger,
    /// The hash of each owner's data, if they are the node's own.
    data: BTreeMap<ClientId, Sum>,
}

/// An answer, and its message.
type Says = (AnswerKind, Arc<[u8]>);

impl Node {
    /// Makes a node that serves `served`, and keeps lasting states at its `home`.
    pub fn new(mut served: NodeOptions, home: NodeState) -> Self {
        let owners: BTreeMap<_, _> = std::mem::take(&mut served.owners).into_iter().collect();
        let mut data = BTreeMap::new();
        if let Some(own) = &mut served.own {
            if let Some(why) = &own.unfit {
                (own.tell)(&format!("its own data do not fit the spec: {why}"));
            }
            let tests = &served.maker.held_out;
            let sum = |(id, rows): (&ClientId, &Examples)| {
                (*id, node_data::sum(rows, tests.get(*id as usize)))
            };
            data = owners.iter().map(sum).collect();
        }
        let policy = served.own.as_ref().map(|own| &own.policy);
        if let Some((epsilon, delta)) = policy.and_then(|p| Some((p.epsilon?, p.delta))) {
            served.maker.budgets.push(Budget {
                epsilon,
                against: Observer::Server,
                delta: Some(delta),
            });
        }
        Self {
            served,
            owners,
            ledger: NodeLedger::new(home.ledger()),
            home,
            live: None,
            heard: (none(), Sha256::digest([]).into()),
            data,
        }
    }

    /// Returns the clients that it can answer for.
    pub fn clients(&self) -> Vec<ClientId> {
        self.owners.keys().copied().collect()
    }

    /// Answers a request. An error becomes a reply too.
    ///
    /// # Errors
    /// If no reply is possible: the packet has no readable head.
    pub fn reply(&mut self, packet: &Packet) -> Result<Packet> {
        let request: RequestHead = packet.read()?;
        let said = caught(|| self.answer(&request, &packet.body));
        let (said, body) =
            said.unwrap_or_else(|error| (AnswerKind::Refused((&error).into()), none()));
        let reply = ReplyHead {
            run: request.run,
            client: request.client,
            number: request.number,
            about: packet.about(),
            node: self.home.node(),
            said,
        };
        Packet::new(&reply, body)
    }

    fn answer(&mut self, request: &RequestHead, body: &Arc<[u8]>) -> Result<Says> {
        let id = request.client;
        let data = self.owners.get(&id);
        let data = data
            .with_context(|| format!("client {id} is not at this node"))?
            .clone();
        self.agrees(request, body)?;
        let unpriced = self.takes_part(&request.want)?;
        let own = self.served.own.is_some();
        if request.want == RequestKind::Hello {
            return self.here(request, &data);
        }
        let turn = self.home.turn(&request.run.id, id, own);
        let _turn = withheld(&mut self.served.own, turn)?;
        let live = self.wake(request, data);
        let mut live = withheld(&mut self.served.own, live)?;
        self.same_data(id, &live.kept)?;
        live.kept.data = self.data.get(&id).copied();
        let mark =
            |kept: &StoredClient| (kept.life, kept.marked, kept.now.number, kept.base.number);
        let before = mark(&live.kept);
        if self.heard.0 != *body {
            self.heard = (body.clone(), Sha256::digest(body).into());
        }
        let digest = request.digest(&self.heard.1)?;
        let asks = matches!(request.want, RequestKind::Answer { .. });
        ensure!(
            request.run.life >= live.kept.life,
            "the run was resumed after this request; another leader runs it now"
        );
        if let RequestKind::Countersign { hash, answers } = &request.want {
            ensure!(own, "its data are not its own");
            let key = withheld(&mut self.served.own, self.home.signing_key())?;
            let said = countersign(&key, id, hash, answers, &live.kept.now.answers)?;
            self.live = Some(live);
            return Ok((said, none()));
        }
        if request.want == RequestKind::Over {
            withheld(&mut self.served.own, self.home.forget(&request.run.id, id))?;
            return Ok((AnswerKind::Forgotten, none()));
        }
        if asks && let Some(says) = self.again(&mut live, request, &digest)? {
            self.live = Some(live);
            return Ok(says);
        }
        live = live.go_to(request, asks)?;
        let key = self.key(id, &digest, &live.kept.now);
        if let NoiseSource::System(_) = self.served.maker.noise {
            let noise = NoiseSource::System(Stream::from_key(key));
            live.client = live.client.with_noise(noise);
        }
        let done = if own {
            self.paid(&mut live, request, body, (key, unpriced))?
        } else {
            caught(|| self.work(&mut live.client, request, body))
        };
        let done = uncut(done).map_err(|error| told(&mut self.served.own, error))?;
        let lasts = !live.client.is_blank();
        let (said, body) = match done {
            Ok((says, _)) => says,
            Err(error) if !asks => return Err(told(&mut self.served.own, error)),
            Err(error) => {
                let why = WireError::from(&told(&mut self.served.own, error));
                let remembers = lasts;
                (AnswerKind::Failed { why, remembers }, none())
            }
        };
        if asks {
            // the releases of a failure are spent, so they are kept too
            let client = lasts.then(|| caught(|| live.client.save())).transpose()?;
            live.answered(request.number, client, digest, (&said, &body));
        }
        if asks || mark(&live.kept) != before {
            withheld(&mut self.served.own, live.write(&self.home))?;
        }
        self.live = Some(live);
        Ok((said, body))
    }

    /// Says that a client is here.
    fn here(&mut self, request: &RequestHead, data: &Examples) -> Result<Says> {
        if self.served.own.is_some() {
            let kept = self.home.read(&request.run.id, request.client);
            let kept = withheld(&mut self.served.own, kept)?;
            self.same_data(request.client, &kept)?;
            self.keeps_budget(&[], None)?;
        }
        let told = Unpriced::beside(self.served.maker.parts.has("accountant"));
        let examples = told.tell(|| data.len() as u64);
        Ok((AnswerKind::Here { examples }, none()))
    }

    /// Lets a client of the node answer, if the budget still holds. Charges what the answer
    /// released, also if it failed.
    fn paid(
        &mut self,
        live: &mut ClientSession,
        request: &RequestHead,
        body: &[u8],
        (key, unpriced): (AnswerKey, Option<String>),
    ) -> Result<Result<(Says, Option<Sum>)>> {
        self.keeps_budget(&live.kept.now.paid, unpriced)?;
        // if the node ended before it could send this answer, its cost is not paid twice
        let paid = [&live.kept.now.paid[..], &[key]].concat();
        let past = self.ledger.beside(&paid);
        live.client = live.client.fresh_copy().with_past(past);
        live.load()?;
        let before = live.client.released().count();
        let done = caught(|| self.work(&mut live.client, request, body));
        let spent: Vec<_> = live.client.released().skip(before).cloned().collect();
        if !spent.is_empty() {
            live.kept.now.paid.push(key);
        }
        withheld(&mut self.served.own, self.ledger.charge(key, spent))?;
        if let Ok((_, digest)) = &done {
            live.kept.now.answers.extend(digest);
        }
        Ok(done)
    }

    /// Checks that both sides have the same spec.
    fn agrees(&self, request: &RequestHead, body: &[u8]) -> Result<()> {
        let own = &self.served.spec;
        let differs = || match request.want {
            RequestKind::Hello => own.differs(body),
            _ => "it, or a data file, has changed since the run began".into(),
        };
        ensure!(
            request.run.spec == own.digest,
            "the leader runs another spec than this node: {}",
            differs()
        );
        Ok(())
    }

    /// Returns the client in its present state: the one in memory if its file has not changed
    /// since, or the one in its file.
    fn wake(&mut self, request: &RequestHead, data: Examples) -> Result<ClientSession> {
        let (run, id) = (request.run.id, request.client);
        let sum = self.home.sum(&run, id)?;
        let same = |live: &ClientSession| (live.run, live.id, live.sum) == (run, id, sum);
        if let Some(live) = self.live.take().filter(same) {
            return Ok(live);
        }
        let kept = self.home.read(&run, id)?;
        let client = self.served.maker.client(id, data);
        let mut live = ClientSession {
            run,
            id,
            sum,
            kept,
            message: None,
            client,
        };
        live.load()?;
        Ok(live)
    }

    /// Does what is asked for; with the digest of the message, if it is a protocol's answer.
    fn work(
        &self,
        client: &mut ClientState,
        request: &RequestHead,
        body: &[u8],
    ) -> Result<(Says, Option<[u8; 32]>)> {
        let says = match &request.want {
            RequestKind::Hello | RequestKind::Over | RequestKind::Countersign { .. } => {
                bail!("that is no request for an answer")
            }
            RequestKind::Answer {
                label,
                round,
                needs,
                stream,
            } => {
                let stream = Stream::from_key(*stream);
                let question = Request::new(label, *round, Payload::Wire(body), stream, *needs);
                let answer = fl_core::answer(self.served.protocol.as_ref(), client, question)?;
                let digest = match &answer.body {
                    Body::Here(message) => Some(fl_core::message::digest(&**message)),
                    Body::Wire(_) => None,
                };
                let body = answer.body.encode().into_owned();
                let (mut envelope, remembers) = (answer.envelope, !client.is_blank());
                if self.served.own.as_ref().is_some_and(|own| !own.notes()) {
                    (envelope.notes, envelope.measures) = Default::default();
                }
                let said = AnswerKind::Answer {
                    envelope,
                    remembers,
                };
                return Ok(((said, body.into()), digest));
            }
            RequestKind::Score {
                slot,
                of_server: true,
            } => {
                let params: Params = fl_core::message::decode(body)?;
                let scored = client.score_for_server(slot, &params)?;
                (AnswerKind::Evaluation(scored), none())
            }
            RequestKind::Score { slot, .. } => {
                let own = self.served.client_tests.get(request.client as usize);
                let shared = (!body.is_empty()).then(|| fl_core::message::decode(body));
                let shared: Option<Params> = shared.transpose()?;
                let test = own.unwrap_or(&self.served.test);
                let scored = client.score(slot, test, shared.as_ref())?;
                (AnswerKind::Evaluation(scored), none())
            }
            RequestKind::Model { slot } => (AnswerKind::Model, client.model(slot)?.save()?.into()),
        };
        Ok((says, None))
    }

    /// Returns the hash of an answer's inputs and the node's secret, which its noise follows. A
    /// repeated request gets the same answer, and no two answers share their noise, whatever the
    /// leader claims.
    fn key(&self, id: ClientId, request: &[u8; 32], state: &SavedState) -> AnswerKey {
        let state = state.client.as_deref().unwrap_or_default();
        Sha256::new()
            .chain_update(self.home.secret())
            .chain_update(self.served.spec.digest)
            .chain_update(self.data.get(&id).copied().unwrap_or_default())
            .chain_update(request)
            .chain_update(Sha256::digest(state))
            .finalize()
            .into()
    }

    /// Checks that a client's own data are those of its earlier answers in this run.
    fn same_data(&self, id: ClientId, kept: &StoredClient) -> Result<()> {
        let now = self.data.get(&id);
        ensure!(
            kept.data.as_ref().is_none_or(|then| Some(then) == now),
            Problem::Absent(
                "its own data have changed since its first answer in this run; restore them, or start a new run".into()
            )
        );
        Ok(())
    }

    /// Checks that the node takes part in such a run, and may send such an answer.
    fn takes_part(&self, want: &RequestKind) -> Result<Option<String>> {
        let served = &self.served;
        let Some(own) = &served.own else {
            return Ok(None);
        };
        let context = BuildContext::new(
            served.task.clone(),
            Stream::root(served.maker.seed).child("protocol", 0),
        );
        let (parts, noise) = (&served.maker.parts, served.maker.noise.kind());
        let tests = !served.maker.held_out.is_empty();
        let protocol = served.protocol.as_ref();
        let unpriced = own.takes_part(protocol, parts, &context, (noise, tests))?;
        own.allows(protocol, parts, &context, want)?;
        Ok(unpriced)
    }

    /// Reads what other processes have added to the ledger. Refuses a ledger that lacks answers in
    /// `paid`. Charges `unpriced`, and refuses answers without a price if the node has a budget.
    fn keeps_budget(&mut self, paid: &[AnswerKey], unpriced: Option<String>) -> Result<()> {
        withheld(&mut self.served.own, self.ledger.catch_up())?;
        ensure!(
            self.ledger.has(paid),
            "the ledger of the node's home lacks answers of this run: an older copy was restored; restore the newest"
        );
        if let Some(why) = unpriced {
            // no budget that the node gets later could hold
            withheld(&mut self.served.own, self.ledger.charge_unpriced(why))?;
        }
        let own = self.served.own.as_ref();
        own.map_or(Ok(()), |own| own.keeps_budget(&self.ledger))
    }

    /// Repeats the last answer if this is its request again: the engine has lost the reply, or the
    /// leader was stopped before it had stored it.
    fn again(
        &self,
        live: &mut ClientSession,
        request: &RequestHead,
        digest: &Sum,
    ) -> Result<Option<Says>> {
        // an answer of an earlier life is repeated if it is the first request of this one
        let first = request.number.checked_sub(1) == Some(request.from);
        let here = live.kept.life == request.run.life || first;
        let last = live.kept.last.as_ref().filter(|last| last.about == *digest);
        let Some(last) = last.filter(|_| here && live.kept.now.number == request.number) else {
            return Ok(None);
        };
        let said = last.said.clone();
        let says = (said, live.message(&self.home)?);
        if live.kept.life != request.run.life {
            live.kept.life = request.run.life;
            live.write(&self.home)?;
        }
        Ok(Some(says))
    }
}

/// Fails if a call of a library was cut off because the program is to stop: then nothing is kept,
/// and the request is answered anew when the run goes on.
fn uncut<T>(done: Result<T>) -> Result<Result<T>> {
    if !fl_core::abi::calls_were_cut() {
        return Ok(done);
    }
    let why = "a call was cut off because the program is to stop";
    let error = Problem::Interrupted(why.into()).into();
    Err(done.err().unwrap_or(error))
}

/// As [`told`], of what the node does with its home, whose files an error may quote.
fn withheld<T>(own: &mut Option<NodeData>, done: Result<T>) -> Result<T> {
    done.map_err(|error| told(own, error))
}

/// Returns an error in the form for the leader.
fn told(own: &mut Option<NodeData>, error: Error) -> Error {
    match own {
        Some(own) => own.told(&error),
        None => error,
    }
}

/// Signs receipts that state only answers that this client gave, in their order. Some may be
/// missing: the leader may not have used them.
fn countersign(
    key: &SigningKey,
    client: ClientId,
    hash: &[u8; 32],
    stated: &[String],
    given: &[[u8; 32]],
) -> Result<AnswerKind> {
    let mut given = given.iter().map(|digest| hex(digest));
    for (at, stated) in stated.iter().enumerate() {
        ensure!(
            given.any(|given| given == *stated),
            "the receipts state that its answer {} was {stated}, and it gave no such answer then",
            at + 1
        );
    }
    let text = fl_receipts::countersigned_text(hash, client, stated);
    Ok(AnswerKind::Countersigned {
        key: key.public(),
        signature: key.sign(&text)?,
    })
}

fn none() -> Arc<[u8]> {
    Arc::new([])
}
