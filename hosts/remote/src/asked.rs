//! What a spec asks of clients, as a node works it out for itself.

use fl_core::message::{Message, PairVisitor, visit_pair};
use fl_core::{BoxedAggregator, BuildContext, Needs, Parts, Protocol, Role};

/// What the aggregator in a slot wants beside the messages.
struct NeedsOf<'a> {
    parts: &'a Parts,
    slot: &'a str,
    context: &'a BuildContext,
}

impl PairVisitor for NeedsOf<'_> {
    type Out = Needs;
    fn visit<I: Message, O: Message>(self) -> Needs {
        let Self {
            parts,
            slot,
            context,
        } = self;
        let part = parts.build::<BoxedAggregator<I, O>>(Role::Aggregator, slot, None, context);
        part.map(|part| part.needs()).unwrap_or_default()
    }
}

/// What clients tell beside their answers to the question of this label; `None`: with these parts the protocol does not ask it.
/// Where the aggregator's wishes cannot be known, it has none.
pub(crate) fn wanted(
    protocol: &dyn Protocol,
    parts: &Parts,
    context: &BuildContext,
    label: &str,
) -> Option<Needs> {
    let needs = |slot: &str| {
        let filled = parts.iter().find(|f| f.slot == slot)?;
        let signature = (filled.decl.describe)().signature;
        let of = NeedsOf {
            parts,
            slot,
            context,
        };
        visit_pair(&signature, of)
    };
    let questions = protocol.questions().into_iter();
    let asked = questions.filter(|asked| asked.label == label && parts.asks(asked, context));
    let told = asked.map(|asked| asked.aggregator.and_then(needs).unwrap_or_default());
    told.reduce(|a, b| Needs {
        samples: a.samples || b.samples,
        class_counts: a.class_counts || b.class_counts,
        sent: a.sent || b.sent,
    })
}
