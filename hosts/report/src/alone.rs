//! Clients that a run serves worse than training alone does: those of a run beside one of `solo`.

use crate::read::{FileHash, Metric, Run};
use crate::specs::differences;
use crate::text::number;
use fl_core::ClientId;
use fl_core::metrics::{is_score, lower_is_better};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

/// The clients with a worse score than alone, by one measure.
#[derive(Clone, Debug, PartialEq)]
pub struct WorseThanAlone {
    /// The measure of the run, such as `clients.accuracy`.
    pub name: String,
    /// The clients that have a score in both runs.
    pub clients: usize,
    /// Those whose score is worse than alone, or no number because their model diverged.
    pub worse: usize,
    /// The mean of their losses, above 0; 0 if there are none, and NaN if a model diverged.
    pub loss: f64,
}

/// The numbers of [`WorseThanAlone`] that a table can show.
pub const NEGATIVE_TRANSFER: [&str; 3] = [
    "negative-transfer.rate",
    "negative-transfer.size",
    "negative-transfer.burden",
];

impl WorseThanAlone {
    /// Returns the share of clients that are worse off than alone, the mean of their losses, and the
    /// product of both, which is the mean loss over all clients where a gain counts as 0; in the
    /// order of [`NEGATIVE_TRANSFER`].
    pub fn numbers(&self) -> [f64; 3] {
        let rate = self.worse as f64 / self.clients.max(1) as f64;
        [rate, self.loss, rate * self.loss]
    }
}

impl Display for WorseThanAlone {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (worse, of) = (self.worse, self.clients);
        let [rate, size, burden] = self.numbers();
        write!(f, "{worse} of {of} clients ({:.0} %)", 100.0 * rate)?;
        if self.loss.is_nan() {
            f.write_str(", of which some have diverged")?;
        } else if worse > 0 {
            let (size, burden) = (number(size), number(burden));
            write!(f, ", by {size} in the mean, {burden} over all clients")?;
        }
        Ok(())
    }
}

/// Returns whether a run is one of `solo` that did not begin with the model of another run.
pub fn is_alone(run: &Run) -> bool {
    run.protocol() == "solo" && !run.is_continued()
}

/// Returns what differs in the data files of two runs, as far as both have their hashes.
fn other_data(alone: &Run, run: &Run) -> Option<String> {
    let files = |run: &Run| -> Vec<FileHash> { run.data_files().cloned().collect() };
    let (of_alone, of_run) = (files(alone), files(run));
    let known = |files: &[FileHash]| files.iter().all(|file| !file.sha256.is_empty());
    let is_known = |files: &[FileHash]| !files.is_empty() && known(files);
    if !is_known(&of_alone) || !is_known(&of_run) {
        return None;
    }
    let mut pairs = of_alone.iter().zip(&of_run);
    let other = pairs.find(|(a, b)| a.sha256 != b.sha256);
    let number = (of_alone.len() != of_run.len()).then(|| "the number of data files".into());
    let named = other.map(|(_, file)| format!("the data file {}", file.path));
    named.or(number)
}

/// Compares the last scores of each client with those of a run of `solo`: those of its own model,
/// or those of the server's model on its own test rows, whichever was measured last.
///
/// # Errors
/// If the runs have other data, data files or seeds, so that their clients are not the same.
pub fn worse_than_alone(alone: &Run, run: &Run) -> Result<Vec<WorseThanAlone>, String> {
    let apart = differences(&[&alone.spec, &run.spec]);
    let mut paths = apart.iter().map(|d| &d.path[..]);
    let other = |path: &&str| *path == "seed" || path.split(['.', '[']).next() == Some("data");
    if let Some(path) = paths.find(other) {
        return Err(format!("`{path}` differs, so the clients are not the same"));
    }
    if let Some(file) = other_data(alone, run) {
        return Err(format!("{file} differs, so the clients are not the same"));
    }
    let mut all = Vec::new();
    for metric in alone.last() {
        let score = metric.name.strip_prefix("clients.");
        let Some(score) = score.filter(|score| is_score(score) && !score.contains('.')) else {
            continue;
        };
        let Some(found) = run.last_of_each(score) else {
            continue;
        };
        // a client's score, which is no number if its model diverged
        let scores = |metric: &Metric| -> BTreeMap<ClientId, f64> {
            let each = metric.by_client();
            each.map(|(id, score)| (id, score.unwrap_or(f64::NAN)))
                .collect()
        };
        let (own, here) = (scores(metric), scores(found));
        let sign = if lower_is_better(score) { -1.0 } else { 1.0 };
        let known = own.iter().filter(|(_, own)| own.is_finite());
        let losses = known.filter_map(|(id, own)| Some(sign * (own - here.get(id)?)));
        let losses: Vec<f64> = losses.collect();
        let worse = losses.iter().filter(|loss| **loss > 0.0 || loss.is_nan());
        let worse: Vec<f64> = worse.copied().collect();
        all.push(WorseThanAlone {
            name: found.name.to_string(),
            clients: losses.len(),
            worse: worse.len(),
            loss: worse.iter().sum::<f64>() / worse.len().max(1) as f64,
        });
    }
    all.retain(|of| of.clients > 0);
    Ok(all)
}
