//! Can a budget be kept at all, and does noise on counts protect anything?

use crate::check::{CheckedProtocol, Checker};
use crate::spanned_value::key;
use fl_core::{
    Accountant, Budget, BuildContext, COUNTS, ExchangeSpec, Faults, Parts, Protocol, Role, Stream,
    Task, exposed,
};

impl Checker<'_> {
    /// Noise on counts that no part uses is a mistake, and so is a budget against an observer
    /// of unpriced data, and an aggregator that needs training losses where clients do
    /// not train.
    pub fn promises(
        &mut self,
        (budget, faults): (Option<&Budget>, &Faults),
        of: &CheckedProtocol,
        parts: &Parts,
        task: &Task,
    ) {
        let Some(protocol) = &of.protocol else {
            return;
        };
        let context = BuildContext::new(task.clone(), Stream::root(0));
        let parts = parts.in_slots(protocol.slots());
        // a selector of clients may ask how many examples they have
        let wanted = |asked: &ExchangeSpec| {
            parts.asks(asked, &context)
                && (parts.sends_class_counts(asked, &context)
                    || asked.cohort.is_some_and(|slot| parts.has(slot)))
        };
        if parts.has(&COUNTS) && !protocol.exchanges().iter().any(wanted) {
            let text = "no part uses the clients' numbers of examples, so a mechanism here has no effect: leave it out";
            self.note_key(&[key("parts"), key(&COUNTS)], text);
        }
        let held_out = |asked: &&ExchangeSpec| asked.held_out && parts.asks(asked, &context);
        if let Some(asked) = protocol.exchanges().iter().find(held_out)
            && parts.has("accountant")
        {
            let text = format!(
                "no accountant prices what follows from rows that clients have held back, which `{}` uses: leave the accountant out, or use another protocol",
                asked.label
            );
            self.note_key(&[key("parts"), key("accountant")], text);
        }
        self.training_losses(protocol.as_ref(), &parts, &context);
        // without an accountant there is a mistake already
        let Some(budget) = budget.filter(|_| parts.has("accountant")) else {
            return;
        };
        let accountant: fl_core::Result<Box<dyn Accountant>> =
            parts.build(Role::Accountant, "accountant", None, &context);
        let at = accountant.and_then(|accountant| accountant.guarantee(None));
        if let (Ok(at), Some(delta)) = (at, budget.delta)
            && at.delta > delta
        {
            let text = format!(
                "is {delta:e}, but the accountant guarantees at {:e}: set the accountant's `delta`",
                at.delta
            );
            self.note_key(&[key("budget"), key("delta")], text);
        }
        let observer = budget.against;
        let seen = exposed(protocol.as_ref(), &parts, &context, faults).to(observer);
        if !seen.is_empty() {
            let text = format!(
                "cannot be kept against {observer}: data that this observer sees have no price: {}; `fl plan` shows what each observer sees",
                seen.join("; ")
            );
            self.note(&[key("budget")], text);
        }
    }

    /// An aggregator that needs training losses must combine answers for which clients train.
    fn training_losses(&mut self, protocol: &dyn Protocol, parts: &Parts, context: &BuildContext) {
        let exchanges = protocol.exchanges();
        for slot in protocol.slots() {
            if slot.role != Role::Aggregator || !parts.needs(slot.name, context).training_loss {
                continue;
            }
            let combined = |asked: &&ExchangeSpec| {
                asked.aggregator == Some(slot.name) && parts.asks(asked, context)
            };
            let mut combined = exchanges.iter().filter(combined);
            let why = match combined.next() {
                None => "this protocol shows it no training loss".into(),
                first => match first
                    .into_iter()
                    .chain(combined)
                    .find(|asked| !asked.trains)
                {
                    Some(asked) => asked.no_training(),
                    None => continue,
                },
            };
            let text = format!(
                "{why}; use another aggregator, or a protocol whose clients train for each answer, such as `fedavg`"
            );
            self.note_use(&[key("parts"), key(slot.name)], text, None);
        }
    }
}
