//! Pages made from what the parts and their settings say: every field of a spec, and an index of
//! all parts.

pub(crate) mod columns;
pub(crate) mod table;

use crate::catalogue::{Catalogue, example, takes};
use crate::sections::{DataSection, StageSection, Top};
use fl_core::settings::{Settings, ValueType};
use fl_core::{PartDecl, Role};
use std::collections::BTreeMap;
use std::fmt::Write;
use table::{cell, fields};

const SPEC: &str = "\
# What a spec can say

Made by `fl schema --markdown`; a test compares it with the program. `specs/schema.json` has the same for editors: a first line
`# yaml-language-server: $schema=../schema.json` gives completion and hovers (the path is relative to the spec).

A name with a dot is a path, as `--set` takes it: `faults.on-nan` is `on-nan` in the mapping `faults`. `a: b` is a value in
place of a mapping, and `[]` is each element of a list. A field with a default can be left out; `none` means that it has
no value.
";

const PARTS: &str = "\
# Parts

Made by `fl list --markdown`; a test holds it to the program. `fl inspect NAME` shows one part with its settings,
[every field](../specs/README.md) has them all.
";

/// What stages are, on the page of a spec.
const STAGES: &str = "\
Methods that follow one another in one run, in place of `protocol`. There is one journal, one ledger, one guarantee and one digest. A slot of `parts` that several
stages have is one slot: its model, and the state of its part, go on from stage to stage. A later stage counts its rounds on, and its labels end with the stage:
`training of stage 2`. The first stage takes place as if it were alone.

```yaml
stages:
- protocol: { use: fedavg, rounds: 10 }
- protocol: { use: solo, from-server: true, local: { epochs: 5 } }
```

";

impl Catalogue {
    /// Every field of a spec, in Markdown: the page that stands at `specs/README.md`.
    pub fn spec_page<D: DataSection>(&self) -> String {
        let mut out = SPEC.to_string();
        let mut top = Top::fields();
        for field in &mut top {
            if let name @ ("data" | "protocol" | "stages" | "parts") = &*field.name {
                if name == "data" {
                    field.doc = D::doc();
                }
                field.doc += &format!(" See [below](#{name}).");
                field.accepts = ValueType::Map(ValueType::Any.into());
            }
        }
        out += "\n## Top level\n\n";
        out += &fields(&top);
        let _ = write!(
            out,
            "\n## `data`\n\n{}\n\n{}",
            D::doc(),
            fields(&D::fields())
        );
        out += "\n## `protocol`\n\n`use` names one of these; the other keys are its settings.\n";
        for part in self.of_role(Role::Protocol) {
            out += &section(part);
        }
        out += "\n## `stages`\n\n";
        out += STAGES;
        out += &fields(&StageSection::fields());
        out += "\n## `parts`\n\n";
        out += "One key for each slot of the protocol. Its value is a mapping with `use`, the name of a part whose role and messages fit the \
                slot, and that part's settings.\n\nA list of such mappings gives different parts to different clients: \
                elements name their `clients` (`5`, `0-3`, or a list of such). At most one element does not; it serves all other clients.\n";
        for role in Role::ALL.into_iter().filter(|r| *r != Role::Protocol) {
            for part in self.of_role(role) {
                out += &section(part);
            }
        }
        out
    }

    /// All parts by role and by paper, in Markdown: the page that stands at `plugins/PARTS.md`.
    pub fn parts_page(&self) -> String {
        let mut out = PARTS.to_string();
        let mut papers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for role in Role::ALL {
            let parts: Vec<_> = self.of_role(role).collect();
            if parts.is_empty() {
                continue;
            }
            let _ = write!(
                out,
                "\n## {}\n\n| part | messages | what it does | papers | crate |\n|---|---|---|---|---|\n",
                capital(role.name())
            );
            for part in parts {
                let about = (part.describe)();
                let cited = part.papers;
                let link = format!("[`{}`](../specs/README.md#{})", part.name, anchor(part));
                for paper in cited {
                    let entry = papers.entry(paper.to_string()).or_default();
                    entry.push(format!("{link} ({role})"));
                }
                let _ = writeln!(
                    out,
                    "| {link} | {} | {} | {} | {} |",
                    about.signature,
                    cell(&about.doc),
                    cited.join("; "),
                    origin(part, "")
                );
            }
        }
        out += "\n## By paper\n\nThe README of the part's crate has titles and venues.\n\n| paper | parts |\n|---|---|\n";
        for (paper, parts) in papers {
            let _ = writeln!(out, "| {paper} | {} |", parts.join(", "));
        }
        out
    }
}

/// What one part is, its slots if it is a protocol, and its settings.
fn section(part: &PartDecl) -> String {
    let about = (part.describe)();
    let what = match about.signature.as_str() {
        "" => capital(&part.role.with_article()),
        signature => format!("{}, `{signature}`", capital(&part.role.with_article())),
    };
    let mut out = format!(
        "\n### {} `{}`\n\n{what}, from {}. {}\n\n",
        capital(part.role.name()),
        part.name,
        origin(part, "../plugins/"),
        about.doc
    );
    for alias in part.aliases {
        let preset = match alias.preset {
            "" => String::new(),
            preset => format!(", which stands for `{preset}`"),
        };
        let parts = match alias.parts {
            "" => String::new(),
            parts => format!("; its parts are `{parts}`"),
        };
        let _ = writeln!(out, "* Also called `{}`{preset}{parts}.", alias.name);
    }
    if !part.aliases.is_empty() {
        out += "\n";
    }
    match about.fields.is_empty() {
        true => out += "It has no settings.\n",
        false => out += &fields(&about.fields),
    }
    let slots = (part.role == Role::Protocol)
        .then(|| example(part))
        .flatten()
        .map(|protocol| protocol.slots());
    if let Some(slots) = slots.filter(|slots| !slots.is_empty()) {
        out += "\nWith the defaults its slots, under `parts:`, are\n\n| slot | takes | for |\n|---|---|---|\n";
        for slot in slots {
            let optional = if slot.optional {
                ", or is left empty"
            } else {
                ""
            };
            let _ = writeln!(
                out,
                "| `{}` | {}{optional} | {} |",
                slot.name,
                takes(&slot),
                cell(slot.doc)
            );
        }
    }
    out
}

/// The crate of a part, with a link if it is one of this workspace's.
fn origin(part: &PartDecl, plugins: &str) -> String {
    match part.origin.strip_prefix("fl-plugin-") {
        Some(folder) => format!("[`{folder}`]({plugins}{folder}/README.md)"),
        None => format!("`{}`", part.origin),
    }
}

/// Where [`section`]'s heading is found from another page.
fn anchor(part: &PartDecl) -> String {
    format!("{}-{}", part.role.name().replace(' ', "-"), part.name)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
