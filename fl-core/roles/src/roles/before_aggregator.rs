//! [`BEFORE_AGGREGATOR`]: a step that changes the list of answers before an aggregator combines
//! them.

use crate::message::{Params, ParamsList, alike};
use crate::{
    Aggregator, AggregatorSlot, AnyAggregator, BoxedAggregator, ClientMessage, Inbox,
    RequiredInputs, Result, Robustness, Round,
};
use anyhow::{Context, ensure};

/// The step before an aggregator of parameters, such as bucketing. Every protocol with such an
/// aggregator has this slot.
pub const BEFORE_AGGREGATOR: AggregatorSlot<Params, ParamsList> = AggregatorSlot::new(
    "before-aggregator",
    "Changes the list of the clients' parameters before the aggregator combines it.",
);

/// An aggregator behind a step: the messages that `rule` combines are those that `step` makes of
/// the clients' answers, numbered from 0. It claims no [`Properties`](crate::Properties).
struct Preceded {
    step: BoxedAggregator<Params, ParamsList>,
    rule: BoxedAggregator<Params, Params>,
}

/// Puts `step` before `rule`.
///
/// # Errors
/// If the rule needs to know who sent an answer: behind a step, it cannot.
pub(crate) fn put_before(
    step: BoxedAggregator<Params, ParamsList>,
    rule: BoxedAggregator<Params, Params>,
) -> Result<Box<dyn AnyAggregator>> {
    let needs = rule.needs();
    let lacks = [
        (needs.class_counts, "the classes of each client"),
        (needs.training_loss, "the training loss of each client"),
        (
            rule.robustness().is_some_and(|of| of.relies_on.is_some()),
            "the answer of one named client",
        ),
    ];
    let lacks = lacks.into_iter().find(|(lacks, _)| *lacks);
    ensure!(
        lacks.is_none(),
        "the aggregator needs {}, and a step before it hands on messages without their senders: use another aggregator, or leave this step out",
        lacks.map_or("", |(_, what)| what)
    );
    Ok(<dyn AnyAggregator>::of(Preceded { step, rule }))
}

impl Aggregator for Preceded {
    type In = Params;
    type Out = Params;

    fn aggregate(&mut self, round: &Round, inbox: &Inbox<Params>) -> Result<Params> {
        let own = round.drawing_from(round.stream.child(&BEFORE_AGGREGATOR, 0));
        let step = BEFORE_AGGREGATOR.name();
        let made = self.step.aggregate(&own, inbox);
        let made = made.with_context(|| format!("parts.{step}"))?.answers();
        let mail = (0..).zip(made);
        let mail = mail.map(|(from, (weight, body))| ClientMessage::new(from, weight, body));
        let made = Inbox::new(mail.collect());
        let made = made.with_context(|| format!("parts.{step}: its result"))?;
        for (answer, message) in inbox.iter().zip(made.iter()).take(1) {
            alike(&answer.body, &message.body)
                .with_context(|| format!("parts.{step}: an answer and its result"))?;
        }
        self.rule.aggregate(round, &made)
    }

    fn needs(&self) -> RequiredInputs {
        let [step, rule] = [self.step.needs(), self.rule.needs()];
        RequiredInputs {
            samples: step.samples || rule.samples,
            class_counts: step.class_counts,
            training_loss: step.training_loss,
            sent: step.sent || rule.sent,
        }
    }

    fn robustness(&self) -> Option<Robustness> {
        let step = self.step.robustness().unwrap_or_default();
        Some(self.rule.robustness()?.behind(step))
    }

    fn save(&self) -> Vec<u8> {
        let [step, rule] = [self.step.save(), self.rule.save()];
        if step.is_empty() && rule.is_empty() {
            return Vec::new();
        }
        let mut all = (step.len() as u64).to_le_bytes().to_vec();
        all.extend(step);
        all.extend(rule);
        all
    }

    fn load(&mut self, state: &[u8]) -> Result<()> {
        if state.is_empty() {
            self.step.load(&[])?;
            return self.rule.load(&[]);
        }
        let (n, both) = state
            .split_first_chunk()
            .context("its state is cut short")?;
        let n = usize::try_from(u64::from_le_bytes(*n))?;
        let (step, rule) = both.split_at_checked(n).context("its state is cut short")?;
        let loaded = self.step.load(step);
        loaded.with_context(|| format!("parts.{}", BEFORE_AGGREGATOR.name()))?;
        self.rule.load(rule)
    }
}
