//! What ties the other roles into a method.

use crate::TaskKind;
use crate::{Answer, Asked, Client, Federation, Question, Result, Slot};

/// A paper's algorithm box: the server's side and the client's side of one conversation.
///
/// The two sides share nothing but the questions, whose payloads are messages: a client can live in another process.
pub trait Protocol: Send + Sync {
    /// What the spec must fill.
    fn slots(&self) -> Vec<Slot>;

    /// Every question, known before anything runs.
    fn questions(&self) -> Vec<Asked>;

    /// What the run begins with that may have been learnt from clients' data and that nothing in it prices, if anything.
    fn begins_with(&self) -> Option<String> {
        None
    }

    /// The server's side.
    ///
    /// # Errors
    /// When the run cannot go on.
    fn lead(&self, fed: &mut Federation<'_>) -> Result<()>;

    /// The client's side: answers one question.
    ///
    /// # Errors
    /// When this client cannot answer; the spec's fault policy decides what becomes of the run.
    fn answer(&self, me: &mut Client, question: Question<'_>) -> Result<Answer>;

    /// What does not go together, in a run where `has` says which slots are filled, and of `data.public` and
    /// `data.public.labelled` whether the data have it: settings without effect, or without what they need. For each what
    /// is wrong and what would be right, beginning with the setting in backticks (`` `filter-on` has no effect ..``), or
    /// with any other word if no one setting is at fault. They are mistakes in the spec.
    fn conflicts(&self, _has: &dyn Fn(&str) -> bool) -> Vec<String> {
        Vec::new()
    }

    /// Whether it works for tasks of this kind, in a run where `has` says which slots are filled. Where every pixel has a class it must
    /// not take a number of a model's output for the score of a class of the whole input; one that does not say so is taken to.
    ///
    /// # Errors
    /// What stands in the way, and what would be right. They are mistakes in the spec.
    fn suits(
        &self,
        kind: TaskKind,
        _has: &dyn Fn(&str) -> bool,
    ) -> std::result::Result<(), String> {
        match kind.is_dense() {
            false => Ok(()),
            true => Err("it takes each number of a model's output for the score of a class of the whole input".into()),
        }
    }

    /// The setting that says how many rounds there are and nothing else: a run of more of them begins as one of fewer does, bit
    /// for bit, so a run that is done can be given more. `None`: there is none.
    fn grows(&self) -> Option<&'static str> {
        None
    }

    /// Run on one client that has everybody's data (the centralised baseline).
    fn pools_data(&self) -> bool {
        false
    }
}
