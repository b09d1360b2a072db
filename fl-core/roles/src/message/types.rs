//! [`MessageType`]: a kind of message without its Rust type, and the registry of kinds.

use super::declared::{Declared, Shape};
use super::{
    AnyMessage, ClassMeans, Column, ColumnDecl, Counts, Erased, ExchangeShape, GradientSum, Ids,
    Logits, Mask, Message, MessageDecl, Models, Nothing, Params, ParamsList, SampleShape, Scalar,
    SoftLabels, TensorMap, Votes, check, json, wire,
};
use crate::{AnyInbox, ClientMessage, Inbox, Result};
use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value as Json};
use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt::{Debug, Formatter};
use std::marker::PhantomData;
use std::sync::{OnceLock, PoisonError, RwLock};

/// How far two messages can differ when one unit of data changes; a mechanism's price is checked
/// against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SensitivityNorm {
    /// One unit of data turns any message into any other.
    #[default]
    Any,
    /// It is a sum over units of data: a unit adds its own message or removes it.
    Sum,
    /// Each message states its own sensitivity to a unit of data, as vote counts do.
    Stated,
}

/// A kind of message: its name, its tensors, and its constructor.
///
/// A Rust type that implements [`Message`] has one ([`MessageType::of`]). A library or Python
/// declares others on load ([`MessageType::declare`]); they last as long as the program.
#[derive(Debug)]
pub struct MessageType {
    /// Its name in specs, errors and the journal.
    pub kind: &'static str,
    /// A description in one line.
    pub doc: &'static str,
    /// Its tensors, see [`Message::COLUMNS`].
    pub columns: &'static [Column],
    /// The sensitivity to one unit of data.
    pub reach: SensitivityNorm,
    /// See [`Message::FIELDS`].
    pub fields: &'static [(&'static str, &'static str)],
    /// The constructor of its messages.
    source: Source,
}

#[derive(Debug)]
enum Source {
    Rust(Functions),
    Declared {
        origin: &'static str,
        shapes: Vec<Shape>,
        expected: Option<ExpectedBytes>,
    },
}

/// A library's answer to [`MessageType::expected`] for a kind of its own.
pub struct ExpectedBytes(pub Box<AskBytes>);

type AskBytes = dyn Fn(&ExchangeShape) -> Option<u64> + Send + Sync;

impl Debug for ExpectedBytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExpectedBytes")
    }
}

/// Makes an inbox of messages of one type.
type MakeInbox = fn(Vec<ClientMessage<Erased>>, bool) -> Result<Box<dyn AnyInbox>>;

/// The functions that are compiled for each Rust type.
#[derive(Debug)]
struct Functions {
    name: fn() -> &'static str,
    from_tensors: fn(TensorMap) -> Result<Erased>,
    expected: fn(&ExchangeShape) -> Option<u64>,
    sample: fn(&mut SampleShape<'_>) -> Option<Erased>,
    inbox: MakeInbox,
}

struct TypeOf<M>(PhantomData<M>);

impl<M: Message> TypeOf<M> {
    const TYPE: &'static MessageType = &MessageType {
        kind: M::KIND,
        doc: M::DOC,
        columns: M::COLUMNS,
        reach: M::REACH,
        fields: M::FIELDS,
        source: Source::Rust(Functions {
            name: type_name::<M>,
            from_tensors: |parcel| Ok(Box::new(M::from_tensors(parcel)?)),
            expected: M::expected,
            sample: |outline| Some(Box::new(M::sample(outline)?)),
            inbox: inbox::<M>,
        }),
    };
}

/// Makes an inbox of messages that are all `M`. Skips the check if the other side has checked them.
fn inbox<M: AnyMessage>(
    mail: Vec<ClientMessage<Erased>>,
    checked: bool,
) -> Result<Box<dyn AnyInbox>> {
    let mail = mail.into_iter().map(|m| m.try_map(|body| body.take::<M>()));
    let mail = mail.collect::<Result<Vec<_>>>()?;
    Ok(Box::new(if checked {
        Inbox::trusted(mail)
    } else {
        Inbox::new(mail)?
    }))
}

