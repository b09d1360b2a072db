//! Can a budget be kept at all, and does noise on counts protect anything?

use crate::check::{Checker, Conversation, key};
use fl_core::privacy::Observer;
use fl_core::{Asked, Budget, BuildContext, Parts, Slot, Stream, Task, exposed};

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
        let wanted = |asked: &Asked| {
            parts.asks(asked, &context)
                && (parts.tells_counts(asked, &context)
                    || asked.cohort.is_some_and(|slot| parts.has(slot)))
        };
        if parts.has(Slot::COUNTS) && !protocol.questions().iter().any(wanted) {
            let text = "nobody wants to know how many examples clients have: a mechanism here would protect nothing";
            self.note_key(&[key("parts"), key(Slot::COUNTS)], text);
        }
        // without an accountant there is a mistake already
        let Some(budget) = budget.filter(|_| parts.has("accountant")) else {
            return;
        };
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
