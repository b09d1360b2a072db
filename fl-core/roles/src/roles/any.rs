//! Aggregators, mechanisms and selectors by the kinds of their messages, without their Rust types.
//! Authors write the typed traits. A part converts between both forms without a cost per message.

use crate::message::{AnyMessage, Erased, Message, MessageType};
use crate::privacy::ReleaseNoise;
use crate::sealed::Sealed;
use crate::{
    Accountant, Aggregator, AnyInbox, AnyPool, BoxedAggregator, BoxedMechanism, BoxedSelector,
    ClientMessage, ClientStatQuery, Cohort, Examples, Fold, Generator, Inbox, Pool, PrivacyEvent,
    PrivacyMechanism, Properties, Protocol, RequiredInputs, Result, Robustness, Round,
    SamplingScheme, Selector, Stream, Trainer,
};
use anyhow::Context;
use std::any::Any;
use std::marker::PhantomData;

/// An [`Aggregator`] by the kinds of its messages.
pub trait AnyAggregator: Any + Send + Sealed {
    /// Returns the type of the clients' messages.
    fn input(&self) -> &'static MessageType;

    /// Returns the type of the result.
    fn output(&self) -> &'static MessageType;

    /// See [`Aggregator::aggregate`].
    ///
    /// # Errors
    /// If the inbox cannot be combined, or holds messages of another type.
    fn aggregate(&mut self, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased>;

    /// See [`Aggregator::fold`].
    fn fold(&self, round: &Round) -> Option<Box<dyn AnyFold>>;

    /// See [`Aggregator::update`].
    ///
    /// # Errors
    /// If the result does not fit the state.
    fn update(&mut self, round: &Round, folded: Erased) -> Result<Erased>;

    /// See [`Aggregator::needs`].
    fn needs(&self) -> RequiredInputs;

    /// See [`Aggregator::claims`].
    fn claims(&self) -> Properties;

    /// See [`Aggregator::robustness`].
    fn robustness(&self) -> Option<Robustness>;

    /// See [`Aggregator::save`].
    fn save(&self) -> Vec<u8>;

    /// See [`Aggregator::load`].
    ///
    /// # Errors
    /// If `state` is not a state of this part.
    fn load(&mut self, state: &[u8]) -> Result<()>;
}

/// A [`Fold`] by the kinds of its messages.
pub trait AnyFold: Send + Sealed {
    /// See [`Fold::add`].
    ///
    /// # Errors
    /// If the message does not fit the earlier ones.
    fn add(&mut self, mail: ClientMessage<Erased>) -> Result<()>;

    /// See [`Fold::finish`].
    ///
    /// # Errors
    /// If no usable message was added.
    fn finish(self: Box<Self>) -> Result<Erased>;
}

/// A [`PrivacyMechanism`] by the kind of its message. A message of another type is an error. A
/// function that cannot fail returns a default for it.
pub trait AnyMechanism: Any + Send + Sealed {
    /// Returns the type of the messages that it protects.
    fn on(&self) -> &'static MessageType;

    /// See [`PrivacyMechanism::clip`].
    ///
    /// # Errors
    /// If the message cannot be bounded.
    fn clip(&self, message: &mut dyn AnyMessage) -> Result<()>;

    /// See [`PrivacyMechanism::norm_bound`].
    fn norm_bound(&self) -> Option<f64>;

    /// See [`PrivacyMechanism::range`].
    fn range(&self, message: &dyn AnyMessage) -> Option<f32>;

    /// See [`PrivacyMechanism::agree`].
    fn agree(&mut self, largest: f32);

    /// See [`PrivacyMechanism::price`].
    ///
    /// # Errors
    /// If there is no sound price for this message.
    fn price(&self, message: &dyn AnyMessage, cohort: &Cohort) -> Result<PrivacyEvent>;

    /// See [`PrivacyMechanism::perturb`].
    ///
    /// # Errors
    /// If the message cannot be perturbed.
    fn perturb(
        &mut self,
        message: &mut dyn AnyMessage,
        cohort: &Cohort,
        noise: &ReleaseNoise,
    ) -> Result<()>;

    /// See [`PrivacyMechanism::queries`].
    fn queries(&self, message: &dyn AnyMessage) -> usize;

    /// See [`PrivacyMechanism::truncate`].
    fn truncate(&self, message: &mut dyn AnyMessage, n: usize);

    /// See [`PrivacyMechanism::actual_cost`].
    fn actual_cost(&self, price: PrivacyEvent) -> PrivacyEvent;

    /// See [`PrivacyMechanism::save`].
    fn save(&self) -> Vec<u8>;

