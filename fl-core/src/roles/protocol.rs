//! What ties the other roles into a method.

use crate::{Answer, Asked, Client, Federation, Question, Result, Slot};

/// A paper's algorithm box: the server's side and the client's side of one conversation.
///
/// The two sides share nothing but the questions, whose payloads are messages: a client can live in another process.
pub trait Protocol: Send + Sync {
    /// What the spec must fill.
    fn slots(&self) -> Vec<Slot>;

    /// Every question, known before anything runs.
    fn questions(&self) -> Vec<Asked>;

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

    /// Settings that would have no effect, or none that is meant, in a run where `has` says which slots are filled: for each
    /// what is wrong and what would be right. They are mistakes in the spec.
    fn conflicts(&self, _has: &dyn Fn(&str) -> bool) -> Vec<String> {
        Vec::new()
    }

    /// Run on one client that has everybody's data (the centralised baseline).
    fn pools_data(&self) -> bool {
        false
    }
}
