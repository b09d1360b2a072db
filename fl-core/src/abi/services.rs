//! Parts of a library as parts of this program: aggregators, selectors, mechanisms, accountants.

use super::cross::{Letter, content};
use super::kinds::Crossing;
use super::objects::RoundText;
use super::raw::*;
use super::remote::Remote;
use crate::message::{self, Logits, Message, Params, Parcel, View};
use crate::privacy::{Composition, Guarantee, Ledger, Noise, Unit};
use crate::{
    Accountant, Aggregator, Claims, Examples, Fold, Inbox, Mail, Needs, PrivacyEvent,
    PrivacyMechanism, Problem, Result, Round, Selector, Stream,
};
use anyhow::{Context, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::json;
use std::any::Any;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

/// Some operations cannot fail here, but can in a library: the next one that can, does, and says why.
#[derive(Default)]
pub(super) struct Late(Mutex<Option<String>>);

impl Late {
    pub fn keep<T>(&self, outcome: Result<T>) -> Option<T> {
        let slot = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outcome
            .map_err(|e| slot().get_or_insert_with(|| format!("{e:#}")).len())
            .ok()
    }

    pub fn check(&self) -> Result<()> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(why) => bail!("it failed before: {why}"),
            None => Ok(()),
        }
    }
}

/// Stands where a state should be that could not be saved.
const UNSAVED: &[u8] = b"\0fl: this state could not be saved";

impl Late {
    /// The state of a part whose `save` cannot fail. If it does, a run that goes on from there must not do so silently.
    fn save(&self, remote: &Remote) -> Vec<u8> {
        match self.keep(remote.save(FL_SAVE)) {
            Some(state) => state.unwrap_or_default(),
            None => UNSAVED.to_vec(),
        }
    }
}

/// Hands a part's state back.
pub(super) fn load(remote: &Remote, state: &[u8]) -> Result<()> {
    ensure!(
        state != UNSAVED,
        "{}: its state could not be saved",
        remote.who()
    );
    match remote.load(FL_LOAD, state)? {
        None if !state.is_empty() => bail!("{}: it keeps no state", remote.who()),
        _ => Ok(()),
    }
}

fn gave(remote: &Remote) -> String {
    format!("{}: what it gave", remote.who())
}

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
        let needs = ["samples", "class_counts"];
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

pub(super) struct LoadedAggregator<I, O> {
    remote: Remote,
    needs: Needs,
    claims: Claims,
    folds: bool,
    late: Late,
    kinds: PhantomData<fn(I) -> O>,
}

impl<I: Message, O: Message> LoadedAggregator<I, O> {
    pub fn new(remote: Remote) -> Result<Self> {
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
            kinds: PhantomData,
        })
    }
}

impl<I: Message, O: Message> Aggregator for LoadedAggregator<I, O> {
    type In = I;
    type Out = O;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<I>) -> Result<O> {
        self.late.check().context(self.remote.who())?;
        let facts = serde_json::to_string(&RoundText {
            number: round.number,
            last: round.last,
            name: (&*round.name).into(),
        })?;
        let (stream, exec) = (Some(&round.stream), Some(&*round.exec));
        let answer = self
            .remote
            .on_inbox(FL_AGGREGATE, &facts, inbox, stream, exec)?;
        let out: O = self.remote.message(answer)?;
        let first = inbox.iter().next().map(|mail| &mail.body);
        sound(first, &out).with_context(|| gave(&self.remote))?;
        Ok(out)
    }

    fn fold(&self) -> Option<Box<dyn Fold<I, O>>> {
        let remote = self.late.keep(match self.folds {
            true => self.remote.part(FL_FOLD).map(Some),
            false => Ok(None),
        });
        Some(Box::new(LoadedFold {
            remote: remote??,
            first: None,
            kinds: PhantomData,
        }))
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn claims(&self) -> Claims {
        self.claims
    }

    fn save(&self) -> Vec<u8> {
        self.late.save(&self.remote)
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        load(&self.remote, state)
    }
}

/// What an aggregator made of messages like `first`: of their outline, finite and sane.
fn sound<I: Message, O: Message>(first: Option<&I>, out: &O) -> Result<()> {
    // first what is quick, for a wrong shape may be a huge one
    if let Some(first) = first {
        same_outline(first, out)?;
    }
    sane(out)
}

