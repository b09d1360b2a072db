//! Parts as specs see them: named, described, checked, built, and put into the slots of a protocol.

use crate::message::{self, Message, Outline, SoftLabels, Visitor};
use crate::settings::{self, Field, Reader, Value};
use crate::{
    Aggregator, Asked, Candidate, ClientId, PrivacyMechanism, Protocol, Result, Round, Samples,
    Selector, Slot, Stream, Task,
};
use anyhow::{Context, anyhow};
use std::any::Any;
use std::fmt::{Display, Formatter};
use std::ops::RangeInclusive;

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// [`Aggregator`]
    Aggregator,
    /// [`Selector`]
    Selector,
    /// [`PrivacyMechanism`]
    Privacy,
    /// [`crate::Generator`]
    Generator,
    /// [`crate::Trainer`]
    Trainer,
    /// [`crate::Accountant`]
    Accountant,
    /// [`Protocol`]
    Protocol,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 7] = [
        Self::Protocol,
        Self::Aggregator,
        Self::Selector,
        Self::Privacy,
        Self::Generator,
        Self::Trainer,
        Self::Accountant,
    ];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aggregator => "aggregator",
            Self::Selector => "selector",
            Self::Privacy => "privacy mechanism",
            Self::Generator => "generator",
            Self::Trainer => "trainer",
            Self::Accountant => "accountant",
            Self::Protocol => "protocol",
        }
    }

    /// `an aggregator`, `a selector`.
    pub fn with_article(self) -> String {
        format!(
            "{} {}",
            if self.name().starts_with('a') {
                "an"
            } else {
                "a"
            },
            self.name()
        )
    }
}

impl Display for Role {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What a part is made for.
#[derive(Clone, Debug)]
pub struct BuildContext {
    /// What models are to learn.
    pub task: Task,
    /// For initial weights and the like.
    pub stream: Stream,
}

/// What `fl inspect` shows of a part.
#[derive(Clone, Debug)]
pub struct Description {
    /// The doc comment of its settings.
    pub doc: String,
    /// Its settings.
    pub fields: Vec<Field>,
    /// JSON Schema of its settings.
    pub schema: serde_json::Value,
    /// What goes in and out: `params -> params`, `samples`, or nothing.
    pub signature: String,
}

/// Makes a part from its settings: a boxed trait object of its role.
pub type Build = dyn Fn(&Value, &BuildContext) -> Result<Box<dyn Any + Send>> + Sync;

/// A part that a spec can name. [`plugin!`](crate::plugin!) registers one.
pub struct PartDecl {
    /// What it is.
    pub role: Role,
    /// Its name in specs.
    pub name: &'static str,
    /// The crate or library that it comes from.
    pub origin: &'static str,
    /// What it says about itself.
    pub describe: &'static (dyn Fn() -> Description + Sync),
    /// Notes every mistake in its settings; without any, gives them with every default filled in.
    pub check: &'static (dyn Fn(&Value, &mut Reader) -> Option<Value> + Sync),
    /// Makes it.
    pub build: &'static Build,
}

inventory::collect!(&'static PartDecl);

/// Every part that is linked into this program, by role and name.
pub fn linked_parts() -> Vec<&'static PartDecl> {
    let mut all: Vec<_> = inventory::iter::<&'static PartDecl>
        .into_iter()
        .copied()
        .collect();
    all.sort_by_key(|p| (p.role, p.name));
    all
}

/// What a selector can choose from.
pub trait Pool {
    /// Its name in signatures.
    const NAME: &'static str;
}

/// The clients that can be chosen, ascending, and what is known of each because somebody asked.
pub type Roster = [Candidate];

impl Pool for Roster {
    const NAME: &'static str = "clients";
}

impl Pool for Samples {
    const NAME: &'static str = "samples";
}

impl Pool for SoftLabels {
    const NAME: &'static str = SoftLabels::KIND;
}

/// `params -> params`
pub fn aggregator_signature<I: Message, O: Message>() -> String {
    format!("{} -> {}", I::KIND, O::KIND)
}

/// One part of a spec: what fills a slot, for all clients or for some.
#[derive(Clone)]
pub struct Filled {
    /// The slot.
    pub slot: String,
    /// For these clients only.
    pub clients: Option<Vec<RangeInclusive<ClientId>>>,
    /// The part.
    pub decl: &'static PartDecl,
    /// Its settings, already checked.
    pub settings: Value,
}

/// What fills the slots of a run.
#[derive(Clone, Default)]
pub struct Parts {
    filled: Vec<Filled>,
    slots: Vec<Slot>,
}

/// An aggregator of `I` to `O`.
pub type BoxedAggregator<I, O> = Box<dyn Aggregator<In = I, Out = O>>;
/// A selector of `P`.
pub type BoxedSelector<P> = Box<dyn Selector<Pool = P>>;
/// A privacy mechanism on `M`.
pub type BoxedMechanism<M> = Box<dyn PrivacyMechanism<On = M>>;

struct WantsRange<'a> {
    parts: &'a Parts,
    slot: &'a str,
    context: &'a BuildContext,
}

