//! What crosses: requests to a client, and its replies. Heads are apart from messages, so that an engine which stores by
//! content holds a message to a thousand clients once.

use anyhow::{Context, Error, anyhow, bail, ensure};
use fl_core::{ClientId, Envelope, Evaluation, Problem, Request, RequiredInputs, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The form of heads that this program speaks. It comes first in every head, so that any other can be told.
pub const VERSION: u32 = 4;

/// A head has at most so many bytes: what an envelope says grows with the classes and with what was released, and no further.
pub const MAX_HEAD: usize = 16 << 20;

/// No more of an error's text crosses.
const MAX_TEXT: usize = 4 << 10;

/// Sixteen random bytes that tell one run, or one node, from another.
pub type Id = [u8; 16];

/// New ones.
///
/// # Errors
/// When the operating system has none to give.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let drawn = getrandom::fill(&mut bytes);
    drawn.map_err(|e| anyhow!("the operating system gives no random numbers: {e}"))?;
    Ok(bytes)
}

/// Numbers as two hexadecimal digits each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Which run, and which time that it was begun or gone on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunId {
    /// Drawn when the run was begun.
    pub id: Id,
    /// 1 in a run that begins, and one more each time that it goes on.
    pub life: u64,
    /// SHA-256 of what the spec says ([`crate::SpecText`]).
    pub spec: [u8; 32],
}

/// What is wanted of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RequestKind {
    /// Say what you have. The packet's body is the leader's resolved spec.
    Hello,
    /// The protocol's question of this label; its payload is the packet's body.
    Answer {
        /// The question's label.
        label: String,
        /// What the envelope must say.
        needs: RequiredInputs,
        /// Key of the client's stream for this question.
        stream: [u8; 32],
    },
    /// How good your model in this slot is on the test examples.
    Score {
        /// The slot.
        slot: String,
    },
    /// Your model in this slot, as a result of the run.
    Model {
        /// The slot.
        slot: String,
    },
    /// The run is over, and nobody goes on with it: forget what you keep of it.
    Over,
}

impl RequestKind {
    /// What a question wants.
    pub fn question(question: &Request<'_>) -> Self {
        Self::Answer {
            label: question.label.into(),
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
    /// Who is asked.
    pub client: ClientId,
    /// The how-many-th question of the run to this client it is, from 1; of what is no question, how many it was asked.
    pub number: u64,
    /// The last of its questions whose reply the leader has had; 0: none.
    pub had: u64,
    /// The last that was asked before the checkpoint that this life of the run has begun from; 0: it begins anew. Whatever a
    /// client has done beyond it in an earlier life has not happened.
    pub from: u64,
    /// The last that was asked before the leader's last checkpoint: it never goes back behind that.
    pub kept: u64,
    /// Did anything last at the client after reply `had`?
    pub remembers: bool,
    /// What is wanted.
    pub want: RequestKind,
}

/// A reply's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplyHead {
    /// The request's.
    pub run: RunId,
    /// Who replies.
    pub client: ClientId,
    /// The request's.
    pub number: u64,
    /// SHA-256 of the request's head: what it is a reply to, whatever has been asked since.
    pub about: [u8; 32],
    /// Which node the client lives at.
    pub node: Id,
    /// What it says.
    pub said: AnswerKind,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AnswerKind {
    /// To [`RequestKind::Hello`].
    Here {
        /// How many examples it has; `None` if an accountant works for the run, for nothing prices
        /// it.
        examples: Option<u64>,
    },
    /// To [`RequestKind::Answer`]; the message is the packet's body.
    Answer {
        /// What is said beside it.
        envelope: Envelope,
        /// Does anything last after it?
        remembers: bool,
    },
    /// To [`RequestKind::Score`].
    Evaluation {
        /// As [`Evaluation`] has it.
        score: f64,
        /// As [`Evaluation`] has it.
        digest: [u8; 32],
        /// As [`Evaluation`] has it.
        confusion: Vec<Vec<u32>>,
        /// As [`Evaluation`] has it.
        further: Vec<(String, f64)>,
    },
    /// To [`RequestKind::Model`]; the model is the packet's body.
    Model,
    /// To [`RequestKind::Over`].
    Forgotten,
    /// The question went wrong.
    Failed {
        /// Why.
        why: WireError,
        /// Does anything last after it?
        remembers: bool,
    },
    /// The question was not tried; or what went wrong is no question.
    Refused(WireError),
}

impl From<Evaluation> for AnswerKind {
    fn from(scored: Evaluation) -> Self {
        Self::Evaluation {
            score: scored.score,
            digest: scored.digest,
            confusion: scored.confusion,
            further: scored.further,
        }
    }
}

/// An error, as it crosses: policies find the same [`Problem`] in it, and people the same text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireError {
    /// What policies tell apart, and where in the chain it stands.
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

/// Of reasons of reasons so many are read: each is one more error inside another.
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
        error.unwrap_or_else(|| anyhow!("it failed without a word"))
    }
}

/// What crosses: a head, and a message's own bytes, which may be the same for many clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// [`VERSION`], and a [`RequestHead`] or a [`ReplyHead`].
    pub head: Vec<u8>,
    /// The message in its wire form; empty if there is none.
    pub body: Arc<[u8]>,
}

impl Packet {
    /// This head with this message.
    ///
    /// # Errors
    /// When the head cannot be written down.
    pub fn new(head: &impl Serialize, body: Arc<[u8]>) -> Result<Self> {
        let head = postcard::to_extend(head, VERSION.to_le_bytes().to_vec())?;
        Ok(Self { head, body })
    }

    /// What tells this request from every other of its run: the SHA-256 of its head.
    pub fn about(&self) -> [u8; 32] {
        Sha256::digest(&self.head).into()
    }

    /// The head.
    ///
    /// # Errors
    /// When it is of another version, is cut short, or has something behind it.
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
            "it speaks form {version}, and this program form {VERSION}; install the same version of fl on both sides"
        );
        match postcard::take_from_bytes(head) {
            Ok((head, [])) => Ok(head),
            Ok((_, more)) => bail!("a head with {} bytes too many", more.len()),
            Err(_) => bail!("a head that was cut short or damaged on its way"),
        }
    }
}

impl RequestHead {
    /// What a request with a body of this SHA-256 is about, whenever it is asked: the same is answered with the same bytes.
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
        other[0] = 9;
        assert!(said(other).contains("it speaks form 9"));
        let more = [&packet.head[..], &[0]].concat();
        assert!(said(more).contains("1 bytes too many"));
        assert!(said(vec![0; MAX_HEAD + 1]).contains("it may have"));
    }
}
