mod behaviour;
mod compatibility;
mod diagnostics;
mod fakes;
mod hostile;
mod isolation;

use crate::{Catalogue, Mistakes, Spec};
use fakes::Toy;

/// A spec in which everything is right.
const GOOD: &str = "\
# a comment
name: good
seed: 7
data:
  clients: 10
  public: { size: 5 }
protocol: { use: rounds, rounds: 50, local: { epochs: 5 } }
parts:
  model:
    - { clients: 0-3, use: net, outputs: 3 }
    - clients: [4, 6-9]
      use: net
      outputs: 3
      optimiser: { sgd: { lr: 0.1 } }
    - { use: net }
  cohort: { use: uniform, share: 0.5 }
  aggregator: { use: mean }
  privacy: { use: gaussian, clip: 1.0 }
  accountant: { use: rdp, delta: 1e-5 }
evaluate: { every: 10 }
faults: { on-nan: fail, max-weight: 1e6 }
budget: { epsilon: 8 }
";

fn catalogue() -> Catalogue {
    Catalogue::linked().unwrap()
}

fn read(text: &str) -> Result<Spec<Toy>, Mistakes> {
    read_with(text, &[])
}

fn read_with(text: &str, set: &[&str]) -> Result<Spec<Toy>, Mistakes> {
    let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
    let document = crate::Document::parse("mine.yaml", text.as_bytes());
    document.set(&set).read(&catalogue())
}

fn wrong(text: &str) -> String {
    match read(text) {
        Ok(_) => panic!("nothing wrong with:\n{text}"),
        Err(mistakes) => mistakes.to_string(),
    }
}