/// Parameters in, parameters out: of the same names and shapes; and scores for the same classes.
fn same_outline<I: Message, O: Message>(first: &I, out: &O) -> Result<()> {
    let any = first as &dyn Any;
    let keeps = any.is::<Params>() || any.is::<Logits>();
    match any.downcast_ref::<O>().filter(|_| keeps) {
        Some(first) => like(first, out),
        None => Ok(()),
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

impl<I: Message, O: Message> Fold<I, O> for LoadedFold<I, O> {
    fn add(&mut self, mail: Mail<I>) -> Result<()> {
        let tensors = content(&mail.body);
        let letter = Letter {
            from: mail.from,
            weight: mail.weight,
            class_counts: mail.class_counts.as_deref(),
            tensors: &tensors,
        };
        self.remote.must(FL_FOLD_ADD, "", &[letter], None, None)?;
        drop(tensors);
        self.first.get_or_insert(mail.body);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<O> {
        let answer = self.remote.must(FL_FOLD_FINISH, "", &[], None, None)?;
        let out = self.remote.message(answer)?;
        sound(self.first.as_ref(), &out).with_context(|| gave(&self.remote))?;
        Ok(out)
    }
}

pub(super) struct LoadedSelector<P: ?Sized> {
    remote: Remote,
    late: Late,
    pool: PhantomData<fn(&P)>,
}

impl<P: ?Sized> LoadedSelector<P> {
    pub fn new(remote: Remote) -> Self {
        Self {
            remote,
            late: Late::default(),
            pool: PhantomData,
        }
    }
}

impl<P: Crossing + ?Sized> Selector for LoadedSelector<P> {
    type Pool = P;

    fn fit(&mut self, own: &Examples, stream: &Stream) -> Result<()> {
        let text = json!({ "classes": own.labels().classes() }).to_string();
        super::learners::with_examples(own, |tensors| {
            let letter = [Letter::new(tensors)];
            self.remote.call(FL_FIT, &text, &letter, Some(stream), None)
        })?;
        Ok(())
    }

    fn select(&mut self, pool: &P, stream: &Stream) -> Result<Vec<usize>> {
        self.late.check().context(self.remote.who())?;
        let answer = pool.send(|tensors| {
            let letter = [Letter::new(tensors)];
            self.remote.must(FL_SELECT, "", &letter, Some(stream), None)
        })?;
        let positions = Parcel::new(answer.tensors).list("positions");
        let positions = positions.context(self.remote.who())?;
        let ascend = positions.is_sorted_by(|a, b| a < b);
        let last = positions.last().copied().map_or(0, |p| p as usize + 1);
        ensure!(
            ascend && last <= pool.size(),
            "{}: its positions must ascend without repeats and be below {}",
            self.remote.who(),
            pool.size()
        );
        Ok(positions.into_iter().map(|p| p as usize).collect())
    }

    fn save(&self) -> Vec<u8> {
        self.late.save(&self.remote)
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        load(&self.remote, state)
    }
}

pub(super) struct LoadedMechanism<M> {
    remote: Remote,
    late: Late,
    kind: PhantomData<fn(M)>,
}

impl<M: Message> LoadedMechanism<M> {
    pub fn new(remote: Remote) -> Self {
        Self {
            remote,
            late: Late::default(),
            kind: PhantomData,
        }
    }

    /// Asks about a message; `None`: there is no such operation.
    fn about<T: serde::de::DeserializeOwned>(
        &self,
        operation: u32,
        text: &str,
        message: &M,
    ) -> Result<Option<T>> {
        let tensors = content(message);
        let letter = [Letter::new(&tensors)];
        let answer = self.remote.call(operation, text, &letter, None, None)?;
        answer.map(|a| self.remote.json(&a)).transpose()
    }

    fn lacks(&self, operation: u32) -> anyhow::Error {
        anyhow!("{}: it has no operation {operation}", self.remote.who())
    }
}

impl<M: Message> PrivacyMechanism for LoadedMechanism<M> {
    type On = M;

    fn clip(&self, message: &mut M) -> Result<()> {
        self.late.check().context(self.remote.who())?;
        let done = self.remote.change(FL_CLIP, "", message, None)?;
        done.ok_or_else(|| self.lacks(FL_CLIP))
    }

    fn range(&self, message: &M) -> Option<f32> {
        let range = self.late.keep(self.about(FL_RANGE, "", message));
        range.flatten().flatten().map(|range: f64| range as f32)
    }

    fn agree(&mut self, largest: f32) {
        // as f64, so that the same f32 comes out
        let text = f64::from(largest).to_string();
        let _ = self
            .late
            .keep(self.remote.call(FL_AGREE, &text, &[], None, None));
    }

    fn price(&self, message: &M, n: usize) -> Result<PrivacyEvent> {
        self.late.check().context(self.remote.who())?;
        let text = json!({ "clients": n }).to_string();
        self.about(FL_PRICE, &text, message)?
            .ok_or_else(|| self.lacks(FL_PRICE))
    }

    fn perturb(&mut self, message: &mut M, n: usize, stream: &Stream) -> Result<()> {
        self.late.check().context(self.remote.who())?;
        let text = json!({ "clients": n }).to_string();
        let done = self
            .remote
            .change(FL_PERTURB, &text, message, Some(stream))?;
        done.ok_or_else(|| self.lacks(FL_PERTURB))
    }

    fn queries(&self, message: &M) -> usize {
        let queries = self.late.keep(self.about(FL_QUERIES, "", message));
        queries.flatten().unwrap_or(1)
    }

    fn truncate(&self, message: &mut M, n: usize) {
        // if it fails, more than was paid for is still there: `perturb` will refuse to release it
        let text = json!({ "queries": n }).to_string();
        let _ = self
            .late
            .keep(self.remote.change(FL_TRUNCATE, &text, message, None));
    }

    fn actual_cost(&self, price: PrivacyEvent) -> PrivacyEvent {
        let settled = || -> Result<Option<PrivacyEvent>> {
            let text = serde_json::to_string(&price)?;
            let answer = self.remote.call(FL_ACTUAL_COST, &text, &[], None, None)?;
            answer.map(|a| self.remote.json(&a)).transpose()
        };
        // the price is never less than what it settles for
        self.late.keep(settled()).flatten().unwrap_or(price)
    }
}

pub(super) struct LoadedAccountant(pub Remote);

#[derive(Deserialize)]
struct GuaranteeText {
    epsilon: Option<f64>,
    delta: f64,
    unit: Unit,
    data_dependent: bool,
    noise: Noise,
}

/// Events as JSON, which knows no NaN and no infinity: what has such a number has no price.
fn priceable<'e>(events: impl IntoIterator<Item = &'e PrivacyEvent>) -> Result<()> {
    for event in events {
        let text = serde_json::to_string(event)?;
        if serde_json::from_str::<PrivacyEvent>(&text).is_err() {
            let why = format!("what is not finite has no price: {event}");
            bail!(Problem::Unpriced(why));
        }
    }
    Ok(())
}

impl Accountant for LoadedAccountant {
    fn charge(&mut self, event: &PrivacyEvent) -> Result<()> {
        priceable([event])?;
        let text = serde_json::to_string(event)?;
        self.0.must(FL_CHARGE, &text, &[], None, None)?;
        Ok(())
    }

    fn guarantee(&self, next: Option<&PrivacyEvent>) -> Result<Guarantee> {
        priceable(next)?;
        let text = serde_json::to_string(&next)?;
        let answer = self.0.must(FL_GUARANTEE, &text, &[], None, None)?;
        let g: GuaranteeText = self.0.json(&answer)?;
        let epsilon = g.epsilon.unwrap_or(f64::INFINITY);
        ensure!(
            epsilon >= 0.0 && (0.0..=1.0).contains(&g.delta),
            "{}: it guarantees epsilon {epsilon} at delta {}; epsilon is at least 0, delta in 0..=1",
            self.0.who(),
            g.delta
        );
        Ok(Guarantee {
            epsilon,
            delta: g.delta,
            unit: g.unit,
            data_dependent: g.data_dependent,
            noise: g.noise,
        })
    }

    fn merge(&mut self, ledgers: &[Ledger], how: Composition) -> Result<()> {
        priceable(ledgers.iter().flat_map(|l| &l.events))?;
        let how = match how {
            Composition::Sequential => "sequential",
            Composition::Parallel => "parallel",
        };
        let text = serde_json::to_string(&json!({ "ledgers": ledgers, "how": how }))?;
        self.0.must(FL_MERGE, &text, &[], None, None)?;
        Ok(())
    }
}
