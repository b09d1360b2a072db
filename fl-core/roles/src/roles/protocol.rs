//! [`Protocol`]: the role that combines the other roles into a method.

use crate::{
    Answer, Client, Conflict, Declaration, ExchangeSpec, Request, Result, Server, SlotSpec,
    TaskKind,
};
use std::collections::BTreeMap;

/// Numbers of a run that are known before its data are loaded.
pub struct DataFacts<'a> {
    /// The number of clients.
    pub clients: usize,
    /// The most clients in a round, by the slot of their selector; without slots whose selectors
    /// must see more than there is before a run, or draw each client by itself.
    pub cohorts: BTreeMap<&'static str, usize>,
    /// The shape of an input, if it is known then.
    pub input: Option<Vec<usize>>,
    /// The most public samples that there can be.
    pub public: Option<usize>,
    /// Whether the public samples are test rows, or rows of another data set.
    pub other_public: bool,
    /// Whether the classes of the public samples are known, for measurements alone.
    pub public_truth: bool,
    /// How many examples each client has, if that is known then and no secret. May load the data.
    pub examples: &'a dyn Fn() -> Option<Vec<usize>>,
}

/// A paper's algorithm box: the exchanges, and the server's steps between them.
///
/// The server and a client share nothing but the exchanges, whose payloads are messages: a client
/// can live in another process.
pub trait Protocol: Send + Sync {
    /// Returns the slots and exchanges of a run with these settings, and the clients' handlers. The
    /// core executes this declaration: it draws the cohort, sends the request, lets the client
    /// answer, clips and releases, checks, combines, charges and journals. Plans, checks and
    /// guarantees read the same value.
    fn declare(&self) -> Declaration<'_>;

    /// Runs the server's side.
    ///
    /// # Errors
    /// If the run fails.
    fn lead(&self, server: &mut Server<'_>) -> Result<()>;

    /// Returns settings that do not go together, which become mistakes in the spec. `has` tells
    /// which slots are filled, and whether the data have `data.public` and `data.public.labelled`.
    fn conflicts(&self, _has: &dyn Fn(&str) -> bool) -> Vec<Conflict> {
        Vec::new()
    }

    /// Returns settings that do not go with the numbers of clients and samples, as far as those are
    /// known before the data are loaded. They become mistakes in the spec.
    fn data_conflicts(&self, _facts: &DataFacts<'_>) -> Vec<Conflict> {
        Vec::new()
    }

    /// Checks that the protocol works for tasks of this kind; `has` tells which slots are filled.
    /// The default refuses tasks with an output for every pixel, and numbers to predict. There, one
    /// output of a model is not the score of a class of the whole input.
    ///
    /// # Errors
    /// The obstacle and how to fix it, which become mistakes in the spec.
    fn suits(
        &self,
        kind: TaskKind,
        _has: &dyn Fn(&str) -> bool,
    ) -> std::result::Result<(), String> {
        if kind.scores_classes() {
            Ok(())
        } else {
            Err("it takes each number of a model's output for the score of a class of the whole input".into())
        }
    }

    /// Returns a client's answer to a request: that of the declaration. A protocol in a library
    /// gives it without building its declaration anew.
    #[doc(hidden)]
    fn answer_request(&self, client: &mut Client, request: Request<'_>) -> Result<Answer> {
        self.declare().answer(client, request)
    }
}

impl dyn Protocol + '_ {
    /// Returns its slots.
    pub fn slots(&self) -> Vec<SlotSpec> {
        self.declare().into_slots()
    }

    /// Returns its exchanges, all known before a run.
    pub fn exchanges(&self) -> Vec<ExchangeSpec> {
        self.declare().into_exchanges()
    }

    /// Returns the setting that gives the number of rounds and nothing else, see
    /// [`Declaration::grows_by`].
    pub fn grows(&self) -> Option<&'static str> {
        self.declare().grows
    }

    /// Returns whether the run takes place on one client that holds all clients' data.
    pub fn pools_data(&self) -> bool {
        self.declare().pooled
    }
}
