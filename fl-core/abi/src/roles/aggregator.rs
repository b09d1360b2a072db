//! Aggregators and attacks, which the program alone asks.

use crate::caller::{Callee, Caller, Calls, Means};
use crate::context_json::{RoundText, said};
use crate::host::{Answer, PartHandle, like};
use crate::library::{Host, InboxBuffer, Input};
use crate::marshal::{OutgoingMessage, content};
use crate::raw::*;
use anyhow::Context;
use fl_roles::__private::Sealed;
use fl_roles::__private::loss_of;
use fl_roles::message::{self, AnyMessage, Erased, Logits, MessageType, Params, View};
use fl_roles::{
    AnyAggregator, AnyFold, AnyInbox, ClientMessage, Properties, RequiredInputs, Result,
    Robustness, Round, Serial, SharedExecutor,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The text of [`FL_DESCRIBE`]'s answer.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct AggregatorText {
    needs: Vec<String>,
    claims: Vec<String>,
    robustness: Option<Robustness>,
    folds: bool,
}

/// Facts of a `T` by their names in the text.
type Facts<T> = [(&'static str, fn(&mut T) -> &mut bool)];

const NEEDS: &Facts<RequiredInputs> = &[
    ("samples", |of| &mut of.samples),
    ("class_counts", |of| &mut of.class_counts),
    ("training_loss", |of| &mut of.training_loss),
    ("sent", |of| &mut of.sent),
];

const CLAIMS: &Facts<Properties> = &[
    ("order_free", |of| &mut of.order_free),
    ("weight_scale_free", |of| &mut of.weight_scale_free),
    ("weight_free", |of| &mut of.weight_free),
    ("within_hull", |of| &mut of.within_hull),
    ("of_mean", |of| &mut of.of_mean),
];

/// The names of the facts that hold.
fn named<T>(mut of: T, all: &Facts<T>) -> Vec<String> {
    let holding = all.iter().filter(|(_, fact)| *fact(&mut of));
    holding.map(|(name, _)| name.to_string()).collect()
}

/// What holds if these are the facts that do.
fn stated<T: Default>(names: &[String], all: &Facts<T>, what: &str) -> Result<T> {
    let mut of = T::default();
    for name in names {
        let fact = all.iter().find(|(known, _)| known == name);
        let (_, fact) = fact.with_context(|| {
            let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            format!("no {what} is called `{name}`; known: {}", known.join(", "))
        })?;
        *fact(&mut of) = true;
    }
    Ok(of)
}

/// Is every number finite and the message sane? Quickly, if it is.
fn sane(message: &dyn AnyMessage) -> Result<()> {
    // a float that is not finite has all bits of its exponent; without a way out in the middle, and
    // with whole numbers, so that it takes many at once: half a microsecond per 4,000 numbers
    const EXPONENT: u32 = 0x7f80_0000;
    let finite = |x: &f32| x.to_bits() & EXPONENT != EXPONENT;
    let fine = message.content().iter().all(|(_, view)| match view {
        View::F32(a) => match a.as_slice() {
            Some(s) => s.iter().fold(0, |bad, x| bad | u32::from(!finite(x))) == 0,
            None => a.iter().all(finite),
        },
        View::F64(a) => a.iter().all(|x| x.is_finite()),
        View::U32(_) | View::U8(_) | View::I64(_) | View::Bits(_) => true,
    });
    if fine {
        message.check_content()
    } else {
        message::check(message)
    }
}

/// An aggregator that is elsewhere.
pub(crate) struct RemoteAggregator {
    remote: PartHandle,
    input: &'static MessageType,
    output: &'static MessageType,
    needs: RequiredInputs,
    claims: Properties,
    robustness: Option<Robustness>,
    folds: bool,
}

impl RemoteAggregator {
    pub fn new(
        remote: PartHandle,
        input: &'static MessageType,
        output: &'static MessageType,
    ) -> Result<Self> {
        let about: AggregatorText = remote.value(FL_DESCRIBE, "", &[])?.unwrap_or_default();
        Ok(Self {
            needs: remote.named(stated(&about.needs, NEEDS, "need"))?,
            claims: remote.named(stated(&about.claims, CLAIMS, "claim"))?,
            robustness: about.robustness,
            folds: about.folds,
            remote,
            input,
            output,
        })
    }

    /// Passes the message sent to clients to an aggregator that needs it.
    fn show(&self, round: &Round) -> Result<()> {
        if !self.needs.sent {
            return Ok(());
        }
        let sent = round
            .sent_any()
            .filter(|sent| sent.kind() == self.input.kind);
        let sent = sent.with_context(|| {
            let kind = self.input.kind;
            self.remote
                .says(&format!("it needs the message sent to clients, as {kind}"))
        })?;
        let done = self
            .remote
            .must(FL_SENT, "", &[content(sent)], Means::default());
        done.map(drop)
    }
}

/// What an aggregator made of messages like `first`: of their outline, finite and sane.
fn received(
    remote: &PartHandle,
    answer: Answer,
    output: &'static MessageType,
    first: Option<&dyn AnyMessage>,
) -> Result<Erased> {
    let out = remote.message_of(answer, output)?;
    let sound = || {
        // first what is quick, for a wrong shape may be a huge one
        if let Some(first) = first {
            same_outline(first, &*out)?;
        }
        sane(&*out)
    };
    sound().with_context(|| remote.says("its output"))?;
    Ok(out)
}

/// Parameters in, parameters out: of the same names and shapes; and scores for the same classes.
fn same_outline(first: &dyn AnyMessage, out: &dyn AnyMessage) -> Result<()> {
    fn params(of: &dyn AnyMessage) -> Option<&Params> {
        of.as_any().downcast_ref()
    }
    let scores = |of: &dyn AnyMessage| of.as_any().is::<Logits>();
    match (params(first), params(out)) {
        (Some(Params(a)), Some(Params(b))) => {
            // without lists of views, which would be a tenth of the cost of a short call
            let alike = a.keys().eq(b.keys());
            let mut both = a.values().zip(b.values());
            if alike && both.all(|(a, b)| a.shape() == b.shape()) {
                Ok(())
            } else {
                like(first, out)
            }
        }
        _ if scores(first) && scores(out) => like(first, out),
        _ => Ok(()),
    }
}

impl Sealed for RemoteAggregator {}

impl AnyAggregator for RemoteAggregator {
    fn input(&self) -> &'static MessageType {
        self.input
    }

    fn output(&self) -> &'static MessageType {
        self.output
    }

    /// Hands over the inbox.
    fn aggregate(&mut self, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        self.remote.check()?;
        if self.needs.training_loss {
            for mail in inbox.iter() {
                loss_of(mail.from, mail.training_loss)?;
            }
        }
        self.show(round)?;
        let (facts, means) = (RoundText::of(round).json()?, Means::round(round));
        let answer = self.remote.on_inbox(FL_AGGREGATE, &facts, inbox, means)?;
        self.remote.said(&answer, round)?;
        received(&self.remote, answer, self.output, Some(inbox.at(0).body))
    }

    fn fold(&self, round: &Round) -> Option<Box<dyn AnyFold>> {
        let begin = || {
            self.show(round)?;
            let facts = RoundText::of(round).json()?;
            self.remote
                .part(FL_FOLD, &facts, Means::stream(&round.stream))
        };
        let remote = self.remote.keep(if self.folds {
            begin().map(Some)
        } else {
            Ok(None)
        })??;
        Some(Box::new(RemoteFold {
            remote,
            output: self.output,
            losses: self.needs.training_loss,
            first: None,
        }))
    }

    fn update(&mut self, round: &Round, folded: Erased) -> Result<Erased> {
        self.remote.check()?;
        let (facts, means) = (RoundText::of(round).json()?, Means::round(round));
        let answer = self
            .remote
            .ask(FL_UPDATE, &facts, &[content(&*folded)], means)?;
        let Some(answer) = answer else {
            return Ok(folded);
        };
        self.remote.said(&answer, round)?;
        received(&self.remote, answer, self.output, Some(&*folded))
    }

    fn needs(&self) -> RequiredInputs {
        self.needs
    }

    fn claims(&self) -> Properties {
        self.claims
    }

    fn robustness(&self) -> Option<Robustness> {
        self.robustness
    }

    fn save(&self) -> Vec<u8> {
        self.remote.save_or_mark()
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        self.remote.load_unless_marked(state)
    }
}

