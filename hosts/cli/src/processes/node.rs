//! A node of a spec: the clients' side of a run.

use crate::node_file::NodeFile;
use crate::run::{build, data_files, everybody};
use crate::{DataDir, say};
use fl_core::privacy::{Noise, NoiseSource};
use fl_core::{BuildContext, Protocol, Stream};
use fl_data::DataSpec;
use fl_registry::Spec;
use fl_remote::{Home, Node, Own, Served, SpecText};
use fl_sim::Maker;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a node is.
pub struct Site {
    /// The folder of what lasts.
    pub home: PathBuf,
    /// What it says of itself, if its data are its own; its home is then that file's.
    pub own: Option<PathBuf>,
    /// The data directory.
    pub data_dir: Option<PathBuf>,
    /// Is it on another machine than its leader? Then the hashes of the data files say that both have the same.
    pub far: bool,
}

/// A node that serves every client of a spec, or the one whose data it owns.
///
/// # Errors
/// When the data cannot be read, what the node says of itself is wrong, or its home cannot be written.
pub fn node(spec: &Spec<DataSpec>, site: &Site) -> anyhow::Result<Node> {
    let dir = DataDir {
        data_dir: site.data_dir.clone(),
    };
    let mut data = build(spec, &dir)?;
    let context = BuildContext {
        task: data.task.clone(),
        stream: Stream::root(spec.seed).child("protocol", 0),
    };
    let protocol: Arc<dyn Protocol> = Arc::from(spec.make_protocol(&context)?);
    let maker = Maker {
        public: data.public.take().map(everybody).map(Arc::new),
        parts: Arc::new(spec.parts.in_slots(protocol.slots())),
        seed: spec.seed,
        budget: spec.budget.clone(),
        noise: match spec.noise {
            Noise::Seeded => NoiseSource::Seeded,
            Noise::System => NoiseSource::system()?,
        },
        retries: spec.faults.ask_again(),
    };
    let mut home = site.home.clone();
    let (owners, own) = match &site.own {
        None => {
            let all = std::mem::take(&mut data.clients);
            (fl_sim::owners(all, protocol.pools_data())?, None)
        }
        Some(path) => {
            let file = NodeFile::read(path)?;
            let sets = fl_data::data_dir(site.data_dir.as_deref());
            let (examples, unfit) = match file.load(&spec.data, &data, &sets) {
                Ok(examples) => (examples, None),
                // one that can say so
                Err(error) => (data.test.clone(), Some(format!("{error:#}"))),
            };
            home.clone_from(&file.home);
            let name = path.display().to_string();
            let own = Own {
                policy: file.policy,
                unfit,
                tell: Box::new(move |text| say(format_args!("{name}: {text}"))),
            };
            (vec![(file.client, examples)], Some(own))
        }
    };
    let files = match site.far {
        true => data_files(&spec.data, &dir)?,
        false => Vec::new(),
    };
    let files: Vec<String> = files.into_iter().map(|file| file.sha256).collect();
    let served = Served {
        spec: SpecText::new(&spec.yaml()?, &files)?,
        owners,
        own,
        protocol,
        maker,
        task: data.task,
        test: data.test,
        client_tests: data.client_tests,
    };
    Ok(Node::new(served, Home::open(&home)?))
}
