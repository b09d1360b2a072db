//! Messages between leader and node: requests to a client, and its replies. Heads are separate from
//! messages, so that an engine that stores by content holds a message to a thousand clients once.

use anyhow::{Context, Error, anyhow, bail, ensure};
use fl_core::{ClientId, Envelope, Evaluation, Problem, Request, RequiredInputs, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The version of heads in this program. It comes first in every head, so that another version is
/// recognised. `hosts/python/fl/_flower/plain_client.py` reads and writes this version too.
pub const VERSION: u32 = 9;

/// The most bytes of a head: an envelope grows only with the classes and with the releases.
pub const MAX_HEAD: usize = 16 << 20;

/// The most bytes of an error's text.
const MAX_TEXT: usize = 4 << 10;

/// Sixteen random bytes that identify a run or a node.
pub type Id = [u8; 16];

/// Draws random bytes.
///
/// # Errors
/// If the operating system has none to give.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let drawn = getrandom::fill(&mut bytes);
    drawn.map_err(|e| anyhow!("the operating system gives no random numbers: {e}"))?;
    Ok(bytes)
}

/// Identifies a run, and its life: a number that grows each time that it starts or resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunId {
    /// Drawn when the run began.
    pub id: Id,
    /// Larger than before each time that the run resumes, and another for each copy of its folder.
    pub life: u64,
    /// SHA-256 of the spec's content ([`crate::SpecText`]).
    pub spec: [u8; 32],
}

/// A request to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RequestKind {
    /// Describe yourself. The packet's body is the leader's resolved spec.
    Hello,
    /// A request of the protocol; its payload is the packet's body.
    Answer {
        /// The label of the exchange.
        label: String,
        /// The number of the step that it belongs to.
        round: usize,
        /// The numbers that the envelope must hold.
        needs: RequiredInputs,
        /// Key of the client's stream for this request.
        stream: [u8; 32],
    },
    /// The score of a model in this slot on the test examples.
    Score {
        /// The slot.
        slot: String,
        /// Whether it is the server's model, on test rows of the client's own: the packet's body is
        /// its parameters. Otherwise it is the client's model, and the body is empty, or the
        /// parameters that the model is to have in place of its own.
        of_server: bool,
    },
    /// The client's model in this slot, as a result of the run.
    Model {
        /// The slot.
        slot: String,
    },
    /// The run is over and not resumed: forget its state.
    Over,
    /// Countersign the receipts of the run, up to the record with this hash.
    Countersign {
        /// The hash.
        hash: [u8; 32],
        /// The digests of the client's answers in them.
        answers: Vec<String>,
    },
}

impl RequestKind {
    /// Converts a request of the protocol.
    pub fn question(question: &Request<'_>) -> Self {
        Self::Answer {
            label: question.label.into(),
            round: question.round,
            needs: question.needs,
            stream: question.stream.key(),
        }
    }
}

/// A request's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestHead {
    /// The run.
    pub run: RunId,
    /// The client.
    pub client: ClientId,
    /// The number of the protocol's request to this client in the run, from 1; for other requests,
    /// the number so far.
    pub number: u64,
    /// The last request whose reply the leader has; 0 if none.
    pub had: u64,
    /// The last request before the checkpoint that this life has resumed from; 0 in a new run.
    /// Later work of an earlier life counts as undone.
    pub from: u64,
    /// The last request before the leader's last checkpoint, which it never goes back beyond.
    pub kept: u64,
    /// Whether the client had a lasting state after reply `had`.
    pub remembers: bool,
    /// The request itself.
    pub want: RequestKind,
}

/// A reply's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplyHead {
    /// That of the request.
    pub run: RunId,
    /// The client.
    pub client: ClientId,
    /// That of the request.
    pub number: u64,
    /// SHA-256 of the request's head: identifies the request, even after later ones.
    pub about: [u8; 32],
    /// The node of the client.
    pub node: Id,
    /// The answer.
    pub said: AnswerKind,
}