struct RemoteFold {
    remote: PartHandle,
    output: &'static MessageType,
    /// Whether each message must come with a training loss.
    losses: bool,
    first: Option<Erased>,
}

impl Sealed for RemoteFold {}

impl AnyFold for RemoteFold {
    fn add(&mut self, mail: ClientMessage<Erased>) -> Result<()> {
        if self.losses {
            loss_of(mail.from, mail.training_loss)?;
        }
        let tensors = content(&*mail.body);
        let letter = OutgoingMessage::of(&mail, &tensors);
        let done = self
            .remote
            .call(FL_FOLD_ADD, "", &[letter], Means::default())?;
        self.remote.due(FL_FOLD_ADD, done)?;
        drop(tensors);
        self.first.get_or_insert(mail.body);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Erased> {
        let answer = self
            .remote
            .must(FL_FOLD_FINISH, "", &[], Means::default())?;
        received(&self.remote, answer, self.output, self.first.as_deref())
    }
}

/// An aggregator that is here.
pub(crate) struct LocalAggregator {
    part: Box<dyn AnyAggregator>,
    shelf: InboxBuffer,
    /// The message sent to clients in this round, if it needs that.
    sent: Option<Arc<dyn AnyMessage>>,
}

impl LocalAggregator {
    pub fn new(part: Box<dyn AnyAggregator>) -> Self {
        Self {
            shelf: InboxBuffer::new(part.input()),
            part,
            sent: None,
        }
    }
}

/// The round of a call, which shows the message sent to clients.
fn round_of(
    sent: Option<Arc<dyn AnyMessage>>,
    input: &Input<'_>,
    host: &Host<'_>,
    exec: SharedExecutor,
) -> Result<Round> {
    let round = input.json::<RoundText>()?.round(host.stream(), exec);
    Ok(match sent {
        Some(sent) => round.showing_any(sent),
        None => round,
    })
}

/// A result, and the log events that led to it.
fn gives(host: &Host<'_>, round: &Round, out: &dyn AnyMessage) -> Result<()> {
    said(host, round)?;
    host.tensors(&content(out))
}

impl Callee for LocalAggregator {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_DESCRIBE => host.json(&AggregatorText {
                needs: named(self.part.needs(), NEEDS),
                claims: named(self.part.claims(), CLAIMS),
                robustness: self.part.robustness(),
                folds: self.part.fold(&Round::first()).is_some(),
            })?,
            FL_SENT => self.sent = Some(input.message_of(0, self.part.input())?.into()),
            FL_AGGREGATE => host.with_executor(&mut |exec| {
                let round = round_of(self.sent.take(), input, host, exec)?;
                let inbox = input.inbox(&mut self.shelf)?;
                let out = self.part.aggregate(&round, inbox.inbox())?;
                gives(host, &round, &*out)
            })?,
            FL_FOLD => {
                // what was sent is shown to the fold and to the update after it
                let round = round_of(self.sent.clone(), input, host, Arc::new(Serial))?;
                match self.part.fold(&round) {
                    Some(fold) => host.part(Box::new(LocalFold(self.part.input(), Some(fold))))?,
                    None => return Ok(false),
                }
            }
            FL_UPDATE => host.with_executor(&mut |exec| {
                let round = round_of(self.sent.take(), input, host, exec)?;
                let folded = input.message_of(0, self.part.output())?;
                gives(host, &round, &*self.part.update(&round, folded)?)
            })?,
            FL_SAVE => host.state(&self.part.save())?,
            FL_LOAD => self.part.load(&input.parcel(0)?.bytes("state")?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

struct LocalFold(&'static MessageType, Option<Box<dyn AnyFold>>);

impl Callee for LocalFold {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_FOLD_ADD => {
                let fold = self.1.as_mut().context("a fold that is finished")?;
                fold.add(input.mail(0, self.0)?)?;
            }
            FL_FOLD_FINISH => {
                let fold = self.1.take().context("a fold that is finished")?;
                host.tensors(&content(&*fold.finish()?))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
