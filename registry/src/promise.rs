//! Can a budget be kept at all, and does noise on counts protect anything?

use crate::check::{Checker, Conversation, key};
use fl_core::privacy::Observer;
use fl_core::{
    Accountant, Budget, BuildContext, COUNTS, ExchangeSpec, Parts, Role, Stream, Task, exposed,
};

impl Checker<'_> {
    /// Noise on counts that nobody wants to know is a mistake, and so is a budget against somebody who sees what nothing prices.
    pub fn promises(
        &mut self,
        budget: Option<&Budget>,
        of: &Conversation,
        parts: &Parts,
        task: &Task,
    ) {
        let Some(protocol) = &of.protocol else {
            return;
        };
        let context = BuildContext {
            task: task.clone(),
            stream: Stream::root(0),
        };
        let parts = parts.in_slots(protocol.slots());
        // a selector of clients may ask how many examples they have
        let wanted = |asked: &ExchangeSpec| {
            parts.asks(asked, &context)
                && (parts.tells_counts(asked, &context)
                    || asked.cohort.is_some_and(|slot| parts.has(slot)))
        };
        if parts.has(&COUNTS) && !protocol.exchanges().iter().any(wanted) {
            let text = "nobody wants to know how many examples clients have: a mechanism here would protect nothing";
            self.note_key(&[key("parts"), key(&COUNTS)], text);
        }
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
        let observer = Observer::from(&budget.against);
        let seen = exposed(protocol.as_ref(), &parts, &context).to(observer);
        if !seen.is_empty() {
            let text = format!(
                "cannot be kept against {observer}, who will see what nothing prices: {}; `fl plan` says what everybody sees",
                seen.join("; ")
            );
            self.note(&[key("budget")], text);
        }
    }
}
