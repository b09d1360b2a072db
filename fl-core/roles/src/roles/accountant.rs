//! [`Accountant`]: the role that keeps the privacy ledger.

use crate::privacy::{Composition, Guarantee, Ledger};
use crate::{PrivacyEvent, Result};

/// Keeps the privacy ledger and computes a guarantee from it.
pub trait Accountant: Send {
    /// Charges one event. An event without a price is an error ([`crate::Problem::Unpriced`]),
    /// never free.
    ///
    /// # Errors
    /// If this accountant cannot price `event`.
    fn charge(&mut self, event: &PrivacyEvent) -> Result<()>;

    /// Returns the guarantee for all charged events, plus `next` if it is given.
    ///
    /// # Errors
    /// If `next` has no price here.
    fn guarantee(&self, next: Option<&PrivacyEvent>) -> Result<Guarantee>;

    /// Adds the ledgers of several clients; `how` tells whether their data are disjoint.
    ///
    /// # Errors
    /// If one of their events has no price here.
    fn merge(&mut self, ledgers: &[Ledger], how: Composition) -> Result<()>;
}
