//! The core of fl without its C interface: roles, messages, exchanges, server and client, settings,
//! privacy. Depend on `fl-core`, which has all of it and the interface, under one name.

pub mod augment;
mod client;
mod data;
mod error;
mod exchange;
mod host;
mod huge_pages;
mod inbox;
mod kept_memory;
mod kept_text;
mod kernels;
mod ledger;
pub mod loss;
mod loss_curve;
pub mod message;
pub mod metrics;
mod order_statistics;
mod parameter_groups;
mod plugin_decl;
pub mod portable;
pub mod privacy;
pub mod regular_file;
mod roles;
mod round;
mod round_training;
mod run_event;
mod sealed;
mod server;
pub mod settings;
mod share;
mod slot;
mod slot_assignments;
mod slot_calls;
mod store;
mod stream;
mod training;

pub use data::*;

pub use client::{Client, ClientState};
pub use error::*;
pub use exchange::*;
pub use host::*;
pub use huge_pages::HugePages;
pub use inbox::*;
pub use kept_memory::keep_memory;
pub use kernels::{MeanOfParams, weighted_mean, weighted_mean_f64};
pub use ledger::exposed;
pub use loss_curve::LossCurve;
pub use message::hex;
pub use order_statistics::squared_distance;
pub use parameter_groups::parameters_in;
pub use plugin_decl::*;
pub use privacy::PrivacyEvent;
pub use roles::*;
pub use round::{LogEvent, Round};
pub use round_training::*;
pub use run_event::{RunEvent, RunReleases};
pub use server::receipts::{
    AggregationContext, Receipt, ReceiptInput, ReleaseContext, ServerStep, StepRecorder,
};
pub use server::{Combiner, RunState, Server};
pub use share::{ceil_share, floor_share};
pub use slot::*;
pub use slot_assignments::*;
pub use stream::*;
pub use training::*;

/// Items that the macros of this crate expand to, and that the C interface carries; not for direct
/// use.
#[doc(hidden)]
pub mod __private {
    pub use crate::client::calls::{ClientCalls, private};
    pub use crate::inbox::loss_of;
    pub use crate::kept_text::{kept, plain};
    pub use crate::plugin_decl::{check, describe};
    pub use crate::sealed::Sealed;
    pub use crate::server::calls::{
        Down, Exchanges, Form, ModelReader, Releases, Results, ServerCalls, StepStart, StepVerdict,
        Steps,
    };
    pub use crate::slot_calls::SlotCalls;
    pub use inventory;
    pub use serde_yaml::Mapping;
}

/// What nearly every part needs.
pub mod prelude {
    pub use crate::message::{
        ClassMeans, Ids, Logits, Message, Nothing, Params, Scalar, alike, decode, encode,
    };
    pub use crate::privacy::ReleaseNoise;
    pub use crate::settings::{above, above_to};
    pub use crate::{
        Abilities, Ability, Accountant, Aggregator, AggregatorSlot, Answer, AttackSlot,
        BuildContext, Candidate, Client, ClientId, ClientMessage, ClientStat, ClientStatQuery,
        Cohort, Conflict, DataFacts, Declaration, Declared, Exchange, FitOptions, Fold, Generator,
        GeneratorSlot, Inbox, Loss, Measurement, MechanismSlot, Pool, PrivacyEvent,
        PrivacyMechanism, Properties, Protocol, RequiredInputs, Result, Robustness, Roster, Round,
        RoundTraining, Samples, SamplingScheme, Selector, SelectorSlot, Server, SlotSpec, Stream,
        Target, Task, TaskKind, Trainer, TrainerSlot, Training, Weigh, choices, floor_share,
        message, messages, plugin, settings,
    };
    pub use anyhow::{Context, bail, ensure};
}
