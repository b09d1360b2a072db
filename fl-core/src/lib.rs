#![doc = include_str!("../README.md")]

pub mod abi;
pub mod augment;
pub mod bandwidth;
mod client;
mod data;
mod error;
mod federation;
mod host;
mod inbox;
mod kernels;
pub mod loss;
pub mod message;
pub mod metrics;
mod part;
pub mod privacy;
mod question;
mod release;
mod roles;
pub mod settings;
mod stream;

pub use client::*;
pub use data::*;
pub use error::*;
pub use federation::*;
pub use host::*;
pub use inbox::*;
pub use kernels::{MeanOfParams, weighted_mean_f64};
pub use message::hex;
pub use part::*;
pub use privacy::PrivacyEvent;
pub use question::*;
pub use roles::*;
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
    pub use crate::{
        Accountant, Aggregator, Answer, Ask, Asked, BuildContext, Claims, Client, Federation, Fold,
        Generator, Inbox, Loss, Mail, Needs, Pass, Pool, PrivacyEvent, PrivacyMechanism, Protocol,
        Question, Result, Roster, Round, Samples, Selector, Slot, Stream, Target, Task, Trainer,
        Training, choices, export_plugins, message, plugin, settings,
    };
    pub use anyhow::{Context, bail, ensure};
}
