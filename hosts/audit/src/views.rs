//! What each observer of a run sees: facts without noise, and numbers.

use crate::told::{files, flatten, hash, short, told};
use anyhow::{Context, Result};
use fl_core::message::Tensor;
use fl_core::privacy::Observer;
use fl_core::{Answer, Examples, Task};
use fl_data::DataSpec;
use fl_registry::Spec;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The most numbers of one run that are kept, so that directions fit into memory.
pub const MOST_NUMBERS: usize = 1 << 26;
/// The most test rows that a model without parameters is asked about.
const TEST_ROWS: usize = 50;

/// What one observer sees of a run.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Facts by name: counts, sizes, hashes, texts.
    pub facts: BTreeMap<String, String>,
    /// Numbers by the name of what has them: messages, models.
    pub numbers: BTreeMap<String, Vec<f32>>,
}

/// What all observers see of a run.
pub type Views = BTreeMap<Observer, View>;

/// Collects what crosses between the server and clients.
#[derive(Default)]
pub struct Watcher {
    views: Views,
    /// How often something of this name was seen.
    seen: BTreeMap<(Observer, String), usize>,
    /// The requests of the exchange that is going on: its bytes, its numbers, and its name.
    requests: Vec<(Vec<u8>, Vec<f32>)>,
    /// The label of the last requests, their number, and whether answers have come.
    last: Option<(String, usize)>,
    answers: usize,
    held: usize,
}

impl Watcher {
    /// Takes something that an observer sees.
    pub fn see(&mut self, observer: Observer, what: &str, bytes: &[u8]) {
        match observer {
            Observer::Clients => self.request(what, bytes),
            Observer::Server => self.answer(what, bytes),
            Observer::Readers if what == "note" => {
                let name = self.name(observer, "note");
                let text = String::from_utf8_lossy(bytes).into_owned();
                self.fact(observer, name, &text);
            }
            // measurements and models are in the files of the run
            Observer::Readers => {}
        }
    }

    /// Returns everything that was seen.
    pub fn finish(mut self) -> Views {
        self.end_requests();
        self.views
    }

    fn request(&mut self, label: &str, bytes: &[u8]) {
        if self.answers > 0 || self.last.as_ref().is_some_and(|(last, _)| last != label) {
            self.end_requests();
        }
        let (_, count) = self.last.get_or_insert_with(|| (label.into(), 0));
        *count += 1;
        let again = self.requests.last();
        if let Some(again) = again.filter(|(before, _)| before == bytes) {
            let again = again.clone();
            self.requests.push(again);
            return;
        }
        let name = self.name(Observer::Clients, label);
        let numbers = match fl_core::message::read_any(bytes) {
            Ok((_, tensors, _)) => numbers(&tensors),
            Err(_) => bytes.iter().map(|b| f32::from(*b)).collect(),
        };
        self.message(Observer::Clients, &name, bytes, &numbers);
        self.requests.push((bytes.to_vec(), numbers));
    }

    /// Ends the requests of an exchange: their number is public.
    fn end_requests(&mut self) {
        if let Some((label, count)) = self.last.take() {
            let name = self.name(Observer::Clients, &format!("clients asked: {label}"));
            for observer in [Observer::Server, Observer::Clients] {
                self.fact(observer, name.clone(), &count.to_string());
            }
        }
        self.requests.clear();
        self.answers = 0;
    }

