//! A part behind `call`, on the library's side: one type for each role.

use super::caller::{Host, Input};
use super::learners::{OfGenerator, OfTrainer};
use super::lend::Shelf;
use crate::abi::cross::content;
use crate::abi::facts::{CohortText, RoundText, SaidText};
use crate::abi::kinds::{self, Crossing, OnPool};
use crate::abi::pools::samples;
use crate::abi::raw::*;
use crate::message::{Message, PairVisitor, View, Visitor, visit, visit_pair};
use crate::privacy::{Composition, Ledger};
use crate::{
    Accountant, BoxedAggregator, BoxedMechanism, BoxedSelector, Claims, Examples, Fold, Images,
    Inbox, Labels, Mail, Masks, Needs, PrivacyEvent, Result, Role, Round, Serial, SharedExecutor,
};
use anyhow::{Context, anyhow, bail};
use ndarray::ArrayView1;
use serde::Deserialize;
use serde_json::json;
use std::any::Any;
use std::sync::Arc;

/// A part as the C interface sees it; `false`: no such operation.
pub(super) trait Object: Send {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool>;
}

/// The object of a part that `plugin!` made.
pub(super) fn wrap(
    role: Role,
    signature: &str,
    made: Box<dyn Any + Send>,
) -> Result<Box<dyn Object>> {
    struct Wrap(Box<dyn Any + Send>);
    type Wrapped = Result<Box<dyn Object>>;
    impl PairVisitor for Wrap {
        type Out = Wrapped;
        fn visit<I: Message, O: Message>(self) -> Wrapped {
            Ok(Box::new(OfAggregator::<I> {
                part: Box::new(unboxed::<BoxedAggregator<I, O>>(self.0)?),
                shelf: Shelf::default(),
                sent: None,
            }))
        }
    }
    impl Visitor for Wrap {
        type Out = Wrapped;
        fn visit<M: Message>(self) -> Wrapped {
            Ok(Box::new(OfMechanism::<M>(unboxed(self.0)?)))
        }
    }
    impl OnPool for Wrap {
        type Out = Wrapped;
        fn on<P: Crossing + ?Sized>(self) -> Wrapped {
            Ok(Box::new(OfSelector::<P>(unboxed(self.0)?)))
        }
    }
    let object = match role {
        Role::Aggregator => visit_pair(signature, Wrap(made)),
        Role::Privacy => visit(signature, Wrap(made)),
        Role::Selector => kinds::pool(signature, Wrap(made)),
        Role::Accountant => Some(unboxed(made).map(|a| Box::new(OfAccountant(a)) as _)),
        Role::Generator => Some(unboxed(made).map(|g| Box::new(OfGenerator(g)) as _)),
        Role::Trainer => Some(unboxed(made).map(|t| Box::new(OfTrainer(t)) as _)),
        Role::Protocol => None,
    };
    object.with_context(|| format!("{role} of `{signature}` cannot cross"))?
}

fn unboxed<B: 'static>(made: Box<dyn Any + Send>) -> Result<B> {
    let made = made.downcast::<B>();
    made.map(|b| *b)
        .map_err(|_| anyhow!("the part is not of its own signature"))
}

pub(super) fn state(host: &Host<'_>, state: &[u8]) -> Result<()> {
    match state.is_empty() {
        true => Ok(()),
        false => host.tensors(&vec![("state".into(), View::U8(state.into()))]),
    }
}

/// An aggregator of `I`, whatever it gives: all that has to know both messages.
trait Gives<I>: Send {
    fn about(&self) -> (Needs, Claims);
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<I>, host: &Host<'_>) -> Result<()>;
    fn fold(&self, round: &Round) -> Option<Box<dyn FoldGives<I>>>;
    fn update(&mut self, round: &Round, input: &Input<'_>, host: &Host<'_>) -> Result<()>;
    fn save(&self) -> Vec<u8>;
    fn load(&mut self, state: &[u8]) -> Result<()>;
}

trait FoldGives<I>: Send {
    fn add(&mut self, mail: Mail<I>) -> Result<()>;
    fn finish(self: Box<Self>, host: &Host<'_>) -> Result<()>;
}

impl<I: Message, O: Message> Gives<I> for BoxedAggregator<I, O> {
    fn about(&self) -> (Needs, Claims) {
        (self.needs(), self.claims())
    }
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<I>, host: &Host<'_>) -> Result<()> {
        gives(host, round, &(**self).aggregate(round, inbox)?)
    }
    fn fold(&self, round: &Round) -> Option<Box<dyn FoldGives<I>>> {
        Some(Box::new((**self).fold(round)?))
    }
    fn update(&mut self, round: &Round, input: &Input<'_>, host: &Host<'_>) -> Result<()> {
        gives(host, round, &(**self).update(round, input.message(0)?)?)
    }
    fn save(&self) -> Vec<u8> {
        (**self).save()
    }
    fn load(&mut self, state: &[u8]) -> Result<()> {
        (**self).load(state)
    }
}

