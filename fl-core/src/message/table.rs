//! The table of messages, for `MESSAGES.md`.

use super::types::CORE;
use super::{Erased, MessageType, SampleShape, bytes};
use crate::Stream;
use std::fmt::Write;

/// The samples, classes and voters of the example column.
pub(super) const EXAMPLE: (usize, usize, usize) = (8, 3, 2);

/// Returns a sample message about the [`EXAMPLE`]'s samples.
pub(super) fn example(of: &'static MessageType) -> Option<Erased> {
    let rows: Vec<u32> = (0..EXAMPLE.0 as u32).collect();
    let mut draws = Stream::root(0).child("example", 0).draws();
    let outline = SampleShape::new(1, &|draws| draws.normal() as f32, &mut draws);
    of.sample(&mut outline.fixed(&rows, EXAMPLE.1, EXAMPLE.2))
}

/// Returns every message of the core in Markdown: its description, its tensors, and the cost of an
/// example.
pub fn table() -> String {
    let (rows, classes, voters) = EXAMPLE;
    let head = format!(
        "# Messages\n\nWhat may cross between a client and the server, and through the C interface; `fl try` reads and writes the same\n\
         tensors as JSON. Generated from the messages themselves: `FL_UPDATE=1 cargo test -p fl-core messages_md`.\n\n\
         A tensor whose name begins with a dot is known to the receiver from the spec and not counted. `rows` costs nothing where\n\
         it holds the ids that were asked about. The example is about {rows} samples, {classes} classes and {voters} voters.\n\n"
    );
    let all: Vec<String> = CORE.iter().map(|of| about(of)).collect();
    head + &all.join("\n")
}

fn about(of: &'static MessageType) -> String {
    let mut out = format!("## `{}`\n{}\n\n", of.kind, of.doc);
    if !of.columns.is_empty() {
        out.push_str("| tensor | type | shape | content |\n|---|---|---|---|\n");
    }
    for c in of.columns {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            c.name, c.dtype, c.shape, c.doc
        );
    }
    if !of.columns.is_empty() {
        out.push('\n');
    }
    if let Some(example) = example(of) {
        let n = bytes(&*example, None).total();
        let s = if n == 1 { "" } else { "s" };
        let _ = writeln!(out, "The example takes {n} byte{s}.");
    }
    out
}
