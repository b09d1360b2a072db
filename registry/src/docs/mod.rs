//! Pages made from what the parts and their settings say: every field of a spec, and an index of
//! all parts.

pub(crate) mod columns;
pub(crate) mod table;

use crate::catalogue::{Catalogue, example, takes};
use crate::data_section::DataSection;
use crate::sections::{StageSection, Top};
use fl_core::settings::{Settings, ValueType};
use fl_core::{PartDecl, Role};
use std::collections::BTreeMap;
use std::fmt::Write;
use table::{cell, fields};

const SPEC: &str = "\
# What a spec can say

Made by `fl schema --markdown`; a test compares it with the program. `specs/schema.json` has the same for editors: a first line
`# yaml-language-server: $schema=../schema.json` gives completion and hovers (the path is relative to the spec). `fl inspect NAME`
shows one part in a terminal.

A name with a dot is a path, as `--set` takes it: `faults.on-nan` is `on-nan` in the mapping `faults`. `a: b` is a value in
place of a mapping, and `[]` is each element of a list. A field with a default can be left out; `none` means that it has
no value.

* [Top level](book/fields/top-level.md): the name, the seed, budgets, faults, measurements and all else that no part has.
* [`data`](book/fields/data.md): the data set, and each client's part of it.
* [`stages`](book/fields/stages.md): methods that follow one another.
";

const PROTOCOLS: &str = "
## Protocols

Under `protocol`, `use` names one of these; the other keys are its settings.

";

const SLOTS: &str = "
## Parts

`parts` has one key for each slot of the protocol. Its value is a mapping with `use`, the name of a part whose role and messages fit
the slot, and that part's settings.

A list of such mappings gives different parts to different clients: elements name their `clients` (`5`, `0-3`, or a list of
such). At most one element does not; it serves all other clients.

| role | parts |
|---|---|
";

/// The pages of every field, from the root.
const FIELDS: &str = "specs/book/fields/";

const PARTS: &str = "\
# Parts

Made by `fl list --markdown`; a test holds it to the program. `fl inspect NAME` shows one part with its settings,
[the pages of all fields](../specs/README.md) have them all.
";

/// What stages are, on their page.
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
    /// Every field of a spec, in Markdown, by the names of pages: `README` stands at
    /// `specs/README.md`, the others stand in `specs/book/fields/`.
    pub fn spec_pages<D: DataSection>(&self) -> BTreeMap<String, String> {
        let mut pages = BTreeMap::new();
        let mut add = |name: &str, title: &str, text: &str| {
            let page = format!("# {title}\n\n[All fields of a spec](../../README.md)\n\n{text}");
            pages.insert(name.to_string(), page);
        };
        let mut top = Top::fields();
        for field in &mut top {
            let page = match &*field.name {
                "data" => "data.md",
                "stages" => "stages.md",
                "protocol" => "../../README.md#protocols",
                "parts" => "../../README.md#parts",
                _ => continue,
            };
            if page == "data.md" {
                field.doc = D::doc();
            }
            field.doc += &format!(" See [its page]({page}).");
            field.accepts = ValueType::Map(ValueType::Any.into());
        }
        add("top-level", "Top level", &fields(&top));
        let data = format!("{}\n\n{}", D::doc(), fields(&D::fields()));
        add("data", "`data`", &data);
        let stages = format!("{STAGES}{}", fields(&StageSection::fields()));
        add("stages", "`stages`", &stages);
        let mut index = format!("{SPEC}{PROTOCOLS}");
        let links = |parts: &[&PartDecl]| {
            let links = parts.iter().map(|part| link(part, "book/fields/"));
            links.collect::<Vec<_>>().join(", ")
        };
        let protocols: Vec<_> = self.of_role(Role::Protocol).collect();
        for part in &protocols {
            add(&page(part), &heading(part), &section(part));
        }
        index += &format!("{}\n{SLOTS}", links(&protocols));
        for role in Role::ALL.into_iter().filter(|r| *r != Role::Protocol) {
            let parts: Vec<_> = self.of_role(role).collect();
            let Some(first) = parts.first() else {
                continue;
            };
            let texts = parts
                .iter()
                .map(|part| format!("## {}\n\n{}", heading(part), section(part)));
            let title = capital(role.name());
            add(&page(first), &title, &texts.collect::<Vec<_>>().join("\n"));
            let _ = writeln!(
                index,
                "| [{title}](book/fields/{}.md) | {} |",
                page(first),
                links(&parts)
            );
        }
        pages.insert("README".into(), index);
        pages
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
                let link = link(part, &format!("../{FIELDS}"));
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
        "{what}, from {}. {}\n\n",
        origin(part, "../../../plugins/"),
        about.doc
    );
    for alias in part.aliases {
        let preset = match alias.preset {
            "" => String::new(),
            preset => format!(", which stands for `{preset}`"),
        };
        let parts = match alias.parts {
            "" => String::new(),
            parts => format!("; its paper has the parts `{parts}`, which you write"),
        };
        let _ = writeln!(out, "* Also called `{}`{preset}{parts}.", alias.name);
    }
    if !part.aliases.is_empty() {
        out += "\n";
    }
    if about.fields.is_empty() {
        out += "It has no settings.\n"
    } else {
        out += &fields(&about.fields)
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

/// The heading of [`section`].
fn heading(part: &PartDecl) -> String {
    format!("{} `{}`", capital(part.role.name()), part.name)
}

/// The name of the page with a part's [`section`]: its own for a protocol, one for all of a role.
fn page(part: &PartDecl) -> String {
    let role = part.role.name().replace(' ', "-");
    match part.role {
        Role::Protocol => format!("{role}-{}", part.name),
        _ => role,
    }
}

/// A link to a part's [`section`], from where the folder of pages is `folder`.
fn link(part: &PartDecl, folder: &str) -> String {
    let anchor = format!("{}-{}", part.role.name().replace(' ', "-"), part.name);
    format!("[`{}`]({folder}{}.md#{anchor})", part.name, page(part))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