    /// See [`PrivacyMechanism::load`].
    ///
    /// # Errors
    /// If `state` is not a state of this part.
    fn load(&mut self, state: &[u8]) -> Result<()>;
}

/// A [`Selector`] by the name of its pool. A pool with another name is an error.
pub trait AnySelector: Any + Send + Sealed {
    /// Returns the name of its pool.
    fn pool(&self) -> &'static str;

    /// See [`Selector::fit`].
    ///
    /// # Errors
    /// If it cannot learn from these samples.
    fn fit(&mut self, own: &Examples, stream: &Stream) -> Result<()>;

    /// See [`Selector::needs_scores`].
    fn needs_scores(&self) -> bool;

    /// See [`Selector::poll`].
    ///
    /// # Errors
    /// As [`AnySelector::select`].
    fn poll(&mut self, round: &Round, pool: AnyPool<'_>) -> Result<Option<ClientStatQuery>>;

    /// See [`Selector::select`].
    ///
    /// # Errors
    /// If the pool cannot be judged.
    fn select(&mut self, round: &Round, pool: AnyPool<'_>) -> Result<Vec<usize>>;

    /// See [`Selector::draw`].
    fn draw(&self) -> SamplingScheme;

    /// See [`Selector::rank`].
    ///
    /// # Errors
    /// As [`AnySelector::select`].
    fn rank(&mut self, pool: AnyPool<'_>) -> Result<Option<Vec<f64>>>;

    /// See [`Selector::save`].
    fn save(&self) -> Vec<u8>;

    /// See [`Selector::load`].
    ///
    /// # Errors
    /// If `state` is not a state of this part.
    fn load(&mut self, state: &[u8]) -> Result<()>;
}

/// A part with known Rust types.
struct Typed<T: ?Sized>(Box<T>);

impl<T: ?Sized> Sealed for Typed<T> {}

/// Returns the part with known Rust types; `None` if it has others.
fn inner<T: ?Sized + 'static>(part: Box<dyn Any>) -> Option<Box<T>> {
    Some(part.downcast::<Typed<T>>().ok()?.0)
}

/// A typed part made from an erased one, for kinds that have these Rust types.
struct Through<T: ?Sized, Types>(Box<T>, PhantomData<fn() -> Types>);

impl dyn AnyAggregator {
    /// Erases a typed aggregator.
    pub fn of<A: Aggregator + 'static>(part: A) -> Box<Self> {
        Self::of_boxed::<A::In, A::Out>(Box::new(part))
    }

    /// Erases a boxed typed aggregator.
    pub fn of_boxed<I: Message, O: Message>(part: BoxedAggregator<I, O>) -> Box<Self> {
        Box::new(Typed(part))
    }

    /// Returns the typed aggregator of these messages; `None` if it has others. A linked aggregator
    /// comes back as the type that its author wrote.
    pub fn cast<I: Message, O: Message>(self: Box<Self>) -> Option<BoxedAggregator<I, O>> {
        if (self.input().kind, self.output().kind) != (I::KIND, O::KIND) {
            return None;
        }
        if !(&*self as &dyn Any).is::<Typed<dyn Aggregator<In = I, Out = O>>>() {
            return Some(Box::new(Through::<_, (I, O)>(self, PhantomData)));
        }
        inner(self)
    }
}

/// Methods that are the same with Rust types and without.
macro_rules! passes_on {
    ($($name:ident(&$($by:ident)? $(, $arg:ident: $of:ty)*) -> $out:ty;)+) => {
        $(fn $name(&$($by)? self $(, $arg: $of)*) -> $out {
            self.0.$name($($arg),*)
        })+
    };
}

impl<I: Message, O: Message> AnyAggregator for Typed<dyn Aggregator<In = I, Out = O>> {
    fn input(&self) -> &'static MessageType {
        MessageType::of::<I>()
    }
    fn output(&self) -> &'static MessageType {
        MessageType::of::<O>()
    }
    fn aggregate(&mut self, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        let inbox: Option<&Inbox<I>> = inbox.get();
        let inbox =
            inbox.with_context(|| format!("an inbox of other messages than {}", I::KIND))?;
        Ok(Box::new(self.0.aggregate(round, inbox)?))
    }
    fn fold(&self, round: &Round) -> Option<Box<dyn AnyFold>> {
        Some(Box::new(Typed(self.0.fold(round)?)))
    }
    fn update(&mut self, round: &Round, folded: Erased) -> Result<Erased> {
        Ok(Box::new(self.0.update(round, folded.take()?)?))
    }
    passes_on! {
        needs(&) -> RequiredInputs;
        claims(&) -> Properties;
        robustness(&) -> Option<Robustness>;
        save(&) -> Vec<u8>;
        load(&mut, state: &[u8]) -> Result<()>;
    }
}

impl<I: Message, O: Message> AnyFold for Typed<dyn Fold<I, O>> {
    fn add(&mut self, mail: ClientMessage<Erased>) -> Result<()> {
        self.0.add(mail.try_map(|body| body.take())?)
    }
    fn finish(self: Box<Self>) -> Result<Erased> {
        Ok(Box::new(self.0.finish()?))
    }
}

