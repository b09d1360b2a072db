//! What a spec asks of clients, as a node works it out for itself.

use fl_core::{BuildContext, Parts, Protocol, RequiredInputs};

/// What clients tell beside their answers to the question of this label; `None`: with these parts the protocol does not ask it.
/// Where the aggregator's wishes cannot be known, it has none.
pub(crate) fn wanted(
    protocol: &dyn Protocol,
    parts: &Parts,
    context: &BuildContext,
    label: &str,
) -> Option<RequiredInputs> {
    let questions = protocol.exchanges().into_iter();
    let asked = questions.filter(|asked| asked.label == label && parts.asks(asked, context));
    let told = asked.map(|asked| parts.told_beside(&asked, context));
    told.reduce(|a, b| RequiredInputs {
        samples: a.samples || b.samples,
        class_counts: a.class_counts || b.class_counts,
        training_loss: a.training_loss || b.training_loss,
        sent: a.sent || b.sent,
    })
}
