//! A part behind `call`, on the library's side: one type for each role.

use super::borrowed_inbox::InboxBuffer;
use super::call_context::{Host, Input};
use super::dispatch_training::{OfGenerator, OfTrainer};
use super::object::Object;
use super::protocol::OfProtocol;
use crate::abi::context_json::{CohortText, LogEventText, RoundText};
use crate::abi::marshal::content;
use crate::abi::marshal_samples::{receive, samples};
use crate::abi::raw::*;
use crate::message::{AnyMessage, MessageType, View};
use crate::privacy::{Composition, Ledger};
use crate::{
    Accountant, AnyAggregator, AnyFold, AnyMechanism, AnySelector, BoxedPart, Examples, Images,
    Labels, Masks, PrivacyEvent, Result, Role, Round, Serial, SharedExecutor,
};
use anyhow::{Context, bail};
use ndarray::ArrayView1;
use serde::Deserialize;
use serde_json::json;
use std::any::Any;
use std::sync::Arc;

/// The object of a part that `plugin!` made.
pub(super) fn wrap(role: Role, made: Box<dyn Any + Send>) -> Result<Box<dyn Object>> {
    Ok(match role {
        Role::Aggregator | Role::Attack => {
            let part: Box<dyn AnyAggregator> = unboxed(made)?;
            Box::new(OfAggregator {
                shelf: InboxBuffer::new(part.input()),
                part,
                sent: None,
            })
        }
        Role::Privacy => Box::new(OfMechanism(unboxed(made)?)),
        Role::Selector => Box::new(OfSelector(unboxed(made)?)),
        Role::Accountant => Box::new(OfAccountant(unboxed(made)?)),
        Role::Generator => Box::new(OfGenerator(unboxed(made)?)),
        Role::Trainer => Box::new(OfTrainer(unboxed(made)?)),
        Role::Protocol => Box::new(OfProtocol::new(unboxed(made)?)),
    })
}

fn unboxed<B: BoxedPart>(made: Box<dyn Any + Send>) -> Result<B> {
    B::cast(made).context("the part is not of its own role")
}

struct OfAggregator {
    part: Box<dyn AnyAggregator>,
    shelf: InboxBuffer,
    /// The message sent to clients in this round, if it needs that.
    sent: Option<Arc<dyn AnyMessage>>,
}

/// The round of a call, which shows what was sent.
fn round_of(
    sent: Option<Arc<dyn AnyMessage>>,
    input: &Input<'_>,
    host: &Host<'_>,
    exec: SharedExecutor,
) -> Result<Round> {
    let round = input.json::<RoundText<'_>>()?.round(host.stream(), exec);
    Ok(match sent {
        Some(sent) => round.showing_any(sent),
        None => round,
    })
}

