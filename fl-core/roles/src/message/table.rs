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
        "# Messages\n\nThe messages between a client and the server, which also pass the C interface. `fl try` reads and\n\
         writes the same tensors as JSON. Generated from the messages themselves:\n\
         `FL_UPDATE=1 cargo test -p fl-core messages_md`.\n\n\
         The receiver knows a tensor whose name begins with a dot from the spec, so it is not counted. `rows`\n\
         costs nothing where it holds the ids of the request. The examples have {rows} samples, {classes} classes and\n\
         {voters} voters.\n\n"
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