    fn answer(&mut self, what: &str, bytes: &[u8]) {
        let name = self.name(Observer::Server, what);
        let request = self.requests.get(self.answers).map(|(_, of)| of.clone());
        self.answers += 1;
        let Ok((_, tensors, envelope)) = Answer::read_seen(bytes) else {
            // an error of the client
            let text = String::from_utf8_lossy(bytes).into_owned();
            self.fact(Observer::Server, format!("{name}: error"), &text);
            return;
        };
        let numbers = numbers(&tensors);
        self.message(Observer::Server, &name, bytes, &numbers);
        if let Some(before) = request.filter(|of| !of.is_empty() && of.len() == numbers.len()) {
            let change = numbers.iter().zip(&before).map(|(a, b)| a - b);
            let change: Vec<f32> = change.collect();
            self.keep(Observer::Server, format!("{name}: change"), change);
        }
        if let Ok(Value::Object(envelope)) = serde_json::to_value(&envelope) {
            let view = self.views.entry(Observer::Server).or_default();
            for (key, value) in envelope {
                flatten(&mut view.facts, &format!("{name}: {key}"), &value);
            }
        }
    }

    fn message(&mut self, observer: Observer, name: &str, bytes: &[u8], numbers: &[f32]) {
        self.fact(observer, format!("{name}: bytes"), &bytes.len().to_string());
        self.fact(observer, format!("{name}: content"), &hash(bytes));
        self.keep(observer, name.into(), numbers.to_vec());
    }

    fn keep(&mut self, observer: Observer, name: String, numbers: Vec<f32>) {
        self.held += numbers.len();
        if self.held <= MOST_NUMBERS && !numbers.is_empty() {
            let view = self.views.entry(observer).or_default();
            view.numbers.insert(name, numbers);
        }
    }

    fn fact(&mut self, observer: Observer, name: String, text: &str) {
        let view = self.views.entry(observer).or_default();
        view.facts.insert(name, short(text));
    }

    /// The name of something, with its number from the second time on.
    fn name(&mut self, observer: Observer, what: &str) -> String {
        let seen = self.seen.entry((observer, what.into())).or_default();
        *seen += 1;
        match *seen {
            1 => what.into(),
            n => format!("{what} ({n})"),
        }
    }
}

/// Adds what the files of a run show: the journal and the costs to all observers, the others to
/// readers of the results.
///
/// # Errors
/// If a file cannot be read, or a model not loaded.
pub fn add_files(
    views: &mut Views,
    dir: &Path,
    spec: &Spec<DataSpec>,
    task: &Task,
    (unit, test): (Option<&Examples>, &Examples),
) -> Result<()> {
    let told = told(dir, |_, text| text)?;
    // PRIVACY.md: who may read kept messages sees what the server sees
    let told = told
        .iter()
        .filter(|(name, _)| !name.starts_with("messages/"));
    for (name, text) in told {
        let all = ["journal[", "costs["].iter().any(|of| name.starts_with(of));
        for observer in Observer::ALL {
            if all || observer == Observer::Readers {
                let view = views.entry(observer).or_default();
                view.facts.insert(name.clone(), text.clone());
            }
        }
    }
    let readers = views.entry(Observer::Readers).or_default();
    let make = spec.part_context(task);
    for (name, bytes) in files(&dir.join("models"))? {
        let model = spec.kept_model(&make, &name, &bytes);
        let Some(mut model) = model.with_context(|| format!("the kept model `{name}`"))? else {
            continue;
        };
        let params = model.parametric().map(|model| model.params());
        if let Some(params) = params {
            let of = params.0.values().flatten().copied().collect();
            readers.numbers.insert(format!("models/{name}"), of);
        } else {
            let rows: Vec<usize> = (0..test.len().min(TEST_ROWS)).collect();
            let scores = model.predict(&test.pick(&rows).samples)?;
            let name = format!("models/{name}: scores of test rows");
            readers.numbers.insert(name, scores.into_iter().collect());
        }
        if let Some(unit) = unit {
            let scores = model.predict(&unit.samples)?;
            let name = format!("models/{name}: scores of the unit");
            readers.numbers.insert(name, scores.into_iter().collect());
        }
    }
    Ok(())
}

/// All numbers of a message, in the order of its tensors.
pub fn numbers(tensors: &[(String, Tensor)]) -> Vec<f32> {
    let all = tensors.iter().flat_map(|(_, of)| of.view().to_f64());
    all.map(|x| x as f32).collect()
}
