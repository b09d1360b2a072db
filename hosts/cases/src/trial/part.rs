//! A part that was made, and what it answers.

use super::input::{
    Client, INPUTS, Input, Lesson, Messages, Release, Rows, Wish, examples, inbox, one_each, rows,
    samples, table,
};
use anyhow::{Context, bail, ensure};
use fl_core::message::{self, AnyMessage, Params, SoftLabels, from_json, to_json};
use fl_core::privacy::ReleaseNoise;
use fl_core::{
    Accountant, AnyAggregator, AnyMechanism, AnySelector, BoxedPart, BuildContext, Candidate,
    Cohort, FitOptions, Generator, Length, LogEvent, Loss, Parts, Pool, Result, Role, Round,
    Samples, Target, Trainer,
};
use serde_json::{Value as Json, json};

/// Where the part stands, unless it is an accountant.
pub const SLOT: &str = "part";

/// What a part gave, if it is what such a message may be.
fn shown(out: &dyn AnyMessage) -> Result<Json> {
    message::check(out).context("its output")?;
    Ok(json!({ "kind": out.kind(), "tensors": to_json(out) }))
}

/// A part that was made, with its state.
pub enum Part {
    Aggregator(Box<dyn AnyAggregator>),
    Mechanism(Box<dyn AnyMechanism>),
    Selector(Box<dyn AnySelector>),
    Accountant(Box<dyn Accountant>),
    Trainer(Box<dyn Trainer>),
    Generator(Box<dyn Generator>),
}

impl Part {
    pub fn make(parts: &Parts, role: Role, context: &BuildContext) -> Result<Self> {
        fn of<B: BoxedPart>(parts: &Parts, role: Role, context: &BuildContext) -> Result<B> {
            parts.build(role, SLOT, None, context)
        }
        Ok(match role {
            Role::Aggregator | Role::Attack => Self::Aggregator(of(parts, role, context)?),
            Role::Privacy => Self::Mechanism(of(parts, role, context)?),
            Role::Selector => Self::Selector(of(parts, role, context)?),
            Role::Accountant => Self::Accountant(of(parts, role, context)?),
            Role::Trainer => Self::Trainer(of(parts, role, context)?),
            Role::Generator => Self::Generator(of(parts, role, context)?),
            Role::Protocol => bail!("a protocol has no input of its own"),
        })
    }

    /// Its state, as a checkpoint has it; `None`: the role has none.
    pub fn save(&self) -> Result<Option<Vec<u8>>> {
        Ok(match self {
            Self::Aggregator(part) => Some(part.save()),
            Self::Mechanism(part) => Some(part.save()),
            Self::Selector(part) => Some(part.save()),
            Self::Trainer(part) => Some(part.save_state()?),
            Self::Generator(part) => Some(part.save()?),
            Self::Accountant(_) => None,
        })
    }

    pub fn load(&mut self, state: &[u8]) -> Result<()> {
        match self {
            Self::Trainer(part) => part.load_state(state),
            Self::Generator(part) => part.load(state),
            // an empty state is that of a new part
            _ if state.is_empty() => Ok(()),
            Self::Aggregator(part) => part.load(state),
            Self::Mechanism(part) => part.load(state),
            Self::Selector(part) => part.load(state),
            Self::Accountant(_) => Ok(()),
        }
    }

    pub fn answer(&mut self, round: &Round, input: Input) -> Result<Json> {
        let mut out = match (self, input) {
            (Self::Aggregator(part), Input::Messages(input)) => {
                aggregate(&mut **part, round, input)
            }
            (Self::Mechanism(part), Input::Release(input)) => release(&mut **part, round, input),
            (Self::Selector(part), Input::Clients(input)) => {
                let known = |c: &Client| Candidate {
                    id: c.id,
                    samples: c.samples,
                    loss: c.loss,
                };
                let pool: Vec<Candidate> = input.clients.iter().map(known).collect();
                positions(part.select(round, pool[..].any()))
            }
            (Self::Selector(part), Input::Rows(input)) => select(&mut **part, round, input),
            (Self::Accountant(part), Input::Events(input)) => {
                input.events.iter().try_for_each(|e| part.charge(e))?;
                Ok(json!(part.guarantee(None)?))
            }
            (Self::Trainer(part), Input::Lesson(input)) => teach(&mut **part, round, *input),
            (Self::Generator(part), Input::Wish(input)) => generate(&mut **part, round, input),
            _ => bail!("the input is for a part of another role"),
        }?;
        for said in round.take_log() {
            match said {
                LogEvent::Note(text) => out["note"] = json!(text),
                LogEvent::Number(name, value) => out[name] = json!(value),
            }
        }
        Ok(out)
    }
}

fn positions(chosen: Result<Vec<usize>>) -> Result<Json> {
    Ok(json!({ "positions": chosen? }))
}

fn aggregate(part: &mut dyn AnyAggregator, round: &Round, input: Messages) -> Result<Json> {
    let (of, needs) = (part.input(), part.needs());
    let inbox_of = |messages| inbox(of, messages, needs);
    // as a run tells it
    let answers = input.messages.len();
    let few = part
        .robustness()
        .and_then(|robust| robust.shortfall(answers));
    few.into_iter().for_each(|few| round.note(few));
    let out = match input.sent {
        Some(sent) => {
            let sent = of.from_json(&sent).context("`sent`")?;
            let round = round.showing_any(sent.into());
            part.aggregate(&round, &*inbox_of(input.messages)?)?
        }
        None if needs.sent => {
            bail!("the part needs the message sent to clients: add its tensors as `sent`")
        }
        None => part.aggregate(round, &*inbox_of(input.messages)?)?,
    };
    shown(&*out)
}