impl MessageType {
    /// Returns the message type of a Rust type.
    pub const fn of<M: Message>() -> &'static Self {
        TypeOf::<M>::TYPE
    }

    /// Returns whether it belongs to the core, so that every program knows it.
    #[doc(hidden)]
    pub fn is_of_core(&self) -> bool {
        CORE.iter().any(|of| of.kind == self.kind)
    }

    /// Returns what defines this kind: a Rust type or a library.
    pub fn origin(&self) -> &'static str {
        match &self.source {
            Source::Rust(rust) => (rust.name)(),
            Source::Declared { origin, .. } => origin,
        }
    }

    /// Makes a message of these tensors.
    ///
    /// # Errors
    /// If the tensors are not those of such a message.
    pub fn from_tensors(&'static self, parcel: TensorMap) -> Result<Erased> {
        match &self.source {
            Source::Rust(rust) => (rust.from_tensors)(parcel),
            Source::Declared { shapes, .. } => {
                Ok(Box::new(Declared::new(self, shapes, parcel.rest())?))
            }
        }
    }

    /// Returns the largest bytes of one such message; `None` if that is unknown before.
    pub fn expected(&self, facts: &ExchangeShape) -> Option<u64> {
        match &self.source {
            Source::Rust(rust) => (rust.expected)(facts),
            Source::Declared {
                shapes, expected, ..
            } => {
                let asked = expected.as_ref().and_then(|asked| asked.0(facts));
                asked.or_else(|| Declared::expected(self, shapes, facts))
            }
        }
    }

    /// Returns a valid sample message, for tests of parts; `None` if its Rust type has no sample.
    pub fn sample(&'static self, outline: &mut SampleShape<'_>) -> Option<Erased> {
        match &self.source {
            Source::Rust(rust) => (rust.sample)(outline),
            // only its protocol knows the content of an open one
            Source::Declared { shapes, .. } if shapes.is_empty() => None,
            Source::Declared { shapes, .. } => {
                Some(Box::new(Declared::sample(self, shapes, outline)))
            }
        }
    }

    /// Reads the output of [`encode`](super::encode).
    ///
    /// # Errors
    /// As [`decode`](super::decode).
    pub fn decode(&'static self, wire: &[u8]) -> Result<Erased> {
        let parcel = wire::parcel(wire, self.kind)?;
        let made = self.from_tensors(parcel);
        made.with_context(|| format!("a {} message", self.kind))
    }

    /// Reads a message from JSON, as [`from_json`](super::from_json) does.
    ///
    /// # Errors
    /// As [`from_json`](super::from_json).
    pub fn from_json(&'static self, tensors: &Map<String, Json>) -> Result<Erased> {
        let made = json::parcel(self.columns, tensors).and_then(|p| self.from_tensors(p));
        let message = made.with_context(|| format!("a {} message", self.kind))?;
        check(&*message)?;
        Ok(message)
    }

    /// Checks and sorts messages, as [`Inbox::new`] does.
    ///
    /// # Errors
    /// As [`Inbox::new`], or if a message is of another kind.
    pub fn inbox(&self, mail: Vec<ClientMessage<Erased>>) -> Result<Box<dyn AnyInbox>> {
        self.inbox_of(mail, false)
    }

    /// As [`MessageType::inbox`], without the checks that the other side of the C interface has
    /// done.
    #[doc(hidden)]
    pub fn trusted_inbox(&self, mail: Vec<ClientMessage<Erased>>) -> Result<Box<dyn AnyInbox>> {
        self.inbox_of(mail, true)
    }

    fn inbox_of(
        &self,
        mail: Vec<ClientMessage<Erased>>,
        checked: bool,
    ) -> Result<Box<dyn AnyInbox>> {
        match &self.source {
            Source::Rust(rust) => (rust.inbox)(mail, checked),
            Source::Declared { .. } => {
                let foreign = mail.iter().find(|m| m.body.kind() != self.kind);
                if let Some(m) = foreign {
                    bail!("a {} message where {} was due", m.body.kind(), self.kind);
                }
                inbox::<Declared>(mail, checked)
            }
        }
    }

    /// Declares a kind of message without a Rust type. A second declaration of a kind must match
    /// the first, which is returned. If a Rust type of the kind is linked, messages have that type.
    ///
    /// ```
    /// use fl_core::message::{MessageDecl, MessageType, message_type};
    /// let decl: MessageDecl = serde_json::from_str(
    ///     r#"{"kind": "spreads", "doc": "How far scores lie apart.", "tensors": [
    ///         {"name": "rows", "type": "u32", "shape": "rows", "doc": "ids of the samples"},
    ///         {"name": "spread", "type": "f64", "shape": "rows x 2",
    ///          "doc": "lowest and highest score"}]}"#,
    /// ).unwrap();
    /// assert_eq!(MessageType::declare(&decl, "my-library.so").unwrap().kind, "spreads");
    /// assert_eq!(message_type("spreads").unwrap().origin(), "my-library.so");
    /// ```
    ///
    /// # Errors
    /// If the name of the kind or a tensor is invalid, a shape cannot be parsed, or the kind has
    /// another declaration.
    pub fn declare(decl: &MessageDecl, origin: &str) -> Result<&'static Self> {
        Self::declare_with(decl, origin, None)
    }

    /// As [`MessageType::declare`], where `expected` knows the bytes of its messages.
    #[doc(hidden)]
    pub fn declare_with(
        decl: &MessageDecl,
        origin: &str,
        expected: Option<ExpectedBytes>,
    ) -> Result<&'static Self> {
        let shapes = decl.shapes()?;
        let mut known = registry().write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&*decl.kind) {
            ensure!(
                decl.says_what(known),
                "message `{}` is declared twice: {} says {}, {origin} says {}; rename one of them",
                decl.kind,
                known.origin(),
                MessageDecl::from(*known).outline(),
                decl.outline()
            );
            return Ok(known);
        }
        fn kept(text: &str) -> &'static str {
            text.to_string().leak()
        }
        let column =
            |c: &ColumnDecl| Column::new(kept(&c.name), c.dtype, kept(&c.shape), kept(&c.doc));
        let columns: Vec<Column> = decl.tensors.iter().map(column).collect();
        let field = |(name, kind): &(String, String)| (kept(name), kept(kind));
        let fields: Vec<_> = decl.fields.iter().map(field).collect();
        let declared: &'static Self = Box::leak(Box::new(Self {
            kind: kept(&decl.kind),
            doc: kept(&decl.doc),
            columns: columns.leak(),
            reach: decl.reach,
            fields: fields.leak(),
            source: Source::Declared {
                origin: kept(origin),
                shapes,
                expected,
            },
        }));
        known.insert(declared.kind, declared);
        Ok(declared)
    }
}