impl<I: Message, O: Message> Aggregator for Through<dyn AnyAggregator, (I, O)> {
    type In = I;
    type Out = O;
    fn aggregate(&mut self, round: &Round, inbox: &Inbox<I>) -> Result<O> {
        self.0.aggregate(round, inbox)?.take()
    }
    fn fold(&self, round: &Round) -> Option<Box<dyn Fold<I, O>>> {
        Some(Box::new(Through::<_, (I, O)>(
            self.0.fold(round)?,
            PhantomData,
        )))
    }
    fn update(&mut self, round: &Round, folded: O) -> Result<O> {
        self.0.update(round, Box::new(folded))?.take()
    }
    passes_on! {
        needs(&) -> RequiredInputs;
        claims(&) -> Properties;
        robustness(&) -> Option<Robustness>;
        save(&) -> Vec<u8>;
        load(&mut, state: &[u8]) -> Result<()>;
    }
}

impl<I: Message, O: Message> Fold<I, O> for Through<dyn AnyFold, (I, O)> {
    fn add(&mut self, mail: ClientMessage<I>) -> Result<()> {
        self.0
            .add(mail.try_map(|body| Ok(Box::new(body) as Erased))?)
    }
    fn finish(self: Box<Self>) -> Result<O> {
        self.0.finish()?.take()
    }
}

impl dyn AnyMechanism {
    /// Erases a typed mechanism.
    pub fn of<P: PrivacyMechanism + 'static>(part: P) -> Box<Self> {
        Self::of_boxed::<P::On>(Box::new(part))
    }

    /// Erases a boxed typed mechanism.
    pub fn of_boxed<M: Message>(part: BoxedMechanism<M>) -> Box<Self> {
        Box::new(Typed(part))
    }

    /// Returns the typed mechanism on this message; `None` if it is on another.
    pub fn cast<M: Message>(self: Box<Self>) -> Option<BoxedMechanism<M>> {
        if self.on().kind != M::KIND {
            return None;
        }
        if !(&*self as &dyn Any).is::<Typed<dyn PrivacyMechanism<On = M>>>() {
            return Some(Box::new(Through::<_, M>(self, PhantomData)));
        }
        inner(self)
    }
}

impl<M: Message> AnyMechanism for Typed<dyn PrivacyMechanism<On = M>> {
    fn on(&self) -> &'static MessageType {
        MessageType::of::<M>()
    }
    fn clip(&self, message: &mut dyn AnyMessage) -> Result<()> {
        self.0.clip(message.get_mut()?)
    }
    passes_on! {
        norm_bound(&) -> Option<f64>;
        agree(&mut, largest: f32) -> ();
        actual_cost(&, price: PrivacyEvent) -> PrivacyEvent;
        save(&) -> Vec<u8>;
        load(&mut, state: &[u8]) -> Result<()>;
    }
    fn range(&self, message: &dyn AnyMessage) -> Option<f32> {
        self.0.range(message.get().ok()?)
    }
    fn price(&self, message: &dyn AnyMessage, cohort: &Cohort) -> Result<PrivacyEvent> {
        self.0.price(message.get()?, cohort)
    }
    fn perturb(
        &mut self,
        message: &mut dyn AnyMessage,
        cohort: &Cohort,
        noise: &ReleaseNoise,
    ) -> Result<()> {
        self.0.perturb(message.get_mut()?, cohort, noise)
    }
    fn queries(&self, message: &dyn AnyMessage) -> usize {
        message.get().map_or(1, |message| self.0.queries(message))
    }
    fn truncate(&self, message: &mut dyn AnyMessage, n: usize) {
        if let Ok(message) = message.get_mut() {
            self.0.truncate(message, n);
        }
    }
}

impl<M: Message> PrivacyMechanism for Through<dyn AnyMechanism, M> {
    type On = M;
    fn clip(&self, message: &mut M) -> Result<()> {
        self.0.clip(message)
    }
    passes_on! {
        norm_bound(&) -> Option<f64>;
        agree(&mut, largest: f32) -> ();
        actual_cost(&, price: PrivacyEvent) -> PrivacyEvent;
        save(&) -> Vec<u8>;
        load(&mut, state: &[u8]) -> Result<()>;
    }
    fn range(&self, message: &M) -> Option<f32> {
        self.0.range(message)
    }
    fn price(&self, message: &M, cohort: &Cohort) -> Result<PrivacyEvent> {
        self.0.price(message, cohort)
    }
    fn perturb(&mut self, message: &mut M, cohort: &Cohort, noise: &ReleaseNoise) -> Result<()> {
        self.0.perturb(message, cohort, noise)
    }
    fn queries(&self, message: &M) -> usize {
        self.0.queries(message)
    }
    fn truncate(&self, message: &mut M, n: usize) {
        self.0.truncate(message, n);
    }
}

