//! [`ReceiptLog`]: `receipts.jsonl`, a chain of what a run did at the server, and `messages/`, what
//! it did it from.

use crate::kept_messages::{KeptContext, MESSAGES, MessageWriter};
use crate::record::{
    Countersignature, ReceiptRecord, ReceiptSession, ReceiptSignature, RunEnd, StepReceipt,
    add_answers, inputs_hash, salted, signed_text,
};
use crate::signing_key::SigningKey;
use anyhow::{Context, ensure};
use fl_core::message::AnyMessage;
use fl_core::regular_file::RegularLines;
use fl_core::{
    AggregationContext, ClientId, Receipt, ReceiptInput, ReleaseContext, Result, StepRecorder,
};
use fl_files::{AppendLog, ChainHash, LogPosition, chained_line, read_chained};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The name of the chain in a run folder.
pub const RECEIPTS: &str = "receipts.jsonl";

/// The most inputs that a receipt lists; of more it has the hash of their list.
pub(crate) const LISTED: usize = 256;

/// How a run gives receipts.
#[derive(Default)]
pub struct ReceiptOptions {
    /// Whether the messages of aggregations are kept.
    pub keep_messages: bool,
    /// Who signs.
    pub signer: Option<SigningKey>,
    /// This process.
    pub session: Option<SessionFacts>,
}

/// Returns what is to be said of this process, once a record is due.
pub type SessionFacts = Box<dyn FnOnce() -> Result<ReceiptSession> + Send>;

/// The chain of a run's receipts, open for more.
pub struct ReceiptLog {
    folder: PathBuf,
    log: AppendLog,
    /// Hash of the last record, and the number of records.
    last: (ChainHash, usize),
    /// The public key of the last session.
    key: Option<String>,
    options: ReceiptOptions,
    step: Option<OpenStep>,
}

/// A step that has not ended.
struct OpenStep {
    secret: bool,
    salt: [u8; 32],
    inputs: Vec<ReceiptInput>,
    kept: Option<MessageWriter>,
}

/// The chain as all have it that work on a run.
pub type SharedReceipts = Arc<Mutex<ReceiptLog>>;

