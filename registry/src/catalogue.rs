//! The parts that a spec can name, found by name.

use crate::library::Library;
use crate::lock::Lock;
use crate::sections::Isolation;
use fl_core::settings::{Range, Value, ValueType, keyed, nearest, show};
use fl_core::{BuildContext, PartDecl, Protocol, Role, SlotSpec, Stream, Task, TaskKind};
use serde_json::Number;
use serde_yaml::Mapping;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;

/// What to do if a name is unknown, and no known one is near.
const ELSEWHERE: &str =
    "if a library or a Python module has it, name that under `plugins` or with --plugin";
/// Names that parts had, and what to write in their place.
const GONE: [(&str, &str); 2] = [
    (
        "clustered-rounds",
        "each of its methods is a protocol of its own, with the same settings: `fesem` (`assign: distance`), `ifca` (`assign: loss`)",
    ),
    (
        "param-rounds",
        "each of its methods is a protocol of its own, with the same settings: `fedavg`, `fedprox` (`mu`), `scaffold` and `fednova` (`correction`), `feddf` (`fuse`), `fedgen` (`generate`), `dp-fedavg` (`parts.server-privacy`)",
    ),
];

/// The name that a user means: one that differs from `name` in case and hyphens only, as in papers
/// (`FedPer`, `LG-FedAvg`), or else the nearest.
pub fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    as_in_papers(name, known.iter().copied()).or_else(|| nearest(name, known))
}

/// The name that differs from `name` in case and hyphens only.
pub fn as_in_papers<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| {
        let letters = name.chars().filter(|c| !"-_ ".contains(*c));
        letters.flat_map(char::to_lowercase).collect::<String>()
    };
    let name = plain(name);
    known.into_iter().find(|known| plain(known) == name)
}

/// Parts by role and name.
#[derive(Clone, Default)]
pub struct Catalogue {
    pub(crate) parts: Vec<&'static PartDecl>,
    /// Where the parts that are not linked come from.
    pub(crate) libraries: Vec<Library>,
    /// What the command line says of processes for libraries.
    pub(crate) isolate: Option<Isolation>,
    /// The folder of the specs that name libraries, if it is not the one in which they lie.
    pub(crate) folder: Option<PathBuf>,
    /// Whether specs may be those of another user, so that what they say of isolation does not
    /// count; then, whether their modules of Python are loaded.
    pub(crate) foreign: Option<bool>,
    /// What pins those that a spec names.
    pub(crate) lock: Option<Lock>,
    /// Those parts.
    pub(crate) loaded: Vec<&'static PartDecl>,
}

impl Catalogue {
    /// Every part that is linked into this program.
    ///
    /// # Errors
    /// When two parts of one role have the same name, or two messages are of one kind.
    pub fn linked() -> fl_core::Result<Self> {
        fl_core::message::check_linked()?;
        Self::new(fl_core::linked_parts())
    }

    /// These parts.
    ///
    /// # Errors
    /// When two parts of one role have the same name.
    pub fn new(mut parts: Vec<&'static PartDecl>) -> fl_core::Result<Self> {
        parts.sort_by_key(|p| (p.role, p.name, p.origin));
        let mut called: BTreeMap<(Role, &str), &str> = BTreeMap::new();
        for part in &parts {
            for name in part.names() {
                if let Some(other) = called.insert((part.role, name), part.origin) {
                    let (role, origin) = (part.role, part.origin);
                    anyhow::bail!(
                        "two parts are called {role} `{name}`: one from {other}, one from {origin}"
                    );
                }
            }
        }
        Ok(Self {
            parts,
            ..Self::default()
        })
    }

    /// All of them.
    pub fn parts(&self) -> &[&'static PartDecl] {
        &self.parts
    }

