//! Accountants, and the formulas that they price releases with.
//!
//! Every accountant is a [`Pricing`]: what an event costs, how costs add, and the epsilon of a cost. The ledger around
//! it ([`PricedLedger`]) is the same for all: the costs of one client add, of clients with disjoint data the worst counts, and
//! what the server releases comes on top.
mod advanced;
mod basic;
pub mod gnmax;
mod nfdp;
pub mod pate;
mod pate_gnmax;
mod pate_moments;
mod priced_ledger;
mod rdp;
pub mod renyi;

pub use advanced::AdvancedComposition;
pub use basic::Basic;
pub use nfdp::Nfdp;
pub use pate_gnmax::PateGnmax;
pub use pate_moments::{MomentOrders, PateMoments};
pub use priced_ledger::{Price, PricedLedger, Pricing};
pub use rdp::{Conversion, Rdp};
