#![doc = include_str!("../README.md")]

mod gradient;
mod inversion;
mod labels;
mod likeness;
mod membership;
mod minimise;
mod on_runs;
mod prior;
mod shadows;
mod slopes;
mod substitute;

pub use fl_plugin_fediod::{ANSWER, InputValues, SLOPES, frechet};
pub use gradient::{ObservedUpdate, read_off, search};
pub use inversion::inversion;
pub use labels::labels;
pub use likeness::{Likeness, class_means, likeness, ranges};
pub use membership::{Strength, bound, lira, losses, margins, strength};
pub use minimise::{Search, SearchResult, Tell};
pub use on_runs::{
    AttackResult, AttackRun, ClientResult, GeneratorFound, GeneratorOptions, GradientFound,
    GradientOptions, InversionOptions, InversionResult, Labels, MembershipFound, MembershipOptions,
    ModelResult, NearestPrivate, Overrides, Progress, RecoveredImages, SlopesOptions, Stopped,
    SubstituteFound, SubstituteOptions, attack_answers, attack_generator, attack_gradient,
    attack_membership, attack_models, attack_slopes,
};
pub use prior::Prior;
pub use shadows::Halves;
pub use slopes::{MaliciousServer, moved};
pub use substitute::{
    EavesdroppingServer, ObservedAnswers, agreement, ideal, imitate, teaches, turns,
};