/// An answer of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AnswerKind {
    /// To [`RequestKind::Hello`].
    Here {
        /// Its number of examples; `None` if the run has an accountant, because nothing prices the
        /// number.
        examples: Option<u64>,
    },
    /// To [`RequestKind::Answer`]; the message is the packet's body.
    Answer {
        /// Its envelope.
        envelope: Envelope,
        /// Whether the client has a lasting state after it.
        remembers: bool,
    },
    /// To [`RequestKind::Score`].
    Evaluation(Evaluation),
    /// To [`RequestKind::Model`]; the model is the packet's body.
    Model,
    /// To [`RequestKind::Over`].
    Forgotten,
    /// The client failed to answer a request of the protocol.
    Failed {
        /// The reason.
        why: WireError,
        /// Whether the client has a lasting state after it.
        remembers: bool,
    },
    /// The request was not executed, or another kind of request failed.
    Refused(WireError),
    /// To [`RequestKind::Countersign`].
    Countersigned {
        /// The node's public key.
        key: String,
        /// The signature, as minisign writes it.
        signature: String,
    },
}

/// An error on the wire: policies find the same [`Problem`] in it, and people the same text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireError {
    /// The problem for policies, and its position in the chain.
    problem: Option<(usize, Problem)>,
    /// Every text of the chain, the outermost first.
    chain: Vec<String>,
}

impl From<&Error> for WireError {
    fn from(error: &Error) -> Self {
        let mut chain: Vec<String> = error.chain().map(ToString::to_string).collect();
        let problem = error.downcast_ref::<Problem>().and_then(|problem| {
            let text = problem.to_string();
            Some((chain.iter().position(|t| *t == text)?, problem.clone()))
        });
        for text in &mut chain {
            if text.len() > MAX_TEXT {
                let cut = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at));
                text.truncate(cut.unwrap_or(0));
                text.push_str(" ..");
            }
        }
        Self { problem, chain }
    }
}

/// The most causes to read: each is one more error inside another.
const LONGEST_CHAIN: usize = 64;

impl From<WireError> for Error {
    fn from(why: WireError) -> Self {
        let WireError { problem, chain } = why;
        let mut problem = problem;
        let mut error: Option<Error> = None;
        for (at, text) in chain.into_iter().take(LONGEST_CHAIN).enumerate().rev() {
            let here = problem.take_if(|(place, _)| *place == at).map(|(_, p)| p);
            error = Some(match (error, here) {
                (Some(error), Some(problem)) => error.context(problem),
                (Some(error), None) => error.context(text),
                (None, Some(problem)) => Error::new(problem),
                (None, None) => anyhow!(text),
            });
        }
        error.unwrap_or_else(|| anyhow!("it failed without a reason"))
    }
}

/// The unit of transport: a head, and a message's own bytes, which may be the same for many
/// clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// [`VERSION`], a checksum, and a [`RequestHead`] or a [`ReplyHead`].
    pub head: Vec<u8>,
    /// The message in its wire form; empty if there is none.
    pub body: Arc<[u8]>,
}

/// The CRC-32 of a head and a message: it finds every flipped bit, and is no defence against others.
fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(head);
    sum.update(body);
    sum.finalize()
}

impl Packet {
    /// Makes a packet of this head and this message.
    ///
    /// # Errors
    /// If the head cannot be serialised.
    pub fn new(head: &impl Serialize, body: Arc<[u8]>) -> Result<Self> {
        let head = postcard::to_stdvec(head)?;
        let checksum = checksum(&head, &body).to_le_bytes();
        let head = [&VERSION.to_le_bytes(), &checksum, &*head].concat();
        Ok(Self { head, body })
    }

    /// Returns the identity of this request in its run: the SHA-256 of its head.
    pub fn about(&self) -> [u8; 32] {
        Sha256::digest(&self.head).into()
    }

