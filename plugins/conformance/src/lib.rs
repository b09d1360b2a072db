//! The conformance kit: checks a part against its role and its claims, in one line of the part's
//! tests.
//!
//! ```
//! use fl_core::prelude::*;
//!
//! settings! {
//!     /// The largest value of each number.
//!     pub struct Largest {}
//! }
//! impl Aggregator for Largest {
//!     type In = Params;
//!     type Out = Params;
//!     fn aggregate(&mut self, _: &Round, inbox: &Inbox<Params>) -> Result<Params> {
//!         Ok(inbox.per_coordinate(|values| {
//!             values.iter().copied().fold(f32::NEG_INFINITY, f32::max)
//!         }))
//!     }
//!     fn claims(&self) -> Properties {
//!         Properties { order_free: true, within_hull: true, ..Properties::default() }
//!     }
//! }
//!
//! fl_conformance::aggregator(|| Largest {});
//! let inbox = fl_conformance::params(&[&[1.0, 2.0], &[3.0, -4.0]]);
//! let out = Largest {}.aggregate(&Round::first(), &inbox).unwrap();
//! assert_eq!(fl_conformance::show(&out), "w [2] 3 2");
//! ```
//!
//! Every property is checked on seeded cases, so a failure repeats in every run. A failure is one
//! line with the property, the place and both values:
//! `claims order_free: number 0 of `w` is -1.29 once and 0.85 the other time`. The functions here
//! panic, as tests do; those of [`check`] return the failure.

mod accountant;
mod aggregator;
mod audit;
mod broken;
mod compare;
mod declared;
mod generator;
mod helpers;
mod mechanism;
mod sample;
mod selector;
mod statistics;
mod toy;
mod trainer;
mod trainer_head;
mod trainer_rules;

pub use audit::{Audit, at_least, audit};
pub use broken::Broken;
pub use helpers::{Given, close, given, logits, params, show, weigh, with_losses};
pub use mechanism::Neighbours;
pub use sample::{Case, PoolSample, Values, classes};
pub use toy::{images, numbers, pixels, tasks};

/// For [`snapshot`].
#[doc(hidden)]
pub use insta;

use fl_core::{
    Accountant, Aggregator, AnyAggregator, AnyMechanism, BuildContext, Generator, PrivacyMechanism,
    Result, Selector, Task, Trainer,
};

/// The same checks as functions that return the failure, and take boxed parts, such as those of a
/// spec.
pub mod check {
    pub use crate::accountant::check as accountant;
    pub use crate::aggregator::check as aggregator;
    pub use crate::declared::check as declared;
    pub use crate::generator::check as generator;
    pub use crate::mechanism::check as mechanism;
    pub use crate::selector::check as selector;
    pub use crate::trainer::check as trainer;
}

#[track_caller]
fn held(outcome: Result<(), Broken>) {
    if let Err(broken) = outcome {
        panic!("{broken}");
    }
}

/// Checks an aggregator. Legal inboxes of 1 to 9 clients never fail it and give valid messages. The
/// same inbox gives the same bits: from every instance, on every executor, folded or at once, and
/// after a stop between two rounds. Every claim holds.
///
/// # Panics
/// If a property does not hold; names the property, the place, and the value found. The same holds
/// for the other functions here.
#[track_caller]
pub fn aggregator<A: Aggregator + 'static>(make: impl Fn() -> A) {
    held(check::aggregator(&|| <dyn AnyAggregator>::of(make())));
}

/// Checks a selector: positions ascend, are in range, and depend only on the pool, the stream and
/// the fitted examples.
#[track_caller]
pub fn selector<S: Selector + 'static>(make: impl Fn() -> S)
where
    S::Pool: PoolSample,
{
    held(check::selector(&|| Box::new(make()), false));
}

/// As [`selector`], for one that draws: another stream must sometimes select other positions.
#[track_caller]
pub fn random_selector<S: Selector + 'static>(make: impl Fn() -> S)
where
    S::Pool: PoolSample,
{
    held(check::selector(&|| Box::new(make()), true));
}

/// Checks a trainer on [`tasks`]: classes and labels, rows of numbers and images. It learns. The
/// same calls give the same bits, on any thread and after a stop. A saved model predicts the same.
/// Parameters can be read and set. Slopes match its predictions. Invalid input is an error that
/// changes nothing.
#[track_caller]
pub fn trainer<T: Trainer + 'static>(make: impl Fn(&BuildContext) -> Result<T>) {
    trainer_for(&tasks(), make);
}

/// As [`trainer`], for one that supports only some tasks.
#[track_caller]
pub fn trainer_for<T: Trainer + 'static>(
    tasks: &[Task],
    make: impl Fn(&BuildContext) -> Result<T>,
) {
    held(check::trainer(tasks, &|m| Ok(Box::new(make(m)?))));
}

/// Checks a privacy mechanism: it bounds, prices and perturbs without failures. Its noise depends
/// only on the stream, and has the distribution of its price. No two bounded messages differ by
/// more than the price states.
#[track_caller]
pub fn mechanism<P: PrivacyMechanism + 'static>(make: impl Fn() -> P) {
    mechanism_for(Neighbours::Replaced, make);
}

/// As [`mechanism`], for neighbours of this kind.
#[track_caller]
pub fn mechanism_for<P: PrivacyMechanism + 'static>(neighbours: Neighbours, make: impl Fn() -> P) {
    held(check::mechanism(
        &|| <dyn AnyMechanism>::of(make()),
        neighbours,
    ));
}

/// Checks an accountant: epsilon grows with every event and shrinks with more noise, and a quote
/// charges nothing. Events that have no price or are invalid are refused. Ledgers merge in any
/// order.
#[track_caller]
pub fn accountant<A: Accountant + 'static>(make: impl Fn() -> A) {
    held(check::accountant(&|| Box::new(make())));
}

/// Checks a generator on the inputs of [`tasks`]: it makes the requested number of inputs, finite
/// and of the task's shape. The same stream gives the same bits, another one others. It learns. A
/// saved generator continues with the same bits. Invalid input is an error.
#[track_caller]
pub fn generator<G: Generator + 'static>(make: impl Fn(&BuildContext) -> Result<G>) {
    held(check::generator(&tasks(), &|m| {
        make(m).map(|g| Box::new(g) as Box<dyn Generator>)
    }));
}
