//! [`PartDecl`]: a part as specs see it, with its name, documentation, checks and constructor.

use crate::message::{Message, SoftLabels};
use crate::sealed::Sealed;
use crate::settings::{self, Field, Reader, Value, ValueType};
use crate::{Aggregator, BoxedPart, Candidate, Protocol, Result, Samples, Stream, Task};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt::{Display, Formatter};
use std::sync::Arc;

/// The role of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "&str", try_from = "String")]
pub enum Role {
    /// [`crate::Aggregator`]
    Aggregator,
    /// [`crate::Selector`]
    Selector,
    /// [`crate::PrivacyMechanism`]
    Privacy,
    /// [`crate::Generator`]
    Generator,
    /// [`crate::Trainer`]
    Trainer,
    /// [`crate::Accountant`]
    Accountant,
    /// Forges an attacker's answer from its honest results: an [`crate::Aggregator`] of one message
    /// type, which runs at a client ([`crate::Client::attack`]) and fits no aggregator's slot.
    Attack,
    /// [`Protocol`]
    Protocol,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 8] = [
        Self::Protocol,
        Self::Aggregator,
        Self::Selector,
        Self::Privacy,
        Self::Generator,
        Self::Trainer,
        Self::Accountant,
        Self::Attack,
    ];

    /// Returns its name in specs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aggregator => "aggregator",
            Self::Selector => "selector",
            Self::Privacy => "privacy mechanism",
            Self::Generator => "generator",
            Self::Trainer => "trainer",
            Self::Accountant => "accountant",
            Self::Attack => "attack",
            Self::Protocol => "protocol",
        }
    }

    /// Returns its name with an article: `an aggregator`, `a selector`.
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

impl From<Role> for &str {
    fn from(role: Role) -> Self {
        role.name()
    }
}

impl TryFrom<String> for Role {
    type Error = String;
    /// The role of this name: `privacy` or `privacy mechanism`.
    fn try_from(name: String) -> std::result::Result<Self, String> {
        let short = |role: &Self| role.name().split(' ').next() == Some(&*name);
        let mut found = Self::ALL.into_iter();
        let found = found.find(|role| role.name() == name || short(role));
        found.ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|role| role.name()).collect();
            let name = crate::kept_text::plain(&name);
            format!("no role is called `{name}`; known: {}", known.join(", "))
        })
    }
}

impl Display for Role {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The context that a part is made in.
#[derive(Clone, Debug)]
pub struct BuildContext {
    /// The task that its models learn.
    pub task: Task,
    /// Randomness, for example for initial weights.
    pub stream: Stream,
}

impl BuildContext {
    /// Makes a context of a task and of randomness.
    pub fn new(task: Task, stream: Stream) -> Self {
        Self { task, stream }
    }
}

/// The documentation of a part, for `fl inspect`.
#[derive(Clone, Debug)]
pub struct Description {
    /// The doc comment of its settings.
    pub doc: String,
    /// Its settings.
    pub fields: Vec<Field>,
    /// Its input and output: `params -> params`, `samples`, or empty.
    pub signature: String,
}

impl Description {
    /// Returns its settings as one group.
    pub fn group(&self) -> ValueType {
        ValueType::Group {
            doc: self.doc.clone(),
            fields: self.fields.clone(),
        }
    }
}

type Build = dyn Fn(&BuildContext) -> Result<Box<dyn Any + Send>> + Send + Sync;

/// The valid settings of a part, and the function that makes the part from them.
#[derive(Clone)]
pub struct CheckedSettings {
    /// The settings as a spec has them, with all defaults filled in.
    pub value: Value,
    build: Arc<Build>,
}

impl CheckedSettings {
    /// Makes checked settings from their value and the function that makes the part.
    pub fn new(
        value: Value,
        build: impl Fn(&BuildContext) -> Result<Box<dyn Any + Send>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            value,
            build: Arc::new(build),
        }
    }

    /// Makes the part: a boxed trait object of its role. Aggregators, selectors and mechanisms have
    /// no Rust types here (`Box<dyn AnyAggregator>`); [`PartDecl::make`] returns the typed ones.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn build(&self, context: &BuildContext) -> Result<Box<dyn Any + Send>> {
        (self.build)(context)
    }
}

