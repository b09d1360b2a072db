//! What several crates promise together: the federation's door over the host, and every linked part
//! under the conformance kit.

mod asyn_dgan;
mod audit;
mod book;
mod buffers;
mod corrections;
mod features;
mod federation;
mod fedgen;
mod held_out;
mod joint_loss;
mod long_step;
mod mutants;
mod no_parts;
mod non_interference;
mod parts;
mod personal;
mod resume_determinism;
mod training_loss;