    /// Reads the head.
    ///
    /// # Errors
    /// If it has another version, is truncated, or has trailing bytes, or if a bit of the packet has
    /// changed on its way.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        ensure!(
            self.head.len() <= MAX_HEAD,
            "a head of {} bytes, and it may have {MAX_HEAD}",
            self.head.len()
        );
        let (version, head) = self.head.split_first_chunk().context("it has no head")?;
        let version = u32::from_le_bytes(*version);
        ensure!(
            version == VERSION,
            "it uses wire format {version}, and this program {VERSION}; install the same version of fl on both sides"
        );
        let (sum, head) = head.split_first_chunk().context("it has no checksum")?;
        ensure!(
            checksum(head, &self.body) == u32::from_le_bytes(*sum),
            "it was damaged on its way: its checksum does not match"
        );
        match postcard::take_from_bytes(head) {
            Ok((head, [])) => Ok(head),
            Ok((_, more)) => bail!("a head with {} bytes too many", more.len()),
            Err(_) => bail!("a head that is cut short, or of another version of fl"),
        }
    }
}

impl RequestHead {
    /// Returns the identity of a request with a body of this SHA-256 at any time: equal requests
    /// get the same bytes as an answer.
    pub(crate) fn digest(&self, body: &[u8; 32]) -> Result<[u8; 32]> {
        let about = (self.run.id, self.client, self.number, &self.want, body);
        Ok(Sha256::digest(postcard::to_stdvec(&about)?).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_same_on_the_other_side() {
        let shape = || Problem::Shape("7 numbers".into());
        let plain = anyhow!("no file").context("reading");
        let inner = Error::new(shape()).context("its model").context("client 3");
        let middle = anyhow!("cut").context(shape()).context("client 3");
        for error in [plain, inner, middle] {
            let sent = postcard::to_stdvec(&WireError::from(&error)).unwrap();
            let there: Error = postcard::from_bytes::<WireError>(&sent).unwrap().into();
            assert_eq!(format!("{there:#}"), format!("{error:#}"));
            assert_eq!(there.downcast_ref::<Problem>(), error.downcast_ref());
        }
        let long = WireError::from(&anyhow!("\u{e9}".repeat(MAX_TEXT)));
        assert!(long.chain[0].len() < MAX_TEXT + 4);
    }

    #[test]
    fn a_flipped_bit_anywhere_is_an_error() {
        let body: Arc<[u8]> = vec![1, 2, 3].into();
        let sent = Packet::new(&7u64, body).unwrap();
        assert_eq!(sent.read::<u64>().unwrap(), 7);
        let bits = 8 * (sent.head.len() + sent.body.len());
        for bit in 0..bits {
            let (mut head, mut body) = (sent.head.clone(), sent.body.to_vec());
            let mut whole = head.iter_mut().chain(&mut body);
            *whole.nth(bit / 8).unwrap() ^= 1 << (bit % 8);
            let body = body.into();
            let error = Packet { head, body }.read::<u64>().unwrap_err().to_string();
            let why = if bit < 32 {
                "wire format"
            } else {
                "damaged on its way"
            };
            assert!(error.contains(why), "{bit}: {error}");
        }
    }

    #[test]
    fn heads_that_cannot_be_read_say_why() {
        let reply = ReplyHead {
            run: RunId {
                id: [1; 16],
                life: 1,
                spec: [2; 32],
            },
            client: 3,
            number: 4,
            about: [6; 32],
            node: [5; 16],
            said: AnswerKind::Model,
        };
        let packet = Packet::new(&reply, Arc::new([])).unwrap();
        assert_eq!(packet.read::<ReplyHead>().unwrap(), reply);
        let said = |head: Vec<u8>| {
            let packet = Packet {
                head,
                body: Arc::new([]),
            };
            format!("{:#}", packet.read::<ReplyHead>().unwrap_err())
        };
        for cut in 0..packet.head.len() {
            said(packet.head[..cut].to_vec());
        }
        let mut other = packet.head.clone();
        other[0] += 1;
        let due = format!("it uses wire format {}", VERSION + 1);
        assert!(said(other).contains(&due));
        // a sender that knows another head
        let more = Packet::new(&(&reply, 0u8), Arc::new([])).unwrap();
        assert!(said(more.head).contains("1 bytes too many"));
        let less = Packet::new(&reply.run, Arc::new([])).unwrap();
        assert!(said(less.head).contains("cut short"));
        assert!(said(vec![0; MAX_HEAD + 1]).contains("it may have"));
    }
}