/// Another name of a part in specs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The name.
    pub name: &'static str,
    /// Its preset settings in YAML, such as `{ labels: scores }`; those of a spec override them.
    /// Empty: none.
    pub preset: &'static str,
    /// The parts that the method has in slots of this protocol, in YAML, such as
    /// `{ ensemble: { use: mean-logits } }`; `{}` for a part of any kind. A spec that fills a slot
    /// otherwise gets a note. Empty: any.
    pub parts: &'static str,
}

/// A part that a spec can name. [`plugin!`](crate::plugin!) registers one.
pub struct PartDecl {
    /// Its role.
    pub role: Role,
    /// Its name in specs.
    pub name: &'static str,
    /// Other names in specs, such as those of the papers that it implements.
    pub aliases: &'static [Alias],
    /// The papers that it implements, such as `McMahan et al. 2017`.
    pub papers: &'static [&'static str],
    /// The crate or library that it comes from.
    pub origin: &'static str,
    /// The crate that it comes from; empty if a library does not say.
    pub package: &'static str,
    /// Whether a library has it only because its own parts use the crate. It gives way to the same
    /// part of the same crate.
    pub brought: bool,
    /// Whether it is in processes of its own that can read no file of the user's.
    pub confined: bool,
    /// Returns its documentation.
    pub describe: &'static (dyn Fn() -> Description + Sync),
    /// Records every mistake in its settings. Without a mistake, returns the checked settings.
    pub check: &'static (dyn Fn(&Value, &mut Reader) -> Option<CheckedSettings> + Sync),
}

inventory::collect!(&'static PartDecl);

impl PartDecl {
    /// Reads its settings; all mistakes together, one a line.
    ///
    /// # Errors
    /// When anything is wrong with them.
    pub fn read(&self, settings: &Value) -> Result<CheckedSettings> {
        settings::collected(|reader| (self.check)(settings, reader))
    }

    /// Makes the part, as a boxed trait object such as [`crate::BoxedAggregator`] or
    /// `Box<dyn AnyAggregator>`.
    ///
    /// # Errors
    /// If it cannot be made, or is not a `B`.
    pub fn make<B: BoxedPart>(&self, settings: &Value, make: &BuildContext) -> Result<B> {
        let made = self.read(settings)?.build(make)?;
        B::cast(made).with_context(|| {
            let signature = (self.describe)().signature;
            format!(
                "{} `{}` does not fit: it is {signature}",
                self.role, self.name
            )
        })
    }
}

/// Returns every part that is linked into this program, by role and name.
pub fn linked_parts() -> Vec<&'static PartDecl> {
    let mut all: Vec<_> = inventory::iter::<&'static PartDecl>
        .into_iter()
        .copied()
        .collect();
    all.sort_by_key(|p| (p.role, p.name));
    all
}

/// A pool that a selector can choose from.
pub trait Pool: Sealed + 'static {
    /// Its name in signatures.
    const NAME: &'static str;

    /// Converts it to [`AnyPool`].
    fn any(&self) -> AnyPool<'_>;

    /// Converts it from [`AnyPool`]; `None` if that is another pool.
    fn of(any: AnyPool<'_>) -> Option<&Self>;
}

/// The clients that can be chosen, ascending, with the statistics that were requested.
pub type Roster = [Candidate];

/// A pool of any kind.
#[derive(Clone, Copy, Debug)]
pub enum AnyPool<'a> {
    /// Clients.
    Clients(&'a Roster),
    /// Samples.
    Samples(&'a Samples),
    /// Rows of class probabilities.
    SoftLabels(&'a SoftLabels),
}

impl AnyPool<'_> {
    /// The names of all pools.
    pub const NAMES: [&'static str; 3] = [Roster::NAME, Samples::NAME, SoftLabels::NAME];

    /// Returns its name in signatures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clients(_) => Roster::NAME,
            Self::Samples(_) => Samples::NAME,
            Self::SoftLabels(_) => SoftLabels::NAME,
        }
    }

    /// Returns the number of entries to choose from.
    pub fn size(self) -> usize {
        match self {
            Self::Clients(clients) => clients.len(),
            Self::Samples(samples) => samples.len(),
            Self::SoftLabels(labels) => labels.rows.len(),
        }
    }
}

