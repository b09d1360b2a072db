//! YAML text to a tree that knows where everything stands. One pass over the parser's events, so
//! that hostile text is refused on the way: what is too deep, too many, twice there, or not plain
//! YAML.

use crate::diagnostics::SourcePosition;
use crate::spanned_value::{Body, Map, Node};
use fl_core::settings::{Step, Value, show, show_path};
use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use std::collections::BTreeMap;

/// The largest text that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// The most values that one text may have, aliases expanded.
pub const MAX_VALUES: usize = 50_000;
/// The deepest nesting.
pub const MAX_DEPTH: usize = 64;
/// The longest key, in characters.
const MAX_KEY: usize = 100;

/// Something that is wrong with the text itself.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub at: SourcePosition,
    pub path: Vec<Step>,
    pub text: String,
}

/// Reads one document. Without a tree, the last of the mistakes is why.
pub(crate) fn parse(bytes: &[u8]) -> (Option<Node>, Vec<Wrong>) {
    let mut reader = Reader::default();
    let tree = plain_text(bytes)
        .and_then(|text| {
            reader
                .document(text)
                .map_err(|wrong| said_plainly(text, wrong))
        })
        .map_err(|wrong| reader.wrong.push(wrong))
        .ok();
    (tree, reader.wrong)
}

/// The same, or what a person did that is why: a tab, an indentation, an open bracket.
fn said_plainly(text: &str, wrong: Wrong) -> Wrong {
    let SourcePosition::Text { line, column } = wrong.at else {
        return wrong;
    };
    // the parser has no codes of its mistakes
    let found = if wrong.text.contains("tab") {
        at_tab(text, line)
    } else if wrong.text.contains("simple key") {
        no_space(text, line).or_else(|| bad_indentation(text, line))
    } else if wrong.text.contains("cannot start with '-'") {
        let said = "a `-` alone is no value: write a value in its place, or `'-'` for the text";
        Some(((line, column), said.into()))
    } else if wrong.text.contains("flow") {
        open_bracket(text, (line, column))
    } else if wrong.text.starts_with("not YAML") {
        bad_indentation(text, line)
    } else {
        None
    };
    match found {
        Some(((line, column), said)) => Wrong {
            at: SourcePosition::Text { line, column },
            path: Vec::new(),
            text: format!("not YAML: {said}"),
        },
        None => wrong,
    }
}

/// A place, as line and column from 1, and what is wrong there.
type Found = ((usize, usize), String);

/// A tab that indents this line or the next: YAML indents with spaces.
fn at_tab(text: &str, line: usize) -> Option<Found> {
    // the parser may stop at the end of the line before
    let mut lines = text.lines().enumerate().skip(line - 1).take(2);
    lines.find_map(|(at, line)| {
        let indent = line.chars().take_while(|c| c.is_whitespace());
        let column = indent.clone().position(|c| c == '\t')? + 1;
        let said = "a tab indents this line; indent with spaces";
        Some(((at + 1, column), said.into()))
    })
}

/// This line, or the line before it, if it has `key:value` for `key: value`.
fn no_space(text: &str, line: usize) -> Option<Found> {
    let rows = (1..=line).zip(text.lines());
    let rows = rows.filter(|(_, row)| {
        let row = row.trim_start();
        !row.is_empty() && !row.starts_with('#')
    });
    let rows: Vec<(usize, &str)> = rows.collect();
    // the parser stops at the line after it
    rows.iter().rev().take(2).find_map(|(at, row)| {
        let key = key_without_space(row)?;
        let column = row.chars().take_while(|c| " -".contains(*c)).count() + 1;
        Some(((*at, column), format!("put a space after `{key}:`")))
    })
}

/// The key of a line such as `clients:6`.
fn key_without_space(row: &str) -> Option<&str> {
    let row = row.trim_start().trim_start_matches("- ").trim_start();
    let (key, value) = row.split_once(':')?;
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_key = !key.is_empty() && key.chars().all(letter);
    (is_key && !value.is_empty() && !value.starts_with([' ', '\t'])).then_some(key)
}

/// The last bracket before this place that is not closed.
fn open_bracket(text: &str, (line, column): (usize, usize)) -> Option<Found> {
    let mut open = Vec::new();
    for (at, row) in (1..=line).zip(text.lines()) {
        let (mut before, mut quote) = (' ', None);
        for (at_char, c) in (1..).zip(row.chars()) {
            match (quote, c) {
                _ if (at, at_char) >= (line, column) => break,
                (Some(end), c) if c == end => quote = None,
                (Some(_), _) => {}
                (None, '#') if before == ' ' => break,
                (None, '"' | '\'') if " [{,".contains(before) => quote = Some(c),
                (None, '[' | '{') => open.push((c, (at, at_char))),
                (None, ']' | '}') => drop(open.pop()),
                _ => {}
            }
            before = c;
        }
    }
    let (bracket, at) = open.pop()?;
    Some((at, format!("this `{bracket}` is not closed")))
}