impl dyn AnySelector {
    /// Erases a typed selector.
    pub fn of<S: Selector<Pool: Pool> + 'static>(part: S) -> Box<Self> {
        Self::of_boxed::<S::Pool>(Box::new(part))
    }

    /// Erases a boxed typed selector.
    pub fn of_boxed<P: Pool + ?Sized>(part: BoxedSelector<P>) -> Box<Self> {
        Box::new(Typed(part))
    }

    /// Returns the typed selector of this pool; `None` if it has another.
    pub fn cast<P: Pool + ?Sized>(self: Box<Self>) -> Option<BoxedSelector<P>> {
        if self.pool() != P::NAME {
            return None;
        }
        if !(&*self as &dyn Any).is::<Typed<dyn Selector<Pool = P>>>() {
            return Some(Box::new(Through::<_, PhantomData<P>>(self, PhantomData)));
        }
        inner(self)
    }
}

fn mine<P: Pool + ?Sized>(pool: AnyPool<'_>) -> Result<&P> {
    P::of(pool).with_context(|| format!("a pool of {} where {} was due", pool.name(), P::NAME))
}

impl<P: Pool + ?Sized> AnySelector for Typed<dyn Selector<Pool = P>> {
    fn pool(&self) -> &'static str {
        P::NAME
    }
    passes_on! {
        fit(&mut, own: &Examples, stream: &Stream) -> Result<()>;
        needs_scores(&) -> bool;
        draw(&) -> SamplingScheme;
        save(&) -> Vec<u8>;
        load(&mut, state: &[u8]) -> Result<()>;
    }
    fn poll(&mut self, round: &Round, pool: AnyPool<'_>) -> Result<Option<ClientStatQuery>> {
        self.0.poll(round, mine(pool)?)
    }
    fn select(&mut self, round: &Round, pool: AnyPool<'_>) -> Result<Vec<usize>> {
        self.0.select(round, mine(pool)?)
    }
    fn rank(&mut self, pool: AnyPool<'_>) -> Result<Option<Vec<f64>>> {
        self.0.rank(mine(pool)?)
    }
}

impl<P: Pool + ?Sized> Selector for Through<dyn AnySelector, PhantomData<P>> {
    type Pool = P;
    passes_on! {
        fit(&mut, own: &Examples, stream: &Stream) -> Result<()>;
        needs_scores(&) -> bool;
        draw(&) -> SamplingScheme;
        save(&) -> Vec<u8>;
        load(&mut, state: &[u8]) -> Result<()>;
    }
    fn poll(&mut self, round: &Round, pool: &P) -> Result<Option<ClientStatQuery>> {
        self.0.poll(round, pool.any())
    }
    fn select(&mut self, round: &Round, pool: &P) -> Result<Vec<usize>> {
        self.0.select(round, pool.any())
    }
    fn rank(&mut self, pool: &P) -> Result<Option<Vec<f64>>> {
        self.0.rank(pool.any())
    }
}

/// A part that a declaration makes ([`crate::PartDecl::make`]): a boxed trait object of its role,
/// with Rust types ([`BoxedAggregator`]) or without (`Box<dyn AnyAggregator>`).
pub trait BoxedPart: Sized + Sealed + 'static {
    /// Converts the part that a declaration made; `None` if it has another role or other messages.
    fn cast(made: Box<dyn Any + Send>) -> Option<Self>;
}

macro_rules! boxed_part {
    ($(($($of:tt)*) $boxed:ty: $made:ty => $cast:expr;)+) => {
        $(impl<$($of)*> Sealed for $boxed {}

        impl<$($of)*> BoxedPart for $boxed {
            fn cast(made: Box<dyn Any + Send>) -> Option<Self> {
                let made = made.downcast::<$made>().ok()?;
                $cast(*made)
            }
        })+
    };
}

boxed_part! {
    () Box<dyn AnyAggregator>: Self => Some;
    () Box<dyn AnyMechanism>: Self => Some;
    () Box<dyn AnySelector>: Self => Some;
    () Box<dyn Trainer>: Self => Some;
    () Box<dyn Generator>: Self => Some;
    () Box<dyn Accountant>: Self => Some;
    () Box<dyn Protocol>: Self => Some;
    (I: Message, O: Message) BoxedAggregator<I, O>: Box<dyn AnyAggregator> => <dyn AnyAggregator>::cast;
    (M: Message) BoxedMechanism<M>: Box<dyn AnyMechanism> => <dyn AnyMechanism>::cast;
    (P: Pool + ?Sized) BoxedSelector<P>: Box<dyn AnySelector> => <dyn AnySelector>::cast;
}
