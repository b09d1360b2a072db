//! [`Link`]: the way from a library to the program, during a call of a protocol.

use super::asked::ask_other;
use super::call_context::{Host, Input};
use super::open_call::OpenCall;
use crate::caller::{Caller, Calls, Means};
use crate::data_sets::{Fetch, KnownSets, LibrarySets, Rows};
use crate::host::Answer;
use crate::marshal::OutgoingMessage;
use crate::raw::{FL_DROP, FL_INPUTS, FL_LABELS};
use crate::roles::request_text::{RequestText, stating};
use anyhow::{Context, ensure};
use fl_roles::{Inputs, Labels, Result, Samples};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The program, during one call.
pub(crate) struct Link {
    call: Arc<OpenCall>,
    sets: LibrarySets,
    /// The numbers of the models that the protocol holds, by address.
    pub models: Mutex<BTreeMap<usize, u64>>,
    /// An error of a call that returns none; the next call with an error returns it.
    late: Mutex<Option<anyhow::Error>>,
}

impl Link {
    /// Runs `f` with the link to the host of this call, and returns a kept error.
    pub fn lend<R>(
        host: &Host<'_>,
        input: &Input<'_>,
        f: impl FnOnce(&Arc<Self>) -> Result<R>,
    ) -> Result<R> {
        OpenCall::lend(host, input, |call| {
            let link = Arc::new(Self {
                call: call.clone(),
                sets: LibrarySets::default(),
                models: Mutex::default(),
                late: Mutex::new(None),
            });
            let out = f(&link)?;
            link.late()?;
            Ok(out)
        })
    }

    fn late(&self) -> Result<()> {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        match late.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn call_part(
        &self,
        part: u64,
        operation: u32,
        text: &str,
        letters: &[OutgoingMessage<'_, '_>],
        means: Means<'_>,
    ) -> Result<Option<Answer>> {
        self.late()?;
        self.call
            .with(|host, _| ask_other(host.0, part, operation, text, letters, means))
    }
}

/// A part of the program, by the number that it has for a protocol.
pub(crate) struct ProgramPart {
    link: Arc<Link>,
    number: u64,
    /// Whether the program holds it for as long as this is here.
    held: bool,
}

impl ProgramPart {
    /// A part that stays where it is.
    pub fn new(link: &Arc<Link>, number: u64) -> Box<Self> {
        Box::new(Self {
            link: link.clone(),
            number,
            held: false,
        })
    }

    /// A part that the program holds until it is used no more.
    pub fn held(link: &Arc<Link>, number: u64) -> Box<Self> {
        let mut part = Self::new(link, number);
        part.held = true;
        part
    }
}

impl Drop for ProgramPart {
    fn drop(&mut self) {
        if self.held {
            let models = self.link.models.lock();
            let mut models = models.unwrap_or_else(PoisonError::into_inner);
            models.retain(|_, number| *number != self.number);
            drop(models);
            // this call that cannot fail leaves a kept error to the next that can
            let kept = self.link.late();
            // what is left when the call ends goes with it
            let _ = self.link.done(FL_DROP, stating().part(self.number));
            self.link.keep(kept);
        }
    }
}

impl Caller for ProgramPart {
    fn call(
        &self,
        operation: u32,
        text: &str,
        letters: &[OutgoingMessage<'_, '_>],
        means: Means<'_>,
    ) -> Result<Option<Answer>> {
        let link = &self.link;
        link.call_part(self.number, operation, text, letters, means)
    }

    fn who(&self) -> Option<&'static str> {
        None
    }

    fn sets(&self) -> &dyn KnownSets {
        &*self.link
    }

    fn keep_error(&self, error: anyhow::Error) {
        self.link.keep_error(error);
    }

    fn check(&self) -> Result<()> {
        self.link.late()
    }
}

/// The server or client itself.
impl Caller for Link {
    fn call(
        &self,
        operation: u32,
        text: &str,
        letters: &[OutgoingMessage<'_, '_>],
        means: Means<'_>,
    ) -> Result<Option<Answer>> {
        self.call_part(0, operation, text, letters, means)
    }

    fn who(&self) -> Option<&'static str> {
        None
    }

    fn sets(&self) -> &dyn KnownSets {
        self
    }

    /// The next call that can fail returns it.
    fn keep_error(&self, error: anyhow::Error) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.get_or_insert(error);
    }

    fn check(&self) -> Result<()> {
        self.late()
    }
}

/// Reads the JSON of an answer.
pub(crate) fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T> {
    let text = answer.text.as_deref().unwrap_or("null");
    serde_json::from_str(text).with_context(|| {
        let shown: String = text.chars().take(80).collect();
        format!("an answer that cannot be read: {shown}")
    })
}

impl Link {
    /// Reads a part of a data set, and counts its bytes.
    fn set<T: DeserializeOwned>(&self, operation: u32, text: RequestText) -> Result<(T, usize)> {
        let bytes = self.bytes(operation, text, "set")?;
        let bytes = bytes.context("no set came back")?;
        Ok((postcard::from_bytes(&bytes)?, bytes.len()))
    }
}

impl Fetch for Link {
    fn inputs(&self, number: u64) -> Result<(Inputs, usize)> {
        let set: (Inputs, _) = self.set(FL_INPUTS, stating().set(number))?;
        ensure!(set.0.is_sound(), "inputs with lists of unequal lengths");
        Ok(set)
    }
    fn labels(&self, number: u64, at: usize) -> Result<(Labels, usize)> {
        self.set(FL_LABELS, stating().set(number).at(at))
    }
}

impl KnownSets for Link {
    fn place<'x>(&self, x: &'x Samples) -> Option<(u64, Rows<'x>)> {
        self.sets.place(x)
    }
    fn label(&self, set: u64, of: &Arc<Labels>) -> Option<usize> {
        self.sets.label(set, of)
    }
    fn samples(&self, set: u64, rows: Rows<'_>) -> Result<Samples> {
        self.sets.samples(self, set, rows)
    }
    fn labels(&self, set: u64, at: usize) -> Result<Arc<Labels>> {
        self.sets.labels(self, set, at)
    }
}
