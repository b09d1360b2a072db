//! [`ProgramPart`]: the way from a library to the program, during a call of a protocol.

use super::asked::ask_other;
use super::call_context::{Host, Input};
use super::open_call::OpenCall;
use crate::caller::{Caller, Calls, Means};
use crate::data_sets::{KnownSets, LibrarySets, Rows};
use crate::host::Answer;
use crate::marshal::OutgoingMessage;
use crate::raw::{FL_DROP, FL_INPUTS, FL_LABELS};
use crate::roles::request_text::{RequestText, stating};
use anyhow::{Context, ensure};
use fl_roles::{Inputs, Labels, Result, Samples, Trainer};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the parts of the program have in common, during one call.
struct Link {
    call: Arc<OpenCall>,
    sets: LibrarySets,
    /// The numbers of the models that the protocol holds, by address.
    models: Mutex<BTreeMap<usize, u64>>,
    /// An error of a call that returns none; the next call with an error returns it.
    late: Mutex<Option<anyhow::Error>>,
}

/// A part of the program, by the number that it has for a protocol; 0: the server or client itself.
pub(crate) struct ProgramPart {
    link: Arc<Link>,
    number: u64,
    /// Whether the program holds it for as long as this is here.
    held: bool,
}

fn address(model: &dyn Trainer) -> usize {
    std::ptr::from_ref(model).cast::<()>().addr()
}

impl ProgramPart {
    /// Runs `f` with the server or client of this call, and returns a kept error.
    pub fn lend<R>(
        host: &Host<'_>,
        input: &Input<'_>,
        f: impl FnOnce(&Self) -> Result<R>,
    ) -> Result<R> {
        OpenCall::lend(host, input, |call| {
            let link = Arc::new(Link {
                call: call.clone(),
                sets: LibrarySets::default(),
                models: Mutex::default(),
                late: Mutex::new(None),
            });
            let (number, held) = (0, false);
            let program = Self { link, number, held };
            let out = f(&program)?;
            program.check()?;
            Ok(out)
        })
    }

    /// The part with this number, which stays where it is.
    pub fn part(&self, number: u64) -> Self {
        let (link, held) = (self.link.clone(), false);
        Self { link, number, held }
    }

    /// The part with this number, which the program holds until it is used no more.
    pub fn held(&self, number: u64) -> Self {
        let mut part = self.part(number);
        part.held = true;
        part
    }

    fn models(&self) -> MutexGuard<'_, BTreeMap<usize, u64>> {
        let models = self.link.models.lock();
        models.unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the model at this place has this number.
    pub fn hold(&self, model: &dyn Trainer, number: u64) {
        self.models().insert(address(model), number);
    }

    /// The number of a model that the protocol holds.
    pub fn number_of(&self, model: &dyn Trainer) -> Option<u64> {
        self.models().get(&address(model)).copied()
    }

    /// Reads a part of a data set, and counts its bytes.
    fn set<T: DeserializeOwned>(&self, operation: u32, text: RequestText) -> Result<(T, usize)> {
        let bytes = self.part(0).bytes(operation, text, "set")?;
        let bytes = bytes.context("no set came back")?;
        Ok((postcard::from_bytes(&bytes)?, bytes.len()))
    }
}

impl Drop for ProgramPart {
    fn drop(&mut self) {
        if self.held {
            self.models().retain(|_, number| *number != self.number);
            // this call that cannot fail leaves a kept error to the next that can
            let kept = self.check();
            // what is left when the call ends goes with it
            let _ = self.part(0).done(FL_DROP, stating().part(self.number));
            self.keep(kept);
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
        self.check()?;
        let (call, part) = (&self.link.call, self.number);
        call.with(|host, _| ask_other(host.0, part, operation, text, letters, means))
    }

    fn who(&self) -> Option<&'static str> {
        None
    }

    fn sets(&self) -> &dyn KnownSets {
        self
    }

    /// The next call that can fail returns it.
    fn keep_error(&self, error: anyhow::Error) {
        let mut late = self
            .link
            .late
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        late.get_or_insert(error);
    }

    fn check(&self) -> Result<()> {
        let mut late = self
            .link
            .late
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        late.take().map_or(Ok(()), Err)
    }
}

impl KnownSets for ProgramPart {
    fn place<'x>(&self, x: &'x Samples) -> Option<(u64, Rows<'x>)> {
        self.link.sets.place(x)
    }
    fn label(&self, set: u64, of: &Arc<Labels>) -> Option<usize> {
        self.link.sets.label(set, of)
    }
    fn samples(&self, set: u64, rows: Rows<'_>) -> Result<Samples> {
        self.link.sets.samples(set, rows, || {
            let inputs: (Inputs, _) = self.set(FL_INPUTS, stating().set(set))?;
            ensure!(inputs.0.is_sound(), "inputs with lists of unequal lengths");
            Ok(inputs)
        })
    }
    fn labels(&self, set: u64, at: usize) -> Result<Arc<Labels>> {
        let labels = || self.set(FL_LABELS, stating().set(set).at(at));
        self.link.sets.labels(set, at, labels)
    }
}
