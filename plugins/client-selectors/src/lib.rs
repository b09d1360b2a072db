#![doc = include_str!("../README.md")]

mod cyclic;
mod power;
mod random;

pub use cyclic::{Cyclic, CyclicSettings};
pub use power::{PowerOfChoice, PowerOfChoiceSettings};
pub use random::{Poisson, Uniform};

/// Notes that a setting asks for more clients than there are.
fn note_too_many(round: &fl_core::Round, setting: &str, asked: usize, clients: usize) {
    if asked > clients {
        round.note(format!(
            "`{setting}` is {asked}, and there are {clients} clients: it means all of them"
        ));
    }
}
