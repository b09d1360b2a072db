#![doc = include_str!("../README.md")]

pub mod abi;
pub mod augment;
mod data;
mod door;
mod error;
mod inbox;
mod kernels;
mod learn;
pub mod loss;
pub mod message;
pub mod metrics;
mod part;
mod parts;
pub mod privacy;
mod ranks;
mod roles;
pub mod settings;
mod slot;
mod stream;

pub use data::*;

pub use door::*;
use door::{host, store};
pub use error::*;
pub use inbox::*;
pub use kernels::{MeanOfParams, weighted_mean, weighted_mean_f64};
pub use learn::*;
pub use message::hex;
pub use part::*;
pub use parts::*;
pub use privacy::PrivacyEvent;
pub use ranks::squared_distance;
pub use roles::*;
pub use slot::*;
pub use stream::*;

/// What the macros of this crate expand to; not for direct use.
#[doc(hidden)]
pub mod __private {
    pub use crate::part::{boxed, check, describe};
    pub use inventory;
    pub use serde_json::Value as Json;
    pub use serde_yaml::Mapping;
}

/// Everything that a part's author needs.
pub mod prelude {
    pub use crate::message::{Ids, Logits, Message, Nothing, Params, Scalar};
    pub use crate::privacy::ReleaseNoise;
    pub use crate::{
        Ability, Accountant, Aggregator, AggregatorSlot, Answer, AttackSlot, BuildContext,
        Candidate, Claims, Client, ClientId, Cohort, Conflict, Declaration, Declared, Draw,
        Exchange, Fold, Generator, GeneratorSlot, Inbox, Loss, Mail, MechanismSlot, Needs, Pass,
        Poll, Pool, PrivacyEvent, PrivacyMechanism, Protocol, Result, Roster, Round, Samples,
        Selector, SelectorSlot, Server, SlotSpec, Stream, Target, Task, Trainer, TrainerSlot,
        Training, Wanted, choices, export_plugins, message, plugin, settings,
    };
    pub use anyhow::{Context, bail, ensure};
}
