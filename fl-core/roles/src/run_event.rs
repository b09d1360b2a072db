//! [`RunEvent`]: everything that a run tells its host, and the host its listeners.

use crate::host::{JournalEntry, Metric, StepCost};
use crate::privacy::Protections;
use crate::{Answer, ClientId, PrivacyEvent, Request, Result, Samples};
use std::collections::BTreeMap;
use std::path::Path;

/// Something that happens in a run. A step has the events [`StepBegins`](Self::StepBegins), any
/// number of exchanges, measurements, models, images and notes, then [`Cost`](Self::Cost) and
/// [`StepEnds`](Self::StepEnds). A checkpoint may follow.
#[derive(Clone, Copy)]
pub enum RunEvent<'a> {
    /// The run begins or goes on, in this folder.
    Begins(Option<&'a Path>),
    /// A step begins.
    StepBegins {
        /// Its name.
        step: &'a str,
        /// Its number.
        number: usize,
        /// The number of steps; 0 if unknown.
        of: usize,
    },
    /// An exchange begins. No client has its request.
    ExchangeBegins,
    /// A client gets a request.
    Request(ClientId, &'a Request<'a>),
    /// A client gave an answer.
    Answer(ClientId, &'a Result<Answer>),
    /// An exchange has ended.
    ExchangeEnds(&'a JournalEntry),
    /// Something was measured.
    Measured(&'a Metric),
    /// The total cost of the run so far.
    Cost(&'a StepCost),
    /// A step has ended; its measurements and its cost are known.
    StepEnds {
        /// Its number; 0 if it runs once.
        number: usize,
        /// The number of rounds; 0 if unknown.
        of: usize,
    },
    /// A model is a result of the run.
    Model {
        /// Its name.
        name: &'a str,
        /// The serialised model.
        bytes: &'a [u8],
    },
    /// Images are a result of the run.
    Images {
        /// Their name.
        name: &'a str,
        /// The images.
        images: &'a Samples,
    },
    /// A note for the user, which is one of the results.
    Note(&'a str),
    /// A warning for the user that is no result, because it depends on the machine.
    Warning(&'a str),
    /// The run stops at a checkpoint, and may resume later.
    Stops,
    /// The run has ended. Its folder is not complete yet.
    Ends(RunReleases<'a>),
}

/// Everything that a run released, and its guarantees.
#[derive(Clone, Copy)]
pub struct RunReleases<'a> {
    /// The releases of the server.
    pub server: &'a [PrivacyEvent],
    /// The releases of each client.
    pub clients: &'a BTreeMap<ClientId, Vec<PrivacyEvent>>,
    /// The guarantee against each observer, if the run has an accountant.
    pub privacy: Option<&'a Protections>,
}
