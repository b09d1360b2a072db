//! The slots that the protocol itself uses.
use fl_core::message::SoftLabels;
use fl_core::prelude::*;

pub(crate) const MODEL: TrainerSlot =
    TrainerSlot::new("model", "A client's model; each client may have another.");
pub(crate) const STUDENT: TrainerSlot = TrainerSlot::new(
    "student",
    "The server's model, which learns from the ensemble.",
);
pub(crate) const SAMPLING: MechanismSlot<Ids> = MechanismSlot::new(
    "sampling",
    "Draws the examples that a client trains on (FedMD-NFDP).",
);
pub(crate) const CLIENT_FILTER: SelectorSlot<Samples> = SelectorSlot::new(
    "client-filter",
    "Picks the public samples that a client labels.",
);
pub(crate) const SERVER_FILTER: SelectorSlot<SoftLabels> =
    SelectorSlot::new("server-filter", "Picks the labels that are worth learning.");
