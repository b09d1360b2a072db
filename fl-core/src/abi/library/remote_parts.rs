//! The parts of the program that a loaded protocol uses.

use super::link::{Link, LinkedPart, read};
use crate::abi::ask::{Ask, RoundAsk};
use crate::abi::host::Answer;
use crate::abi::marshal::with_inbox_letters;
use crate::abi::marshal_data::{PublicText, public_of};
use crate::abi::roles::generator::RemoteGenerator;
use crate::abi::roles::trainer::RemoteTrainer;
use crate::message::{Erased, TensorMap, message_type};
use crate::{AnyInbox, Generator, Public, Result, Round, Trainer};
use anyhow::Context;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, PoisonError};

/// The slots and public data of the program, for a protocol's server or client.
pub(super) struct RemoteSlots {
    pub link: Arc<Link>,
    models: BTreeMap<String, RemoteTrainer>,
    generators: BTreeMap<String, RemoteGenerator>,
    public: OnceLock<Arc<Public>>,
}

impl Deref for RemoteSlots {
    type Target = Link;
    fn deref(&self) -> &Link {
        &self.link
    }
}

impl RemoteSlots {
    pub fn new(link: &Arc<Link>) -> Self {
        Self {
            link: link.clone(),
            models: BTreeMap::new(),
            generators: BTreeMap::new(),
            public: OnceLock::new(),
        }
    }

    pub fn model(&mut self, slot: &str) -> Result<&mut dyn Trainer> {
        Ok(match self.models.entry(slot.into()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let ask = Ask::Model { slot: slot.into() };
                let part = LinkedPart::new(&self.link, self.link.json(&ask, &[])?);
                new.insert(RemoteTrainer::new(part, None)?)
            }
        })
    }

    pub fn generator(&mut self, slot: &str) -> Result<&mut dyn Generator> {
        Ok(match self.generators.entry(slot.into()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let ask = Ask::Generator { slot: slot.into() };
                let remote = LinkedPart::new(&self.link, self.link.json(&ask, &[])?);
                let input = None;
                new.insert(RemoteGenerator { remote, input })
            }
        })
    }

    /// Returns the public data, fetched at most once.
    pub fn public(&self) -> Result<Arc<Public>> {
        if let Some(known) = self.public.get() {
            return Ok(known.clone());
        }
        let answer = self.link.ask(&Ask::Public, &[])?;
        let text: PublicText = read(&answer)?;
        let public = Arc::new(public_of(&*self.link, &text, answer.tensors)?);
        Ok(self.public.get_or_init(|| public).clone())
    }

    /// Combines an inbox by the aggregator in `slot` of the program.
    pub fn aggregate(&self, slot: &str, round: &Round, inbox: &dyn AnyInbox) -> Result<Erased> {
        let shown = round.sent_any();
        let ask = Ask::Aggregate {
            slot: slot.into(),
            round: RoundAsk::of(round),
            kind: inbox.message_type().kind.into(),
            shown: shown.map(|sent| sent.kind().into()),
        };
        message_in(with_inbox_letters(inbox, shown, |letters| {
            self.link.ask_with(&ask, letters, None)
        })?)
    }
}

/// Returns the message in an answer, whose text is its kind.
pub(super) fn message_in(answer: Answer) -> Result<Erased> {
    let kind: String = read(&answer)?;
    let of = message_type(&kind);
    let of =
        of.with_context(|| format!("no message is called `{kind}`; register it with `messages!`"))?;
    of.from_tensors(TensorMap::new(answer.tensors))
}

/// Makes a model that the protocol holds by this number.
pub(super) fn held_model(link: &Arc<Link>, number: u64) -> Result<Box<dyn Trainer>> {
    let model = RemoteTrainer::new(LinkedPart::held(link, number), None)?;
    let model = Box::new(model);
    let place = std::ptr::from_ref(&*model).addr();
    let mut models = link.models.lock().unwrap_or_else(PoisonError::into_inner);
    models.insert(place, number);
    Ok(model)
}
