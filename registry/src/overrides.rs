//! `--set protocol.rounds=5`: values that replace those of the text.

use crate::diagnostics::SourcePosition;
use crate::spanned_value::{Body, Map, Node};
use crate::yaml::{Wrong, parse};
use fl_core::settings::{Step, Value, show, show_path};
use std::rc::Rc;

/// Sets `path=value` in `root`.
pub(crate) fn apply(root: &mut Node, set: &str) -> Vec<Wrong> {
    let (name, value) = set.split_once('=').unwrap_or((set, ""));
    let at = SourcePosition::Set(name.into());
    let wrong = |text: String| Wrong {
        at: at.clone(),
        path: Vec::new(),
        text,
    };
    if !set.contains('=') {
        return vec![wrong(
            "must be a path and a value, as in protocol.rounds=5".into(),
        )];
    }
    let path = match steps(name) {
        Ok(path) => path,
        Err(text) => return vec![wrong(text)],
    };
    let (tree, mut mistakes) = parse(value.as_bytes());
    mistakes = mistakes.iter().map(|w| wrong(w.to_string())).collect();
    if let Some(tree) = tree {
        let here = path.iter().try_fold(&*root, |node, step| node.below(step));
        if let Some(lost) = here.and_then(|old| lost(old, &tree, name)) {
            mistakes.push(wrong(format!(
                "it replaces `{name}`, and `{lost}`, which was set before it, is lost; set the values that \
                 differ, such as `{name}.{}`, or give `{lost}` after it",
                tree.first_key().unwrap_or("use")
            )));
        }
        let mut changed = root.clone();
        match put(&mut changed, &path, 0, &at, tree.moved(&at)) {
            Ok(()) => *root = changed,
            Err(text) => mistakes.push(wrong(text)),
        }
    }
    mistakes
}

/// `parts.model[0].net`
pub(crate) fn steps(path: &str) -> Result<Vec<Step>, String> {
    let bad = || {
        Err(format!(
            "`{path}` is no path; one looks like protocol.rounds or parts.model[0].net"
        ))
    };
    let mut steps = Vec::new();
    for part in path.split('.') {
        let mut pieces = part.split('[');
        match pieces.next() {
            Some(key) if !key.is_empty() && !key.contains(']') => {
                steps.push(Step::Key(key.into()));
            }
            _ => return bad(),
        }
        for piece in pieces {
            match piece.strip_suffix(']').map(str::parse) {
                Some(Ok(at)) => steps.push(Step::Item(at)),
                _ => return bad(),
            }
        }
    }
    if steps.len() > 20 { bad() } else { Ok(steps) }
}

/// Returns a path that an earlier `--set` gave a value below `old`, and that `new` has not.
fn lost(old: &Node, new: &Node, name: &str) -> Option<String> {
    let given = |node: &Node| match &node.at {
        SourcePosition::Set(path) if path.strip_prefix(name)?.starts_with(['.', '[']) => {
            Some(path.to_string())
        }
        _ => None,
    };
    match (&*old.body, &*new.body) {
        // who takes all of it away knows that
        (_, Body::Scalar(Value::Null)) => None,
        (Body::Map(entries), Body::Map(replacing)) => {
            let mut entries = entries.iter();
            entries.find_map(|entry| match replacing.get(&entry.key) {
                Some(kept) => lost(&entry.node, &kept.node, name),
                None => entry.node.all().find_map(given),
            })
        }
        _ => old.all().skip(1).find_map(given),
    }
}

fn put(
    node: &mut Node,
    path: &[Step],
    depth: usize,
    at: &SourcePosition,
    new: Node,
) -> Result<(), String> {
    let Some(step) = path.get(depth) else {
        *node = new;
        return Ok(());
    };
    let here = match show_path(&path[..depth]) {
        top if top.is_empty() => "the spec".to_string(),
        path => format!("`{path}`"),
    };
    if let (Body::Scalar(Value::Null), Step::Key(_)) = (&*node.body, step) {
        *node = Node::new(at.clone(), Body::Map(Map::default()));
    }
    match (Rc::make_mut(&mut node.body), step) {
        (Body::Map(map), Step::Key(key)) => {
            put(&mut map.entry(key, at).node, path, depth + 1, at, new)
        }
        (Body::List(items), Step::Item(item)) => {
            let count = items.len();
            let next = items
                .get_mut(*item)
                .ok_or_else(|| format!("{here} is a list of {count}; its first item is [0]"))?;
            put(next, path, depth + 1, at, new)
        }
        (Body::List(items), Step::Key(key)) => Err(format!(
            "{here} is a list of {}; say which item, as in [0].{key}",
            items.len()
        )),
        (Body::Map(_), Step::Item(_)) => Err(format!("{here} is a mapping, not a list")),
        (Body::Scalar(value), _) => Err(format!(
            "{here} is {}: there is nothing inside it",
            show(value)
        )),
    }
}
