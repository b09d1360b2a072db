//! [`ClientSession`]: a client at work, and its position in a run.

use crate::node_state::{LastAnswer, NodeState, SavedState, StoredClient, Sum};
use crate::wire::{AnswerKind, Id, RequestHead};
use anyhow::ensure;
use fl_core::{ClientId, ClientState, Problem, Result};
use std::sync::Arc;

/// The client that is at work, or was last.
pub(crate) struct ClientSession {
    pub run: Id,
    pub id: ClientId,
    /// The version of its file.
    pub sum: Option<Sum>,
    pub kept: StoredClient,
    /// The message of the last answer, if loaded.
    pub message: Option<Arc<[u8]>>,
    pub client: ClientState,
}

impl ClientSession {
    /// Returns the message of the last answer; empty if there was none.
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

    /// Writes the client's kept data.
    pub fn write(&mut self, home: &NodeState) -> Result<()> {
        let message = self.message(home)?;
        self.sum = Some(home.write(&self.run, self.id, &self.kept, &message)?);
        Ok(())
    }

    /// Forgets the last answer.
    fn silent(&mut self) {
        (self.kept.last, self.message) = (None, None);
    }

    /// Restores the client's lasting state into an empty client.
    pub fn load(&mut self) -> Result<()> {
        match &self.kept.now.client {
            Some(state) => self.client.load(state),
            None => Ok(()),
        }
    }

    /// Keeps the state after request `number`, and its answer.
    pub fn answered(
        &mut self,
        number: u64,
        client: Option<Vec<u8>>,
        about: Sum,
        (said, body): (&AnswerKind, &Arc<[u8]>),
    ) {
        (self.kept.now.number, self.kept.now.client) = (number, client);
        self.kept.last = Some(LastAnswer {
            about,
            said: said.clone(),
            message: crc32fast::hash(body),
        });
        self.message = Some(body.clone());
    }

    /// Moves to the leader's position: forward, or back to the checkpoint that the leader has
    /// resumed from. Releases beyond that stay in the node's ledger, and count as another run's.
    pub fn go_to(mut self, request: &RequestHead, asks: bool) -> Result<Self> {
        let id = request.client;
        let before = request.number - u64::from(asks && request.number > 0);
        let kept = &mut self.kept;
        if request.run.life > kept.life && kept.now.number > request.from {
            ensure!(
                kept.marked == request.from,
                "the run resumes after request {} to client {id}, but the node kept the client's state after request {}",
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
            "request {before} to client {id} came late: the client has had request {}",
            kept.now.number
        );
        if kept.now.number < request.had {
            ensure!(
                !request.remembers,
                Problem::Absent(format!(
                    "the state and releases of client {id} in this run are lost: its node knows {} of {} requests. Restore the node's folder and resume the run, or start a new one",
                    kept.now.number, request.had
                ))
            );
            // nothing lasted after that request, so nothing is missing
            kept.now = SavedState {
                number: request.had,
                ..SavedState::default()
            };
            self.silent();
            self.client = self.client.fresh_copy();
        }
        let kept = &mut self.kept;
        if request.kept > kept.marked {
            // earlier requests are answered, or given up by the leader; `now` may belong to an
            // earlier request than the mark, never to a later one
            (kept.marked, kept.base) = (request.kept, kept.now.clone());
        }
        kept.life = request.run.life;
        Ok(self)
    }
}
