//! A spec's requests to clients, as a node derives them itself.

use fl_core::{BuildContext, Parts, Protocol, RequiredInputs};

/// Returns the inputs that clients send with their answers of the exchange `label`; `None` if with
/// these parts the protocol makes no such request. An aggregator whose needs are unknown counts as
/// without any.
pub(crate) fn wanted(
    protocol: &dyn Protocol,
    parts: &Parts,
    context: &BuildContext,
    label: &str,
) -> Option<RequiredInputs> {
    let questions = protocol.exchanges().into_iter();
    let asked = questions.filter(|asked| asked.label == label && parts.asks(asked, context));
    let told = asked.map(|asked| parts.envelope_needs(&asked, context));
    told.reduce(|a, b| RequiredInputs {
        samples: a.samples || b.samples,
        class_counts: a.class_counts || b.class_counts,
        training_loss: a.training_loss || b.training_loss,
        sent: a.sent || b.sent,
    })
}
