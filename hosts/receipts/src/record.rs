//! [`ReceiptRecord`]: what a line of the chain says, and what is hashed and signed of it.

use fl_core::{ClientId, Receipt, ReceiptInput, Result, hex};
use fl_files::{ChainHash, FileHash};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What a record of the chain says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiptRecord {
    /// A process began to work on the run.
    Session(ReceiptSession),
    /// A step at the server.
    Step(Box<StepReceipt>),
    /// A signature over the hash of the record before ([`signed_text`]).
    Signature(ReceiptSignature),
    /// A client whose data are its own saw its answers in the receipts so far.
    Countersignature(Countersignature),
    /// The run is done.
    End(RunEnd),
}

/// A process that worked on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptSession {
    /// The version of fl.
    pub version: String,
    /// SHA-256 of `spec.yaml`.
    pub spec: String,
    /// The program, or the library that it has fl from.
    pub program: Option<FileHash>,
    /// Every loaded library.
    pub libraries: Vec<FileHash>,
    /// The public key of minisign that signs what follows, if there is one.
    pub key: Option<String>,
}

/// A receipt, with what it was made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReceipt {
    /// What was done.
    #[serde(flatten)]
    pub receipt: Receipt,
    /// Number of messages; none if it is withheld.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<usize>,
    /// The messages, unless there are many, or hashes are withheld.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<ReceiptInput>,
    /// The hash of the list of messages ([`inputs_hash`]); empty if it is withheld.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub inputs_sha256: String,
    /// The name of the file of kept messages, and its hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<FileHash>,
    /// Hashes are of what was hashed and of a random number, which only the kept messages have: a
    /// reader without them cannot check a guess.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub salted: bool,
}

/// A signature by minisign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptSignature {
    /// The signature, as minisign writes it.
    pub signature: String,
}

/// A signature of a client's node over the hash of the last record that is no countersignature, and
/// over the answers of this client in the receipts so far ([`countersigned_text`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Countersignature {
    /// The client.
    pub client: ClientId,
    /// The public key of its node.
    pub key: String,
    /// The signature, as minisign writes it.
    pub signature: String,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The digest of the run.
    pub run: String,
    /// The files that will not change any more, and their hashes.
    pub files: Vec<FileHash>,
}

/// What is signed for a record with this hash.
pub fn signed_text(hash: &ChainHash) -> Vec<u8> {
    format!("fl receipt {}\n", hex(hash)).into_bytes()
}

/// What a client's node signs, if these are digests of its answers.
pub fn countersigned_text(hash: &ChainHash, client: ClientId, answers: &[String]) -> Vec<u8> {
    let answers = Sha256::digest(answers.join("\n"));
    let (hash, answers) = (hex(hash), hex(&answers));
    format!("fl countersignature {hash} {client} {answers}\n").into_bytes()
}

/// Adds the digests of the answers that a receipt lists to those of each client.
pub fn add_answers(all: &mut BTreeMap<ClientId, Vec<String>>, step: &StepReceipt) {
    // messages that a protocol combines later are listed when they come
    for input in step
        .inputs
        .iter()
        .filter(|_| step.receipt.exchange.is_some())
    {
        let answer = input.answer.as_ref().unwrap_or(&input.sha256);
        all.entry(input.client).or_default().push(answer.clone());
    }
}

/// Returns the hash of a list of messages.
///
/// # Errors
/// If it has no JSON.
pub fn inputs_hash(inputs: &[ReceiptInput]) -> Result<String> {
    let mut hash = Sha256::new();
    for input in inputs {
        hash.update(serde_json::to_vec(input)?);
        hash.update(b"\n");
    }
    Ok(hex(&hash.finalize()))
}

/// Returns the hash that a salted receipt has of `hash`.
pub fn salted(salt: &[u8; 32], hash: &str) -> String {
    let mut sum = Sha256::new();
    sum.update(b"fl receipt salt\n");
    sum.update(salt);
    sum.update(hash.as_bytes());
    hex(&sum.finalize())
}
