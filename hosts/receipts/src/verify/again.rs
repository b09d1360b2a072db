//! One aggregation, and one release, done again.

use anyhow::{Context, ensure};
use fl_core::message::{self, Erased, message_type};
use fl_core::privacy::ReleaseNoise;
use fl_core::{
    AggregationContext, AnyAggregator, AnyMechanism, ClientMessage, Problem, ReleaseContext,
    Result, Round, SharedExecutor, Stream,
};

/// Repeats an aggregation with `aggregator`, which has the state before it. `inputs` are its
/// messages, in the order of the receipt.
pub(super) fn aggregate_again(
    aggregator: &mut dyn AnyAggregator,
    context: &AggregationContext,
    (stream, folds): (Stream, bool),
    exec: SharedExecutor,
    inputs: &mut dyn Iterator<Item = Result<ClientMessage<Erased>>>,
) -> Result<Erased> {
    let (name, number, last) = &context.round;
    let round = Round::new(name.as_str(), *number, *last, stream, exec);
    let mut round = round.with_buffers(context.buffers.clone());
    if let Some((kind, wire)) = &context.sent {
        let of = message_type(kind).with_context(|| format!("no part knows messages {kind}"))?;
        round = round.showing_any(of.decode(wire)?.into());
    }
    let fold = aggregator.fold(&round).filter(|_| folds);
    let out = match fold {
        Some(mut fold) => {
            for mail in inputs {
                fold.add(mail?)?;
            }
            let folded = fold.finish()?;
            aggregator.update(&round, folded)?
        }
        None => {
            let mail = inputs.collect::<Result<Vec<_>>>()?;
            ensure!(!mail.is_empty(), Problem::NoAnswer(String::new()));
            let inbox = aggregator.input().inbox(mail)?;
            aggregator.aggregate(&round, &*inbox)?
        }
    };
    message::check(&*out)?;
    Ok(out)
}

/// Repeats a release with seeded noise. `mechanism` has the state before it. Returns the message
/// before clipping and noise, and the released one.
pub(super) fn release_again(
    mechanism: &mut dyn AnyMechanism,
    context: &ReleaseContext,
    noise: &Stream,
) -> Result<(Erased, Erased)> {
    let before = mechanism.on().decode(&context.message)?;
    let mut m = before.copy();
    if context.clips {
        mechanism.clip(&mut *m)?;
    }
    if let Some(n) = context.queries {
        mechanism.truncate(&mut *m, n);
    }
    let noise = ReleaseNoise::seeded(noise);
    mechanism.perturb(&mut *m, &context.cohort, &noise)?;
    message::check(&*m)?;
    Ok((before, m))
}