impl<I: Message, O: Message> FoldGives<I> for Box<dyn Fold<I, O>> {
    fn add(&mut self, mail: Mail<I>) -> Result<()> {
        (**self).add(mail)
    }
    fn finish(self: Box<Self>, host: &Host<'_>) -> Result<()> {
        host.tensors(&content(&(*self).finish()?))
    }
}

struct OfAggregator<I> {
    part: Box<dyn Gives<I>>,
    shelf: Shelf<I>,
    /// What the clients were sent in this round, if it wants to see it.
    sent: Option<I>,
}

/// The round of a call, which shows what was sent.
fn round_of<I: Message>(
    sent: Option<I>,
    input: &Input<'_>,
    host: &Host<'_>,
    exec: SharedExecutor,
) -> Result<Round> {
    let round = input.json::<RoundText<'_>>()?.round(host.stream(), exec);
    Ok(match sent {
        Some(sent) => round.showing(sent),
        None => round,
    })
}

/// What an aggregator says of itself.
fn describe(host: &Host<'_>, needs: Needs, claims: Claims, folds: bool) -> Result<()> {
    let named = |all: &[(&'static str, bool)]| -> Vec<&'static str> {
        all.iter().filter(|(_, is)| *is).map(|(n, _)| *n).collect()
    };
    host.json(&json!({
        "needs": named(&[("samples", needs.samples), ("class_counts", needs.class_counts), ("sent", needs.sent)]),
        "claims": named(&[
            ("order_free", claims.order_free), ("weight_scale_free", claims.weight_scale_free),
            ("weight_free", claims.weight_free), ("within_hull", claims.within_hull),
        ]),
        "folds": folds,
    }))
}

/// A result, and beside it what was said on the way to it.
fn gives<O: Message>(host: &Host<'_>, round: &Round, out: &O) -> Result<()> {
    said(host, round)?;
    host.tensors(&content(out))
}

fn said(host: &Host<'_>, round: &Round) -> Result<()> {
    match SaidText::of(round) {
        Some(said) => host.json(&said),
        None => Ok(()),
    }
}

impl<I: Message> Object for OfAggregator<I> {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_DESCRIBE => {
                let folds = self.part.fold(&Round::first()).is_some();
                let (needs, claims) = self.part.about();
                describe(host, needs, claims, folds)?;
            }
            FL_SENT => self.sent = Some(input.message(0)?),
            FL_AGGREGATE => host.with_executor(&mut |exec| {
                let round = round_of(self.sent.take(), input, host, exec)?;
                let inbox = input.inbox(&mut self.shelf)?;
                self.part.aggregate(&round, inbox.inbox(), host)
            })?,
            FL_FOLD => {
                // what was sent is shown to the fold and to the update after it
                let round = round_of(self.sent.clone(), input, host, Arc::new(Serial))?;
                match self.part.fold(&round) {
                    Some(fold) => host.part(Box::new(OfFold(Some(fold))))?,
                    None => return Ok(false),
                }
            }
            FL_UPDATE => host.with_executor(&mut |exec| {
                let round = round_of(self.sent.take(), input, host, exec)?;
                self.part.update(&round, input, host)
            })?,
            FL_SAVE => state(host, &self.part.save())?,
            FL_LOAD => self.part.load(&input.parcel(0)?.bytes("state")?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

struct OfFold<I>(Option<Box<dyn FoldGives<I>>>);

impl<I: Message> Object for OfFold<I> {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_FOLD_ADD => {
                let fold = self.0.as_mut().context("a fold that is finished")?;
                fold.add(input.mail()?)?;
            }
            FL_FOLD_FINISH => {
                let fold = self.0.take().context("a fold that is finished")?;
                fold.finish(host)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

struct OfSelector<P: ?Sized>(BoxedSelector<P>);

#[derive(Deserialize)]
struct Classes {
    classes: usize,
}

fn examples(input: &Input<'_>) -> Result<Examples> {
    let Classes { classes } = input.json()?;
    let mut parcel = input.parcel(0)?;
    let samples = samples(&mut parcel)?;
    let labels = if parcel.has("classes") {
        Labels::Classes {
            of: parcel.list("classes")?,
            classes,
        }
    } else if parcel.has("pixels") {
        let of = parcel.table("pixels")?.mapv(|x| x as u8);
        let size = match samples.shape()[..] {
            [_, height, width] => (height, width),
            _ => (1, of.ncols()),
        };
        Labels::Pixels(Masks::new(classes, size, of, None)?)
    } else if parcel.has("images") {
        let of = parcel
            .f32("images")?
            .into_dimensionality::<ndarray::Ix4>()?;
        let (rows, channels, height, width) = of.dim();
        let bytes = of.mapv(|x| (x * 255.0).round() as u8);
        let bytes = bytes.into_shape_with_order((rows, channels * height * width))?;
        Labels::Images(Images::new([channels, height, width], bytes)?)
    } else {
        Labels::Multi(parcel.table("multi-label")?.mapv(|x| x as i8))
    };
    Examples::all(samples.inputs().clone(), Arc::new(labels))
}

impl<P: Crossing + ?Sized> Object for OfSelector<P> {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_FIT => self.0.fit(&examples(input)?, &host.stream())?,
            FL_DESCRIBE => host.json(&json!({ "draw": self.0.draw() }))?,
            FL_POLL => {
                let round = input.json::<RoundText<'_>>()?;
                let round = round.round(host.stream(), Arc::new(Serial));
                let poll = P::receive(input.parcel(0)?, |pool| self.0.poll(&round, pool))?;
                host.json(&poll)?;
            }
            FL_SELECT => {
                let round = input.json::<RoundText<'_>>()?;
                let round = round.round(host.stream(), Arc::new(Serial));
                let chosen = P::receive(input.parcel(0)?, |pool| self.0.select(&round, pool))?;
                let chosen: Vec<u32> = chosen.into_iter().map(|p| p as u32).collect();
                let chosen = View::U32(ArrayView1::from(&chosen).into_dyn());
                said(host, &round)?;
                host.tensors(&vec![("positions".into(), chosen)])?;
            }
            FL_SAVE => state(host, &self.0.save())?,
            FL_LOAD => self.0.load(&input.parcel(0)?.bytes("state")?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

struct OfMechanism<M>(BoxedMechanism<M>);

#[derive(Deserialize)]
struct Queries {
    queries: usize,
}

impl<M: Message> Object for OfMechanism<M> {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_CLIP => {
                let mut m: M = input.message(0)?;
                self.0.clip(&mut m)?;
                host.tensors(&content(&m))?;
            }
            FL_RANGE => {
                let range = self.0.range(&input.message(0)?);
                host.json(&range.map(f64::from))?;
            }
            FL_AGREE => self.0.agree(input.json::<f64>()? as f32),
            FL_PRICE => {
                let cohort = input.json::<CohortText>()?.cohort();
                host.json(&self.0.price(&input.message(0)?, &cohort)?)?;
            }
            FL_PERTURB => {
                let cohort = input.json::<CohortText>()?.cohort();
                let mut m: M = input.message(0)?;
                self.0.perturb(&mut m, &cohort, &host.noise())?;
                host.tensors(&content(&m))?;
            }
            FL_QUERIES => host.json(&self.0.queries(&input.message(0)?))?,
            FL_TRUNCATE => {
                let Queries { queries } = input.json()?;
                let mut m: M = input.message(0)?;
                self.0.truncate(&mut m, queries);
                host.tensors(&content(&m))?;
            }
            FL_ACTUAL_COST => host.json(&self.0.actual_cost(input.json::<PrivacyEvent>()?))?,
            FL_SAVE => state(host, &self.0.save())?,
            FL_LOAD => self.0.load(&input.parcel(0)?.bytes("state")?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

struct OfAccountant(Box<dyn Accountant>);

#[derive(Deserialize)]
struct Merge {
    ledgers: Vec<Ledger>,
    how: String,
}

impl Object for OfAccountant {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_CHARGE => self.0.charge(&input.json()?)?,
            FL_GUARANTEE => {
                let next: Option<PrivacyEvent> = input.json()?;
                host.json(&self.0.guarantee(next.as_ref())?)?;
            }
            FL_MERGE => {
                let Merge { ledgers, how } = input.json()?;
                let how = match how.as_str() {
                    "sequential" => Composition::Sequential,
                    "parallel" => Composition::Parallel,
                    other => bail!("no composition is called `{other}`"),
                };
                self.0.merge(&ledgers, how)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
