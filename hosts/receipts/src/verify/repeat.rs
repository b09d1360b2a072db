//! The aggregations and releases of a run, repeated from kept messages.

use super::chain::Line;
use super::steps::part_of;
use super::{Verified, differs};
use crate::kept_messages::KeptMessages;
use crate::record::{inputs_hash, salted};
use anyhow::{Context, anyhow};
use fl_core::message::{Erased, digest, hex};
use fl_core::settings::Value;
use fl_core::{
    AggregationContext, AnyAggregator, AnyMechanism, BEFORE_AGGREGATOR, BoxedPart, BuildContext,
    ClientMessage, Parts, ReleaseContext, Role, ServerStep, SharedExecutor, SlotAssignment, Stream,
    Task, aggregate_again, release_again,
};
use fl_registry::{Catalogue, Document};
use std::path::Path;

/// Repeats the aggregations and releases whose messages were kept.
pub(super) fn repeat(
    folder: &Path,
    (spec, text, resolved): (&Path, &[u8], &Value),
    steps: &[Line],
    (catalogue, known): (&Catalogue, bool),
    exec: SharedExecutor,
    all: &mut Verified,
) -> anyhow::Result<()> {
    let did = |line: &Line, step| line.step.receipt.did == step;
    let lacks = |line: &&Line| line.step.kept.is_none() && did(line, ServerStep::Aggregation);
    all.not_repeated = steps.iter().filter(lacks).count();
    let released = |line: &&Line| did(line, ServerStep::Release);
    all.releases = steps.iter().filter(released).count();
    all.secret_noise = resolved.get("noise").and_then(Value::as_str) == Some("system");
    if steps.iter().all(|line| line.step.kept.is_none()) {
        return Ok(());
    }
    let document = Document::parse(&spec.display().to_string(), text);
    // who made the folder does not say what its libraries may do here, unless the verifier knows
    // the key of that user
    let catalogue = catalogue.clone().for_foreign_specs(known);
    let catalogue = catalogue.with_plugins(&document).map_err(|mut refusal| {
        refusal.text += "; `fl verify` runs what a folder names in a sandbox; modules of Python only with --key, for a run that this key signed, and all outside of a sandbox with --isolate=false";
        refusal
    })?;
    let run = KeptRun {
        resolved,
        catalogue: &catalogue,
    };
    for line in steps {
        let Some(kept) = &line.step.kept else {
            continue;
        };
        let path = folder.join(&kept.path);
        let (again, number): (_, &mut usize) = match line.step.receipt.did {
            ServerStep::Release => (run.release(&path, line), &mut all.releases_repeated),
            _ => (run.aggregate(&path, line, &exec), &mut all.repeated),
        };
        again.with_context(|| format!("{}: repeating it from {}", line.place(None), kept.path))?;
        *number += 1;
    }
    Ok(())
}

/// Fails if a repeated step has another value than its receipt.
fn same(line: &Line, what: &str, found: &str, due: &str) -> anyhow::Result<()> {
    if found == due {
        Ok(())
    } else {
        differs(line.place(None), format!("{what} {found}"), due)
    }
}

/// Returns a hash as the receipt of a step has it.
fn shown(line: &Line, salt: &[u8; 32], hash: String) -> String {
    if line.step.salted {
        salted(salt, &hash)
    } else {
        hash
    }
}

/// A run whose messages were kept.
struct KeptRun<'a> {
    resolved: &'a Value,
    catalogue: &'a Catalogue,
}