/// What is wrong with the indentation of this line beside the lines before it.
fn bad_indentation(text: &str, line: usize) -> Option<Found> {
    let indent = |row: &str| row.len() - row.trim_start_matches(' ').len();
    let rows = text.lines().take(line);
    let rows = rows.filter(|row| !row.trim().is_empty() && !row.trim_start().starts_with('#'));
    let rows: Vec<&str> = rows.collect();
    let (row, before) = rows.split_last()?;
    let (own, last) = (indent(row), before.last()?);
    let at = (line, own + 1);
    if own > indent(last) && !last.trim_end().ends_with(':') {
        return Some((
            at,
            format!(
                "this line is indented by {own} and the line before it, which needs nothing below it, by {}; entries \
                 of one mapping have the same indentation",
                indent(last)
            ),
        ));
    }
    // the levels that are open before this line
    let mut levels = vec![0];
    for row in before {
        levels.retain(|level| *level < indent(row));
        levels.push(indent(row));
    }
    if levels.contains(&own) || own > indent(last) {
        return None;
    }
    let near = levels
        .iter()
        .rev()
        .min_by_key(|level| level.abs_diff(own))?;
    let said = format!("this line is indented by {own}, and its neighbours by {near}");
    Some((at, said))
}

/// Text without a byte-order mark and without control characters.
fn plain_text(bytes: &[u8]) -> Result<&str, Wrong> {
    let fatal = |before: &str, text: String| {
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        Err(Wrong {
            at: SourcePosition::Text { line, column },
            path: Vec::new(),
            text,
        })
    };
    if bytes.len() > MAX_BYTES {
        let text =
            format!("the file has more than {MAX_BYTES} bytes, which is the most it may have");
        return fatal("", text);
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let (good, bad) = bytes.split_at(error.valid_up_to());
            let text = format!(
                "the file is not UTF-8 text: here is byte 0x{:02x}",
                bad.first().copied().unwrap_or_default()
            );
            return fatal(std::str::from_utf8(good).unwrap_or(""), text);
        }
    };
    match text
        .char_indices()
        .find(|(_, c)| c.is_control() && !"\t\n\r".contains(*c))
    {
        Some((at, c)) => fatal(
            &text[..at],
            format!(
                "here is the control character U+{:04X}; is this a text file?",
                c as u32
            ),
        ),
        None => Ok(text),
    }
}

#[derive(Default)]
struct Reader {
    anchors: BTreeMap<usize, Node>,
    path: Vec<Step>,
    values: usize,
    wrong: Vec<Wrong>,
}

type Events<'i> = Parser<'i, StrInput<'i>>;

impl Reader {
    fn note(&self, at: SourcePosition, text: impl Into<String>) -> Wrong {
        Wrong {
            at,
            path: self.path.clone(),
            text: text.into(),
        }
    }