macro_rules! pool {
    ($pool:ty, $name:expr, $which:ident) => {
        impl Sealed for $pool {}

        impl Pool for $pool {
            const NAME: &'static str = $name;
            fn any(&self) -> AnyPool<'_> {
                AnyPool::$which(self)
            }
            fn of(any: AnyPool<'_>) -> Option<&Self> {
                match any {
                    AnyPool::$which(pool) => Some(pool),
                    _ => None,
                }
            }
        }
    };
}

pool!(Roster, "clients", Clients);
pool!(Samples, "samples", Samples);
pool!(SoftLabels, SoftLabels::KIND, SoftLabels);

/// Returns the signature of an aggregator, such as `params -> params`.
pub fn aggregator_signature<I: Message, O: Message>() -> String {
    format!("{} -> {}", I::KIND, O::KIND)
}

/// Returns the signature of an attack: the message that it forges, such as `params`.
pub fn attack_signature<M: Message, A: Aggregator<In = M, Out = M>>() -> String {
    M::KIND.into()
}

/// Makes a protocol from its declaration.
///
/// # Errors
/// If `decl` is no protocol, or cannot be made.
pub fn protocol(
    decl: &PartDecl,
    settings: &CheckedSettings,
    make: &BuildContext,
) -> Result<Box<dyn Protocol>> {
    let (name, role) = (decl.name, decl.role);
    let part = settings.build(make);
    let part = part.with_context(|| format!("protocol `{name}`"))?;
    <Box<dyn Protocol>>::cast(part)
        .with_context(|| format!("`{name}` is {}, not a protocol", role.with_article()))
}

/// Used by [`plugin!`](crate::plugin!).
#[doc(hidden)]
pub fn describe<S: settings::Settings>(signature: String) -> Description {
    Description {
        doc: S::doc(),
        fields: S::fields(),
        signature,
    }
}

/// Used by [`plugin!`](crate::plugin!).
#[doc(hidden)]
pub fn check<S: settings::Settings + Clone + Send + Sync + 'static, P: Send + 'static>(
    value: &Value,
    reader: &mut Reader,
    build: fn(S, &BuildContext) -> Result<P>,
) -> Option<CheckedSettings> {
    let read = S::read(value, reader)?;
    Some(CheckedSettings::new(read.write(), move |context| {
        Ok(Box::new(build(read.clone(), context)?))
    }))
}

impl PartDecl {
    /// Returns whether specs may call it `name`.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.alias(name).is_some()
    }

    /// Returns its name and its aliases.
    pub fn names(&self) -> Vec<&'static str> {
        let aliases = self.aliases.iter().map(|alias| alias.name);
        std::iter::once(self.name).chain(aliases).collect()
    }

    /// Returns the alias called `name`, if any.
    pub fn alias(&self, name: &str) -> Option<&'static Alias> {
        self.aliases.iter().find(|alias| alias.name == name)
    }
}