impl KeptRun<'_> {
    fn release(&self, path: &Path, line: &Line) -> anyhow::Result<()> {
        let kept = KeptMessages::<ReleaseContext>::open(path)?;
        let (context, receipt) = (&kept.context, &line.step.receipt);
        same(line, "a release through", &context.slot, &receipt.slot)?;
        let mechanism: Box<dyn AnyMechanism> = self.make(Role::Privacy, line, &context.made)?;
        let (before, after) = release_again(mechanism, context)?;
        let hash = |of: &Erased| shown(line, &kept.salt, hex(&digest(&**of)));
        same(
            line,
            "numbers before the noise",
            &hash(&before),
            &receipt.before,
        )?;
        same(line, "the result", &hash(&after), &receipt.output)
    }

    fn aggregate(&self, path: &Path, line: &Line, exec: &SharedExecutor) -> anyhow::Result<()> {
        let step = &line.step;
        let mut kept = KeptMessages::<AggregationContext>::open(path)?;
        let salt = kept.salt;
        let context = kept.context.clone();
        same(line, "an aggregation in", &context.slot, &step.receipt.slot)?;
        let aggregator: Box<dyn AnyAggregator> =
            self.make(Role::Aggregator, line, &context.made)?;
        let of = aggregator.input();
        let mut inputs = Vec::new();
        let mut next = || -> anyhow::Result<Option<ClientMessage<Erased>>> {
            let Some((input, wire)) = kept.next_message()? else {
                return Ok(None);
            };
            let body = of.decode(&wire)?;
            let found = hex(&digest(&*body));
            if found != input.sha256 {
                return differs(line.place(Some(input.client)), found, &input.sha256);
            }
            let due = step.inputs.get(inputs.len()).filter(|due| **due != input);
            if let Some(due) = due {
                let place = line.place(Some(input.client));
                return differs(place, format!("{input:?}"), format!("{due:?}"));
            }
            let mail = ClientMessage {
                from: input.client,
                weight: input.weight,
                class_counts: input.class_counts.clone(),
                training_loss: input.training_loss,
                body,
            };
            inputs.push(input);
            Ok(Some(mail))
        };
        let mut mail = std::iter::from_fn(|| next().transpose());
        let out = aggregate_again(aggregator, &context, exec.clone(), &mut mail)?;
        // whatever the aggregator did not take
        for rest in mail {
            rest?;
        }
        if let Some(messages) = step.messages.filter(|messages| *messages != inputs.len()) {
            let found = format!("{} messages", inputs.len());
            return differs(line.place(None), found, messages.to_string());
        }
        let found = shown(line, &salt, inputs_hash(&inputs)?);
        same(line, "messages with the hash", &found, &step.inputs_sha256)?;
        let found = shown(line, &salt, hex(&digest(&*out)));
        same(line, "the result", &found, &step.receipt.output)
    }

    /// Makes the server's part in a slot of the run anew.
    fn make<P: BoxedPart>(
        &self,
        role: Role,
        line: &Line,
        made: &(Task, [u8; 32]),
    ) -> anyhow::Result<P> {
        let receipt = &line.step.receipt;
        let slot = &receipt.slot;
        let part = self.part(role, slot)?;
        let part = part.with_context(|| format!("spec.yaml has nothing for parts.{slot}"))?;
        same(line, "the part", &receipt.part, part.decl.name)?;
        // a library may be in another folder here
        let [found, due] = [&*receipt.origin, part.decl.origin].map(|of| Path::new(of).file_name());
        if found != due {
            same(line, "a part of", &receipt.origin, part.decl.origin)?;
        }
        let before = match role {
            Role::Aggregator => self.part(role, &BEFORE_AGGREGATOR)?,
            _ => None,
        };
        let (task, key) = made.clone();
        let made = BuildContext::new(task, Stream::from_key(key));
        let parts = Parts::new([Some(part), before].into_iter().flatten().collect());
        parts.build(role, slot, None, &made)
    }

    /// The server's part in a slot of the run, if it is filled.
    fn part(&self, role: Role, slot: &str) -> anyhow::Result<Option<SlotAssignment>> {
        let part = part_of(self.resolved, slot).and_then(Value::as_mapping);
        let Some(mut settings) = part.cloned() else {
            return Ok(None);
        };
        let name = settings.shift_remove("use");
        let name = name.as_ref().and_then(Value::as_str);
        let name = name.with_context(|| format!("parts.{slot} of spec.yaml has no `use`"))?;
        let found = self.catalogue.find(role, name);
        let decl = found.map_err(|why| anyhow!(why))?;
        Ok(Some(SlotAssignment {
            slot: slot.into(),
            clients: None,
            decl,
            settings: decl.read(&settings.into())?,
        }))
    }
}
