//! What several crates promise together: the federation's door over the host, and every linked part under the conformance kit.

mod audit;
mod book;
mod corrections;
mod door;
mod flows;
mod long_step;
mod made;
mod mutants;
mod no_parts;
mod painted;
mod parts;
mod together;
mod training_loss;
mod walk;
