//! The aggregations and releases of a run, repeated from kept messages.

use super::again::{aggregate_again, release_again};
use super::chain::Line;
use super::steps::part_of;
use super::streams::{Begins, CurrentAttempt, ServerStreams};
use super::{Verified, differs};
use crate::kept_messages::KeptMessages;
use crate::record::{inputs_hash, salted};
use anyhow::{Context, anyhow};
use fl_core::message::{Erased, digest, hex};
use fl_core::settings::Value;
use fl_core::{
    AggregationContext, AnyAggregator, AnyMechanism, BEFORE_AGGREGATOR, BoxedPart, BuildContext,
    ClientMessage, ExchangeSpec, Parts, ReleaseContext, Role, ServerStep, SharedExecutor,
    SlotAssignment, Stages, Stream, Task,
};
use fl_registry::{Catalogue, Document};
use std::collections::BTreeMap;
use std::path::Path;

/// Repeats the aggregations and releases whose messages were kept. `failed`: how many attempts at
/// each step had too few answers.
pub(super) fn repeat(
    folder: &Path,
    (spec, text, resolved): (&Path, &[u8], &Value),
    (steps, failed): (&[Line], &BTreeMap<String, usize>),
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
    let mut run = KeptRun {
        resolved,
        catalogue: &catalogue,
        streams: ServerStreams::of(resolved).context("spec.yaml has no seed")?,
        failed,
        now: CurrentAttempt::default(),
        parts: BTreeMap::new(),
        before: BTreeMap::new(),
        result: None,
        exchanges: BTreeMap::new(),
    };
    for line in steps {
        let Some(kept) = &line.step.kept else {
            run.result = None;
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

/// What the server's part in a slot is between two steps.
#[derive(Clone)]
struct KeptPart {
    task: Task,
    /// Its state; empty if it has none.
    state: Vec<u8>,
}

/// What a part gets before it repeats a step.
const STATE: &str = "its state after the step before";

/// A run whose messages were kept, up to a step.
struct KeptRun<'a> {
    resolved: &'a Value,
    catalogue: &'a Catalogue,
    streams: ServerStreams,
    failed: &'a BTreeMap<String, usize>,
    now: CurrentAttempt,
    /// The parts after the last step, by slot and line of models.
    parts: BTreeMap<String, KeptPart>,
    /// The parts before the current step: another attempt begins with them.
    before: BTreeMap<String, KeptPart>,
    /// The last step's result, if it was an aggregation of an exchange: step, label and digest.
    result: Option<(String, String, [u8; 32])>,
    /// By the number of a stage: the exchanges of its protocol, or that it is not here.
    exchanges: BTreeMap<usize, Option<Vec<ExchangeSpec>>>,
}

impl KeptRun<'_> {
    fn release(&mut self, path: &Path, line: &Line) -> anyhow::Result<()> {
        let kept = KeptMessages::<ReleaseContext>::open(path)?;
        let (context, receipt) = (&kept.context, &line.step.receipt);
        same(line, "a release through", &context.slot, &receipt.slot)?;
        let noise = |attempt: &Stream, released: &BTreeMap<String, u64>| {
            let before = released.get(&context.slot).copied();
            attempt.child(&context.slot, before.unwrap_or(0))
        };
        let attempt = self.go_on(line, None, |stream, released| {
            noise(stream, released).key() == context.stream
        })?;
        let mut mechanism: Box<dyn AnyMechanism> = self.make(Role::Privacy, line, &context.made)?;
        if let Some(state) = self.state(&context.slot) {
            mechanism.load(state).context(STATE)?;
        }
        let stream = noise(&attempt, self.now.releases());
        let (before, after) = release_again(&mut *mechanism, context, &stream)?;
        self.now.released(&context.slot);
        self.keep(&context.slot, &context.made.0, mechanism.save());
        let hash = |of: &Erased| shown(line, &kept.salt, hex(&digest(&**of)));
        same(
            line,
            "numbers before the noise",
            &hash(&before),
            &receipt.before,
        )?;
        if let Some((step, label, result)) = self.result.take()
            && step == receipt.step
            && self.releases_result(&label, &context.slot, &context.made.0)?
        {
            let found = hex(&digest(&*before));
            same(line, "a release of", &found, &hex(&result))?;
        }
        same(line, "the result", &hash(&after), &receipt.output)
    }

    fn aggregate(&mut self, path: &Path, line: &Line, exec: &SharedExecutor) -> anyhow::Result<()> {
        let step = &line.step;
        let mut kept = KeptMessages::<AggregationContext>::open(path)?;
        let salt = kept.salt;
        let context = kept.context.clone();
        // several lines of models have a state each
        let slot = context.slot.split('#').next().unwrap_or_default();
        same(line, "an aggregation in", slot, &step.receipt.slot)?;
        let (name, number, _) = &context.round;
        same(line, "the step", name, &step.receipt.step)?;
        let attempt = self.go_on(line, Some(*number), |stream, _| {
            stream.key() == context.stream
        })?;
        let mut aggregator: Box<dyn AnyAggregator> =
            self.make(Role::Aggregator, line, &context.made)?;
        if let Some(state) = self.state(&context.slot) {
            aggregator.load(state).context(STATE)?;
        }
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
        // answers are combined as they come, if the aggregator can
        let how = (attempt, step.receipt.exchange.is_some());
        let out = aggregate_again(&mut *aggregator, &context, how, exec.clone(), &mut mail)?;
        // whatever the aggregator did not take
        for rest in mail {
            rest?;
        }
        self.keep(&context.slot, &context.made.0, aggregator.save());
        if let Some(messages) = step.messages.filter(|messages| *messages != inputs.len()) {
            let found = format!("{} messages", inputs.len());
            return differs(line.place(None), found, messages.to_string());
        }
        let found = shown(line, &salt, inputs_hash(&inputs)?);
        same(line, "messages with the hash", &found, &step.inputs_sha256)?;
        let result = digest(&*out);
        let label = step.receipt.exchange.clone();
        self.result = label.map(|label| (name.clone(), label, result));
        let found = shown(line, &salt, hex(&result));
        same(line, "the result", &found, &step.receipt.output)
    }

    /// Goes on to a step whose stream is one of those that `is` takes, and returns that of its
    /// attempt. `number` as in [`CurrentAttempt::go_on`].
    fn go_on(
        &mut self,
        line: &Line,
        number: Option<usize>,
        is: impl Fn(&Stream, &BTreeMap<String, u64>) -> bool,
    ) -> anyhow::Result<Stream> {
        let failed = self.failed.get(&line.step.receipt.step).copied();
        let number = (number, failed.unwrap_or(0));
        let (attempt, begins) = self.now.go_on(&self.streams, line, number, is)?;
        match begins {
            Begins::Nothing => {}
            Begins::Attempt => self.parts = self.before.clone(),
            Begins::Step => self.before = self.parts.clone(),
        }
        Ok(attempt)
    }

    /// Keeps what the part in a slot, or that of a line of models, is after a step.
    fn keep(&mut self, slot: &str, task: &Task, state: Vec<u8>) {
        let part = KeptPart {
            task: task.clone(),
            state,
        };
        self.parts.insert(slot.into(), part);
    }

    /// Makes the server's part in a slot of the run anew, without its state.
    fn make<P: BoxedPart>(
        &self,
        role: Role,
        line: &Line,
        (task, key): &(Task, [u8; 32]),
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
        let stream = self.streams.part(slot);
        if *key != stream.key() {
            let due = "the one that follows from the seed and the slot";
            return differs(line.place(None), "a part made with another stream", due);
        }
        let earlier = self.parts.get(slot);
        if let Some(earlier) = earlier.filter(|earlier| earlier.task != *task) {
            let (found, due) = (format!("{task:?}"), format!("{:?}", earlier.task));
            return differs(line.place(None), found, due);
        }
        let before = match role {
            Role::Aggregator => self.part(role, &BEFORE_AGGREGATOR)?,
            _ => None,
        };
        let made = BuildContext::new(task.clone(), stream);
        let parts = Parts::new([Some(part), before].into_iter().flatten().collect());
        parts.build(role, slot, None, &made)
    }

    /// The state of the part in a slot before a step, if it has one.
    fn state(&self, slot: &str) -> Option<&[u8]> {
        let state = self.parts.get(slot).map(|part| &*part.state);
        state.filter(|state| !state.is_empty())
    }

    /// The server's part in a slot of the run, if it is filled.
    fn part(&self, role: Role, slot: &str) -> anyhow::Result<Option<SlotAssignment>> {
        let Some(part) = part_of(self.resolved, slot) else {
            return Ok(None);
        };
        let (name, settings) = used(part).with_context(|| format!("parts.{slot} of spec.yaml"))?;
        let found = self.catalogue.find(role, &name);
        let decl = found.map_err(|why| anyhow!(why))?;
        Ok(Some(SlotAssignment {
            slot: slot.into(),
            clients: None,
            decl,
            settings: decl.read(&settings)?,
        }))
    }

    /// Whether the run itself releases the aggregation of this exchange through this slot, so that
    /// the protocol changes nothing in between.
    fn releases_result(&mut self, label: &str, slot: &str, task: &Task) -> anyhow::Result<bool> {
        let later = Stages::owner(label).filter(|(stage, _)| *stage > 1);
        let (stage, label) = later.unwrap_or((1, label));
        if !self.exchanges.contains_key(&stage) {
            let declared = self.exchanges_of(stage, task)?;
            self.exchanges.insert(stage, declared);
        }
        let mut declared = self.exchanges.get(&stage).into_iter().flatten().flatten();
        let flow = declared.find(|spec| spec.label == label);
        let flow = flow.map(|spec| &spec.flow);
        Ok(flow.is_some_and(|flow| flow.at_server.contains(&slot) && flow.released_with.is_none()))
    }

    /// The exchanges of the protocol of a stage; `None` if it is not here.
    fn exchanges_of(&self, stage: usize, task: &Task) -> anyhow::Result<Option<Vec<ExchangeSpec>>> {
        let stages = self.resolved.get("stages");
        let stage = stages.and_then(|all| all.get(stage - 1));
        let protocol = stage.unwrap_or(self.resolved).get("protocol");
        let protocol = protocol.context("spec.yaml has no protocol")?;
        let (name, settings) = used(protocol).context("protocol of spec.yaml")?;
        // one of a session of Python is not here
        let Ok(decl) = self.catalogue.find(Role::Protocol, &name) else {
            return Ok(None);
        };
        let made = BuildContext {
            task: task.clone(),
            stream: self.streams.root(),
        };
        let protocol = fl_core::protocol(decl, &decl.read(&settings)?, &made)?;
        Ok(Some(protocol.exchanges()))
    }
}

/// The name of a part in a spec, and its settings.
fn used(part: &Value) -> anyhow::Result<(String, Value)> {
    let mut settings = part.as_mapping().cloned().context("it is no mapping")?;
    let name = settings.shift_remove("use");
    let name = name.as_ref().and_then(Value::as_str);
    let name = name.context("it has no `use`")?.into();
    Ok((name, settings.into()))
}
