//! A node of a spec: the clients' side of a run.

use crate::node_file::NodeFile;
use crate::prepare;
use fl_core::Protocol;
use fl_data::DataSpec;
use fl_registry::Spec;
use fl_remote::{Node, NodeData, NodeOptions, NodeState, SpecText};
use fl_sim::ClientFactory;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a node is.
pub struct NodeConfig {
    /// The folder of what outlasts a run.
    pub home: PathBuf,
    /// The node file, if the data are its own; the home is then that of the file.
    pub own: Option<PathBuf>,
    /// The data directory.
    pub data_dir: PathBuf,
    /// Is it on another machine than its leader? Then the hashes of the data files say that both
    /// have the same.
    pub far: bool,
}

/// A node that serves every client of a spec, or the one whose data it owns.
///
/// # Errors
/// When the data cannot be read, the node file is wrong, or its home cannot be written.
pub fn node(spec: &Spec<DataSpec>, config: &NodeConfig) -> anyhow::Result<Node> {
    let mut data = prepare::data(spec, &config.data_dir)?;
    let context = prepare::protocol_context(spec, &data.task);
    let protocol: Arc<dyn Protocol> = Arc::from(spec.make_protocol(&context)?);
    let maker = ClientFactory {
        public: data.public.clone().map(prepare::public).map(Arc::new),
        parts: Arc::new(spec.parts.in_slots(protocol.slots())),
        seed: spec.seed,
        budget: spec.budget.clone(),
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
            let (examples, unfit) = match file.load(&spec.data, &data, &config.data_dir, accounts) {
                Ok(examples) => (examples, None),
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
    let files = match config.far {
        true => prepare::data_files(&spec.data, &config.data_dir)?,
        false => Vec::new(),
    };
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