/// What an aggregator says of itself.
fn describe(host: &Host<'_>, part: &dyn AnyAggregator, folds: bool) -> Result<()> {
    let (needs, claims) = (part.needs(), part.claims());
    let named = |all: &[(&'static str, bool)]| -> Vec<&'static str> {
        all.iter().filter(|(_, is)| *is).map(|(n, _)| *n).collect()
    };
    host.json(&json!({
        "needs": named(&[("samples", needs.samples), ("class_counts", needs.class_counts), ("training_loss", needs.training_loss), ("sent", needs.sent)]),
        "claims": named(&[
            ("order_free", claims.order_free), ("weight_scale_free", claims.weight_scale_free),
            ("weight_free", claims.weight_free), ("within_hull", claims.within_hull),
            ("of_mean", claims.of_mean),
        ]),
        "robustness": part.robustness(),
        "folds": folds,
    }))
}

/// A result, and the log events that led to it.
fn gives(host: &Host<'_>, round: &Round, out: &dyn AnyMessage) -> Result<()> {
    said(host, round)?;
    host.tensors(&content(out))
}

fn said(host: &Host<'_>, round: &Round) -> Result<()> {
    match LogEventText::of(round) {
        Some(said) => host.json(&said),
        None => Ok(()),
    }
}

impl Object for OfAggregator {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_DESCRIBE => {
                let folds = self.part.fold(&Round::first()).is_some();
                describe(host, &*self.part, folds)?;
            }
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
                    Some(fold) => host.part(Box::new(OfFold(self.part.input(), Some(fold))))?,
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

struct OfFold(&'static MessageType, Option<Box<dyn AnyFold>>);

impl Object for OfFold {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_FOLD_ADD => {
                let fold = self.1.as_mut().context("a fold that is finished")?;
                fold.add(input.mail(self.0)?)?;
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

struct OfSelector(Box<dyn AnySelector>);

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

impl Object for OfSelector {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        match operation {
            FL_FIT => self.0.fit(&examples(input)?, &host.stream())?,
            FL_DESCRIBE => {
                let needs_scores = self.0.needs_scores();
                host.json(&json!({ "draw": self.0.draw(), "needs_scores": needs_scores }))?;
            }
            FL_POLL => {
                let round = input.json::<RoundText<'_>>()?;
                let round = round.round(host.stream(), Arc::new(Serial));
                let name = self.0.pool();
                let poll = receive(name, input.parcel(0)?, |pool| self.0.poll(&round, pool))?;
                host.json(&poll)?;
            }
            FL_SELECT => {
                let round = input.json::<RoundText<'_>>()?;
                let round = round.round(host.stream(), Arc::new(Serial));
                let name = self.0.pool();
                let chosen = receive(name, input.parcel(0)?, |pool| self.0.select(&round, pool))?;
                let chosen: Vec<u32> = chosen.into_iter().map(|p| p as u32).collect();
                let chosen = View::U32(ArrayView1::from(&chosen).into_dyn());
                said(host, &round)?;
                host.tensors(&vec![("positions".into(), chosen)])?;
            }
            FL_RANK => {
                let name = self.0.pool();
                let ranks = receive(name, input.parcel(0)?, |pool| self.0.rank(pool))?;
                if let Some(ranks) = ranks {
                    let ranks = View::F64(ArrayView1::from(&ranks).into_dyn());
                    host.tensors(&vec![("ranks".into(), ranks)])?;
                }
            }
            FL_SAVE => host.state(&self.0.save())?,
            FL_LOAD => self.0.load(&input.parcel(0)?.bytes("state")?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

struct OfMechanism(Box<dyn AnyMechanism>);

#[derive(Deserialize)]
struct Queries {
    queries: usize,
}

impl Object for OfMechanism {
    fn call(&mut self, operation: u32, input: &Input<'_>, host: &Host<'_>) -> Result<bool> {
        let on = self.0.on();
        let message = || input.message_of(0, on);
        match operation {
            FL_CLIP => {
                let mut m = message()?;
                self.0.clip(&mut *m)?;
                host.tensors(&content(&*m))?;
            }
            FL_NORM_BOUND => host.json(&self.0.norm_bound())?,
            FL_RANGE => {
                let range = self.0.range(&*message()?);
                host.json(&range.map(f64::from))?;
            }
            FL_AGREE => self.0.agree(input.json::<f64>()? as f32),
            FL_PRICE => {
                let cohort = input.json::<CohortText>()?.cohort();
                host.json(&self.0.price(&*message()?, &cohort)?)?;
            }
            FL_PERTURB => {
                let cohort = input.json::<CohortText>()?.cohort();
                let mut m = message()?;
                let noise = host.noise();
                self.0.perturb(&mut *m, &cohort, &noise)?;
                if noise.is_drawn() {
                    host.drew();
                }
                host.tensors(&content(&*m))?;
            }
            FL_QUERIES => host.json(&self.0.queries(&*message()?))?,
            FL_TRUNCATE => {
                let Queries { queries } = input.json()?;
                let mut m = message()?;
                self.0.truncate(&mut *m, queries);
                host.tensors(&content(&*m))?;
            }
            FL_ACTUAL_COST => host.json(&self.0.actual_cost(input.json::<PrivacyEvent>()?))?,
            FL_SAVE => host.state(&self.0.save())?,
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
