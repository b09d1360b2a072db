//! Receipts: what a run did at the server, from which messages, and with which part.
//!
//! A [`ReceiptLog`] is the chain of a run, `receipts.jsonl`, and a [`Recorder`] fills it while the
//! run goes on. A [`SigningKey`] signs it. [`verify()`] checks a finished run by its receipts, and
//! repeats what was made from kept messages.

mod kept_messages;
mod receipt_log;
mod record;
mod session;
mod signing_key;
mod verify;

pub use kept_messages::{KeptContext, KeptMessages, MESSAGES};
pub use receipt_log::{
    RECEIPTS, ReceiptLog, ReceiptOptions, Recorder, SessionFacts, SharedReceipts, locked,
};
pub use record::{
    Countersignature, ReceiptRecord, ReceiptSession, ReceiptSignature, RunEnd, StepReceipt,
    add_answers, countersigned_text, inputs_hash, salted, signed_text,
};
pub use session::{program, session};
pub use signing_key::{SigningKey, public_key};
pub use verify::{Difference, Verified, verify};