/// Registers a part: `plugin!(aggregator "trimmed-mean" => TrimmedMean);`
///
/// The type is both the settings and the part, or `Settings as Part` with
/// `impl From<Settings> for Part`; `Settings as Part { state }` writes that for a part whose fields
/// are its `settings` and its state, which begins with the default. Trainers and generators have
/// `fn new(Settings, &BuildContext) -> Result<Self>` instead.
///
/// Aliases follow, each with optional preset settings and parts ([`Alias`]), and then the papers:
/// `plugin!(protocol "co-distill" => CoDistill, aliases: ["selective-fd", "fedmd":
/// "{ labels: scores }" with "{ ensemble: { use: mean-logits } }"], papers:
/// ["Shao et al. 2024"]);`
#[macro_export]
macro_rules! plugin {
    ($role:ident $name:literal => $t:ty $(, $($facts:tt)*)?) => { $crate::plugin!($role $name => $t as $t $(, $($facts)*)?); };
    ($role:ident $name:literal => $s:ty as $t:ident { $($state:ident),+ } $(, $($facts:tt)*)?) => {
        impl From<$s> for $t {
            fn from(settings: $s) -> Self {
                Self { settings, $($state: Default::default()),+ }
            }
        }
        $crate::plugin!($role $name => $s as $t $(, $($facts)*)?);
    };
    (aggregator $name:literal => $s:ty as $t:ty $(, $($facts:tt)*)?) => {
        $crate::plugin!(@ Aggregator, $name, $s,
            $crate::aggregator_signature::<<$t as $crate::Aggregator>::In, <$t as $crate::Aggregator>::Out>(),
            |s, _| Ok(<dyn $crate::AnyAggregator>::of(<$t>::from(s))), $($($facts)*)?);
    };
    (attack $name:literal => $s:ty as $t:ty $(, $($facts:tt)*)?) => {
        $crate::plugin!(@ Attack, $name, $s,
            $crate::attack_signature::<<$t as $crate::Aggregator>::In, $t>(),
            |s, _| Ok(<dyn $crate::AnyAggregator>::of(<$t>::from(s))), $($($facts)*)?);
    };
    (selector $name:literal => $s:ty as $t:ty $(, $($facts:tt)*)?) => {
        $crate::plugin!(@ Selector, $name, $s,
            <<$t as $crate::Selector>::Pool as $crate::Pool>::NAME.to_string(),
            |s, _| Ok(<dyn $crate::AnySelector>::of(<$t>::from(s))), $($($facts)*)?);
    };
    (privacy $name:literal => $s:ty as $t:ty $(, $($facts:tt)*)?) => {
        $crate::plugin!(@ Privacy, $name, $s,
            <<$t as $crate::PrivacyMechanism>::On as $crate::message::Message>::KIND.to_string(),
            |s, _| Ok(<dyn $crate::AnyMechanism>::of(<$t>::from(s))), $($($facts)*)?);
    };
    (accountant $name:literal => $s:ty as $t:ty $(, $($facts:tt)*)?) => {
        $crate::plugin!(@ Accountant, $name, $s, String::new(), |s, _| Ok(Box::new(<$t>::from(s)) as Box<dyn $crate::Accountant>), $($($facts)*)?);
    };
    (protocol $name:literal => $s:ty as $t:ty $(, $($facts:tt)*)?) => {
        $crate::plugin!(@ Protocol, $name, $s, String::new(), |s, _| Ok(Box::new(<$t>::from(s)) as Box<dyn $crate::Protocol>), $($($facts)*)?);
    };
    (trainer $name:literal => $s:ty as $t:ty $(, $($facts:tt)*)?) => {
        $crate::plugin!(@ Trainer, $name, $s, String::new(), |s, make| <$t>::new(s, make).map(|t| Box::new(t) as Box<dyn $crate::Trainer>), $($($facts)*)?);
    };
    (generator $name:literal => $s:ty as $t:ty $(, $($facts:tt)*)?) => {
        $crate::plugin!(@ Generator, $name, $s, String::new(), |s, make| <$t>::new(s, make).map(|t| Box::new(t) as Box<dyn $crate::Generator>), $($($facts)*)?);
    };
    (@ $role:ident, $name:literal, $s:ty, $signature:expr, $make:expr,
        $(aliases: [$($alias:literal $(: $preset:literal)? $(with $parts:literal)?),* $(,)?])? $(,)? $(papers: [$($paper:literal),* $(,)?])? $(,)?) => {
        const _: () = {
            static DECL: $crate::PartDecl = $crate::PartDecl {
                role: $crate::Role::$role,
                name: $name,
                aliases: &[$($($crate::Alias {
                    name: $alias,
                    preset: concat!("" $(, $preset)?),
                    parts: concat!("" $(, $parts)?),
                }),*)?],
                papers: &[$($($paper),*)?],
                origin: env!("CARGO_PKG_NAME"),
                package: env!("CARGO_PKG_NAME"),
                brought: false,
                confined: false,
                describe: &|| $crate::__private::describe::<$s>($signature),
                check: &|value, reader| $crate::__private::check::<$s, _>(value, reader, $make),
            };
            $crate::__private::inventory::submit! { &DECL }
        };
    };
}
