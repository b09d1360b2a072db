//! The slots and the exchange that most methods of the family have.
use fl_core::message::Votes;
use fl_core::prelude::*;

/// The model that all clients train.
pub const MODEL: TrainerSlot = TrainerSlot::new(
    "model",
    "The model that all clients train; it needs parameters.",
);
/// Combines the clients' parameters.
pub const AGGREGATOR: AggregatorSlot<Params, Params> =
    AggregatorSlot::new("aggregator", "Combines the clients' parameters.");
/// Picks the clients of a round.
pub const COHORT: SelectorSlot<Roster> =
    SelectorSlot::new("cohort", "Picks the clients of a round; everyone if empty.");
/// Perturbs a client's update at the client.
pub const PRIVACY: MechanismSlot<Params> = MechanismSlot::new(
    "privacy",
    "Clips and perturbs a client's update before it leaves the client.",
);

/// The exchange of most methods: the server sends parameters, and the client its trained ones.
pub const TRAIN: Exchange<Params, Params> = Exchange::new("parameters after local training");
/// Forges the answers of attackers.
pub(crate) const ATTACK: AttackSlot<Params> = AttackSlot::new(
    "attack",
    "Replaces the trained parameters of attackers; name the attackers with `clients`.",
);
/// Changes the labels of attackers.
pub(crate) const LABELS: AttackSlot<Votes> = AttackSlot::new(
    "labels",
    "Changes the labels of attackers before they train; name the attackers with `clients`.",
);
