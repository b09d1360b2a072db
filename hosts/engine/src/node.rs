//! A node of a spec: the clients' side of a run.

use crate::node_file::NodeFile;
use crate::{NotRun, prepare};
use fl_core::Protocol;
use fl_core::settings::Value;
use fl_data::DataSpec;
use fl_registry::{Document, Spec};
use fl_remote::{Node, NodeData, NodeOptions, NodeState, SpecText};
use fl_sim::ClientFactory;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a node is.
pub struct NodeConfig {
    /// The folder of what outlasts a run.
    pub home: PathBuf,
    /// The node file, if the data are its own; the home is then that of the file.
    pub own: Option<PathBuf>,
    /// The data directory.
    pub data_dir: PathBuf,
}

/// The sections of a spec that name libraries, modules or files.
const OWN_SECTIONS: [&str; 4] = ["plugins", "plugins-trust", "sinks", "ledger"];

/// Applies what the configuration of a leader's run sets to the spec of a node: numbers, and the
/// names of parts, sets and options. The leader cannot make the node load a library, import a
/// module or read a file that the spec beside the node does not name.
///
/// # Errors
/// Names the setting that could do so; the text has nothing that the leader does not know.
pub fn set_by_leader(spec: &Document, set: &[String]) -> Result<Document, NotRun> {
    let changed = spec.clone().set(set);
    let folder = Path::new(spec.file()).parent().unwrap_or(Path::new(""));
    match refused(&mut Vec::new(), &spec.values(), &changed.values(), folder) {
        None => Ok(changed),
        Some(path) => Err(NotRun::Usage(format!(
            "the run's configuration sets `{path}`, which can name a file, a library or a module of the node; change the spec of the app instead"
        ))),
    }
}

/// Returns the path of the first value that differs and that a leader may not set.
fn refused(path: &mut Vec<String>, old: &Value, new: &Value, folder: &Path) -> Option<String> {
    if old == new {
        return None;
    }
    if path.len() == 1 && OWN_SECTIONS.contains(&&*path[0]) {
        return Some(path[0].clone());
    }
    let mut inside = |key: String, old: &Value, new: &Value| {
        path.push(key);
        let found = refused(path, old, new, folder);
        path.pop();
        found
    };
    match new {
        Value::Mapping(map) => map.iter().find_map(|(key, new)| {
            let key = key.as_str().unwrap_or_default();
            inside(key.into(), old.get(key).unwrap_or(&Value::Null), new)
        }),
        Value::Sequence(list) => list
            .iter()
            .enumerate()
            .find_map(|(at, new)| inside(at.to_string(), old.get(at).unwrap_or(&Value::Null), new)),
        Value::String(text) => names_file(path, text, folder).then(|| path.join(".")),
        _ => None,
    }
}

/// Returns whether a text at this path of a spec may name a file.
fn names_file(path: &[String], text: &str, folder: &Path) -> bool {
    // the settings of a set, of which only the set knows which are paths
    let of_set = path.split_last().is_some_and(|(key, above)| {
        let below = |name: &str| above.iter().any(|key| key == name);
        below("set") || below("from") && key != "set"
    });
    let in_data = path.first().is_some_and(|section| section == "data");
    (in_data && (of_set || text.contains('.')))
        || text.contains(['/', '\\'])
        || Path::new(text).exists()
        || folder.join(text).exists()
}

