//! What ties the other roles into a method.

use crate::{Conflict, Declaration, ExchangeSpec, Result, Server, SlotSpec, TaskKind};

/// A paper's algorithm box: what is exchanged, and what the server does with it.
///
/// The server and a client share nothing but the exchanges, whose payloads are messages: a client
/// can live in another process.
pub trait Protocol: Send + Sync {
    /// The slots and exchanges of a run with these settings, and how clients answer. The core
    /// executes what stands here: it draws the cohort, sends the request, lets the client answer,
    /// clips and releases, checks, combines, charges and journals. Plans, checks and guarantees
    /// read the same value.
    fn declare(&self) -> Declaration<'_>;

    /// The server's side.
    ///
    /// # Errors
    /// When the run cannot go on.
    fn lead(&self, server: &mut Server<'_>) -> Result<()>;

    /// Settings that do not go together, in a run where `has` says which slots are filled, and of
    /// `data.public` and `data.public.labelled` whether the data have it. They are mistakes in the
    /// spec.
    fn conflicts(&self, _has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        Vec::new()
    }

    /// Whether it works for tasks of this kind, in a run where `has` says which slots are filled.
    /// Where every pixel has a class it must not take a number of a model's output for the score
    /// of a class of the whole input; one that does not say so is taken to.
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
}

impl dyn Protocol + '_ {
    /// What a spec must fill.
    pub fn slots(&self) -> Vec<SlotSpec> {
        self.declare().into_slots()
    }

    /// Every exchange, known before a run.
    pub fn exchanges(&self) -> Vec<ExchangeSpec> {
        self.declare().into_exchanges()
    }

    /// The setting that gives the number of rounds and nothing else, see
    /// [`Declaration::grows_by`].
    pub fn grows(&self) -> Option<&'static str> {
        self.declare().grows
    }

    /// Whether the run takes place on one client that has everybody's data.
    pub fn pools_data(&self) -> bool {
        self.declare().pooled
    }
}