impl Visitor for WantsRange<'_> {
    type Out = bool;
    fn visit<M: Message>(self) -> bool {
        let wants = self.parts.wants_range::<M>(self.slot, self.context);
        wants.unwrap_or(true)
    }
}

impl Parts {
    /// From parts whose settings and signatures have been checked.
    pub fn new(filled: Vec<Filled>) -> Self {
        Self {
            filled,
            slots: Vec::new(),
        }
    }

    /// The same parts, in the slots of a protocol, which say what lasts and what each is to learn. Used by hosts.
    pub fn in_slots(&self, slots: Vec<Slot>) -> Self {
        Self {
            filled: self.filled.clone(),
            slots,
        }
    }

    /// Every part, in the order of the spec.
    pub fn iter(&self) -> std::slice::Iter<'_, Filled> {
        self.filled.iter()
    }

    /// Is there anything in this slot?
    pub fn has(&self, slot: &str) -> bool {
        self.filled.iter().any(|f| f.slot == slot)
    }

    /// Is there anything in this slot for this client?
    pub fn has_for(&self, slot: &str, client: ClientId) -> bool {
        self.find(slot, Some(client)).is_ok()
    }

    /// For whom there is something in this slot, such as `sign-flip for clients 0-1`.
    pub fn who(&self, slot: &str) -> Vec<String> {
        let of_slot = self.filled.iter().filter(|f| f.slot == slot);
        let named = of_slot.map(|f| {
            let group = |r: &RangeInclusive<ClientId>| match r.start() == r.end() {
                true => r.start().to_string(),
                false => format!("{}-{}", r.start(), r.end()),
            };
            match &f.clients {
                Some(groups) => {
                    let groups: Vec<String> = groups.iter().map(group).collect();
                    format!("`{}` for clients {}", f.decl.name, groups.join(", "))
                }
                None => format!("`{}` for all clients", f.decl.name),
            }
        });
        named.collect()
    }

    fn slot(&self, name: &str) -> Option<&Slot> {
        self.slots.iter().find(|s| s.name == name)
    }

    /// Does a client keep what is in this slot from one question to the next? See [`Slot::lasting`].
    pub fn lasts(&self, slot: &str) -> bool {
        self.slot(slot).is_none_or(|s| s.lasts)
    }

    /// What a part of this slot is to learn in a run with this task.
    pub fn task(&self, slot: &str, task: &Task) -> Task {
        self.slot(slot)
            .map_or_else(|| task.clone(), |s| (s.task)(task))
    }

    /// Does a mechanism in `slot`, anybody's, want all clients to agree on a range ([`crate::PrivacyMechanism::range`])? It is
    /// asked about a made-up message.
    ///
    /// # Errors
    /// When a part cannot be made.
    pub fn wants_range<M: Message>(&self, slot: &str, context: &BuildContext) -> Result<bool> {
        let mut draws = context.stream.child("range", 0).draws();
        let number = |draws: &mut crate::Draws| draws.normal() as f32;
        let classes = context.task.kind.outputs();
        let mut outline = Outline::new(1, &number, &mut draws).fixed(&[0, 1], classes, 1);
        let Some(message) = M::sample(&mut outline) else {
            return Ok(self.has(slot));
        };
        for filled in self.filled.iter().filter(|f| f.slot == slot) {
            let client = filled.clients.iter().flatten().next();
            let client = client.map(|range| *range.start());
            let part: BoxedMechanism<M> = self.build(Role::Privacy, slot, client, context)?;
            if part.range(&message).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Will this question be asked? One that only some parts want to know is, if the part in its slot is such a one. The
    /// slots must be known ([`Parts::in_slots`]).
    pub fn asks(&self, asked: &Asked, context: &BuildContext) -> bool {
        let filled = |slot: Option<&str>| slot.is_none_or(|slot| self.has(slot));
        filled(asked.needs) && asked.asked_by.is_none_or(|slot| self.wants(slot, context))
    }

    fn wants(&self, name: &str, context: &BuildContext) -> bool {
        let Some(slot) = self.slot(name).filter(|_| self.has(name)) else {
            return false;
        };
        match slot.role {
            Role::Privacy => {
                let wants = WantsRange {
                    parts: self,
                    slot: name,
                    context,
                };
                // of a message that is not in the list nothing is known
                message::visit(&slot.signature, wants).unwrap_or(true)
            }
            Role::Selector => {
                let pool = [Candidate::new(0), Candidate::new(1)];
                let selector = self.build::<BoxedSelector<Roster>>(slot.role, name, None, context);
                selector
                    .is_ok_and(|mut s| s.poll(&Round::first(), &pool).is_ok_and(|p| p.is_some()))
            }
            _ => true,
        }
    }

    fn find(&self, slot: &str, client: Option<ClientId>) -> Result<&Filled> {
        let mut of_slot = self.filled.iter().filter(|f| f.slot == slot);
        let fits = |f: &&Filled| match (&f.clients, client) {
            (Some(groups), Some(id)) => groups.iter().any(|g| g.contains(&id)),
            (Some(_), None) => false,
            (None, _) => true,
        };
        of_slot.find(fits).with_context(|| match client {
            Some(id) => format!("parts.{slot} has nothing for client {id}"),
            None => format!(
                "parts.{slot} has nothing for the server; leave out `clients` in one of its parts"
            ),
        })
    }

    /// Makes the part in `slot`, for the server or for a client: a boxed trait object of `role`, such as
    /// [`BoxedSelector`].
    ///
    /// # Errors
    /// When the slot is empty, its part is of another kind, or cannot be made.
    pub fn build<B: 'static>(
        &self,
        role: Role,
        slot: &str,
        client: Option<ClientId>,
        context: &BuildContext,
    ) -> Result<B> {
        let filled = self.find(slot, client)?;
        let what = || format!("parts.{slot} ({} `{}`)", filled.decl.role, filled.decl.name);
        let part = (filled.decl.build)(&filled.settings, context).with_context(what)?;
        let part = part
            .downcast::<B>()
            .map_err(|_| match filled.decl.role == role {
                true => anyhow!(
                    "does not fit this slot: it is {}",
                    (filled.decl.describe)().signature
                ),
                false => anyhow!(
                    "does not fit this slot, which wants {}",
                    role.with_article()
                ),
            });
        Ok(*part.with_context(what)?)
    }
}

