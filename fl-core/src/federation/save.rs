//! What a stopped run needs at the server to go on.

use crate::host::Totals;
use crate::{ClientId, PrivacyEvent, Result, Trainer};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;

/// A stateful server-side part whose type only its slot knows.
pub(super) struct Held {
    pub part: Box<dyn Any + Send>,
    pub save: fn(&dyn Any) -> Vec<u8>,
}

/// Everything at the server that a stopped run needs to go on.
#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    pub done: usize,
    pub protocol: Vec<u8>,
    pub parts: BTreeMap<String, Vec<u8>>,
    pub models: BTreeMap<String, Vec<u8>>,
    pub own: Vec<PrivacyEvent>,
    pub clients: BTreeMap<ClientId, Vec<PrivacyEvent>>,
    pub chain: [u8; 32],
    pub totals: Totals,
}

type Stateful<'a> = (
    &'a BTreeMap<String, Held>,
    &'a BTreeMap<String, Box<dyn Trainer>>,
    &'a Vec<PrivacyEvent>,
    &'a BTreeMap<ClientId, Vec<PrivacyEvent>>,
);

/// The server's state, written down only if the host wants it.
pub(super) struct Saving<'a, S> {
    pub state: &'a S,
    pub fed: Stateful<'a>,
    pub chain: [u8; 32],
    pub totals: &'a Totals,
}

impl<S: Serialize> Saving<'_, S> {
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let (held, models, own, clients) = self.fed;
        let saved = Saved {
            done: self.totals.steps,
            protocol: postcard::to_stdvec(self.state)?,
            parts: held
                .iter()
                .map(|(slot, h)| (slot.clone(), (h.save)(h.part.as_ref())))
                .collect(),
            models: models
                .iter()
                .map(|(slot, m)| Ok((slot.clone(), m.save_state()?)))
                .collect::<Result<_>>()?,
            own: own.clone(),
            clients: clients.clone(),
            chain: self.chain,
            totals: self.totals.clone(),
        };
        Ok(postcard::to_stdvec(&saved)?)
    }
}
