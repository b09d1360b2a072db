//! A leader and its nodes in one process, and an engine between them that loses, doubles and mixes
//! up the messages that a test names.

use fl_core::privacy::{Noise, NoiseSource};
use fl_core::{BuildContext, ClientId, Public, Result, RunOptions, Stream};
use fl_data::{Assembled, DataSpec};
use fl_plugins as _;
use fl_registry::{Catalogue, Spec};
use fl_remote::wire::Packet;
use fl_remote::{
    Leader, Node, NodeData, NodeOptions, NodeState, RemoteClients, SpecText, Transport,
};
use fl_sim::{ClientFactory, Outcome, Setup};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// SCAFFOLD, whose clients remember, on numbers that are made.
pub const SCAFFOLD: &str = "
name: remote
seed: 1
data: { set: { blobs: { classes: 4, features: 6 } }, clients: 4 }
protocol: { use: scaffold, rounds: 3, local: { steps: 5, batch: 8 } }
parts: { model: { use: linear }, aggregator: { use: mean } }
";

/// FedAvg with noise of the system at every client, which an accountant adds up.
pub const PRIVATE: &str = "
name: private
seed: 1
noise: system
data: { set: { blobs: { classes: 4, features: 20 } }, clients: 4 }
protocol: { use: fedavg, rounds: 3, local: { epochs: 2, batch: 16 } }
parts:
  model: { use: linear, lr: 0.05 }
  aggregator: { use: mean, weigh: uniform }
  privacy: { use: gaussian-update, clip: 0.5, noise-multiplier: 1.0 }
  accountant: { use: analytic-gaussian, delta: 1e-5 }
";

pub struct Read {
    spec: Spec<DataSpec>,
    pub text: SpecText,
}

pub fn read(yaml: &str) -> Read {
    let catalogue = Catalogue::new(fl_core::linked_parts()).unwrap();
    let spec: Spec<DataSpec> = fl_registry::Document::parse("spec.yaml", yaml.as_bytes())
        .read(&catalogue)
        .unwrap_or_else(|m| panic!("{m}"));
    let text = SpecText::new(&spec.yaml().unwrap(), &[]).unwrap();
    Read { spec, text }
}

impl Read {
    fn data(&self) -> Assembled {
        let stream = Stream::root(self.spec.seed).child("data", 0);
        fl_data::build(&self.spec.data, Path::new("/none"), &stream).unwrap()
    }

    fn protocol(&self, data: &Assembled) -> Arc<dyn fl_core::Protocol> {
        let context = BuildContext {
            task: data.task.clone(),
            stream: Stream::root(self.spec.seed).child("protocol", 0),
        };
        Arc::from(self.spec.make_protocol(&context).unwrap())
    }

    /// A node with every client of the spec.
    pub fn node(&self, home: &Path) -> Node {
        Node::new(self.served(None, |_| true), NodeState::open(home).unwrap())
    }

    /// A node with data of its own, those of client 1 but for its `left` last rows.
    pub fn own_node(&self, home: &Path, own: NodeData, left: usize) -> Node {
        let mut node = self.served(Some(own), |id| id == 1);
        for (_, data) in &mut node.owners {
            let rows: Vec<usize> = (0..data.len() - left).collect();
            *data = data.pick(&rows);
        }
        Node::new(node, NodeState::open(home).unwrap())
    }

    fn served(&self, own: Option<NodeData>, who: impl Fn(ClientId) -> bool) -> NodeOptions {
        let data = self.data();
        let protocol = self.protocol(&data);
        let public = data
            .public
            .map(|p| Public::unlabelled(p.samples).with_truth(p.truth));
        let owners = fl_sim::owners(data.clients, false, false).unwrap();
        NodeOptions {
            spec: self.text.clone(),
            task: data.task.clone(),
            own,
            owners: owners.into_iter().filter(|(id, _)| who(*id)).collect(),
            maker: ClientFactory {
                held_out: Vec::new(),
                public: public.map(Arc::new),
                parts: Arc::new(self.spec.parts.in_slots(protocol.slots())),
                seed: self.spec.seed,
                budgets: Vec::new(),
                noise: match self.spec.noise {
                    Noise::Seeded => NoiseSource::Seeded,
                    Noise::System => NoiseSource::system().unwrap(),
                },
                retries: false,
            },
            protocol,
            test: data.test,
            client_tests: Vec::new(),
        }
    }

    /// The run, with clients behind this courier, or in this process.
    pub fn run(&self, engine: Option<(Engine, Leader)>) -> Result<Outcome> {
        let data = self.data();
        let protocol = self.protocol(&data);
        let options = RunOptions {
            faults: self.spec.faults.clone(),
            ..RunOptions::new(self.spec.seed, data.task.clone())
        };
        let mut setup = Setup::new(
            protocol,
            self.spec.parts.clone(),
            options,
            data.clients,
            data.test,
        );
        setup.elsewhere = engine.map(|(engine, leader)| {
            Box::new(RemoteClients::new(engine, &leader, self.text.clone()))
                as Box<dyn fl_sim::ExternalClients>
        });
        fl_sim::run(setup)
    }
}

/// What an engine does with a request: it gives the replies that come, in that order.
pub type Carry = Box<dyn FnMut(ClientId, &Packet) -> Vec<(ClientId, Result<Packet>)>>;

pub struct Engine {
    pub carry: Carry,
    replies: VecDeque<(ClientId, Result<Packet>)>,
    window: usize,
    /// The last reply comes first.
    backwards: bool,
}

impl Engine {
    pub fn new(carry: Carry) -> Self {
        Self {
            carry,
            replies: VecDeque::new(),
            window: 3,
            backwards: false,
        }
    }

    pub fn backwards(mut self) -> Self {
        self.backwards = true;
        self
    }
}

impl Transport for Engine {
    fn clients(&self) -> Vec<ClientId> {
        Vec::new()
    }
    fn window(&self) -> usize {
        self.window
    }
    fn send(&mut self, to: ClientId, request: Packet) -> Result<()> {
        self.replies.extend((self.carry)(to, &request));
        Ok(())
    }
    fn receive(&mut self) -> Result<(ClientId, Result<Packet>)> {
        let next = if self.backwards {
            self.replies.pop_back()
        } else {
            self.replies.pop_front()
        };
        next.ok_or_else(|| anyhow::anyhow!("nothing is on its way"))
    }
    fn end(&mut self, _: bool) -> Result<()> {
        Ok(())
    }
}
