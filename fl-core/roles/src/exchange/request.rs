//! [`Request`] and [`Answer`]: the only path between the server and a client.

use crate::client::ClientSide;
use crate::exchange::spec::ExchangeSpec;
use crate::message::{AnyMessage, Erased, Message, MessageType, Nothing, OwnedTensors, read_any};
use crate::server::cohort::SAMPLES;
use crate::{
    Client, ClientState, PrivacyEvent, Protocol, RequiredInputs, Result, RunState, Server, Stream,
};
use anyhow::ensure;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Deref;

/// The message of a request.
pub type Payload<'q> = Body<&'q dyn AnyMessage, &'q [u8]>;

/// One request to one client, which [`answer`] answers.
pub struct Request<'q> {
    /// The label of the exchange.
    pub label: &'q str,
    /// The number of the step that it belongs to ([`crate::Round::number`]).
    pub round: usize,
    /// The message sent with it.
    pub payload: Payload<'q>,
    /// The client's randomness for this request: `root/step/client/label`.
    pub stream: Stream,
    /// The numbers that the answer's envelope must hold.
    pub needs: RequiredInputs,
}

/// The numbers that travel with an answer's message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Number of examples at the sender, if requested.
    pub samples: Option<u64>,
    /// Examples per class at the sender, if requested.
    pub class_counts: Option<Vec<u32>>,
    /// Mean loss of the training that made the answer, if requested.
    pub training_loss: Option<f32>,
    /// The client's privacy cost of this answer.
    pub spent: Vec<PrivacyEvent>,
    /// Notes for the user, as text.
    pub notes: Vec<String>,
    /// The client's measurements, for the report; no part of the method sees them.
    pub measures: Vec<(String, f64)>,
}

impl Envelope {
    /// Returns the bytes on the wire: 4 for each requested number.
    pub fn bytes(&self) -> u64 {
        let counts = self.samples.iter().count() + self.class_counts.iter().flatten().count();
        4 * (counts + self.training_loss.iter().count()) as u64
    }
}

/// A message in this process or from another one: of an answer, unless the types say otherwise.
#[derive(Clone, Copy)]
pub enum Body<M = Erased, W = Vec<u8>> {
    /// In this process.
    Here(M),
    /// In its wire form.
    Wire(W),
}

impl<M: Deref<Target = dyn AnyMessage>, W: AsRef<[u8]>> Body<M, W> {
    /// Returns the wire form.
    pub fn encode(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Here(message) => message.encode().into(),
            Self::Wire(bytes) => bytes.as_ref().into(),
        }
    }
}

impl Body {
    /// Returns the bytes in memory.
    pub fn size(&self) -> u64 {
        match self {
            Self::Here(message) => message.size(),
            Self::Wire(bytes) => bytes.len() as u64,
        }
    }

    /// As a message of this type.
    ///
    /// # Errors
    /// If it is a message of another kind.
    pub fn open_as(self, of: &'static MessageType) -> Result<Erased> {
        match self {
            Self::Wire(bytes) => of.decode(&bytes),
            Self::Here(message) => {
                let kind = message.kind();
                ensure!(
                    kind == of.kind,
                    "answered with {kind} where {} was due",
                    of.kind
                );
                Ok(message)
            }
        }
    }

    /// Returns the message as an `M`.
    ///
    /// # Errors
    /// If it is a message of another kind.
    pub fn open<M: Message>(self) -> Result<M> {
        self.open_as(MessageType::of::<M>())?.take()
    }
}

/// A client's answer to a request.
pub struct Answer {
    /// The message.
    pub body: Body,
    /// Numbers about the sender.
    pub envelope: Envelope,
}

impl Answer {
    /// Returns everything that the server sees of the answer: the message in its wire form, and the
    /// envelope.
    ///
    /// # Errors
    /// If the envelope cannot be serialised.
    pub fn seen(&self) -> Result<Vec<u8>> {
        let mut seen = self.body.encode().into_owned();
        seen.extend(postcard::to_stdvec(&self.envelope)?);
        Ok(seen)
    }

