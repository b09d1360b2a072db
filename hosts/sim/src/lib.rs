//! A federation in one process: a client works on one thread at a time, several clients at once.
mod append_log;
mod atomic_file;
mod chained_line;
mod client_side;
mod client_state_file;
mod clients;
mod external_clients;
mod folder;
mod host;
mod image_grid;
mod listener;
mod manifest;
mod memory;
mod outcome;
mod partial_step;
mod pool;
mod receipts;
mod releases;
mod report;
mod resume;
mod run;
mod run_record;
mod saver;
mod setup;

#[cfg(unix)]
pub use atomic_file::own;
pub use atomic_file::{open_own, read_own, sync, write, write_secret, write_with};
pub use chained_line::{ChainHash, chained_line, read_chained};
pub use external_clients::{ClientFactory, ExternalClients, owners};
pub use folder::{LEDGER, ResumePoint, RunFolder};
pub use image_grid::picture;
pub use listener::{Listener, OnStep, Verdict, Watch};
pub use manifest::{FileHash, Manifest, Session, machine, processor, time};
pub use outcome::{Outcome, Summary, Traffic};
pub use pool::{executor, workers};
pub use receipts::{
    Countersignature, KeptContext, KeptMessages, MESSAGES, RECEIPTS, ReceiptOptions, ReceiptRecord,
    ReceiptSession, ReceiptSignature, ReceiptSigner, RunEnd, SessionFacts, StepReceipt,
    add_answers, countersigned_text, inputs_hash, salted, signed_text,
};
pub use releases::{ClientReleases, Counted, Releases, as_event, counted};
pub use resume::StoppedRun;
pub use run::run;
pub use run_record::{RunRecord, StepProgress, StepReport};
pub use setup::{Execution, Setup};
