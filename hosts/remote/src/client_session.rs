//! A client at work, and where in its run it is.

use crate::node_state::{NodeState, SavedState, StoredClient, Sum};
use crate::wire::{Id, RequestHead};
use anyhow::ensure;
use fl_core::{ClientId, ClientState, Problem, Result};
use std::sync::Arc;

/// A client that is at work, or was last.
pub(crate) struct ClientSession {
    pub run: Id,
    pub id: ClientId,
    /// The version of its file that it is of.
    pub sum: Option<Sum>,
    pub kept: StoredClient,
    /// The message of the last answer, if it is at hand.
    pub message: Option<Arc<[u8]>>,
    pub client: ClientState,
}

impl ClientSession {
    /// The message of the last answer; nobody's is empty.
    pub fn message(&mut self, home: &NodeState) -> Result<Arc<[u8]>> {
        if let Some(message) = &self.message {
            return Ok(message.clone());
        }
        let message = match &self.kept.last {
            Some(last) => home.message(&self.run, self.id, last)?,
            None => Arc::new([]),
        };
        Ok(self.message.insert(message).clone())
    }

    /// Writes down what the client keeps.
    pub fn write(&mut self, home: &NodeState) -> Result<()> {
        let message = self.message(home)?;
        self.sum = Some(home.write(&self.run, self.id, &self.kept, &message)?);
        Ok(())
    }

    /// Nothing has been answered since.
    fn silent(&mut self) {
        (self.kept.last, self.message) = (None, None);
    }

    /// Takes back what lasts of the client, which has nothing yet.
    pub fn load(&mut self) -> Result<()> {
        match &self.kept.now.client {
            Some(state) => self.client.load(state),
            None => Ok(()),
        }
    }

    /// Goes to where the leader is: on, or back to the checkpoint that it has gone on from. What was paid for beyond that stays
    /// in the node's ledger, and counts as another run's.
    pub fn go_to(mut self, request: &RequestHead, asks: bool) -> Result<Self> {
        let id = request.client;
        let before = request.number - u64::from(asks && request.number > 0);
        let kept = &mut self.kept;
        if request.run.life > kept.life && kept.now.number > request.from {
            ensure!(
                kept.marked == request.from,
                "the run goes on after question {} to client {id}, but what the client was then is not kept: it is of question {}",
                request.from,
                kept.marked
            );
            kept.now = kept.base.clone();
            self.silent();
            self.client = self.client.fresh_copy();
            self.load()?;
        }
        let kept = &mut self.kept;
        ensure!(
            kept.now.number <= before,
            "this is about question {before} to client {id}, which has been asked {} by now; such a request came late",
            kept.now.number
        );
        if kept.now.number < request.had {
            ensure!(
                !request.remembers,
                Problem::Absent(format!(
                    "what client {id} has learnt and spent in this run is lost: it remembers {} of {} questions. Restore its node's folder and go on with the run, or begin anew",
                    kept.now.number, request.had
                ))
            );
            // nothing lasted after that question, so nothing is missing
            kept.now = SavedState {
                number: request.had,
                ..SavedState::default()
            };
            self.silent();
            self.client = self.client.fresh_copy();
        }
        let kept = &mut self.kept;
        if request.kept > kept.marked {
            // what it was asked until then it has answered, or never will: the leader has given those up, and `now` may be of an
            // earlier question than the mark, never of a later one
            (kept.marked, kept.base) = (request.kept, kept.now.clone());
        }
        kept.life = request.run.life;
        Ok(self)
    }
}