/// Makes a protocol from its declaration.
///
/// # Errors
/// When `decl` is no protocol, or its settings are wrong.
pub fn protocol(
    decl: &PartDecl,
    settings: &Value,
    make: &BuildContext,
) -> Result<Box<dyn Protocol>> {
    let part = (decl.build)(settings, make).with_context(|| format!("protocol `{}`", decl.name))?;
    part.downcast::<Box<dyn Protocol>>()
        .map(|p| *p)
        .map_err(|_| {
            anyhow!(
                "`{}` is {}, not a protocol",
                decl.name,
                decl.role.with_article()
            )
        })
}

/// Used by [`plugin!`](crate::plugin!).
#[doc(hidden)]
pub fn describe<S: settings::Settings>(signature: String) -> Description {
    Description {
        doc: S::doc(),
        fields: S::fields(),
        schema: S::schema(),
        signature,
    }
}

/// Used by [`plugin!`](crate::plugin!).
#[doc(hidden)]
pub fn check<S: settings::Settings>(value: &Value, reader: &mut Reader) -> Option<Value> {
    S::read(value, reader).map(|read| read.write())
}

/// Registers a part: `plugin!(aggregator "trimmed-mean" => TrimmedMean);`
///
/// The type is the settings and the part in one, or `Settings as Part` with `impl From<Settings> for Part`. Trainers and
/// generators have `fn new(Settings, &BuildContext) -> Result<Self>` instead.
#[macro_export]
macro_rules! plugin {
    ($role:ident $name:literal => $t:ty) => { $crate::plugin!($role $name => $t as $t); };
    (aggregator $name:literal => $s:ty as $t:ty) => {
        $crate::plugin!(@ Aggregator, $name, $s,
            $crate::aggregator_signature::<<$t as $crate::Aggregator>::In, <$t as $crate::Aggregator>::Out>(),
            |s, _| Ok(Box::new(<$t>::from(s)) as $crate::BoxedAggregator<<$t as $crate::Aggregator>::In, <$t as $crate::Aggregator>::Out>));
    };
    (selector $name:literal => $s:ty as $t:ty) => {
        $crate::plugin!(@ Selector, $name, $s,
            <<$t as $crate::Selector>::Pool as $crate::Pool>::NAME.to_string(),
            |s, _| Ok(Box::new(<$t>::from(s)) as $crate::BoxedSelector<<$t as $crate::Selector>::Pool>));
    };
    (privacy $name:literal => $s:ty as $t:ty) => {
        $crate::plugin!(@ Privacy, $name, $s,
            <<$t as $crate::PrivacyMechanism>::On as $crate::message::Message>::KIND.to_string(),
            |s, _| Ok(Box::new(<$t>::from(s)) as $crate::BoxedMechanism<<$t as $crate::PrivacyMechanism>::On>));
    };
    (accountant $name:literal => $s:ty as $t:ty) => {
        $crate::plugin!(@ Accountant, $name, $s, String::new(), |s, _| Ok(Box::new(<$t>::from(s)) as Box<dyn $crate::Accountant>));
    };
    (protocol $name:literal => $s:ty as $t:ty) => {
        $crate::plugin!(@ Protocol, $name, $s, String::new(), |s, _| Ok(Box::new(<$t>::from(s)) as Box<dyn $crate::Protocol>));
    };
    (trainer $name:literal => $s:ty as $t:ty) => {
        $crate::plugin!(@ Trainer, $name, $s, String::new(), |s, make| <$t>::new(s, make).map(|t| Box::new(t) as Box<dyn $crate::Trainer>));
    };
    (generator $name:literal => $s:ty as $t:ty) => {
        $crate::plugin!(@ Generator, $name, $s, String::new(), |s, make| <$t>::new(s, make).map(|t| Box::new(t) as Box<dyn $crate::Generator>));
    };
    (@ $role:ident, $name:literal, $s:ty, $signature:expr, $make:expr) => {
        const _: () = {
            static DECL: $crate::PartDecl = $crate::PartDecl {
                role: $crate::Role::$role,
                name: $name,
                origin: env!("CARGO_PKG_NAME"),
                describe: &|| $crate::__private::describe::<$s>($signature),
                check: &$crate::__private::check::<$s>,
                build: &|value, make| {
                    let settings: $s = $crate::settings::read_value(value)?;
                    $crate::__private::boxed($make, settings, make)
                },
            };
            $crate::__private::inventory::submit! { &DECL }
        };
    };
}

/// Used by [`plugin!`](crate::plugin!).
#[doc(hidden)]
pub fn boxed<S, P: Send + 'static>(
    build: impl FnOnce(S, &BuildContext) -> Result<P>,
    settings: S,
    make: &BuildContext,
) -> Result<Box<dyn Any + Send>> {
    Ok(Box::new(build(settings, make)?))
}
