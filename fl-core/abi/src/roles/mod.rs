//! The roles: in each file a part that is elsewhere, and one that is here, side by side.

pub(super) mod accountant;
pub(super) mod aggregator;
pub(super) mod client;
pub(super) mod generator;
pub(super) mod mechanism;
pub(super) mod request;
pub(super) mod request_text;
pub(super) mod selector;
pub(super) mod server;
pub(super) mod trainer;
