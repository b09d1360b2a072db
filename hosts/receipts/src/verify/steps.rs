//! What the receipts of steps say, beside what the spec says and each other.

use super::chain::{Line, ReadChain};
use super::differs;
use crate::receipt_log::LISTED;
use crate::record::inputs_hash;
use fl_core::settings::Value;
use fl_core::{Role, ServerStep, Stages};
use fl_registry::Catalogue;
use std::collections::BTreeSet;

/// The server's part in a slot of the run, as the spec has it.
pub(super) fn part_of<'v>(spec: &'v Value, slot: &str) -> Option<&'v Value> {
    let (section, name) = match Stages::owner(slot) {
        Some((stage, name)) => (spec.get("stages")?.get(stage - 1)?, name),
        None => (spec, slot),
    };
    let filled = section.get("parts")?.get(name)?;
    let part = match filled {
        Value::Sequence(list) => list.iter().find(|part| part.get("clients").is_none())?,
        other => other,
    };
    part.as_mapping().is_some().then_some(part)
}

/// The spec, and the parts of each of its stages.
fn sections(spec: &Value) -> impl Iterator<Item = &Value> {
    let stages = spec.get("stages").and_then(Value::as_sequence);
    [spec].into_iter().chain(stages.into_iter().flatten())
}

fn text<'v>(of: &'v Value, key: &str) -> Option<&'v str> {
    of.get(key).and_then(Value::as_str)
}

/// Checks that sessions name the libraries of the spec, and steps its parts; and that a step has
/// what its kind has.
pub(super) fn check_steps(
    chain: &ReadChain,
    spec: &Value,
    catalogue: &Catalogue,
) -> anyhow::Result<()> {
    let plugins = spec.get("plugins").and_then(Value::as_sequence);
    let plugins = plugins.map_or(&[][..], |all| &all[..]);
    check_libraries(chain, spec, plugins)?;
    let all = SpecFacts {
        spec,
        keeps: text(spec, "keep") == Some("messages"),
        seeded: text(spec, "noise") != Some("system"),
        accounts: sections(spec).any(|section| {
            let accountant = section.get("parts").and_then(|all| all.get("accountant"));
            accountant.is_some_and(|part| !part.is_null())
        }),
        // the parts of libraries may have any name and place
        linked: plugins.is_empty().then_some(catalogue),
    };
    for line in &chain.steps {
        all.check_kind(line)?;
        all.check_part(line)?;
    }
    Ok(())
}

/// Checks that each session loaded the libraries of the spec, and parts of Python that it uses.
fn check_libraries(chain: &ReadChain, spec: &Value, plugins: &[Value]) -> anyhow::Result<()> {
    let due: BTreeSet<&str> = plugins.iter().filter_map(|of| text(of, "sha256")).collect();
    let all = format!("{spec:?}");
    for session in &chain.sessions {
        let found = session.libraries.iter().map(|library| &*library.sha256);
        let found: BTreeSet<&str> = found.collect();
        if let Some(lacking) = due.difference(&found).next() {
            let due = format!("one with the SHA-256 {lacking}, as spec.yaml says");
            return differs("the libraries of a session", "no such library", due);
        }
        // such as "trainer `mine` from this session, by Python 3.12"
        let of_session = |who: &str| {
            let name = who.split('`').nth(1).unwrap_or_default();
            who.starts_with("metric `") || all.contains(&format!("{name:?}"))
        };
        let mut others = session.libraries.iter();
        let other = others.find(|library| {
            let named = due.contains(&*library.sha256) || library.sha256.is_empty();
            !named && !of_session(&library.path)
        });
        if let Some(other) = other {
            let due = "only those of spec.yaml";
            return differs("the libraries of a session", &other.path, due);
        }
    }
    Ok(())
}

/// What the receipts of a run with this spec have.
struct SpecFacts<'a> {
    spec: &'a Value,
    keeps: bool,
    seeded: bool,
    accounts: bool,
    linked: Option<&'a Catalogue>,
}

impl SpecFacts<'_> {
    fn check_kind(&self, line: &Line) -> anyhow::Result<()> {
        let (step, receipt) = (&line.step, &line.step.receipt);
        let named = [&receipt.slot, &receipt.part, &receipt.origin];
        let named = named.iter().any(|text| !text.is_empty());
        let results = !receipt.output.is_empty() || !receipt.before.is_empty();
        let mail = step.messages.is_some() || !step.inputs.is_empty();
        let (fits, due) = match receipt.did {
            ServerStep::Collection => (
                receipt.exchange.is_some() && !named && !results && step.kept.is_none(),
                "a collection, which has an exchange, no part and no result",
            ),
            ServerStep::Aggregation => (
                named && receipt.before.is_empty(),
                "an aggregation, which has a part and one result",
            ),
            ServerStep::Release => (
                named && receipt.exchange.is_none() && !mail,
                "a release, which has a part, no exchange and no messages",
            ),
        };
        if !fits {
            return differs(line.place(None), "a step of another kind", due);
        }
        let repeats = match receipt.did {
            ServerStep::Collection => false,
            ServerStep::Aggregation => true,
            ServerStep::Release => self.seeded,
        };
        if self.keeps && repeats && step.kept.is_none() {
            let due = "messages, for spec.yaml says `keep: messages`";
            return differs(line.place(None), "no kept messages", due);
        }
        if receipt.did == ServerStep::Release {
            return Ok(());
        }
        let Some(messages) = step.messages else {
            if self.accounts || !self.seeded {
                return Ok(());
            }
            let due = "their number, which only a run with an accountant withholds";
            return differs(line.place(None), "no number of messages", due);
        };
        let listed = if messages <= LISTED { messages } else { 0 };
        if step.inputs.len() != listed {
            let found = format!("a list of {} messages", step.inputs.len());
            return differs(line.place(None), found, format!("one of {listed}"));
        }
        let hash = inputs_hash(&step.inputs)?;
        if messages <= LISTED && hash != step.inputs_sha256 {
            let due = format!("the hash {}", step.inputs_sha256);
            return differs(
                line.place(None),
                format!("messages with the hash {hash}"),
                due,
            );
        }
        Ok(())
    }

    /// Checks the names of a step's part. Those of a library are known once it is loaded.
    fn check_part(&self, line: &Line) -> anyhow::Result<()> {
        let receipt = &line.step.receipt;
        let role = match receipt.did {
            ServerStep::Collection => return Ok(()),
            ServerStep::Aggregation => Role::Aggregator,
            ServerStep::Release => Role::Privacy,
        };
        let slot = &receipt.slot;
        let used = part_of(self.spec, slot).and_then(|part| text(part, "use"));
        let Some(used) = used else {
            let due = "one that spec.yaml fills";
            return differs(line.place(None), format!("the slot {slot}"), due);
        };
        let linked = self.linked.and_then(|all| all.find(role, used).ok());
        let due = linked.map_or((used, None), |decl| (decl.name, Some(decl.origin)));
        let found = (&*receipt.part, due.1.map(|_| &*receipt.origin));
        if found == due {
            return Ok(());
        }
        let shown = |(name, origin): (&str, Option<&str>)| match origin {
            Some(origin) => format!("the part {name} of {origin}"),
            None => format!("the part {name}"),
        };
        let due = format!("{}, as spec.yaml says", shown(due));
        differs(line.place(None), shown(found), due)
    }
}
