//! A tree of values that knows where everything stands.

use crate::diagnostics::SourcePosition;
use fl_core::settings::{Step, Value};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A value and where it stands. Cheap to clone: an alias shares what it stands for.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub at: SourcePosition,
    /// Values in it, aliases expanded.
    pub size: usize,
    pub body: Rc<Body>,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Scalar(Value),
    List(Vec<Node>),
    Map(Map),
}

/// A mapping in the order of the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    entries: Vec<Entry>,
    index: BTreeMap<String, usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: String,
    pub at: SourcePosition,
    pub node: Node,
}

impl Map {
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.index.get(key).map(|at| &self.entries[*at])
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The entry of `key`; a new one holds nothing yet.
    pub fn entry(&mut self, key: &str, at: &SourcePosition) -> &mut Entry {
        let next = self.entries.len();
        let position = *self.index.entry(key.into()).or_insert(next);
        if position == next {
            self.entries.push(Entry {
                key: key.into(),
                at: at.clone(),
                node: Node::new(at.clone(), Body::Scalar(Value::Null)),
            });
        }
        &mut self.entries[position]
    }
}

impl Node {
    pub fn new(at: SourcePosition, body: Body) -> Self {
        let inside: usize = match &body {
            Body::Scalar(_) => 0,
            Body::List(items) => items.iter().map(|n| n.size).sum(),
            Body::Map(map) => map.entries.iter().map(|e| e.node.size).sum(),
        };
        Self {
            at,
            size: inside + 1,
            body: Rc::new(body),
        }
    }

    /// The value of a key; `None` if this is no mapping, or has no such key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &*self.body {
            Body::Map(map) => map.get(key).map(|entry| &entry.node),
            _ => None,
        }
    }

    /// What is one step further down.
    pub fn below(&self, step: &Step) -> Option<&Self> {
        match (&*self.body, step) {
            (Body::Map(map), Step::Key(key)) => map.get(key).map(|entry| &entry.node),
            (Body::List(items), Step::Item(at)) => items.get(*at),
            _ => None,
        }
    }

    /// The first key of a mapping.
    pub fn first_key(&self) -> Option<&str> {
        match &*self.body {
            Body::Map(map) => map.iter().next().map(|entry| &*entry.key),
            _ => None,
        }
    }

    /// It and everything in it.
    pub fn all(&self) -> Box<dyn Iterator<Item = &Self> + '_> {
        let inside: Box<dyn Iterator<Item = &Self>> = match &*self.body {
            Body::Scalar(_) => Box::new(std::iter::empty()),
            Body::List(items) => Box::new(items.iter().flat_map(Self::all)),
            Body::Map(map) => Box::new(map.iter().flat_map(|entry| entry.node.all())),
        };
        Box::new(std::iter::once(self).chain(inside))
    }

    /// Without places.
    pub fn value(&self) -> Value {
        match &*self.body {
            Body::Scalar(value) => value.clone(),
            Body::List(items) => items.iter().map(Self::value).collect::<Vec<_>>().into(),
            Body::Map(map) => {
                let entries = map
                    .entries
                    .iter()
                    .map(|e| (e.key.as_str().into(), e.node.value()));
                Value::Mapping(entries.collect())
            }
        }
    }

    /// Everything in it was set from outside.
    pub fn moved(&self, at: &SourcePosition) -> Self {
        let body = match &*self.body {
            Body::Scalar(value) => Body::Scalar(value.clone()),
            Body::List(items) => Body::List(items.iter().map(|n| n.moved(at)).collect()),
            Body::Map(map) => Body::Map(Map {
                entries: map.entries.iter().map(|e| e.moved(at)).collect(),
                index: map.index.clone(),
            }),
        };
        Self::new(at.clone(), body)
    }

    /// Where the value at `path` stands, or its key. Where the path ends early something is
    /// missing: that is reported where the innermost thing that is there has its name.
    pub fn place(&self, path: &[Step], on_key: bool) -> SourcePosition {
        let (mut node, mut name) = (self, &self.at);
        for step in path {
            let next = match (&*node.body, step) {
                (Body::Map(map), Step::Key(key)) => map.get(key).map(|e| (&e.node, &e.at)),
                (Body::List(items), Step::Item(at)) => items.get(*at).map(|n| (n, &n.at)),
                _ => None,
            };
            match next {
                Some(next) => (node, name) = next,
                None => return name.clone(),
            }
        }
        if on_key { name } else { &node.at }.clone()
    }
}

impl Entry {
    fn moved(&self, at: &SourcePosition) -> Self {
        Self {
            key: self.key.clone(),
            at: at.clone(),
            node: self.node.moved(at),
        }
    }
}

/// A step to `name`.
pub(crate) fn key(name: &str) -> Step {
    Step::Key(name.into())
}

pub(crate) fn below(path: &[Step], step: Step) -> Vec<Step> {
    path.iter().cloned().chain([step]).collect()
}