fn release(part: &mut dyn AnyMechanism, round: &Round, input: Release) -> Result<Json> {
    ensure!(input.clients > 0, "`clients` must be at least 1");
    ensure!(
        input.clients <= fl_data::MAX_CLIENTS,
        "`clients` must be in 1..={}, got {}",
        fl_data::MAX_CLIENTS,
        input.clients
    );
    let mut m = part.on().from_json(&input.tensors)?;
    if let Some(range) = part.range(&*m) {
        part.agree(range);
    }
    part.clip(&mut *m)?;
    message::check(&*m).context("the clipped message")?;
    let bounded = to_json(&*m);
    let cohort = Cohort::all(input.clients);
    let event = part.price(&*m, &cohort)?;
    part.perturb(&mut *m, &cohort, &ReleaseNoise::seeded(&round.stream))?;
    let event = part.actual_cost(event);
    let mut out = shown(&*m)?;
    out["bounded"] = bounded;
    out["event"] = serde_json::to_value(event)?;
    Ok(out)
}

fn select(part: &mut dyn AnySelector, round: &Round, input: Rows) -> Result<Json> {
    if let Some(own) = input.own {
        part.fit(&examples(own).context("`own`")?, &round.stream)?;
    }
    if part.pool() == Samples::NAME {
        let x = samples(input.samples.context("`samples` are missing")?)?;
        return positions(part.select(round, x.any()));
    }
    let tensors = input.tensors.context("`tensors` are missing")?;
    let labels: SoftLabels = from_json(&tensors)?;
    positions(part.select(round, labels.any()))
}

fn teach(part: &mut dyn Trainer, round: &Round, input: Lesson) -> Result<Json> {
    let x = samples(input.samples)?;
    let labels = input.labels.map(table::<i8>).transpose();
    let labels = labels.context("`labels`")?;
    let scores = input.scores.map(rows).transpose().context("`scores`")?;
    let target = match (&input.classes, &labels, &scores) {
        (Some(of), None, None) => Some((Target::Classes(of), Loss::CrossEntropy)),
        (None, Some(of), None) => Some((Target::MultiLabel(of.view()), Loss::CrossEntropy)),
        (None, None, Some(of)) => Some((Target::Scores(of.view()), Loss::Mse)),
        (None, None, None) => None,
        _ => bail!("a pass has one target: `classes`, `labels` or `scores`"),
    };
    let mut out = json!({});
    if let Some((target, usual)) = target {
        one_each(x.len(), target.len())?;
        ensure!(input.batch > 0, "`batch` must be at least 1");
        let length = match (input.epochs, input.steps) {
            (Some(_), Some(_)) => bail!("a pass has `epochs` or `steps`, not both"),
            (_, Some(steps)) => Length::Steps(steps),
            (epochs, None) => Length::Epochs(epochs.unwrap_or(1)),
        };
        let loss = input.loss.as_deref().map_or(Ok(usual), loss)?;
        let options = FitOptions::new(length, input.batch, loss);
        let fitted = part.fit(&x, target, &options, &round.stream)?;
        out = json!({ "steps": fitted.steps, "loss": fitted.loss });
    }
    let asked = input
        .predict
        .map(samples)
        .transpose()
        .context("`predict`")?;
    let scores = part.predict(asked.as_ref().unwrap_or(&x))?;
    out["scores"] = numbers("scores", scores)?;
    if input.parameters {
        let parametric = part.parametric();
        let parametric = parametric.context("the trainer has no `parameters`")?;
        out["parameters"] = to_json(&parametric.params());
    }
    Ok(out)
}

fn loss(name: &str) -> Result<Loss> {
    let named = |loss: &Loss| loss.to_string().split(' ').next() == Some(name);
    Loss::KINDS.into_iter().find(named).with_context(|| {
        format!("`loss` must be cross-entropy, mae, mse, norm or kl, got `{name}`")
    })
}

fn generate(part: &mut dyn Generator, round: &Round, input: Wish) -> Result<Json> {
    ensure!(
        (1..=INPUTS).contains(&input.count),
        "`count` must be in 1..={INPUTS}, got {}",
        input.count
    );
    let made = part.sample(input.count, &round.stream)?;
    let (values, mut shape) = (made.values(), made.shape());
    ensure!(
        values.nrows() == input.count,
        "it made {} inputs, not {}",
        values.nrows(),
        input.count
    );
    if let Some(slopes) = input.slopes {
        let slopes = samples(slopes).context("`slopes`")?.values();
        ensure!(
            slopes.dim() == values.dim(),
            "`slopes` must have a number for each number of the inputs, {:?}, got {:?}",
            values.dim(),
            slopes.dim()
        );
        part.learn(&made, slopes.view())?;
    }
    shape.insert(0, input.count);
    let values = values.into_shape_with_order(shape)?;
    Ok(json!({ "samples": numbers("samples", values)? }))
}

/// Floats in their shortest form, as those of a message; none of them may be infinite or NaN.
fn numbers<D: ndarray::Dimension>(name: &str, of: ndarray::Array<f32, D>) -> Result<Json> {
    let of = Params([(name.to_string(), of.into_dyn())].into_iter().collect());
    message::check(&of).context("its output")?;
    Ok(to_json(&of)[name].take())
}
