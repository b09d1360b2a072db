//! Aggregators of a library as parts of this program.

use super::call::Answer;
use super::late::{Late, load};
use super::remote::Remote;
use crate::abi::cross::{Letter, content};
use crate::abi::facts::RoundText;
use crate::abi::raw::*;
use crate::message::{self, Logits, Message, Params, View};
use crate::{Aggregator, Claims, Fold, Inbox, Mail, Needs, Problem, Result, Round};
use anyhow::{Context, bail};
use serde::Deserialize;
use std::any::Any;
use std::marker::PhantomData;

/// What `FL_DESCRIBE` gives for an aggregator.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AboutAggregator {
    needs: Vec<String>,
    claims: Vec<String>,
    folds: bool,
}

impl AboutAggregator {
    fn known(&self) -> Result<()> {
        let needs = ["samples", "class_counts", "sent"];
        let claims = [
            "order_free",
            "weight_scale_free",
            "weight_free",
            "within_hull",
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
fn sane<M: Message>(message: &M) -> Result<()> {
    // a float that is not finite has all bits of its exponent; without a way out in the middle, and with whole numbers, so
    // that it takes many at once: half a microsecond per 4,000 numbers
    const EXPONENT: u32 = 0x7f80_0000;
    let finite = |x: &f32| x.to_bits() & EXPONENT != EXPONENT;
    let fine = message.tensors().iter().all(|(_, view)| match view {
        View::F32(a) => match a.as_slice() {
            Some(s) => s.iter().fold(0, |bad, x| bad | u32::from(!finite(x))) == 0,
            None => a.iter().all(finite),
        },
        View::F64(a) => a.iter().all(|x| x.is_finite()),
        View::U32(_) | View::U8(_) => true,
    });
    match fine {
        true => message.check(),
        false => message::check(message),
    }
}

/// An aggregator of a library. What it does with what the clients sent knows `I`, what it does with what the library gave
/// knows `O`: only [`LoadedAggregator`] knows both, of which there are as many as pairs of messages.
struct Loaded {
    remote: Remote,
    needs: Needs,
    claims: Claims,
    folds: bool,
    late: Late,
}

impl Loaded {
    fn new(remote: Remote) -> Result<Self> {
        let about: AboutAggregator = match remote.call(FL_DESCRIBE, "", &[], None, None)? {
            Some(answer) => remote.json(&answer)?,
            None => AboutAggregator::default(),
        };
        about.known().context(remote.who())?;
        let claims = |name: &str| about.claims.iter().any(|n| n == name);
        let needs = |name: &str| about.needs.iter().any(|n| n == name);
        Ok(Self {
            needs: Needs {
                samples: needs("samples"),
                class_counts: needs("class_counts"),
                sent: needs("sent"),
            },
            claims: Claims {
                order_free: claims("order_free"),
                weight_scale_free: claims("weight_scale_free"),
                weight_free: claims("weight_free"),
                within_hull: claims("within_hull"),
            },
            folds: about.folds,
            remote,
            late: Late::default(),
        })
    }

    /// Shows it what the clients were sent, if it wants to see it.
    fn show<I: Message>(&self, round: &Round) -> Result<()> {
        if !self.needs.sent {
            return Ok(());
        }
        let sent = round.sent::<I>().with_context(|| {
            format!(
                "{}: it wants to see what the clients were sent, as {}",
                self.remote.who(),
                I::KIND
            )
        })?;
        let tensors = content(sent);
        let letter = [Letter::new(&tensors)];
        self.remote.must(FL_SENT, "", &letter, None, None)?;
        Ok(())
    }

    /// Hands over the inbox.
    fn ask<I: Message>(&self, round: &Round, inbox: &Inbox<I>) -> Result<Answer> {
        self.late.check().context(self.remote.who())?;
        self.show::<I>(round)?;
        let facts = RoundText::of(round)?;
        let (stream, exec) = (Some(&round.stream), Some(&*round.exec));
        let answer = self
            .remote
            .on_inbox(FL_AGGREGATE, &facts, inbox, stream, exec)?;
        self.remote.said(&answer, round)?;
        Ok(answer)
    }

    fn fold<I: Message>(&self, round: &Round) -> Option<Remote> {
        let begin = || {
            self.show::<I>(round)?;
            let (facts, stream) = (RoundText::of(round)?, Some(&round.stream));
            self.remote.part(FL_FOLD, &facts, stream)
        };
        self.late.keep(match self.folds {
            true => begin().map(Some),
            false => Ok(None),
        })?
    }

    fn update<O: Message>(&self, round: &Round, folded: O) -> Result<O> {
        self.late.check().context(self.remote.who())?;
        let answer = {
            let tensors = content(&folded);
            let (facts, letter) = (RoundText::of(round)?, [Letter::new(&tensors)]);
            let (stream, exec) = (Some(&round.stream), Some(&*round.exec));
            self.remote.call(FL_UPDATE, &facts, &letter, stream, exec)?
        };
        let Some(answer) = answer else {
            return Ok(folded);
        };
        self.remote.said(&answer, round)?;
        received(&self.remote, answer, Some(&folded))
    }
}

/// What an aggregator made of messages like `first`: of their outline, finite and sane.
fn received<O: Message>(remote: &Remote, answer: Answer, first: Option<&dyn Any>) -> Result<O> {
    let out: O = remote.message(answer)?;
    let sound = || {
        // first what is quick, for a wrong shape may be a huge one
        if let Some(first) = first {
            same_outline(first, &out)?;
        }
        sane(&out)
    };
    sound().with_context(|| format!("{}: what it gave", remote.who()))?;
    Ok(out)
}

/// Parameters in, parameters out: of the same names and shapes; and scores for the same classes.
fn same_outline<O: Message>(first: &dyn Any, out: &O) -> Result<()> {
    let keeps = first.is::<Params>() || first.is::<Logits>();
    match first.downcast_ref::<O>().filter(|_| keeps) {
        Some(first) => like(first, out),
        None => Ok(()),
    }
}

pub(super) struct LoadedAggregator<I, O> {
    it: Loaded,
    kinds: PhantomData<fn(I) -> O>,
}

impl<I: Message, O: Message> LoadedAggregator<I, O> {
    pub fn new(remote: Remote) -> Result<Self> {
        Ok(Self {
            it: Loaded::new(remote)?,
            kinds: PhantomData,
        })
    }
}

impl<I: Message, O: Message> Aggregator for LoadedAggregator<I, O> {
    type In = I;
    type Out = O;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<I>) -> Result<O> {
        let answer = self.it.ask(round, inbox)?;
        let first = inbox.iter().next().map(|mail| &mail.body as &dyn Any);
        received(&self.it.remote, answer, first)
    }

    fn fold(&self, round: &Round) -> Option<Box<dyn Fold<I, O>>> {
        Some(Box::new(LoadedFold {
            remote: self.it.fold::<I>(round)?,
            first: None,
            kinds: PhantomData,
        }))
    }

    fn update(&mut self, round: &Round, folded: O) -> Result<O> {
        self.it.update(round, folded)
    }

    fn needs(&self) -> Needs {
        self.it.needs
    }

    fn claims(&self) -> Claims {
        self.it.claims
    }

    fn save(&self) -> Vec<u8> {
        self.it.late.save(&self.it.remote)
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        load(&self.it.remote, state)
    }
}

/// Tensors of the same names and shapes, or with other rows.
pub(super) fn like<M: Message>(sent: &M, given: &M) -> Result<()> {
    if message::alike(sent, given).is_ok() {
        return Ok(());
    }
    fn outline<M: Message>(message: &M) -> String {
        let tensors = message.tensors();
        let shown = tensors
            .iter()
            .take(5)
            .map(|(n, v)| format!("`{n}` {:?}", v.shape()));
        let shown = shown.collect::<Vec<_>>().join(", ");
        match tensors.len() {
            0 => "no tensors".into(),
            6.. => format!("{shown}, .."),
            _ => shown,
        }
    }
    let text = format!("{}, where {} was sent", outline(given), outline(sent));
    bail!(Problem::Shape(text))
}

struct LoadedFold<I, O> {
    remote: Remote,
    first: Option<I>,
    kinds: PhantomData<fn() -> O>,
}

/// Hands over one message.
fn add<I: Message>(remote: &Remote, first: &mut Option<I>, mail: Mail<I>) -> Result<()> {
    let tensors = content(&mail.body);
    let letter = Letter {
        from: mail.from,
        weight: mail.weight,
        class_counts: mail.class_counts.as_deref(),
        tensors: &tensors,
    };
    remote.must(FL_FOLD_ADD, "", &[letter], None, None)?;
    drop(tensors);
    first.get_or_insert(mail.body);
    Ok(())
}

impl<I: Message, O: Message> Fold<I, O> for LoadedFold<I, O> {
    fn add(&mut self, mail: Mail<I>) -> Result<()> {
        add(&self.remote, &mut self.first, mail)
    }

    fn finish(self: Box<Self>) -> Result<O> {
        let answer = self.remote.must(FL_FOLD_FINISH, "", &[], None, None)?;
        let first = self.first.as_ref().map(|first| first as &dyn Any);
        received(&self.remote, answer, first)
    }
}
