//! Aggregators of a library as parts of this program.

use super::call::Answer;
use super::deferred_error::{DeferredError, load};
use super::part_handle::PartHandle;
use super::same_shape::like;
use crate::abi::context_json::RoundText;
use crate::abi::marshal::{OutgoingMessage, content};
use crate::abi::raw::*;
use crate::inbox::loss_of;
use crate::message::{self, AnyMessage, Erased, Logits, MessageType, Params, View};
use crate::sealed::Sealed;
use crate::{
    AnyAggregator, AnyFold, AnyInbox, ClientMessage, Properties, RequiredInputs, Result,
    Robustness, Round,
};
use anyhow::{Context, bail};
use serde::Deserialize;
use std::any::Any;

/// What `FL_DESCRIBE` gives for an aggregator.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AboutAggregator {
    needs: Vec<String>,
    claims: Vec<String>,
    robustness: Option<Robustness>,
    folds: bool,
}

impl AboutAggregator {
    fn known(&self) -> Result<()> {
        let needs = ["samples", "class_counts", "training_loss", "sent"];
        let claims = [
            "order_free",
            "weight_scale_free",
            "weight_free",
            "within_hull",
            "of_mean",
        ];
        for (list, known, what) in [
            (&self.needs, &needs[..], "need"),
            (&self.claims, &claims[..], "claim"),
        ] {
            if let Some(bad) = list.iter().find(|n| !known.contains(&n.as_str())) {
                bail!("no {what} is called `{bad}`; known: {}", known.join(", "));
            }
        }
        Ok(())
    }
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
    match fine {
        true => message.check_content(),
        false => message::check(message),
    }
}

/// An aggregator of a library.
pub(super) struct LoadedAggregator {
    remote: PartHandle,
    input: &'static MessageType,
    output: &'static MessageType,
    needs: RequiredInputs,
    claims: Properties,
    robustness: Option<Robustness>,
    folds: bool,
    late: DeferredError,
}

impl LoadedAggregator {
    pub fn new(
        remote: PartHandle,
        input: &'static MessageType,
        output: &'static MessageType,
    ) -> Result<Self> {
        let about: AboutAggregator = remote.value(FL_DESCRIBE, "", &[])?.unwrap_or_default();
        about.known().context(remote.who())?;
        let claims = |name: &str| about.claims.iter().any(|n| n == name);
        let needs = |name: &str| about.needs.iter().any(|n| n == name);
        Ok(Self {
            needs: RequiredInputs {
                samples: needs("samples"),
                class_counts: needs("class_counts"),
                training_loss: needs("training_loss"),
                sent: needs("sent"),
            },
            claims: Properties {
                order_free: claims("order_free"),
                weight_scale_free: claims("weight_scale_free"),
                weight_free: claims("weight_free"),
                within_hull: claims("within_hull"),
                of_mean: claims("of_mean"),
            },
            robustness: about.robustness,
            folds: about.folds,
            remote,
            input,
            output,
            late: DeferredError::default(),
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
            format!(
                "{}: it needs the message sent to clients, as {}",
                self.remote.who(),
                self.input.kind
            )
        })?;
        let tensors = content(sent);
        let letter = [OutgoingMessage::new(&tensors)];
        self.remote.must(FL_SENT, "", &letter, None, None)?;
        Ok(())
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
    sound().with_context(|| format!("{}: its output", remote.who()))?;
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
            match alike && both.all(|(a, b)| a.shape() == b.shape()) {
                true => Ok(()),
                false => like(first, out),
            }
        }
        _ if scores(first) && scores(out) => like(first, out),
        _ => Ok(()),
    }
}

impl Sealed for LoadedAggregator {}

impl AnyAggregator for LoadedAggregator {
    fn input(&self) -> &'static MessageType {
        self.input
    }

    fn output(&self) -> &'static MessageType {
        self.output
    }

    /// Hands over the inbox.
    fn aggregate(&mut self, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        self.late.check().context(self.remote.who())?;
        if self.needs.training_loss {
            for mail in inbox.iter() {
                loss_of(mail.from, mail.training_loss)?;
            }
        }
        self.show(round)?;
        let facts = RoundText::of(round)?;
        let (stream, exec) = (Some(&round.stream), Some(&*round.exec));
        let answer = self
            .remote
            .on_inbox(FL_AGGREGATE, &facts, inbox, stream, exec)?;
        self.remote.said(&answer, round)?;
        received(&self.remote, answer, self.output, Some(inbox.at(0).body))
    }

    fn fold(&self, round: &Round) -> Option<Box<dyn AnyFold>> {
        let begin = || {
            self.show(round)?;
            let (facts, stream) = (RoundText::of(round)?, Some(&round.stream));
            self.remote.part(FL_FOLD, &facts, stream)
        };
        let remote = self.late.keep(match self.folds {
            true => begin().map(Some),
            false => Ok(None),
        })??;
        Some(Box::new(LoadedFold {
            remote,
            output: self.output,
            losses: self.needs.training_loss,
            first: None,
        }))
    }

    fn update(&mut self, round: &Round, folded: Erased) -> Result<Erased> {
        self.late.check().context(self.remote.who())?;
        let answer = {
            let tensors = content(&*folded);
            let (facts, letter) = (RoundText::of(round)?, [OutgoingMessage::new(&tensors)]);
            let (stream, exec) = (Some(&round.stream), Some(&*round.exec));
            self.remote.call(FL_UPDATE, &facts, &letter, stream, exec)?
        };
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
        self.late.save(&self.remote)
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        load(&self.remote, state)
    }

    fn typed(self: Box<Self>) -> std::result::Result<Box<dyn Any>, Box<dyn AnyAggregator>> {
        Err(self)
    }
}

struct LoadedFold {
    remote: PartHandle,
    output: &'static MessageType,
    /// Whether each message must come with a training loss.
    losses: bool,
    first: Option<Erased>,
}

impl Sealed for LoadedFold {}

impl AnyFold for LoadedFold {
    fn add(&mut self, mail: ClientMessage<Erased>) -> Result<()> {
        if self.losses {
            loss_of(mail.from, mail.training_loss)?;
        }
        let tensors = content(&*mail.body);
        let letter = OutgoingMessage::of(&mail, &tensors);
        self.remote.must(FL_FOLD_ADD, "", &[letter], None, None)?;
        drop(tensors);
        self.first.get_or_insert(mail.body);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Erased> {
        let answer = self.remote.must(FL_FOLD_FINISH, "", &[], None, None)?;
        received(&self.remote, answer, self.output, self.first.as_deref())
    }
}
