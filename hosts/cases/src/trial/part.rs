//! A part, and its answers.

use super::input::{
    INPUTS, Input, Lesson, Messages, Release, Rows, Wish, examples, mail, one_each, rows, samples,
    table,
};
use anyhow::{Context, bail, ensure};
use fl_core::message::{self, AnyMessage, Erased, Params, SoftLabels, from_json, to_json};
use fl_core::privacy::ReleaseNoise;
use fl_core::{
    Accountant, AnyAggregator, AnyMechanism, AnySelector, BoxedPart, BuildContext, ClientMessage,
    Cohort, FitOptions, Generator, Length, LogEvent, Loss, Parts, Pool, PrivacyEvent, Result, Role,
    Round, Samples, Target, Trainer,
};
use serde_json::{Value as Json, json};

/// Where the part stands, unless it is an accountant.
pub const SLOT: &str = "part";

/// What a part gave, if it is what such a message may be.
fn shown(out: &dyn AnyMessage) -> Result<Json> {
    message::check(out).context("its output")?;
    Ok(json!({ "kind": out.kind(), "tensors": to_json(out) }))
}

/// A part, with its state.
pub enum Part {
    /// An aggregator or an attack.
    Aggregator(Box<dyn AnyAggregator>),
    /// A privacy mechanism.
    Mechanism(Box<dyn AnyMechanism>),
    /// A selector.
    Selector(Box<dyn AnySelector>),
    /// An accountant.
    Accountant(Box<dyn Accountant>),
    /// A trainer.
    Trainer(Box<dyn Trainer>),
    /// A generator.
    Generator(Box<dyn Generator>),
}

impl Part {
    /// Makes the part in the slot [`SLOT`].
    ///
    /// # Errors
    /// If it is a protocol, or cannot be made.
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

    /// Returns its state, as a checkpoint has it; `None` if the role has none.
    ///
    /// # Errors
    /// If the part cannot write it.
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

    /// Goes on with a state that [`Part::save`] gave.
    ///
    /// # Errors
    /// If the part cannot read it.
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

    pub(crate) fn answer(&mut self, round: &Round, input: Input) -> Result<Json> {
        let mut out = match (self, input) {
            (Self::Aggregator(part), Input::Messages(input)) => {
                aggregate(&mut **part, round, input)
            }
            (Self::Mechanism(part), Input::Release(input)) => release(&mut **part, round, input),
            (Self::Selector(part), Input::Clients(input)) => {
                positions(part.select(round, input.clients[..].any()))
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

/// Reads the messages, and what was sent, and lets the part aggregate them.
fn aggregate(part: &mut dyn AnyAggregator, round: &Round, input: Messages) -> Result<Json> {
    let of = part.input();
    let sent = input.sent.map(|sent| of.from_json(&sent).context("`sent`"));
    let mail = mail(of, input.messages)?;
    shown(&*aggregated(part, round, mail, sent.transpose()?)?)
}

/// Returns what an aggregator makes of messages in a run: it sees no weights unless it asks for
/// them.
///
/// # Errors
/// If it needs what is not given, fails, or answers with what no message may be.
pub fn aggregated(
    part: &mut dyn AnyAggregator,
    round: &Round,
    mut mail: Vec<ClientMessage<Erased>>,
    sent: Option<Erased>,
) -> Result<Erased> {
    let needs = part.needs();
    let all = |has: fn(&ClientMessage<Erased>) -> bool| mail.iter().all(has);
    ensure!(
        !needs.sent || sent.is_some(),
        "it needs what was sent to the clients: give `sent`, such as the global parameters"
    );
    ensure!(
        !needs.class_counts || all(|m| m.class_counts.is_some()),
        "it needs the examples per class of each client: give `class_counts`"
    );
    ensure!(
        !needs.training_loss || all(|m| m.training_loss.is_some()),
        "it needs the training loss of each client, which is not given"
    );
    // as a run tells it
    let few = part
        .robustness()
        .and_then(|robust| robust.shortfall(mail.len()));
    few.into_iter().for_each(|few| round.note(few));
    if !needs.samples {
        mail.iter_mut().for_each(|message| message.weight = 1.0);
    }
    let inbox = part.input().inbox(mail)?;
    let out = match sent {
        Some(sent) => part.aggregate(&round.showing_any(sent.into()), &*inbox)?,
        None => part.aggregate(round, &*inbox)?,
    };
    message::check(&*out).context("its output")?;
    Ok(out)
}

/// Clips a message, passes it to `clipped`, and adds the noise of one of these clients. Returns
/// what it cost.
///
/// # Errors
/// If the mechanism fails, or makes what no message may be.
pub fn released(
    part: &mut dyn AnyMechanism,
    message: &mut dyn AnyMessage,
    cohort: &Cohort,
    noise: &ReleaseNoise,
    clipped: impl FnOnce(&dyn AnyMessage),
) -> Result<PrivacyEvent> {
    part.clip(message)?;
    message::check(message).context("the clipped message")?;
    clipped(message);
    let event = part.price(message, cohort)?;
    part.perturb(message, cohort, noise)?;
    message::check(message).context("its output")?;
    Ok(part.actual_cost(event))
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
    let (cohort, noise) = (
        Cohort::all(input.clients),
        ReleaseNoise::seeded(&round.stream),
    );
    let mut bounded = Json::Null;
    let event = released(part, &mut *m, &cohort, &noise, |m| bounded = to_json(m))?;
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
        format!("`loss` must be cross-entropy, mae, mse, huber, norm or kl, got `{name}`")
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