    /// Those of one role.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &'static PartDecl> {
        self.parts.iter().copied().filter(move |p| p.role == role)
    }

    /// Those of this name; it may stand for several, of different roles.
    pub fn named(&self, name: &str) -> Vec<&'static PartDecl> {
        self.parts
            .iter()
            .copied()
            .filter(|p| p.is_called(name))
            .collect()
    }

    /// The part of this role and name.
    ///
    /// # Errors
    /// A text that names what is near, and what is known.
    pub fn find(&self, role: Role, name: &str) -> Result<&'static PartDecl, String> {
        self.find_among(role, name, &self.of_role(role).collect::<Vec<_>>())
    }

    /// As [`Catalogue::find`]; the error lists these parts alone.
    pub(crate) fn find_among(
        &self,
        role: Role,
        name: &str,
        fitting: &[&'static PartDecl],
    ) -> Result<&'static PartDecl, String> {
        if let Some(part) = self.of_role(role).find(|p| p.is_called(name)) {
            return Ok(part);
        }
        if let Some((gone, instead)) = GONE.iter().find(|(gone, _)| *gone == name) {
            return Err(format!("`{gone}` is not a {role} any more: {instead}"));
        }
        let near = meant(name, fitting.iter().flat_map(|p| p.names()));
        let (is, known) = (show(&name.into()), names(fitting.iter().copied()));
        let word = fitting.iter().find_map(|part| word_of(part, name));
        Err(match (self.named(name).first(), near) {
            (Some(other), _) => {
                let other = other.role.with_article();
                format!("no {role} is called {is}: that is {other}; known: {known}")
            }
            _ if word.is_some() => {
                let instead = word.unwrap_or_default();
                format!("no {role} is called {is}; write `{instead}`")
            }
            _ if role == Role::Selector && name == "all" => {
                format!("no {role} is called {is}; leave the slot out, and all are taken")
            }
            (None, Some(near)) => {
                format!("no {role} is called {is}; did you mean `{near}`? known: {known}")
            }
            (None, None) => format!("no {role} is called {is}; known: {known}; {ELSEWHERE}"),
        })
    }

    /// The text for a name that no part of any role has.
    pub fn unknown(&self, name: &str) -> String {
        let is = show(&name.into());
        match meant(name, self.parts.iter().flat_map(|p| p.names())) {
            Some(near) => format!("no part is called {is}; did you mean `{near}`?"),
            None => format!("no part is called {is}; {ELSEWHERE}"),
        }
    }

    /// The role of the parts in slots of this name, if a protocol has one.
    pub fn role_of_slot(&self, name: &str) -> Option<Role> {
        let protocols = self.of_role(Role::Protocol).filter_map(example);
        let mut slots = protocols.flat_map(|protocol| protocol.slots());
        Some(slots.find(|slot| slot.name == name)?.role)
    }

    /// The parts that can stand in `slot`.
    pub fn fitting(&self, slot: &SlotSpec) -> Vec<&'static PartDecl> {
        let fits =
            |p: &&PartDecl| slot.signature.is_empty() || (p.describe)().signature == slot.signature;
        self.of_role(slot.role).filter(fits).collect()
    }
}

/// `mean, median`, or `none`.
pub(crate) fn names(parts: impl IntoIterator<Item = &'static PartDecl>) -> String {
    let names: Vec<_> = parts.into_iter().map(|p| p.name).collect();
    if names.is_empty() {
        "none".into()
    } else {
        names.join(", ")
    }
}

/// `an aggregator, params -> params`
pub(crate) fn takes(slot: &SlotSpec) -> String {
    match slot.signature.as_str() {
        "" => slot.role.with_article(),
        signature => format!("{}, {signature}", slot.role.with_article()),
    }
}

/// A part that has a setting of which `name` is a choice: `{ use: dfdx, net: lenet }`.
fn word_of(part: &PartDecl, name: &str) -> Option<String> {
    let ValueType::Group { fields, .. } = (part.describe)().group() else {
        return None;
    };
    let has = |of: &ValueType| match of.plain().0 {
        ValueType::Choice { words, .. } => {
            words.iter().any(|w| w.name == name && w.value.is_none())
        }
        _ => false,
    };
    let field = fields.into_iter().find(|field| has(&field.accepts))?;
    Some(format!("{{ use: {}, {}: {name} }}", part.name, field.name))
}

/// A protocol with its defaults, and with whatever will do where there is none.
pub(crate) fn example(part: &PartDecl) -> Option<Box<dyn Protocol>> {
    let settings = part.read(&sample(&(part.describe)().group())).ok()?;
    fl_core::protocol(part, &settings, &any_make()).ok()
}

/// What a part is made with that does not look at the task, such as a protocol.
pub fn any_make() -> BuildContext {
    BuildContext::new(Task::new(vec![1], TaskKind::Classes(2)), Stream::root(0))
}

/// A small value of this type, as far as that is easy to say: only what must be given.
pub(crate) fn sample(of: &ValueType) -> Value {
    let numbers = |range: &Range| {
        let end = |end: &Bound<Number>| match end {
            Bound::Included(x) | Bound::Excluded(x) => x.as_f64(),
            Bound::Unbounded => None,
        };
        (end(&range.low), end(&range.high))
    };
    match of {
        ValueType::Any | ValueType::Optional(_) => Value::Null,
        ValueType::Bool => false.into(),
        ValueType::Whole(range) => {
            let above = u8::from(matches!(range.low, Bound::Excluded(_)));
            let low = numbers(range).0.map(|low| low + f64::from(above));
            (low.unwrap_or(1.0) as i64).into()
        }
        ValueType::Number(range) => match numbers(range) {
            (Some(low), Some(high)) => (low + high) / 2.0,
            (Some(low), None) => low + 1.0,
            (None, Some(high)) => high - 1.0,
            (None, None) => 1.0,
        }
        .into(),
        ValueType::Text(_) => "name".into(),
        ValueType::List { .. } => Value::Sequence(Vec::new()),
        ValueType::Map(_) => Value::Mapping(Mapping::new()),
        ValueType::Group { fields, .. } => {
            let must = fields.iter().filter(|f| f.default.is_none());
            let must = must.map(|f| (f.name.as_str().into(), sample(&f.accepts)));
            Value::Mapping(must.collect())
        }
        ValueType::Choice { words, others, .. } => match (words.first(), others.first()) {
            (Some(word), _) => match &word.value {
                Some(value) if !word.stands_alone() => keyed(&word.name, sample(value)),
                _ => word.name.as_str().into(),
            },
            (None, Some(other)) => sample(other),
            (None, None) => Value::Null,
        },
        ValueType::Described(_, of) => sample(of),
    }
}