/// Locks the chain.
pub fn locked(log: &SharedReceipts) -> std::sync::MutexGuard<'_, ReceiptLog> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReceiptLog {
    /// Makes an empty chain.
    ///
    /// # Errors
    /// If its file cannot be made.
    pub fn create(folder: &Path) -> Result<Self> {
        let log = AppendLog::create(folder.join(RECEIPTS))?;
        Ok(Self::of(folder, log, ([0; 32], 0), None))
    }

    /// Opens a chain of which this much is known.
    ///
    /// # Errors
    /// If it does not begin so, or a line does not follow the one before.
    pub fn open(folder: &Path, known: Option<LogPosition>) -> Result<Self> {
        let path = folder.join(RECEIPTS);
        let log = AppendLog::open(path.clone(), known)?;
        let (mut last, mut key) = (([0; 32], 0), None);
        let what = || format!("reading {}", path.display());
        let mut lines = RegularLines::open(&path, u64::MAX).with_context(what)?;
        let mut read = 0;
        while read < log.length()
            && let Some(line) = lines.next_line().with_context(what)?
        {
            read += line.len() as u64;
            let read = read_chained(&last.0, line);
            let (hash, json) = read.with_context(|| {
                let line = last.1 + 1;
                format!(
                    "{}: line {line} does not follow the one before",
                    path.display()
                )
            })?;
            last = (hash, last.1 + 1);
            if json.starts_with(b"{\"session\"")
                && let ReceiptRecord::Session(session) =
                    serde_json::from_slice(json).with_context(what)?
            {
                key = session.key;
            }
        }
        Ok(Self::of(folder, log, last, key))
    }

    fn of(folder: &Path, log: AppendLog, last: (ChainHash, usize), key: Option<String>) -> Self {
        Self {
            folder: folder.into(),
            log,
            last,
            key,
            options: ReceiptOptions::default(),
            step: None,
        }
    }

    /// Checks that a signed chain goes on with its key: no other key, and no session without one,
    /// would verify.
    ///
    /// # Errors
    /// If `signer` is not the key of the last session.
    pub fn check_signer(&self, signer: Option<&SigningKey>) -> Result<()> {
        let Some(key) = &self.key else {
            return Ok(());
        };
        let here = self.folder.display();
        let given = signer.map(SigningKey::public);
        let found = given.as_ref().map_or("without a key".into(), |other| {
            format!("with the key {other}")
        });
        ensure!(
            given.as_ref() == Some(key),
            "the run in {here} is signed by {key}, and it cannot go on {found}: `fl verify` would refuse it; give --sign FILE with the secret key of {key}"
        );
        Ok(())
    }

    /// Says how receipts are given from now on.
    pub fn with(&mut self, options: ReceiptOptions) {
        self.options = options;
    }

    /// Removes everything after the known part.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn go_on(&self) -> Result<()> {
        self.log.go_on()?;
        let messages = self.folder.join(MESSAGES);
        if !messages.is_dir() {
            return Ok(());
        }
        fl_files::tidy(&messages)?;
        let what = || format!("tidying {}", messages.display());
        for entry in fs::read_dir(&messages).with_context(what)? {
            let entry = entry.with_context(what)?;
            let number = entry.file_name();
            let number = number.to_str().and_then(|name| name.parse::<usize>().ok());
            if number.is_some_and(|number| number > self.last.1) {
                fs::remove_file(entry.path()).with_context(what)?;
            }
        }
        Ok(())
    }

    /// Makes the chain so far durable, and returns its position.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn flush(&self) -> Result<LogPosition> {
        self.log.flush()
    }

    fn add(&mut self, record: &ReceiptRecord) -> Result<()> {
        let (hash, line) = chained_line(&self.last.0, &serde_json::to_vec(record)?);
        self.log.add_line(&line)?;
        self.last = (hash, self.last.1 + 1);
        Ok(())
    }

    /// Adds the record of this process before the first of its own.
    fn begin_session(&mut self) -> Result<()> {
        let Some(facts) = self.options.session.take() else {
            return Ok(());
        };
        let mut session = facts()?;
        session.key = self.options.signer.as_ref().map(SigningKey::public);
        self.add_signed(&ReceiptRecord::Session(session))
    }

    fn add_signed(&mut self, record: &ReceiptRecord) -> Result<()> {
        self.add(record)?;
        let Some(signer) = &self.options.signer else {
            return Ok(());
        };
        let signature = signer.sign(&signed_text(&self.last.0))?;
        self.add(&ReceiptRecord::Signature(ReceiptSignature { signature }))
    }

    /// Returns the hash of the last record, and the answers of each client in all receipts.
    ///
    /// # Errors
    /// If the chain cannot be read.
    pub fn answers(&self) -> Result<(ChainHash, BTreeMap<ClientId, Vec<String>>)> {
        let path = self.folder.join(RECEIPTS);
        let what = || format!("reading {}", path.display());
        let mut lines = RegularLines::open(&path, u64::MAX).with_context(what)?;
        let mut all = BTreeMap::new();
        while let Some(line) = lines.next_line().with_context(what)? {
            let json = line.get(65..).unwrap_or_default();
            if !json.is_empty()
                && let ReceiptRecord::Step(step) =
                    serde_json::from_slice(json).with_context(what)?
            {
                add_answers(&mut all, &step);
            }
        }
        Ok((self.last.0, all))
    }

    /// Adds the signature of a client's node.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn countersigned(&mut self, by: Countersignature) -> Result<()> {
        self.add(&ReceiptRecord::Countersignature(by))
    }

    /// The run is done.
    ///
    /// # Errors
    /// If that cannot be written or signed.
    pub fn end(&mut self, end: RunEnd) -> Result<()> {
        self.begin_session()?;
        self.add_signed(&ReceiptRecord::End(end))?;
        self.flush().map(drop)
    }

    fn begin_step<C: KeptContext>(&mut self, secret: bool, context: Option<C>) -> Result<()> {
        self.begin_session()?;
        let mut salt = [0; 32];
        if secret {
            getrandom::fill(&mut salt)
                .map_err(|error| anyhow::anyhow!("random numbers of the system: {error}"))?;
        }
        let kept = context.map(|context| {
            let folder = self.folder.join(MESSAGES);
            MessageWriter::new(&folder, &context, &salt)
        });
        self.step = Some(OpenStep {
            secret,
            salt,
            inputs: Vec::new(),
            kept: kept.transpose()?,
        });
        Ok(())
    }

    fn end_step(&mut self, mut receipt: Receipt) -> Result<()> {
        let step = self.step.take().context("a step that has not begun")?;
        let salted_by = step.secret.then_some(step.salt);
        // withheld, unless the salt can be looked up
        let withheld = step.secret && step.kept.is_none();
        let hidden = |hash: String| match &salted_by {
            _ if withheld => String::new(),
            Some(salt) if !hash.is_empty() => salted(salt, &hash),
            _ => hash,
        };
        let has_inputs = receipt.did != fl_core::ServerStep::Release;
        let inputs_sha256 = if has_inputs {
            hidden(inputs_hash(&step.inputs)?)
        } else {
            String::new()
        };
        receipt.output = hidden(receipt.output);
        receipt.before = hidden(receipt.before);
        // numbered by the receipt's line
        let number = self.last.1 + 1;
        let kept = step.kept.map(|kept| {
            let path = self.folder.join(MESSAGES).join(format!("{number:06}"));
            kept.finish(&path, number)
        });
        let shown = has_inputs && !step.secret;
        let messages = shown.then_some(step.inputs.len());
        let listed = shown && step.inputs.len() <= LISTED;
        let step = StepReceipt {
            receipt,
            messages,
            inputs: if listed { step.inputs } else { Vec::new() },
            inputs_sha256,
            kept: kept.transpose()?,
            salted: step.secret && !withheld,
        };
        self.add_signed(&ReceiptRecord::Step(Box::new(step)))
    }
}

/// Gives a run's receipts to its chain.
pub struct Recorder {
    /// The chain.
    pub log: SharedReceipts,
    /// Whether the messages of aggregations are kept.
    pub keeps: bool,
}

impl StepRecorder for Recorder {
    fn keeps(&self) -> bool {
        self.keeps
    }
    fn begin(&mut self, secret: bool, context: Option<AggregationContext>) -> Result<()> {
        locked(&self.log).begin_step(secret, context)
    }
    fn begin_release(&mut self, secret: bool, context: Option<ReleaseContext>) -> Result<()> {
        locked(&self.log).begin_step(secret, context)
    }
    fn input(&mut self, input: ReceiptInput, body: &dyn AnyMessage) -> Result<()> {
        let mut log = locked(&self.log);
        let step = log.step.as_mut().context("a step that has not begun")?;
        if let Some(kept) = &mut step.kept {
            kept.add(&input, body)?;
        }
        step.inputs.push(input);
        Ok(())
    }
    fn end(&mut self, receipt: Receipt) -> Result<()> {
        locked(&self.log).end_step(receipt)
    }
}