/// A node that serves every client of a spec, or the one whose data it owns.
///
/// # Errors
/// When the data cannot be read, the node file is wrong, or its home cannot be written.
pub fn node(spec: &Spec<DataSpec>, config: &NodeConfig) -> anyhow::Result<Node> {
    let mut data = prepare::data(spec, &config.data_dir)?;
    let context = prepare::protocol_context(spec, &data.task);
    let protocol: Arc<dyn Protocol> = Arc::from(spec.make_protocol(&context)?);
    let mut maker = ClientFactory {
        held_out: Vec::new(),
        public: data.public.clone().map(prepare::public).map(Arc::new),
        parts: Arc::new(spec.parts.in_slots(protocol.slots())),
        seed: spec.seed,
        budgets: Vec::from_iter(spec.budget.clone()),
        noise: prepare::noise_source(spec)?,
        retries: spec.faults.ask_again(),
    };
    let accounts = maker.parts.has("accountant");
    let mut home = config.home.clone();
    let (owners, own) = match &config.own {
        None => {
            let all = std::mem::take(&mut data.clients);
            (fl_sim::owners(all, protocol.pools_data(), accounts)?, None)
        }
        Some(path) => {
            let file = NodeFile::read(path)?;
            let (examples, unfit) = match file.load(spec, &data, &config.data_dir, accounts) {
                Ok((examples, tests)) => {
                    if let Some(tests) = tests {
                        // no other client is here
                        data.client_tests = vec![tests.pick(&[]); file.client as usize];
                        data.client_tests.push(tests);
                    }
                    (examples, None)
                }
                // one that can say so
                Err(error) => (data.test.clone(), Some(format!("{error:#}"))),
            };
            home.clone_from(&file.home);
            let name = path.display().to_string();
            let own = NodeData {
                policy: file.policy,
                unfit,
                tell: Box::new(move |text| log::info!("{name}: {text}")),
            };
            (vec![(file.client, examples)], Some(own))
        }
    };
    let held_out = data.own_tests.then_some(&data.client_tests[..]);
    maker = maker.with_held_out(held_out, protocol.as_ref());
    let files = prepare::data_files(&spec.data, &config.data_dir)?;
    let files: Vec<String> = files.into_iter().map(|file| file.sha256).collect();
    let served = NodeOptions {
        spec: SpecText::new(&spec.yaml()?, &files)?,
        owners,
        own,
        protocol,
        maker,
        task: data.task,
        test: data.test,
        client_tests: data.client_tests,
    };
    Ok(Node::new(served, NodeState::open(&home)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_sets_numbers_and_names_and_no_file_library_or_module() {
        let text =
            b"name: x\ndata: {set: {files: {format: csv, train: a.csv}}, clients: 2, split: iid}\n\
            protocol: {use: fedavg, rounds: 1}\nparts: {model: {use: linear}}\n";
        let spec = Document::parse("x.yaml", text);
        let may = [
            "data.clients=7",
            "data.split={dirichlet: {alpha: 0.5}}",
            "data.set=glyphs",
            "data.public={from: {set: glyphs}}",
            "protocol.rounds=9",
            "parts.model.use=dfdx",
            "parts.model.device=cuda:0",
            "noise=system",
            "stop-when={metric: clients.accuracy, patience: 2}",
        ];
        let all: Vec<String> = may.iter().map(ToString::to_string).collect();
        let set = set_by_leader(&spec, &all).ok().unwrap().values();
        assert_eq!(set["data"]["clients"], Value::from(7));
        for (given, due) in [
            ("data.set.files.train=secret.txt", "data.set.files.train"),
            ("data.set.files.train=secret", "data.set.files.train"),
            (
                "data.set={files: {format: libsvm, train: x}}",
                "data.set.files.format",
            ),
            (
                "data.set.files.train=[a.csv, /etc/shadow]",
                "data.set.files.train.0",
            ),
            ("data.set={made: {run: runs}}", "data.set.made.run"),
            (
                "data.features={kept-model: {file: runs/x-1/models/model}}",
                "data.features.kept-model.file",
            ),
            ("data={set: /etc/passwd, clients: 2}", "data.set"),
            (
                "data.public={from: {set: {images: {folder: x}}}}",
                "data.public.from.set.images.folder",
            ),
            ("plugins=[{path: evil.so}]", "plugins"),
            ("plugins=[{module: evil}]", "plugins"),
            ("plugins-trust=any", "plugins-trust"),
            ("sinks=[{use: csv}]", "sinks"),
            ("ledger=x.ledger", "ledger"),
            ("protocol.initial=runs/x-1/models/final", "protocol.initial"),
            ("protocol.initial=Cargo.toml", "protocol.initial"),
            (
                "parts={model: {use: linear, tokens: ../../secret}}",
                "parts.model.tokens",
            ),
        ] {
            let error = set_by_leader(&spec, &[given.into()]).err().unwrap();
            let text = error.to_string();
            assert!(text.contains(&format!("sets `{due}`")), "{given}: {text}");
        }
    }
}
