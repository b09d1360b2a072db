//! Requests and answers: the only way in which the two sides of a protocol speak.

use crate::client::ClientSide;
use crate::exchange::spec::ExchangeSpec;
use crate::message::{AnyMessage, Erased, Message, MessageType, Nothing};
use crate::server::cohort::SAMPLES;
use crate::{
    Client, ClientState, PrivacyEvent, Protocol, RequiredInputs, Result, RunState, Server, Stream,
};
use anyhow::ensure;
use serde::{Deserialize, Serialize};

/// A payload, here or from another process.
#[derive(Clone, Copy)]
pub enum Payload<'q> {
    /// In this process.
    Here(&'q dyn AnyMessage),
    /// As it came over the wire.
    Wire(&'q [u8]),
}

impl Payload<'_> {
    /// Its wire form.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Here(message) => message.encode(),
            Self::Wire(bytes) => bytes.to_vec(),
        }
    }
}

/// One request to one client, on its way to the function that answers it.
pub struct Request<'q> {
    /// The question's label.
    pub label: &'q str,
    /// What is sent with it.
    pub payload: Payload<'q>,
    /// The client's randomness for this question: `root/step/client/label`.
    pub stream: Stream,
    /// What the envelope must say.
    pub needs: RequiredInputs,
}

/// What an answer's envelope says besides the message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Number of examples at the sender, if asked for.
    pub samples: Option<u64>,
    /// Examples per class at the sender, if asked for.
    pub class_counts: Option<Vec<u32>>,
    /// The mean loss of the training that made the answer, if asked for.
    pub training_loss: Option<f32>,
    /// What the client has spent on this answer.
    pub spent: Vec<PrivacyEvent>,
    /// What the user should know, for people.
    pub notes: Vec<String>,
    /// What the client has measured, for the report; no part of the method sees it.
    pub measures: Vec<(String, f64)>,
}

impl Envelope {
    /// Bytes on the wire: 4 for each number that was asked for.
    pub fn bytes(&self) -> u64 {
        let counts = self.samples.iter().count() + self.class_counts.iter().flatten().count();
        4 * (counts + self.training_loss.iter().count()) as u64
    }
}

/// The message of an answer, here or from another process.
pub enum Body {
    /// In this process.
    Here(Box<dyn AnyMessage>),
    /// As it came over the wire.
    Wire(Vec<u8>),
}

impl Body {
    /// Bytes in memory.
    pub fn size(&self) -> u64 {
        match self {
            Self::Here(message) => message.size(),
            Self::Wire(bytes) => bytes.len() as u64,
        }
    }

    /// As a message of this type.
    ///
    /// # Errors
    /// When it is a message of another kind.
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

    /// As an `M`.
    ///
    /// # Errors
    /// When it is a message of another kind.
    pub fn open<M: Message>(self) -> Result<M> {
        self.open_as(MessageType::of::<M>())?.take()
    }
}

/// An answer on its way back.
pub struct Answer {
    /// The message.
    pub body: Body,
    /// What is said about the sender.
    pub envelope: Envelope,
}

impl Answer {
    /// Everything that the server sees of it: the message in its wire form, and the envelope.
    ///
    /// # Errors
    /// When the envelope cannot be written down.
    pub fn seen(&self) -> Result<Vec<u8>> {
        let mut seen = match &self.body {
            Body::Here(message) => message.encode(),
            Body::Wire(bytes) => bytes.clone(),
        };
        seen.extend(postcard::to_stdvec(&self.envelope)?);
        Ok(seen)
    }

    /// The same answer after message and envelope have been written down and read again.
    ///
    /// # Errors
    /// When the envelope cannot be written down.
    pub fn over_the_wire(self) -> Result<Self> {
        let body = match self.body {
            Body::Here(message) => Body::Wire(message.encode()),
            wire => wire,
        };
        let envelope = postcard::from_bytes(&postcard::to_stdvec(&self.envelope)?)?;
        Ok(Self { body, envelope })
    }
}

/// Runs a protocol: its server's side. Used by hosts.
///
/// # Errors
/// When the run cannot go on, or the protocol left out a release that it declares.
pub fn lead(protocol: &dyn Protocol, run: &mut RunState<'_>) -> Result<()> {
    protocol.lead(&mut Server(run))?;
    run.check_released()
}

/// A client's answer to a request of its protocol, or of the core itself. What does not last at
/// the client ([`crate::SlotSpec::lasting`]) is gone afterwards. Used by hosts.
///
/// # Errors
/// When the client cannot answer.
pub fn answer(
    protocol: &dyn Protocol,
    client: &mut ClientState,
    question: Request<'_>,
) -> Result<Answer> {
    let answer = match question.label == SAMPLES.label() {
        true => question.answer(&SAMPLES.spec(), client, |_, _: &Nothing| Ok(Nothing)),
        false => protocol.declare().answer(client, question),
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
        payload: Payload<'q>,
        stream: Stream,
        needs: RequiredInputs,
    ) -> Self {
        Self {
            label,
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
    pub(crate) fn answer_any(
        &self,
        spec: &ExchangeSpec,
        client: &mut Client,
        f: impl FnOnce(&mut Client, &dyn AnyMessage) -> Result<Erased>,
    ) -> Result<Answer> {
        let here = matches!(client.0, ClientSide::Here(_));
        if here {
            client.core_mut().begin(self.stream.clone(), spec)?;
        }
        let body = match self.payload {
            Payload::Here(message) => {
                let (label, found, due) = (spec.label, message.kind(), spec.request.kind);
                ensure!(found == due, "`{label}` comes with {due}, not with {found}");
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