    /// Reads the output of [`Answer::seen`]: the kind of the message, its tensors, and the
    /// envelope.
    ///
    /// # Errors
    /// If `seen` is not the output of [`Answer::seen`].
    pub fn read_seen(seen: &[u8]) -> Result<(String, OwnedTensors, Envelope)> {
        let (kind, tensors, rest) = read_any(seen)?;
        Ok((kind, tensors, postcard::from_bytes(rest)?))
    }

    /// Returns the answer after message and envelope were serialised and read again.
    ///
    /// # Errors
    /// If the envelope cannot be serialised.
    pub fn over_the_wire(self) -> Result<Self> {
        let body = Body::Wire(self.body.encode().into_owned());
        let envelope = postcard::from_bytes(&postcard::to_stdvec(&self.envelope)?)?;
        Ok(Self { body, envelope })
    }
}

/// Runs the server's side of a protocol. Used by hosts.
///
/// # Errors
/// If the run fails, or the protocol left out a release that it declares.
pub fn lead(protocol: &dyn Protocol, run: &mut RunState<'_>) -> Result<()> {
    protocol.lead(&mut Server(run))?;
    run.ledger.exposure.check_released()
}

/// Returns a client's answer to a request of its protocol, or of the core itself. The client then
/// drops every part that does not last ([`crate::SlotSpec::lasting`]). Used by hosts.
///
/// # Errors
/// If the client cannot answer.
pub fn answer(
    protocol: &dyn Protocol,
    client: &mut ClientState,
    question: Request<'_>,
) -> Result<Answer> {
    let answer = if question.label == SAMPLES.label() {
        question.answer(&SAMPLES.spec(), client, |_, _: &Nothing| Ok(Nothing))
    } else {
        protocol.answer_request(client, question)
    };
    let ended = client.core_mut().end();
    let answer = answer?;
    ended?;
    Ok(answer)
}

impl<'q> Request<'q> {
    /// Used by hosts.
    pub fn new(
        label: &'q str,
        round: usize,
        payload: Payload<'q>,
        stream: Stream,
        needs: RequiredInputs,
    ) -> Self {
        Self {
            label,
            round,
            payload,
            stream,
            needs,
        }
    }

    /// Lets `client` answer with `f`, as `spec` declares.
    pub(crate) fn answer<D: Message, U: Message>(
        &self,
        spec: &ExchangeSpec,
        client: &mut Client,
        f: impl FnOnce(&mut Client, &D) -> Result<U>,
    ) -> Result<Answer> {
        self.answer_any(spec, client, |client, sent| {
            Ok(Box::new(f(client, sent.get()?)?))
        })
    }

    /// As [`Request::answer`], of messages without Rust types. What a client keeps of its requests
    /// is at its host.
    #[doc(hidden)]
    pub fn answer_any(
        &self,
        spec: &ExchangeSpec,
        client: &mut Client,
        f: impl FnOnce(&mut Client, &dyn AnyMessage) -> Result<Erased>,
    ) -> Result<Answer> {
        let here = matches!(client.0, ClientSide::Here(_));
        if here {
            client.core_mut().begin(self, spec)?;
        }
        let body = match self.payload {
            Payload::Here(message) => {
                let (label, found, due) = (spec.label, message.kind(), spec.request.kind);
                ensure!(
                    found == due,
                    "`{label}` is sent with {due}, not with {found}"
                );
                f(client, message)?
            }
            Payload::Wire(bytes) => f(client, &*spec.request.decode(bytes)?)?,
        };
        let mut envelope = Envelope::default();
        if here {
            client.core().check_releases(spec)?;
            envelope = client.core_mut().envelope(self.needs)?;
        }
        Ok(Answer {
            body: Body::Here(body),
            envelope,
        })
    }
}