    fn next<'i>(&self, events: &mut Events<'i>) -> Result<(Event<'i>, Span), Wrong> {
        match events.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) if error.info().contains("recursion") => {
                Err(self.too_deep(mark(error.marker())))
            }
            Some(Err(error)) => {
                Err(self.note(mark(error.marker()), format!("not YAML: {}", error.info())))
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn too_deep(&self, at: SourcePosition) -> Wrong {
        let text = format!("nested too deeply: at most {MAX_DEPTH} levels");
        Wrong {
            at,
            path: Vec::new(),
            text,
        }
    }

    /// Counts values, so that aliases cannot blow the text up.
    fn count(&mut self, size: usize, at: &SourcePosition) -> Result<(), Wrong> {
        self.values += size;
        if self.values <= MAX_VALUES {
            return Ok(());
        }
        let text = format!("too many values, aliases expanded: at most {MAX_VALUES}");
        Err(self.note(at.clone(), text))
    }

    fn document(&mut self, text: &str) -> Result<Node, Wrong> {
        let mut events = Parser::new_from_str(text);
        let mut tree = None;
        loop {
            let (event, span) = self.next(&mut events)?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(_) if tree.is_some() => {
                    let text = "a second document starts here; one file holds one document";
                    return Err(self.note(place(span), text));
                }
                Event::StreamStart
                | Event::DocumentStart(_)
                | Event::DocumentEnd
                | Event::Nothing => {}
                event => tree = Some(self.node(&mut events, event, span, 0)?),
            }
        }
        let start = SourcePosition::Text { line: 1, column: 1 };
        Ok(tree.unwrap_or_else(|| Node::new(start, Body::Scalar(Value::Null))))
    }

    fn node<'i>(
        &mut self,
        events: &mut Events<'i>,
        event: Event<'i>,
        span: Span,
        depth: usize,
    ) -> Result<Node, Wrong> {
        let at = place(span);
        if depth > MAX_DEPTH {
            return Err(self.too_deep(at));
        }
        let (body, anchor, tagged) = match event {
            Event::Alias(id) => {
                let Some(mut node) = self.anchors.get(&id).cloned() else {
                    return Err(self.note(at, "an alias cannot stand inside its own anchor"));
                };
                self.count(node.size, &at)?;
                node.at = at;
                return Ok(node);
            }
            Event::Scalar(text, style, anchor, tag) => {
                (Body::Scalar(scalar(&text, style)), anchor, tag.is_some())
            }
            Event::SequenceStart(anchor, tag) => (self.list(events, depth)?, anchor, tag.is_some()),
            Event::MappingStart(anchor, tag) => (self.map(events, depth)?, anchor, tag.is_some()),
            other => return Err(self.note(at, format!("not YAML: unexpected {other:?}"))),
        };
        self.count(1, &at)?;
        if tagged {
            let wrong = self.note(at.clone(), "tags (`!name`) are not supported");
            self.wrong.push(wrong);
        }
        let node = Node::new(at, body);
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list<'i>(&mut self, events: &mut Events<'i>, depth: usize) -> Result<Body, Wrong> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next(events)?;
            if event == Event::SequenceEnd {
                return Ok(Body::List(items));
            }
            self.path.push(Step::Item(items.len()));
            items.push(self.node(events, event, span, depth + 1)?);
            self.path.pop();
        }
    }

    fn map<'i>(&mut self, events: &mut Events<'i>, depth: usize) -> Result<Body, Wrong> {
        let mut map = Map::default();
        loop {
            let (event, span) = self.next(events)?;
            if event == Event::MappingEnd {
                return Ok(Body::Map(map));
            }
            let at = place(span);
            let key = self.key(event, &at)?;
            let (event, value_span) = self.next(events)?;
            self.path
                .extend(key.iter().map(|key| Step::Key(key.clone())));
            let mut node = self.node(events, event, value_span, depth + 1)?;
            // nothing after the colon: then the name is all there is to point at
            if place(value_span) == end(span) || value_span.is_empty() {
                node.at = at.clone();
            }
            if let Some(key) = key {
                if let Some(first) = map.get(&key) {
                    let wrong = self.note(at, format!("is given twice; first at {}", first.at));
                    self.wrong.push(wrong);
                } else {
                    map.entry(&key, &at).node = node;
                }
                self.path.pop();
            }
        }
    }

    /// A key, or `None` for one that is wrong and noted.
    fn key(&mut self, event: Event<'_>, at: &SourcePosition) -> Result<Option<String>, Wrong> {
        let Event::Scalar(text, style, _, tag) = event else {
            return Err(self.note(
                at.clone(),
                "a key must be text, not a list, mapping or alias",
            ));
        };
        let wrong = match scalar(&text, style) {
            _ if tag.is_some() => "tags (`!name`) are not supported".to_string(),
            Value::String(key) if key == "<<" && style == ScalarStyle::Plain => {
                "merge keys (`<<`) are not supported; alias a whole value, or write the settings out".into()
            }
            Value::String(key) if key.chars().count() > MAX_KEY => {
                format!("a key may have at most {MAX_KEY} characters, got {}", show(&key.into()))
            }
            Value::String(key) => return Ok(Some(key)),
            other => format!("a key must be text, got {}", show(&other)),
        };
        let wrong = self.note(at.clone(), wrong);
        self.wrong.push(wrong);
        Ok(None)
    }
}

fn mark(marker: &saphyr_parser::Marker) -> SourcePosition {
    SourcePosition::Text {
        line: marker.line().max(1),
        column: marker.col() + 1,
    }
}

fn place(span: Span) -> SourcePosition {
    mark(&span.start)
}

fn end(span: Span) -> SourcePosition {
    mark(&span.end)
}

/// What plain text means is decided by the crate that also writes specs, so that what is written
/// reads back.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    let maybe_no_text = text
        .chars()
        .next()
        .is_none_or(|c| c.is_ascii_digit() || "+-.~nNtTfF".contains(c));
    if style == ScalarStyle::Plain
        && text.len() <= 64
        && maybe_no_text
        && let Ok(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) =
            serde_yaml::from_str(text)
    {
        return value;
    }
    text.into()
}

/// A path as users write it, with what is wrong there.
impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match show_path(&self.path).as_str() {
            "" => f.write_str(&self.text),
            path => write!(f, "{path}: {}", self.text),
        }
    }
}