type Types = BTreeMap<&'static str, &'static MessageType>;

/// Returns all known kinds: those of linked Rust types, and those declared since.
fn registry() -> &'static RwLock<Types> {
    static KNOWN: OnceLock<RwLock<Types>> = OnceLock::new();
    KNOWN.get_or_init(|| RwLock::new(linked().0))
}

/// The message types that a crate has registered with [`messages!`](crate::messages!).
#[doc(hidden)]
pub struct RegisteredMessages(pub &'static [&'static MessageType]);

inventory::collect!(RegisteredMessages);

/// Returns the types of all linked Rust types, and two Rust types for each kind that has more than
/// one.
fn linked() -> (Types, Vec<[&'static MessageType; 2]>) {
    let mut all: Vec<_> = inventory::iter::<RegisteredMessages>
        .into_iter()
        .flat_map(|r| r.0)
        .copied()
        .collect();
    all.sort_by_key(|t| (t.kind, t.origin()));
    let (mut types, mut twins) = (Types::new(), Vec::new());
    for one in all {
        let first = *types.entry(one.kind).or_insert(one);
        if first.origin() != one.origin() {
            twins.push([first, one]);
        }
    }
    (types, twins)
}

/// Checks that each linked kind of message has one Rust type.
///
/// # Errors
/// Names a kind with two Rust types, and both types.
pub fn check_linked() -> Result<()> {
    match linked().1.first() {
        None => Ok(()),
        Some([one, two]) => bail!(
            "message `{}` is declared twice: by {} and by {}; rename one of them",
            one.kind,
            one.origin(),
            two.origin()
        ),
    }
}

/// Returns the message type of this kind; `None` if no linked Rust type and no library declares it.
///
/// ```
/// use fl_core::message::message_type;
/// assert_eq!(message_type("logits").unwrap().columns.len(), 2);
/// assert!(message_type("gradients").is_none());
/// ```
pub fn message_type(kind: &str) -> Option<&'static MessageType> {
    let known = registry().read().unwrap_or_else(PoisonError::into_inner);
    known.get(kind).copied()
}

/// Returns all known message types: those of the core in the order of the documentation, then the
/// others by kind.
pub fn message_types() -> Vec<&'static MessageType> {
    let known = registry().read().unwrap_or_else(PoisonError::into_inner);
    let others = known.values().filter(|of| !of.is_of_core());
    CORE.iter().chain(others).copied().collect()
}

/// Returns `params, logits, ..`, all known kinds, for errors.
pub fn known_kinds() -> String {
    let kinds: Vec<_> = message_types().iter().map(|t| t.kind).collect();
    kinds.join(", ")
}

/// Returns the two kinds of a signature such as `params -> params`; `None` if it has another form
/// or one of them is unknown.
pub fn pair(signature: &str) -> Option<(&'static MessageType, &'static MessageType)> {
    let (input, output) = signature.split_once(" -> ")?;
    Some((message_type(input)?, message_type(output)?))
}

/// Registers the messages of a crate, so that parts from libraries, `fl try` and `fl test` find
/// them by their kinds: `fl_core::messages! { Answers, Slopes }`. [`message!`](crate::message!)
/// registers its messages itself.
#[macro_export]
macro_rules! messages {
    ($($message:ty),+ $(,)?) => {
        const _: () = {
            const ALL: &[&$crate::message::MessageType] = &[$($crate::message::MessageType::of::<$message>()),+];
            $crate::__private::inventory::submit! { $crate::message::RegisteredMessages(ALL) }
        };
    };
}

/// The messages of the core, in the order of the documentation.
pub(super) const CORE: &[&MessageType] = &[
    MessageType::of::<Params>(),
    MessageType::of::<ParamsList>(),
    MessageType::of::<GradientSum>(),
    MessageType::of::<Logits>(),
    MessageType::of::<SoftLabels>(),
    MessageType::of::<ClassMeans>(),
    MessageType::of::<Votes>(),
    MessageType::of::<Counts>(),
    MessageType::of::<Models>(),
    MessageType::of::<Mask>(),
    MessageType::of::<Scalar>(),
    MessageType::of::<Ids>(),
    MessageType::of::<Nothing>(),
];

inventory::submit! { RegisteredMessages(CORE) }
